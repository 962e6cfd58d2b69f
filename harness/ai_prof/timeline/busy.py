"""How a device spent a window: kernels, copies alone, gap. DESIGN: unions over all streams, exact in ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.intervals import Intervals, clip, complement, intersect, length, merge, subtract

if TYPE_CHECKING:
    from ai_prof.timeline.operations import Operations


@dataclass(frozen=True, slots=True)
class Busy:
    """Lengths in ns within a window [low, high); kernel + copy_only + gap is the window."""

    low: int
    high: int
    kernel: int
    copy_only: int
    gap: int
    gaps: Intervals

    @property
    def window(self) -> int:
        """Its length, ns."""
        return self.high - self.low


def busy(operations: Operations, low: int, high: int) -> Busy:
    """What of [low, high) the device spent in kernels, in copies alone, and idle."""
    kernels = clip(operations.union(operations.is_kernel), low, high)
    copies = clip(operations.union(~operations.is_kernel), low, high)
    gaps = complement(merge(kernels, copies), low, high)
    return Busy(low, high, length(kernels), length(subtract(copies, kernels)), length(gaps), gaps)


def copy_compute_overlap(operations: Operations, low: int, high: int) -> float | None:
    """Share of the time with a memcpy in flight in which a kernel ran too; None without copies."""
    copies = clip(operations.union(operations.is_memcpy), low, high)
    if not length(copies):
        return None
    return length(intersect(copies, operations.union(operations.is_kernel))) / length(copies)


def stream_concurrency(operations: Operations, low: int, high: int) -> float:
    """Mean number of streams at work while the device is busy; 0 when it never is."""
    whole = length(clip(operations.union(), low, high))
    if not whole:
        return 0.0
    streams = np.unique(operations.stream).tolist()
    return sum(length(clip(operations.union(operations.stream == s), low, high)) for s in streams) / whole
