"""What each iteration consists of: counts that are the same on every machine and in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.names import normalise
from ai_prof.trace.tables import Names, renumbered

if TYPE_CHECKING:
    from ai_prof.timeline.iterations import Iterations
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I32, I64, Trace

COUNTS = ("kernels", "copies", "copy_bytes", "syncs", "graph_launches")


@dataclass(frozen=True, slots=True)
class Structure:
    """Of n iterations after warm-up that have an end: `counts[name]` is (n,) for each of COUNTS.

    `kernels` is how often each normalised kernel name runs in every one of them; None where they differ or
    there are none. `kernel_ns` is (n,): kernel durations added up.
    """

    counts: dict[str, I64]
    kernels: dict[str, int] | None
    kernel_ns: I64

    def constant(self) -> dict[str, int | None]:
        """Each count that every iteration shares; None where they differ or there are none."""
        return {
            name: int(values[0]) if len(values) and (values == values[0]).all() else None
            for name, values in self.counts.items()
        }

    def typical(self) -> dict[str, int]:
        """The most frequent value of each count; 0 without iterations."""
        result = {}
        for name, values in self.counts.items():
            distinct, times = np.unique(values, return_counts=True)
            result[name] = int(distinct[times.argmax()]) if len(values) else 0
        return result


def structure(trace: Trace, operations: Operations, iterations: Iterations) -> Structure:
    """The structure of each iteration of the device's main process, by launch order."""
    edges = iterations.first_row[iterations.warm_up :]
    count = max(len(edges) - 1, 0)
    iteration = np.repeat(np.arange(count), np.diff(edges))
    operation = iterations.operation[edges[0] : edges[-1]] if count else iterations.operation[:0]

    def per_iteration(chosen: np.ndarray[tuple[int], np.dtype[np.bool_]], weights: I64 | None = None) -> I64:
        if weights is None:
            return np.bincount(iteration[chosen], minlength=count).astype(np.int64)
        total = np.zeros(count, np.int64)
        np.add.at(total, iteration[chosen], weights[chosen])
        return total

    is_operation = operation >= 0
    kernel = is_operation & operations.is_kernel[operation]
    memcpy = is_operation & operations.is_memcpy[operation]
    graphs = np.flatnonzero(is_operation & (operations.graph[operation] > 0))
    launches = np.unique(np.stack((iteration[graphs], operations.correlation[operation[graphs]]), 1), axis=0)
    counts = {
        "kernels": per_iteration(kernel),
        "copies": per_iteration(memcpy),
        "copy_bytes": per_iteration(memcpy, operations.bytes[operation]),
        "syncs": per_iteration(~is_operation),
        "graph_launches": np.bincount(launches[:, 0], minlength=count).astype(np.int64),
    }
    each = counts["kernels"]
    alike = count > 0 and bool((each == each[0]).all())
    ran = operations.name[operation[kernel]]
    kernels = _multiset(trace, ran.reshape(count, int(each[0]))) if alike else None
    kernel_ns = per_iteration(kernel, (operations.end - operations.start)[operation])
    return Structure(counts, kernels, kernel_ns)


def _multiset(trace: Trace, name: I32) -> dict[str, int] | None:
    """How often each normalised name comes in every row of names, (n, kernels); None where rows differ."""
    numbers = Names()
    of = renumbered(  # an unknown name is -1
        name.reshape(-1) + 1, lambda key: numbers[normalise(trace.names[key - 1]) if key else "?"]
    )
    rows = np.sort(of.reshape(name.shape), axis=1)
    if (rows != rows[0]).any():
        return None
    return dict(zip(numbers, np.bincount(rows[0]).tolist(), strict=True))
