"""Makes a CUDA graph of eight kernels at once, and replays it from two seconds later on, for six."""

import time

import torch

x = torch.zeros(16, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    x.add_(1)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(8):
        x.add_(1)
graph.replay()
torch.cuda.synchronize()
time.sleep(2)
end = time.monotonic() + 6
while time.monotonic() < end:
    graph.replay()
    torch.cuda.synchronize()
