"""Figures over the kernels that start in a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.timeline.operations import Operations

TINY_NS = 20_000
_TOP = 10


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """Durations in us; `tiny_share` is the share of kernels shorter than 20 us. Zeros without kernels."""

    count: int
    mean_us: float
    p50_us: float
    p95_us: float
    tiny_share: float


def kernel_figures(operations: Operations, low: int, high: int) -> KernelFigures:
    """Over kernels with start in [low, high); each counts with its whole duration."""
    chosen = operations.is_kernel & operations.begin_in(low, high)
    duration = (operations.end - operations.start)[chosen]
    if not len(duration):
        return KernelFigures(0, 0.0, 0.0, 0.0, 0.0)
    p50, p95 = (np.percentile(duration, (50, 95)) / 1000).tolist()
    return KernelFigures(
        len(duration), float(duration.mean()) / 1000, p50, p95, float((duration < TINY_NS).mean())
    )


class KernelTime(msgspec.Struct, frozen=True):
    """The kernels of one name; `share` is that of all kernels' time."""

    name: str
    count: int
    total_ms: float
    share: float
    mean_us: float


def top_kernels(names: Sequence[str], operations: Operations, low: int, high: int) -> list[KernelTime]:
    """The ten names that take most time, the first most, of kernels with start in [low, high)."""
    chosen = operations.is_kernel & operations.begin_in(low, high)
    which = operations.name[chosen] + 1  # an unknown name is -1
    total = np.bincount(which, weights=(operations.end - operations.start)[chosen])
    count, whole = np.bincount(which), float(total.sum())
    rows = [int(row) for row in np.argsort(-total, kind="stable")[:_TOP] if count[row]]
    return [
        KernelTime(
            names[row - 1] if row else "unknown kernel",
            int(count[row]),
            float(total[row]) / 1e6,
            float(total[row]) / whole if whole else 0.0,
            float(total[row] / count[row]) / 1e3,
        )
        for row in rows
    ]
