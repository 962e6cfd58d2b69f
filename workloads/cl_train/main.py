"""Train a two-layer perceptron with OpenCL: upload a batch, forward, backward, update, read the loss."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyopencl as cl

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, Options, parse
from reference_cl import Program

FAULTS = {
    "sync": "wait for the device after every kernel and read the loss so far",
    "tiny": "split every matrix product into many small kernels",
    "stall": "the host sleeps before an iteration",
    "slow": "matrix products do more work",
}
BATCH, INPUT, HIDDEN, OUTPUT = 128, 256, 256, 64
GROUP = 64
RATE = 2e-4
STALL_S = 0.025

# C[m, n] = sum over k of A[m, k] B[k, n], with the strides of A and B free so that one kernel serves
# forward and backward. `extra` steps of k are done for nothing: their sum is added times `none` = 0.
SOURCE = """
kernel void gemm(global const float *a, global const float *b, global float *c, int depth, int columns,
                 int a_row, int a_step, int b_step, int b_column, int extra, float none) {
    int n = get_global_id(0), m = get_global_id(1);
    float sum = 0.0f, waste = 0.0f;
    for (int k = 0; k < depth; ++k)
        sum += a[m * a_row + k * a_step] * b[k * b_step + n * b_column];
    for (int k = 0; k < extra; ++k)
        waste += a[m * a_row + (k % depth) * a_step] * b[(k % depth) * b_step + n * b_column];
    c[m * columns + n] = sum + none * waste;
}
kernel void relu(global float *x) {
    int i = get_global_id(0);
    x[i] = fmax(x[i], 0.0f);
}
kernel void residual(global float *y, global const float *target) {
    int i = get_global_id(0);
    y[i] -= target[i];
}
kernel void relu_backward(global float *gradient, global const float *active) {
    int i = get_global_id(0);
    gradient[i] = active[i] > 0.0f ? gradient[i] : 0.0f;
}
kernel void descend(global float *weight, global const float *gradient, float rate) {
    int i = get_global_id(0);
    weight[i] -= rate * gradient[i];
}
kernel void square_sum(global const float *y, global float *loss, int count) {
    int row = get_global_id(0);
    float sum = 0.0f;
    for (int i = 0; i < count; ++i)
        sum += y[row * count + i] * y[row * count + i];
    loss[row] = sum;
}
"""


class Trainer:
    """Weights and activations on the device, and the kernels of one step."""

    def __init__(self, options: Options, rng: np.random.Generator) -> None:
        self.options = options
        self.program = Program(SOURCE)
        self.queue = self.program.queue()
        shapes = {
            "x": (BATCH, INPUT), "target": (BATCH, OUTPUT), "loss": (BATCH,),
            "h": (BATCH, HIDDEN), "y": (BATCH, OUTPUT), "dh": (BATCH, HIDDEN),
            "w1": (INPUT, HIDDEN), "w2": (HIDDEN, OUTPUT), "dw1": (INPUT, HIDDEN), "dw2": (HIDDEN, OUTPUT),
        }  # fmt: skip
        self.device = {
            name: self.program.buffer((0.05 * rng.standard_normal(shape)).astype(np.float32))
            for name, shape in shapes.items()
        }
        self.loss = np.empty(BATCH, np.float32)

    def run(
        self, name: str, size: tuple[int, ...], *args: object, offset: tuple[int, int] | None = None
    ) -> None:
        local = (GROUP, 1)[: len(size)]
        self.program.launch(self.queue, name, size, local, *args, offset=offset)
        if self.options.dose("sync"):
            for _ in range(max(1, round(2 * self.options.strength))):
                cl.enqueue_copy(self.queue, self.loss, self.device["loss"])

    def gemm(self, out: str, a: str, b: str, sizes: tuple[int, int, int], strides: tuple[int, ...]) -> None:
        rows, depth, columns = sizes
        extra = round(0.4 * self.options.dose("slow") * depth)
        args = [self.device[n] for n in (a, b, out)]
        args += [np.int32(v) for v in (depth, columns, *strides, extra)]
        args.append(np.float32(0))
        step = max(1, round(4 / self.options.strength)) if self.options.dose("tiny") else rows
        for row in range(0, rows, step):
            self.run("gemm", (columns, min(step, rows - row)), *args, offset=(0, row))

    def step(self, batch: np.ndarray, target: np.ndarray) -> float:
        """Train on one batch of (BATCH, INPUT) and return the sum of squared errors before the update."""
        d = self.device
        # pyopencl waits for a copy whose event is dropped: these are kept until the loss is here.
        uploads = [
            cl.enqueue_copy(self.queue, d["x"], batch, is_blocking=False),
            cl.enqueue_copy(self.queue, d["target"], target, is_blocking=False),
        ]
        self.gemm("h", "x", "w1", (BATCH, INPUT, HIDDEN), (INPUT, 1, HIDDEN, 1))
        self.run("relu", (BATCH * HIDDEN,), d["h"])
        self.gemm("y", "h", "w2", (BATCH, HIDDEN, OUTPUT), (HIDDEN, 1, OUTPUT, 1))
        self.run("residual", (BATCH * OUTPUT,), d["y"], d["target"])
        self.run("square_sum", (BATCH,), d["y"], d["loss"], np.int32(OUTPUT))
        self.gemm("dw2", "h", "y", (HIDDEN, BATCH, OUTPUT), (1, HIDDEN, OUTPUT, 1))
        self.gemm("dh", "y", "w2", (BATCH, OUTPUT, HIDDEN), (OUTPUT, 1, 1, OUTPUT))
        self.run("relu_backward", (BATCH * HIDDEN,), d["dh"], d["h"])
        self.gemm("dw1", "x", "dh", (INPUT, BATCH, HIDDEN), (1, INPUT, HIDDEN, 1))
        self.run("descend", (INPUT * HIDDEN,), d["w1"], d["dw1"], np.float32(RATE))
        self.run("descend", (HIDDEN * OUTPUT,), d["w2"], d["dw2"], np.float32(RATE))
        cl.enqueue_copy(self.queue, self.loss, d["loss"])
        del uploads
        return float(self.loss.sum())


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=100)
    rng = np.random.default_rng(20240607)
    trainer = Trainer(options, rng)
    truth = rng.standard_normal((INPUT, OUTPUT)).astype(np.float32) / 16
    batches = rng.standard_normal((8, BATCH, INPUT)).astype(np.float32)
    targets = np.tanh(batches @ truth)
    loop = Loop(options.iterations)
    for i in loop:
        if options.dose("stall"):
            time.sleep(STALL_S * options.strength)
        loss = trainer.step(batches[i % 8], targets[i % 8])
        if i % 20 == 0:
            print(f"iteration {i} loss {loss:.3f}")
    loop.report(trainer.program.launches)


if __name__ == "__main__":
    main()
