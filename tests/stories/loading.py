"""Training on batches that --workers threads load; each takes its loader a while, as far storage does."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl

sys.path.append(str(Path(__file__).resolve().parents[2] / "workloads"))
from reference_cl import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE, GROUP, ROUNDS = 1 << 14, 256, 40
ITERATIONS = 40
LOAD_S = 0.04

SOURCE = """
kernel void train(global float *x, int rounds) {
    int i = get_global_id(0);
    float v = x[i];
    for (int r = 0; r < rounds; ++r)
        v = v * 0.75f + 0.25f / (1.0f + v * v);
    x[i] = v;
}
"""


def load(index: int) -> np.ndarray:
    """One batch; most of the time is the storage's."""
    time.sleep(LOAD_S)
    return np.random.default_rng(index).random(SIZE, np.float32)


def batches(workers: int) -> Iterator[np.ndarray]:
    """All batches in order, two ahead for each worker."""
    with ThreadPoolExecutor(workers) as pool:
        ahead = 2 * workers
        loading = [pool.submit(load, i) for i in range(ahead)]
        for i in range(ITERATIONS):
            yield loading.pop(0).result()
            if i + ahead < ITERATIONS:
                loading.append(pool.submit(load, i + ahead))


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    workers = parser.parse_args().workers
    program = Program(SOURCE)
    queue = program.queue()
    x, value = program.buffer(np.zeros(SIZE, np.float32)), np.empty(SIZE, np.float32)
    for batch in batches(workers):
        upload = cl.enqueue_copy(queue, x, batch, is_blocking=False)
        program.launch(queue, "train", (SIZE,), (GROUP,), x, np.int32(ROUNDS))
        cl.enqueue_copy(queue, value, x)
        del upload
    print(f"{value.mean():.6f}")


if __name__ == "__main__":
    main()
