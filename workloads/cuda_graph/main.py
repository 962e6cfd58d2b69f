"""Replay CUDA graphs of kernels between eager ones, as a server with captured models does."""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, busy, parse
from reference_cuda import Program

FAULTS = {
    "eager": "the second graph's kernels are launched one by one",
    "sync": "wait for the device after every graph",
    "stall": "the host sleeps before an iteration",
    "delay": "the host is busy for 100 us before an iteration",
    "delay_mid": "the host is busy for 100 us between the graphs",
    "slow": "kernels do more work",
}
NAMES = ("project", "attend", "expand", "reduce", "sample")
GRAPHS, BLOCKS_A_GRAPH = 4, 3
BLOCKS, SIZE = 132, 132 * 256 * 4
ROUNDS = 12000
STALL_S, DELAY_S = 0.01, 100e-6


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=300)
    program = Program(NAMES)
    rounds = round(ROUNDS * (1 + 0.5 * options.dose("slow")))
    x, inputs, value = program.device_memory(SIZE), program.host_memory(SIZE), program.host_memory(4)
    ctypes.memset(inputs, 0, SIZE)
    works = [program.work(name, x, rounds, BLOCKS) for name in NAMES]
    model = works[:-1] * BLOCKS_A_GRAPH
    graph, sample = program.graph(model), works[-1]
    late = DELAY_S * options.dose("delay_mid")
    loop = Loop(options.iterations)
    for i in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        if options.dose("delay"):
            busy(DELAY_S * options.strength)
        program.upload(x, inputs, SIZE)
        for part in range(GRAPHS):
            if late and part == GRAPHS // 2:
                busy(late)
            if part == 1 and options.dose("eager"):
                for work in model:
                    work.launch()
            else:
                program.replay(graph)
            if options.dose("sync"):
                program.wait()
            sample.launch()
        program.download(value, x, 4)
        program.wait()
        if i % 100 == 0:
            print(f"iteration {i} value {ctypes.cast(value, ctypes.POINTER(ctypes.c_float))[0]:.4f}")
    loop.report()


if __name__ == "__main__":
    main()
