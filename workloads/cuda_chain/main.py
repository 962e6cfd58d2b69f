"""Upload a vector, run a long chain of tiny CUDA kernels as eager frameworks do, read one value back."""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, busy, parse
from reference_cuda import Program

FAULTS = {
    "sync": "wait for the device after every few kernels",
    "tiny": "every kernel does half of its blocks, so that there are twice as many",
    "stall": "the host sleeps before an iteration",
    "delay": "the host is busy for 100 us before an iteration",
    "delay_mid": "the host is busy for 100 us before the layer in the middle",
    "spread": "the host is busy for 2 us longer before every fourth kernel",
    "slow": "kernels do more work",
}
LAYER = ("scale", "shift", "squash", "blend", "gate", "bound", "decay", "residual")
LAYERS = 40
BLOCKS, SIZE = 64, 64 * 256 * 4
ROUNDS = 600
STALL_S, DELAY_S, SPREAD_S = 0.01, 100e-6, 2e-6


class HoldUp:
    """The faults that keep the host from launching."""

    def __init__(self, program: Program, options: Options) -> None:
        self.program = program
        self.stall, self.delay = STALL_S * options.dose("stall"), DELAY_S * options.dose("delay")
        self.late, self.spread = DELAY_S * options.dose("delay_mid"), SPREAD_S * options.dose("spread")
        waits = min(len(LAYER), round(2 * options.dose("sync")))  # in every layer
        self.waits = range(0, len(LAYER), len(LAYER) // waits) if waits else range(0)

    def before_iteration(self) -> None:
        if self.stall:
            time.sleep(self.stall)
        if self.delay:
            busy(self.delay)

    def before_layer(self, layer: int) -> None:
        if self.late and layer == LAYERS // 2:
            busy(self.late)

    def before_kernel(self, at: int) -> None:
        if self.spread and at % 4 == 3:
            busy(self.spread)

    def after_kernel(self, at: int) -> None:
        if at in self.waits:
            self.program.wait()


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=200)
    program = Program(LAYER)
    rounds = round(ROUNDS * (1 + 0.5 * options.dose("slow")))
    parts = max(2, round(2 * options.strength)) if options.dose("tiny") else 1
    x, inputs, value = program.device_memory(SIZE), program.host_memory(SIZE), program.host_memory(4)
    ctypes.memset(inputs, 0, SIZE)
    works = {name: program.work(name, x, rounds, BLOCKS // parts) for name in LAYER}
    hold_up = HoldUp(program, options)
    loop = Loop(options.iterations)
    for i in loop:
        hold_up.before_iteration()
        program.upload(x, inputs, SIZE)
        for layer in range(LAYERS):
            hold_up.before_layer(layer)
            for at, name in enumerate(LAYER):
                hold_up.before_kernel(at)
                for _ in range(parts):
                    works[name].launch()
                hold_up.after_kernel(at)
        program.download(value, x, 4)
        program.wait()
        if i % 100 == 0:
            print(f"iteration {i} value {ctypes.cast(value, ctypes.POINTER(ctypes.c_float))[0]:.4f}")
    loop.report(program.launches)


if __name__ == "__main__":
    main()
