"""A CUDA graph of eight kernels."""

import torch


def make_graph(size: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Return a graph that adds one to `size` numbers eight times, and the numbers, to be kept as long."""
    x = torch.zeros(size, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(8):
            x.add_(1)
    return graph, x
