"""Run a long chain of tiny OpenCL kernels, as an eager framework does, and read one value back."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyopencl as cl

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import parse, report
from reference_cl import Program

FAULTS = {
    "sync": "wait for the device after every few kernels",
    "tiny": "every kernel does half of its elements, so that there are twice as many",
    "stall": "the host sleeps before an iteration",
    "slow": "kernels do more work",
}
SIZE, GROUP = 2048, 256
CHAIN = 800
STALL_S = 0.02
ROUNDS = 8

SOURCE = """
kernel void rotate_scale(global float *x, float scale, int rounds) {
    int i = get_global_id(0);
    float v = x[i];
    for (int r = 0; r < rounds; ++r)
        v = v * scale + 0.25f / (1.0f + v * v);
    x[i] = v;
}
kernel void blend(global float *x, global const float *y, float weight, int rounds) {
    int i = get_global_id(0);
    float v = x[i];
    for (int r = 0; r < rounds; ++r)
        v = v * (1.0f - weight) + y[i] * weight / (1.0f + v * v);
    x[i] = v;
}
"""


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=120)
    rng = np.random.default_rng(20240607)
    program = Program(SOURCE)
    queue = program.queue()
    x, y = (program.buffer(rng.random(SIZE, np.float32)) for _ in range(2))
    first = np.empty(1, np.float32)
    rounds = np.int32(round(ROUNDS * (1 + 0.5 * options.dose("slow"))))
    parts = 1 << round(1 + np.log2(options.strength)) if options.dose("tiny") else 1
    between_syncs = max(1, round(4 / options.strength)) if options.dose("sync") else CHAIN + 1
    for i in range(options.iterations):
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        for position in range(CHAIN):
            size = SIZE // parts
            for part in range(parts):
                args = (x, np.float32(0.75)) if position % 2 else (x, y, np.float32(0.125))
                name = "rotate_scale" if position % 2 else "blend"
                program.launch(queue, name, (size,), (GROUP,), *args, rounds, offset=(part * size,))
            if position % between_syncs == between_syncs - 1:
                queue.finish()
        cl.enqueue_copy(queue, first, x)
        if i % 20 == 0:
            print(f"iteration {i} value {first[0]:.4f}")
    report(options.iterations, program.launches)


if __name__ == "__main__":
    main()
