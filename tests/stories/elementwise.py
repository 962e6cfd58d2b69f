"""A network's elementwise layers in OpenCL: eight small kernels a layer, or with --fused one instead."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyopencl as cl

sys.path.append(str(Path(__file__).resolve().parents[2] / "workloads"))
from reference_cl import Program

SIZE, GROUP = 1 << 14, 256
LAYERS, ITERATIONS = 120, 30
STEPS = (
    "v * 0.75f + 0.25f",
    "v + 0.125f * y[i] * v",
    "v / (1.0f + 0.5f * v * v)",
    "v * 0.875f + 0.125f * y[i]",
    "v * (y[i] + 0.5f)",
    "v - 0.0625f * v * v",
    "v / (1.0f + 0.125f * v * v)",
    "0.5f * (v + y[i])",
)
KERNEL = """
kernel void NAME(global float *x, global const float *y) {
    int i = get_global_id(0);
    float v = x[i];
    STEPS
    x[i] = v;
}
"""


def kernel(name: str, steps: tuple[str, ...]) -> str:
    """The source of one kernel that takes some steps."""
    return KERNEL.replace("NAME", name).replace("STEPS", " ".join(f"v = {step};" for step in steps))


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--fused", action="store_true")
    fused = parser.parse_args().fused
    steps = {"layer": STEPS} if fused else {f"step{i}": (step,) for i, step in enumerate(STEPS)}
    program = Program("".join(kernel(name, some) for name, some in steps.items()))
    queue = program.queue()
    inputs = np.random.default_rng(1).random((2, SIZE), np.float32)
    x, y = (program.buffer(each) for each in inputs)
    value = np.empty(SIZE, np.float32)
    for _ in range(ITERATIONS):
        upload = cl.enqueue_copy(queue, x, inputs[0], is_blocking=False)
        for _ in range(LAYERS):
            for name in steps:
                program.launch(queue, name, (SIZE,), (GROUP,), x, y)
        cl.enqueue_copy(queue, value, x)
        del upload
    print(f"{value.mean():.6f}")


if __name__ == "__main__":
    main()
