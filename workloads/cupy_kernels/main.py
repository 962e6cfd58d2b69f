"""Advance a wave on a grid with CuPy: kernels of our own source, one value read back an iteration."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import cupy as cp
import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, parse

FAULTS = {
    "sync": "wait for the device after every time step",
    "tiny": "a time step runs in many bands of rows",
    "stall": "the host sleeps before an iteration",
    "slow": "every kernel repeats its work",
    "serial": "the source of waves is copied from pageable memory before every time step",
}
SIDE, STEPS = 2048, 20
THREADS = 256
BANDS = 8
STALL_S = 0.005

SOURCE = r"""
extern "C" __global__ void advance(
    const float *now, float *before, int side, int first, int rows, int repeats) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i % side, y = first + i / side;
    if (i >= rows * side || x == 0 || y == 0 || x == side - 1 || y == side - 1) return;
    int at = y * side + x;
    float next = 0.0f;
    for (int r = 0; r < repeats; ++r) {
        float bend = now[at - 1] + now[at + 1] + now[at - side] + now[at + side] - 4.0f * now[at];
        next = 0.9f * next + 2.0f * now[at] - before[at] + 0.2f * bend;
    }
    before[at] = 0.999f * next;
}
extern "C" __global__ void excite(float *now, const float *source, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x < side) now[(side / 2) * side + x] += source[x];
}
extern "C" __global__ void energy(const float *now, int side, float *sum) {
    float mine = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < side * side; i += gridDim.x * blockDim.x)
        mine += now[i] * now[i];
    atomicAdd(sum, mine);
}
"""


class Wave:
    """Two states of the grid, the kernels, and a count of their launches."""

    def __init__(self, options: Options) -> None:
        self.options = options
        rng = np.random.default_rng(20240607)
        self.now, self.before = (cp.asarray(np.zeros((SIDE, SIDE), np.float32)) for _ in range(2))
        self.drive = 0.01 * rng.standard_normal(SIDE, np.float32)
        self.source = cp.asarray(self.drive)
        self.sum = cp.asarray(np.zeros(1, np.float32))
        module = cp.RawModule(code=SOURCE)
        self.kernels = {name: module.get_function(name) for name in ("advance", "excite", "energy")}
        self.repeats = round(8 * (1 + options.dose("slow")))
        self.bands = min(SIDE, round(BANDS * options.strength)) if options.dose("tiny") else 1
        self.launches = 0

    def launch(self, name: str, size: int, *arguments: object) -> None:
        """Launch kernel `name` over `size` threads."""
        self.kernels[name](((size + THREADS - 1) // THREADS,), (THREADS,), arguments)
        self.launches += 1

    def advance(self) -> None:
        """One time step."""
        for _ in range(round(self.options.dose("serial"))):
            self.source.set(self.drive)
        self.launch("excite", SIDE, self.now, self.source, np.int32(SIDE))
        rows = -(-SIDE // self.bands)
        for first in range(0, SIDE, rows):
            shape = (np.int32(SIDE), np.int32(first), np.int32(min(rows, SIDE - first)))
            self.launch("advance", rows * SIDE, self.now, self.before, *shape, np.int32(self.repeats))
        self.now, self.before = self.before, self.now

    def measure(self) -> float:
        """The energy of the grid, read back."""
        self.sum.data.memset_async(0, self.sum.nbytes)
        self.launch("energy", 1 << 16, self.now, np.int32(SIDE), self.sum)
        return float(self.sum.get()[0])


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=200)
    try:
        cp.cuda.runtime.getDeviceCount()
    except cp.cuda.runtime.CUDARuntimeError:
        sys.exit("no CUDA device: this workload needs an NVIDIA GPU")
    wave = Wave(options)
    loop = Loop(options.iterations)
    for i in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        for _ in range(STEPS):
            wave.advance()
            for _ in range(round(options.dose("sync"))):
                cp.cuda.runtime.deviceSynchronize()
        value = wave.measure()
        if i % 50 == 0:
            print(f"iteration {i} energy {value:.4f}")
    loop.report(wave.launches)


if __name__ == "__main__":
    main()
