"""Replays a CUDA graph of eight kernels a hundred times."""

import torch

x = torch.zeros(1 << 20, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    x.add_(1)
torch.cuda.current_stream().wait_stream(side)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(8):
        x.add_(1)
for _ in range(100):
    graph.replay()
torch.cuda.synchronize()
