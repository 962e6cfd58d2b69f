"""Double buffering on two OpenCL queues: the next batch is copied while this one computes."""

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
    "serial": "one batch is copied and computed before the next is touched",
    "sync": "wait for both queues after every kernel",
    "stall": "the host sleeps before an iteration",
    "slow": "kernels do more work",
}
SIZE, GROUP = 1 << 23, 256
KERNELS = 3
ROUNDS = 6
STALL_S = 0.025

# One work-group: on a CPU device it takes one core, and leaves another to the copies.
SOURCE = """
kernel void iterate(global const float8 *in, global float8 *out, int count, int rounds) {
    int begin = get_global_id(0) * count;
    for (int i = begin; i < begin + count; ++i) {
        float8 v = out[i] * 0.5f + in[i];
        for (int r = 0; r < rounds; ++r)
            v = v * 0.75f + 0.25f / (1.0f + v * v);
        out[i] = v;
    }
}
"""


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=100)
    rng = np.random.default_rng(20240607)
    program = Program(SOURCE)
    copies, compute = program.queue(), program.queue()
    host = rng.random((3, SIZE), np.float32)
    inputs = [program.buffer(host[0]) for _ in range(2)]
    out, value = program.buffer(np.zeros(SIZE, np.float32)), np.empty(1, np.float32)
    rounds = np.int32(round(ROUNDS * (1 + 0.7 * options.dose("slow"))))
    ready = cl.enqueue_copy(copies, inputs[0], host[0], is_blocking=False)
    copies.flush()
    loop = Loop(options.iterations)
    for i in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        if options.dose("serial"):
            ready.wait()
        for _ in range(KERNELS):
            args = (inputs[i % 2], out, np.int32(SIZE // GROUP // 8), rounds)
            program.launch(compute, "iterate", (GROUP,), (GROUP,), *args, wait_for=[ready])
            for _ in range(round(2 * options.dose("sync"))):
                compute.finish()
                copies.finish()
        compute.flush()
        if options.dose("serial"):
            compute.finish()
        ready = cl.enqueue_copy(copies, inputs[(i + 1) % 2], host[(i + 1) % 3], is_blocking=False)
        copies.flush()
        cl.enqueue_copy(compute, value, out)
        if i % 20 == 0:
            print(f"iteration {i} value {value[0]:.4f}")
    ready.wait()
    loop.report(program.launches)


if __name__ == "__main__":
    main()
