"""A small network and its training, which several programs use in their own way."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from types import ModuleType

DEVICE = "cuda"
CLASSES = 256
WORKLOADS = Path(__file__).resolve().parents[3] / "workloads"


class Block(nn.Module):
    """A residual feed-forward layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Trainer:
    """Model, optimizer, and three batches in pinned memory."""

    def __init__(self, width: int = 1024, depth: int = 4, batch: int = 1024) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(Block(width) for _ in range(depth)), nn.Linear(width, CLASSES))
        self.model.to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.host = [
            (torch.randn(batch, width).pin_memory(), torch.randint(CLASSES, (batch,)).pin_memory())
            for _ in range(3)
        ]

    def upload(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self.host[step % len(self.host)]
        return x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(x), y)

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def workload(name: str) -> ModuleType:
    """The module of a reference workload; `reference` must be importable."""
    spec = importlib.util.spec_from_file_location(name, WORKLOADS / name / "main.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
