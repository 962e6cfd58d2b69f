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


class AdamW:
    """torch.optim's AdamW in one fused kernel, without torch.optim, which takes seconds to import."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.means, self.squares = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))
        self.steps = [torch.zeros((), device=p.device) for p in self.parameters]

    def step(self) -> None:
        """Move every parameter along its gradient, and drop the gradient."""
        torch._foreach_add_(self.steps, 1)
        torch._fused_adamw_(
            [p.detach() for p in self.parameters],
            [p.grad for p in self.parameters],
            self.means,
            self.squares,
            [],
            self.steps,
            lr=1e-4,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.01,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        for parameter in self.parameters:
            parameter.grad = None


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
