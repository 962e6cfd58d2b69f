"""Loops of few kernels, on several streams, and of other libraries than PyTorch; the reference workloads."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import torch
from network import DEVICE, WORKLOADS, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from marks import Marks


def reference_workload(name: str, *arguments: str) -> Callable[[Marks], None]:
    """A program that runs a workload of this repository with a marker at each turn of its loop."""

    def run(marks: Marks) -> None:
        sys.path.append(str(WORKLOADS))
        import reference  # noqa: PLC0415 - it lies beside the workloads

        def turns(loop: reference.Loop):
            for i in range(loop.count):
                marks()
                loop.seconds.append(0.0)
                yield i

        reference.Loop.__iter__ = turns
        sys.argv = ["main.py", *arguments]
        workload(name).main()

    return run


def huge_kernel(marks: Marks) -> None:
    """One matrix product of some ten ms, and a number read back."""
    a = torch.randn(16384, 16384, device=DEVICE, dtype=torch.bfloat16)
    c = torch.empty_like(a)
    for _ in marks.steps(150):
        torch.mm(a, a, out=c)
        c[0, 0].item()


def bare_kernel(marks: Marks) -> None:
    """The same kernel over and over: nothing says what an iteration is."""
    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    c = torch.empty_like(a)
    for _ in marks.steps(400):
        torch.mm(a, a, out=c)
    torch.cuda.synchronize()


def streams(marks: Marks) -> None:
    """Three branches on streams of their own, which join before a number is read back."""
    branches = [torch.cuda.Stream() for _ in range(3)]
    parts = [torch.randn(1024 * (2 + i), 1024, device=DEVICE) for i in range(3)]
    weight = torch.randn(1024, 1024, device=DEVICE) / 32
    torch.cuda.synchronize()
    for _ in marks.steps(150):
        results = []
        for stream, part in zip(branches, parts, strict=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x = part
                for _ in range(6):
                    x = torch.relu(x @ weight)
                results.append(x.square().mean())
        for stream in branches:
            torch.cuda.current_stream().wait_stream(stream)
        torch.stack(results).sum().item()


def cupy_loop(marks: Marks) -> None:
    """Conjugate gradients: two numbers read back in each iteration."""
    import cupy  # noqa: PLC0415

    n = 4096
    draw = cupy.random.default_rng(0)
    a = draw.random((n, n), dtype=cupy.float32)
    a = a @ a.T + n * cupy.eye(n, dtype=cupy.float32)
    x, b = cupy.zeros(n, cupy.float32), draw.random(n, dtype=cupy.float32)
    r = b - a @ x
    p = r.copy()
    square = float(r @ r)
    for _ in marks.steps(400):
        ap = a @ p
        alpha = square / (float(p @ ap) + 1e-30)
        x += alpha * p
        r -= alpha * ap
        last, square = square, float(r @ r)
        p = r + square / (last + 1e-30) * p


def jax_train(marks: Marks) -> None:
    """A jitted training step on batches from NumPy, whose loss is read back."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    draw = np.random.default_rng(0)
    weights = [draw.normal(0, 0.03, (1024, 1024)).astype(np.float32) for _ in range(6)]
    batches = [draw.normal(size=(2048, 1024)).astype(np.float32) for _ in range(3)]

    def loss(weights, x):
        y = x
        for weight in weights:
            y = y + jax.nn.gelu(y @ weight)
        return ((y - x) ** 2).mean()

    @jax.jit
    def train(weights, x):
        value, slope = jax.value_and_grad(loss)(weights, x)
        return value, [w - 1e-3 * s for w, s in zip(weights, slope, strict=True)]

    weights = [jax.device_put(weight) for weight in weights]
    for step in marks.steps(200):
        value, weights = train(weights, jax.device_put(batches[step % 3]))
        float(value)
