"""What a program's own markers say of its capture, and how well what was found agrees with it.

Shares no code with the analysis: the records alone, and the markers that lie beside the capture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ai_prof.trace.model import I64, Trace

TOLERANCE = 0.01  # of a median iteration


@dataclass(frozen=True)
class Agreement:
    """Of `marked` boundaries, `found` have one within the tolerance; `extra` ones found are no boundary."""

    marked: int
    found: int
    extra: int
    offset_ns: int

    @property
    def share(self) -> float:
        """1 where every boundary was found and no other."""
        return self.found / max(self.marked + self.extra, 1)


def marked_starts(trace: Trace, marks: list[int]) -> I64:
    """For each marker (monotonic ns) the start of the first device operation launched after it; ns.

    Markers after which nothing more was launched before the next one, or at all, have none.
    """
    calls = trace.calls
    order = np.argsort(calls.correlation, kind="stable")
    correlation = np.concatenate((trace.kernels.correlation, trace.memory.correlation))
    start = np.concatenate((trace.kernels.start, trace.memory.start))
    row = np.minimum(np.searchsorted(calls.correlation[order], correlation), len(order) - 1)
    known = calls.correlation[order[row]] == correlation
    launched, start = calls.start[order[row]][known], start[known]
    by_launch = np.lexsort((start, launched))
    launched, start = launched[by_launch], start[by_launch]
    at = np.searchsorted(launched, np.array(sorted(marks)))
    found: I64 = start[np.unique(at[at < len(start)])]
    return found


def agreement(found: I64, marked: I64) -> Agreement:
    """Compare boundaries after one constant offset is taken from what was found."""
    if len(marked) < 2 or not len(found):
        return Agreement(len(marked), 0, len(found), 0)
    found, marked = np.sort(found), np.sort(marked)
    tolerance = TOLERANCE * float(np.median(np.diff(marked)))
    best = Agreement(len(marked), 0, len(found), 0)
    for side in ("left", "right"):
        at = np.searchsorted(found, marked, side) - (side == "right")
        inside = (at >= 0) & (at < len(found))
        if not inside.any():
            continue
        offset = int(np.median(found[at[inside]] - marked[inside]))
        hits = _near(found - offset, marked, tolerance)
        extra = len(found) - _near(marked, found - offset, tolerance)
        # What lies beside all markers (before the first, after the last) is neither right nor wrong.
        outside = (found - offset < marked[0] - tolerance) | (found - offset > marked[-1] + tolerance)
        candidate = Agreement(len(marked), hits, extra - int(outside.sum()), offset)
        best = max(best, candidate, key=lambda a: a.share)
    return best


def _near(values: I64, wanted: I64, tolerance: float) -> int:
    """How many of `wanted` have one of `values` within the tolerance; both sorted."""
    after = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    before = np.maximum(after - 1, 0)
    distance = np.minimum(np.abs(values[after] - wanted), np.abs(values[before] - wanted))
    return int((distance <= tolerance).sum())
