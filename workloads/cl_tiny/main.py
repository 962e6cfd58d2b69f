"""Upload a vector, run a long chain of tiny OpenCL kernels as eager frameworks do, read one value back."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyopencl as cl

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, parse
from reference_cl import Program

FAULTS = {
    "sync": "wait for the device after every few kernels",
    "tiny": "every kernel does half of its elements, so that there are twice as many",
    "stall": "the host sleeps before an iteration",
    "slow": "kernels do more work",
}
SIZE, GROUP = 2048, 256
LAYERS = 100
STALL_S = 0.02
ROUNDS = 8

SOURCE = """
#define ELEMENTWISE(NAME, NEXT)                                                                  \\
    kernel void NAME(global float *x, global const float *y, int rounds) {                       \\
        int i = get_global_id(0);                                                                \\
        float v = x[i];                                                                          \\
        for (int r = 0; r < rounds; ++r)                                                         \\
            v = NEXT;                                                                            \\
        x[i] = v;                                                                                \\
    }
ELEMENTWISE(scale, v * 0.75f + 0.25f / (1.0f + v * v))
ELEMENTWISE(shift, v + 0.125f / (1.0f + y[i] + v * v))
ELEMENTWISE(squash, v / (1.0f + 0.5f * v * v))
ELEMENTWISE(blend, v * 0.875f + 0.125f * y[i] / (1.0f + v * v))
ELEMENTWISE(gate, v * (y[i] + 0.5f) / (1.0f + 0.25f * v * v))
ELEMENTWISE(bound, fmin(v, 4.0f) - 0.0625f / (2.0f + v * v))
ELEMENTWISE(decay, v * 0.96875f + 0.015625f / (1.0f + v * v))
ELEMENTWISE(residual, 0.5f * (v + y[i]) / (1.0f + 0.125f * v * v))
kernel void total(global const float *x, global float *sum, int count) {
    float all = 0.0f;
    for (int i = 0; i < count; ++i)
        all += x[i];
    *sum = all;
}
"""
LAYER = ("scale", "shift", "squash", "blend", "gate", "bound", "decay", "residual")


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=120)
    rng = np.random.default_rng(20240607)
    program = Program(SOURCE)
    queue = program.queue()
    inputs = rng.random((8, SIZE), np.float32)
    x, y = (program.buffer(inputs[i]) for i in range(2))
    value = np.empty(1, np.float32)
    total = program.buffer(value)
    rounds = np.int32(round(ROUNDS * (1 + 0.5 * options.dose("slow"))))
    parts = 1 << max(1, round(1 + np.log2(options.strength))) if options.dose("tiny") else 1
    size = SIZE // parts
    waits = round(2 * options.dose("sync"))  # in every layer
    waiting = LAYER[:: len(LAYER) // min(waits, len(LAYER))] if waits else ()
    loop = Loop(options.iterations)
    for i in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        # pyopencl waits for a copy whose event is dropped: this one is kept until the value is here.
        upload = cl.enqueue_copy(queue, x, inputs[i % 8], is_blocking=False)
        for _ in range(LAYERS):
            for name in LAYER:
                for part in range(parts):
                    offset = (part * size,)
                    program.launch(queue, name, (size,), (GROUP,), x, y, rounds, offset=offset)
                if name in waiting:
                    queue.finish()
        program.launch(queue, "total", (1,), (1,), x, total, np.int32(SIZE))
        cl.enqueue_copy(queue, value, total)
        del upload
        if i % 20 == 0:
            print(f"iteration {i} value {value[0]:.4f}")
    loop.report(program.launches)


if __name__ == "__main__":
    main()
