"""The gaps of a device one by one: how their time is spread over lengths, and the longest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.names import normalise, short
from ai_prof.timeline.operations import KERNEL
from ai_prof.timeline.stacks import FrameTime, gap_frames
from ai_prof.trace.model import CopyKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.intervals import Intervals
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I64, Trace

EDGES_US = (0, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000)
LONGEST = 10
PLACES = ("start", "middle", "end", "outside")
_EDGE = 0.1  # of an iteration
_CALLS = 3


class GapHistogram(msgspec.Struct, frozen=True):
    """`share[i]` of the window is gaps of `edges_us[i]` up to the next edge; the last bin is open."""

    edges_us: list[float]
    share: list[float]


class LongGap(msgspec.Struct, frozen=True):
    """One gap, the cause of most of it, the operations around it, and what the host called meanwhile.

    `iteration` counts from 0, `place` is where in it the gap begins, 0 to 1; None outside of any.
    `placement` is one of PLACES.
    `calls_ms` has the longest host calls during the gap by name, those of the process that ended it; `frames`
    the stacks in which the thread was seen that ended it, where stacks were sampled.
    """

    start_ns: int
    length_ms: float
    cause: str
    before: str
    after: str
    iteration: int | None
    place: float | None
    placement: str
    calls_ms: dict[str, float]
    frames: list[FrameTime]


def gap_histogram(timeline: DeviceTimeline) -> GapHistogram:
    """Shares add up to the gap ratio."""
    gaps = timeline.busy.gaps
    lengths = gaps.end - gaps.start
    time, _ = np.histogram(lengths / 1000, [*EDGES_US, np.inf], weights=lengths)
    return GapHistogram([float(e) for e in EDGES_US], (time / timeline.busy.window).tolist())


def placements(timeline: DeviceTimeline) -> npt.NDArray[np.int8]:
    """Where in an iteration each gap lies, as positions in PLACES; (n gaps,).

    `start` is the wait for an iteration's first operation, and what begins in its first tenth; `end` what
    begins in its last tenth; `outside` what begins in no whole iteration.
    """
    gaps, starts = timeline.busy.gaps, timeline.iterations.starts
    if len(starts) < 2:
        return np.full(len(gaps.start), PLACES.index("outside"), np.int8)
    first = starts[np.minimum(np.searchsorted(starts, gaps.end), len(starts) - 1)] == gaps.end
    i = np.searchsorted(starts, gaps.start, side="right") - 1
    inside = (i >= 0) & (i < len(starts) - 1)
    np.clip(i, 0, len(starts) - 2, out=i)
    place = (gaps.start - starts[i]) / np.diff(starts)[i]
    chosen = [first, ~inside, place < _EDGE, place >= 1 - _EDGE]
    places = [np.int8(PLACES.index(name)) for name in ("start", "outside", "start", "end")]
    return np.select(chosen, places, np.int8(PLACES.index("middle")))


def longest_gaps(trace: Trace, timeline: DeviceTimeline) -> list[LongGap]:
    """The longest gaps of the window, the longest first."""
    gaps, operations = timeline.busy.gaps, timeline.operations
    placement, main = placements(timeline), timeline.causes.main()
    longest = _longest(gaps)
    result = []
    for i, before in zip(
        longest.tolist(), last_to_end(operations, gaps.start[longest]).tolist(), strict=True
    ):
        start, end = int(gaps.start[i]), int(gaps.end[i])
        following = int(timeline.causes.next_operation[i])
        result.append(
            LongGap(
                start,
                (end - start) / 1e6,
                CAUSES[main[i]],
                operation_name(trace, operations, before) if before >= 0 else "",
                operation_name(trace, operations, following),
                *_place(timeline.iterations.starts, start),
                PLACES[placement[i]],
                calls_during(trace, int(operations.process[following]), start, end),
                gap_frames(
                    trace, int(operations.process[following]), int(operations.thread[following]), start, end
                ),
            )
        )
    return result


def _longest(gaps: Intervals) -> npt.NDArray[np.intp]:
    """The longest gaps, the longest first and of equal ones the earliest."""
    shortness = gaps.start - gaps.end
    rows = np.arange(len(shortness))
    if len(shortness) > LONGEST:
        rows = np.flatnonzero(shortness <= np.partition(shortness, LONGEST - 1)[LONGEST - 1])
    return rows[np.argsort(shortness[rows], kind="stable")][:LONGEST]


def last_to_end(operations: Operations, times: I64) -> npt.NDArray[np.intp]:
    """The row of the last operation to end before each of some idle times begins, (n,); -1 without one."""
    by_end = np.argsort(operations.end, kind="stable")
    last = np.searchsorted(operations.end[by_end], times, side="right") - 1
    return np.where(last >= 0, by_end[np.maximum(last, 0)], -1)


def _place(starts: I64, time: int) -> tuple[int | None, float | None]:
    """The iteration that a time lies in, and how far into it."""
    i = int(np.searchsorted(starts, time, side="right")) - 1
    if not 0 <= i < len(starts) - 1:
        return None, None
    return i, (time - int(starts[i])) / int(starts[i + 1] - starts[i])


def calls_during(trace: Trace, process: int, start: int, end: int) -> dict[str, float]:
    """Ms within [start, end) in the host calls that took most of it, by name, over all threads."""
    calls = trace.calls
    before = int(np.searchsorted(calls.start, end))
    rows = np.flatnonzero((calls.end[:before] > start) & (calls.process[:before] == process))
    names, of = np.unique(calls.name[rows], return_inverse=True)
    inside = np.minimum(calls.end[rows], end) - np.maximum(calls.start[rows], start)
    spent = np.bincount(of.reshape(-1), weights=inside, minlength=len(names)) / 1e6
    longest = np.argsort(-spent, kind="stable")[:_CALLS].tolist()
    return {trace.names[names[i]] if names[i] >= 0 else "unknown call": float(spent[i]) for i in longest}


def operation_name(trace: Trace, operations: Operations, row: int) -> str:
    """A kernel's short name, or what a copy does."""
    if operations.is_kernel[row]:
        return short(trace.names[operations.name[row]]) if operations.name[row] >= 0 else "unknown kernel"
    kind = CopyKind(int(operations.kind[row]))
    return "memset" if kind == CopyKind.SET else f"memcpy {kind.words}"


def normalised_name(trace: Trace, operations: Operations, row: int) -> str:
    """A kernel's normalised name, which is the same in every run, or what a copy does."""
    if operations.is_kernel[row] and operations.name[row] >= 0:
        return normalise(trace.names[operations.name[row]])
    return operation_name(trace, operations, row)


def distinct_names(trace: Trace, operations: Operations, rows: npt.NDArray[Any]) -> tuple[list[str], I64]:
    """The normalised names of some operations, each once, and which of them each has, (n,); "" for row -1."""
    label = np.where(operations.is_kernel[rows], operations.name[rows], KERNEL - 1 - operations.kind[rows])
    label[rows < 0] = np.iinfo(label.dtype).min
    _, first, which = np.unique(label, return_index=True, return_inverse=True)
    each = [normalised_name(trace, operations, row) if row >= 0 else "" for row in rows[first].tolist()]
    number = {name: i for i, name in enumerate(dict.fromkeys(each))}
    return list(number), np.array([number[name] for name in each], np.int64)[which.reshape(-1)]
