"""Figures over the kernels that start in a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ai_prof.timeline.operations import Operations

TINY_NS = 20_000


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
    chosen = operations.is_kernel & (operations.start >= low) & (operations.start < high)
    duration = (operations.end - operations.start)[chosen]
    if not len(duration):
        return KernelFigures(0, 0.0, 0.0, 0.0, 0.0)
    p50, p95 = (np.percentile(duration, (50, 95)) / 1000).tolist()
    return KernelFigures(
        len(duration), float(duration.mean()) / 1000, p50, p95, float((duration < TINY_NS).mean())
    )
