"""Trains a small network; knows nothing of who watches."""

import sys

import torch

torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
model = torch.nn.Sequential(
    torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024), torch.nn.LayerNorm(1024)
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
data = torch.randn(4096, 1024).pin_memory()
for step in range(steps):
    batch = data.cuda(non_blocking=True)
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        loss.item()
torch.cuda.synchronize()
