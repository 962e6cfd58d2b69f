"""The gaps of a device one by one: how their time is spread over lengths, and the longest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.names import short
from ai_prof.trace.model import CopyKind

if TYPE_CHECKING:
    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I64, Trace

EDGES_US = (0, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000)
LONGEST = 10


class GapHistogram(msgspec.Struct, frozen=True):
    """`share[i]` of the window is gaps of `edges_us[i]` up to the next edge; the last bin is open."""

    edges_us: list[float]
    share: list[float]


class LongGap(msgspec.Struct, frozen=True):
    """One gap, the cause of most of it, and the operations around it."""

    start_ns: int
    length_ms: float
    cause: str
    before: str
    after: str


def gap_histogram(timeline: DeviceTimeline) -> GapHistogram:
    """Shares add up to the gap ratio."""
    gaps = timeline.busy.gaps
    lengths = gaps.end - gaps.start
    time, _ = np.histogram(lengths / 1000, [*EDGES_US, np.inf], weights=lengths)
    return GapHistogram([float(e) for e in EDGES_US], (time / timeline.busy.window).tolist())


def by_cause(timeline: DeviceTimeline) -> dict[str, I64]:
    """Ns of each gap, (n gaps,), by cause; what a single stream waits for is the device's own latency."""
    columns = dict(zip(CAUSES, timeline.causes.by_gap.T, strict=True))
    if len(np.unique(timeline.operations.stream)) == 1:
        columns["device"] = columns["device"] + columns["wait"]
        columns["wait"] = np.zeros_like(columns["wait"])
    return columns


def longest_gaps(trace: Trace, timeline: DeviceTimeline, count: int = LONGEST) -> list[LongGap]:
    """The longest gaps of the window, the longest first."""
    gaps, operations = timeline.busy.gaps, timeline.operations
    # The operation before a gap is the one that ends where the gap begins.
    by_end = np.argsort(operations.end, kind="stable")
    result = []
    for i in np.argsort(gaps.start - gaps.end, kind="stable")[:count].tolist():
        last = np.searchsorted(operations.end[by_end], gaps.start[i], side="right") - 1
        result.append(
            LongGap(
                int(gaps.start[i]),
                int(gaps.end[i] - gaps.start[i]) / 1e6,
                CAUSES[int(timeline.causes.by_gap[i].argmax())],
                operation_name(trace, operations, int(by_end[last])) if last >= 0 else "",
                operation_name(trace, operations, int(timeline.causes.next_operation[i])),
            )
        )
    return result


def operation_name(trace: Trace, operations: Operations, row: int) -> str:
    """A kernel's short name, or what a copy does."""
    if operations.is_kernel[row]:
        return short(trace.names[operations.name[row]]) if operations.name[row] >= 0 else "unknown kernel"
    kind = CopyKind(int(operations.kind[row]))
    return "memset" if kind == CopyKind.SET else f"memcpy {kind.name.lower().replace('_', ' ')}"
