"""Programs without iterations: a tool that finds a period in them invents it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch
from network import DEVICE

if TYPE_CHECKING:
    from marks import Marks

ACTIONS = (
    torch.sin,
    torch.relu,
    torch.sigmoid,
    lambda x: x @ x,
    lambda x: x.sort(0).values,
    lambda x: x.cumsum(1),
    lambda x: x.softmax(0),
    lambda x: x.roll(3, 0),
    lambda x: x - x.mean(),
    lambda x: x.flip(0),
    lambda x: x.abs().sqrt(),
    lambda x: torch.where(x > 0, x, -x),
)


def shuffled(_: Marks) -> None:
    """Operations drawn by lot, with an upload, a readback or a pause now and then."""
    draw = random.Random(3)
    x = torch.randn(512, 512, device=DEVICE)
    for _ in range(6000):
        x = draw.choice(ACTIONS)(x)
        chance = draw.random()
        if chance < 0.02:
            x = torch.randn(512, 512).to(DEVICE)
        elif chance < 0.04:
            x.sum().item()


def tree(_: Marks) -> None:
    """A search that branches by lot: what a node does depends on its depth, and leaves report."""
    draw = random.Random(4)

    def visit(x: torch.Tensor, depth: int) -> None:
        for _ in range(draw.randint(1, 3)):
            x = ACTIONS[(depth * 5 + draw.randint(0, 2)) % len(ACTIONS)](x)
        if depth == 9 or draw.random() < 0.1:
            x.max().item()
            return
        for _ in range(draw.choice((1, 2, 2, 3))):
            visit(x, depth + 1)

    for _ in range(4):
        visit(torch.randn(256, 256, device=DEVICE), 0)


def algebra(_: Marks) -> None:
    """Factorisations of matrices of all sizes, each once."""
    draw = random.Random(5)
    work = (
        torch.linalg.qr,
        lambda a: torch.linalg.cholesky(a @ a.T + len(a) * torch.eye(len(a), device=DEVICE)),
        lambda a: torch.linalg.svdvals(a[:200]),
        torch.fft.fft2,
        lambda a: torch.linalg.solve(a, a.T),
        lambda a: a.unique(),
    )
    for _ in range(60):
        size = draw.randint(150, 1500)
        draw.choice(work)(torch.randn(size, size, device=DEVICE))
    torch.cuda.synchronize()
