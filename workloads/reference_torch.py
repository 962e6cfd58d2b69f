"""The few steps that the PyTorch reference workloads share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SEED = 20240607


def need_cuda() -> None:
    """End the process with one line where PyTorch sees no CUDA device."""
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: this workload needs an NVIDIA GPU and a PyTorch built for it")


class Momentum:
    """Gradient descent with momentum over all parameters at once; `torch.optim` takes seconds to import."""

    def __init__(self, parameters: Iterable[torch.Tensor], rate: float) -> None:
        self.parameters = list(parameters)
        self.velocities = [torch.zeros_like(p) for p in self.parameters]
        self.rate = rate

    def clear(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Follow the gradients."""
        gradients = [p.grad for p in self.parameters]
        torch._foreach_mul_(self.velocities, 0.9)
        torch._foreach_add_(self.velocities, gradients)
        torch._foreach_add_(self.parameters, self.velocities, alpha=-self.rate)


def graphed(step: Callable[[], None], warm_up: int = 3) -> Callable[[], None]:
    """Return what replays `step` as one CUDA graph, captured after `warm_up` runs on the same stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph.replay


def wait(times: float) -> None:
    """Wait for the device, `times` over, rounded."""
    for _ in range(round(times)):
        torch.cuda.synchronize()
