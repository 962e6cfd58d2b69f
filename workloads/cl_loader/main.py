"""Feed OpenCL kernels from CPU preprocessing: every iteration augments a batch in numpy, then computes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyopencl as cl

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import Loop, parse
from reference_cl import Program

FAULTS = {
    "sync": "wait for the device after every kernel, several times",
    "stall": "preprocessing takes longer",
    "slow": "the filter does more work",
}
IMAGES, SIDE, CROP, TAPS = 8, 272, 256, 9
LAYERS = 2
GROUP = 64

SOURCE = """
kernel void filter(global const float *in, global float *out, constant float *taps, int count, int side,
                   int extra, float none) {
    int x = get_global_id(0), y = get_global_id(1);
    float sum = 0.0f, waste = 0.0f;
    for (int t = 0; t < count; ++t)
        sum += taps[t] * in[y * side + (x + t) % side];
    for (int t = 0; t < extra; ++t)
        waste += taps[t % count] * in[y * side + (x + t) % side];
    out[y * side + x] = sum + none * waste;
}
kernel void row_sum(global const float *in, global float *out, int side) {
    int y = get_global_id(0);
    float sum = 0.0f;
    for (int x = 0; x < side; ++x)
        sum += in[y * side + x];
    out[y] = sum;
}
"""


def preprocess(raw: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Crop, flip, add noise to and normalise bytes (IMAGES, SIDE, SIDE): floats (IMAGES, CROP, CROP)."""
    top, left = rng.integers(0, SIDE - CROP, 2)
    batch = raw[:, top : top + CROP, left : left + CROP].astype(np.float32) / 255
    if rng.random() < 0.5:
        batch = batch[:, :, ::-1]
    batch = np.sqrt(batch) + 0.05 * rng.standard_normal(batch.shape, np.float32)
    batch -= batch.mean(axis=(1, 2), keepdims=True)
    return np.ascontiguousarray(batch / batch.std(axis=(1, 2), keepdims=True))


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=100)
    rng = np.random.default_rng(20240607)
    program = Program(SOURCE)
    queue = program.queue()
    raw = rng.integers(0, 256, (4, IMAGES, SIDE, SIDE), dtype=np.uint8)
    images, filtered = (program.buffer(np.zeros((IMAGES, CROP, CROP), np.float32)) for _ in range(2))
    taps = program.buffer(np.hanning(TAPS + 2)[1:-1].astype(np.float32) / TAPS)
    sums, host_sums = program.buffer(np.zeros(IMAGES * CROP, np.float32)), np.empty(IMAGES * CROP, np.float32)
    extra = np.int32(round(0.4 * options.dose("slow") * TAPS))
    passes = 1 + round(2 * options.dose("stall")) if options.dose("stall") else 1
    syncs = max(1, round(4 * options.strength)) if options.dose("sync") else 0

    def wait() -> None:
        for _ in range(syncs):
            queue.finish()

    loop = Loop(options.iterations)
    for i in loop:
        for _ in range(passes):
            batch = preprocess(raw[i % 4], rng)
        # pyopencl waits for a copy whose event is dropped: this one is kept until the sums are here.
        upload = cl.enqueue_copy(queue, images, batch, is_blocking=False)
        source, target = images, filtered
        for _ in range(LAYERS):
            shape = (CROP, IMAGES * CROP)
            args = (taps, np.int32(TAPS), np.int32(CROP), extra, np.float32(0))
            program.launch(queue, "filter", shape, (GROUP, 1), source, target, *args)
            wait()
            source, target = target, source
        program.launch(queue, "row_sum", (IMAGES * CROP,), (GROUP,), source, sums, np.int32(CROP))
        wait()
        cl.enqueue_copy(queue, host_sums, sums)
        del upload
        if i % 20 == 0:
            print(f"iteration {i} mean {host_sums.mean():.6f}")
    loop.report(program.launches)


if __name__ == "__main__":
    main()
