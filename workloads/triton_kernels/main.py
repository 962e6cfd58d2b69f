"""Run a chain of layers whose kernels are written in Triton, one value read back an iteration."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
import triton
from triton import language as tl

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, parse
from reference_torch import SEED, need_cuda, wait

FAULTS = {
    "sync": "wait for the device after every layer",
    "tiny": "a layer's elementwise work is split into a kernel for each part",
    "stall": "the host sleeps before an iteration",
    "slow": "there are more layers",
}
ROWS, WIDTH, LAYERS = 2048, 1024, 12
TILE_M, TILE_N, TILE_K = 64, 64, 32
STALL_S = 0.005


@triton.jit
def multiply(x, w, out, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # noqa: N803, PLR0913, PLR0917
    rows = tl.program_id(0) * M + tl.arange(0, M)[:, None]
    columns = tl.program_id(1) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, WIDTH, K):
        inner = k + tl.arange(0, K)
        left = tl.load(x + rows * WIDTH + inner[None, :])
        right = tl.load(w + inner[:, None] * WIDTH + columns)
        total = tl.dot(left, right, total)
    tl.store(out + rows * WIDTH + columns, total.to(tl.float16))


@triton.jit
def finish(x, out, WIDTH: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    y = tl.load(x + at).to(tl.float32)
    y = y * tl.sigmoid(1.702 * y) + tl.load(out + at).to(tl.float32)
    y -= tl.sum(y, 0) / WIDTH
    tl.store(out + at, (y / tl.sqrt(tl.sum(y * y, 0) / WIDTH + 1e-5)).to(tl.float16))


@triton.jit
def activate(x, WIDTH: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    y = tl.load(x + at).to(tl.float32)
    tl.store(x + at, (y * tl.sigmoid(1.702 * y)).to(tl.float16))


@triton.jit
def add(x, out, WIDTH: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    tl.store(out + at, tl.load(x + at) + tl.load(out + at))


@triton.jit
def normalise(out, WIDTH: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    y = tl.load(out + at).to(tl.float32)
    y -= tl.sum(y, 0) / WIDTH
    tl.store(out + at, (y / tl.sqrt(tl.sum(y * y, 0) / WIDTH + 1e-5)).to(tl.float16))


class Chain:
    """The layers' weights, the tensors between them, and a count of launches."""

    def __init__(self, options: Options) -> None:
        rng = np.random.default_rng(SEED)
        self.layers = round(LAYERS * (1 + options.dose("slow")))
        self.splits = round(options.dose("tiny"))
        self.host = torch.from_numpy(rng.standard_normal((ROWS, WIDTH)).astype(np.float16)).pin_memory()
        weight = (WIDTH**-0.5 * rng.standard_normal((WIDTH, WIDTH))).astype(np.float16)
        self.weight = torch.from_numpy(weight).to("cuda")
        self.x, self.between = (torch.empty(ROWS, WIDTH, dtype=torch.float16, device="cuda") for _ in "12")
        self.launches = 0

    def launch(self, kernel, grid: tuple[int, ...], *arguments: object) -> None:
        kernel[grid](*arguments)
        self.launches += 1

    def layer(self) -> None:
        grid = (ROWS // TILE_M, WIDTH // TILE_N)
        self.launch(multiply, grid, self.x, self.weight, self.between, WIDTH, TILE_M, TILE_N, TILE_K)
        if not self.splits:
            self.launch(finish, (ROWS,), self.between, self.x, WIDTH)
            return
        self.launch(activate, (ROWS,), self.between, WIDTH)
        self.launch(add, (ROWS,), self.between, self.x, WIDTH)
        for _ in range(self.splits):  # a second time it changes nothing
            self.launch(normalise, (ROWS,), self.x, WIDTH)


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=200)
    need_cuda()
    chain = Chain(options)
    loop = Loop(options.iterations)
    for i in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        chain.x.copy_(chain.host, non_blocking=True)
        for _ in range(chain.layers):
            chain.layer()
            wait(options.dose("sync"))
        value = chain.x[0, 0].item()
        if i % 50 == 0:
            print(f"iteration {i} value {value:.4f}")
    loop.report(chain.launches)


if __name__ == "__main__":
    main()
