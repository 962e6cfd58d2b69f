"""What Python was in while the device waited, from the stacks sampled beside a capture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from ai_prof.timeline.advice import SAMPLE_STACKS
from ai_prof.timeline.intervals import Intervals, intersect_pieces

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.finding import Finding
    from ai_prof.trace.model import I64, Trace

_MOST = 3
# Where the input of the frameworks is waited for or made.
_LOADER = re.compile(
    r"torch/utils/data/|/nvidia/dali/|tensorflow/python/data/|/(webdataset|litdata|ffcv|grain|streaming)/"
    r"|/datasets/(iterable_dataset|arrow_dataset)|/dataloaders?\.py"
)
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3[\d.]*/|\((<frozen.*|)\)$")


class FrameTime(msgspec.Struct, frozen=True):
    """`ms` of a gap that a thread was seen in one stack; `frames` has the outermost first."""

    frames: list[str]
    ms: float


class _Seen(NamedTuple):
    """Pieces of gaps, (n,): which gap, which stack, and how long in ns."""

    gap: I64
    stack: I64
    ns: I64


_NOTHING = _Seen(*(np.zeros(0, np.int64) for _ in range(3)))


def _seen(trace: Trace, process: int, thread: int, gaps: Intervals) -> _Seen:
    """The stacks of `thread` during sorted, disjoint gaps.

    A thread without Python of its own, as autograd's are, works for the program's first one.
    """
    stacks = trace.stacks
    if stacks is None or not len(gaps.start):
        return _NOTHING
    own = stacks.process == process
    mine = own & (stacks.thread == thread)
    if not mine.any():
        mine = own & (stacks.thread == trace.processes[process].pid)
    rows = np.flatnonzero(mine)
    if not len(rows):
        return _NOTHING
    pieces, gap = intersect_pieces(gaps, Intervals(stacks.start[rows], stacks.end[rows]))
    row = np.searchsorted(stacks.start[rows], pieces.start, side="right") - 1
    return _Seen(gap, stacks.stack[rows[row]].astype(np.int64), pieces.end - pieces.start)


def under_loader(trace: Trace, process: int, thread: int, gaps: Intervals) -> npt.NDArray[np.bool_]:
    """Whether `thread` was seen in a data loader for most of what was seen of each gap; (n gaps,)."""
    seen = _seen(trace, process, thread, gaps)
    if not len(seen.gap):
        return np.zeros(len(gaps.start), np.bool_)
    frames = trace.stacks.frames if trace.stacks is not None else ()
    loads = np.array([any(_LOADER.search(frame) for frame in stack) for stack in frames], np.bool_)
    known = np.bincount(seen.gap, weights=seen.ns, minlength=len(gaps.start))
    loading = np.bincount(seen.gap, weights=seen.ns * loads[seen.stack], minlength=len(gaps.start))
    return (loading * 2 > known) & (known > 0)


def gap_frames(trace: Trace, process: int, thread: int, start: int, end: int) -> list[FrameTime]:
    """The stacks seen longest in one gap, the longest first."""
    seen = _seen(trace, process, thread, Intervals(np.array([start]), np.array([end])))
    if trace.stacks is None or not len(seen.gap):
        return []
    ns = np.bincount(seen.stack, weights=seen.ns)
    order = [int(i) for i in np.argsort(-ns, kind="stable")[:_MOST] if ns[i] > 0]
    return [FrameTime([_short(f) for f in trace.stacks.frames[i]], float(ns[i]) / 1e6) for i in order]


def busiest_function(trace: Trace, timeline: DeviceTimeline, column: I64) -> tuple[str, float] | None:
    """The program's own function that most of some gaps was seen in, and its share of what was seen.

    `column` is the ns of one cause in each gap, (n gaps,): gaps of which it is most count. A function is the
    program's own when it lies in no library; where all frames do, the innermost is taken.
    """
    stacks, gaps, operations = trace.stacks, timeline.busy.gaps, timeline.operations
    if stacks is None:
        return None
    following = timeline.causes.next_operation
    chosen = column * 2 > gaps.end - gaps.start
    by_stack = np.zeros(len(stacks.frames))
    places = np.stack((operations.process[following], operations.thread[following]), 1)
    for process, thread in np.unique(places[chosen], axis=0).tolist():
        mine = chosen & (places == (process, thread)).all(axis=1)
        seen = _seen(trace, process, thread, Intervals(gaps.start[mine], gaps.end[mine]))
        by_stack += np.bincount(seen.stack, weights=seen.ns, minlength=len(by_stack))
    by_function: dict[str, float] = {}
    for stack, ns in zip(stacks.frames, by_stack.tolist(), strict=True):
        name = _own_function(stack)
        by_function[name] = by_function.get(name, 0.0) + ns
    if not by_stack.any():
        return None
    name = max(by_function, key=lambda each: by_function[each])
    return name, by_function[name] / float(by_stack.sum())


def name_function(finding: Finding, trace: Trace, timeline: DeviceTimeline, column: I64) -> Finding:
    """`finding`, which `column` gave rise to, with the function that its gaps lie in."""
    found = busiest_function(trace, timeline, column)
    if found is None:
        return finding
    name, share = found
    seen = f"the program was in it for {share:.0%} of that time{_doubt(trace, timeline, column)}"
    return msgspec.structs.replace(
        finding,
        evidence={**finding.evidence, "function": name, "function_share": share},
        actions=[
            f"Look at {name}: {seen}.",
            *(action for action in finding.actions if action is not SAMPLE_STACKS),
        ],
    )


def _doubt(trace: Trace, timeline: DeviceTimeline, column: I64) -> str:
    """What to say where the stacks' clock may be off by more than a quarter of a gap of those that matter.

    Half of the time lies in gaps at least that long: many short ones beside do not count.
    """
    lengths = timeline.busy.gaps.end - timeline.busy.gaps.start
    chosen = np.sort(lengths[column * 2 > lengths])
    usual = float(chosen[np.searchsorted(np.cumsum(chosen), chosen.sum() / 2)])
    error = trace.stacks.error_ns if trace.stacks is not None else 0
    if error * 4 <= usual:
        return ""
    off, long = error / 1e6, usual / 1e6
    return f", or in what comes beside it: stacks may be off by {off:.1f} ms, a gap takes {long:.1f} ms"


def _own_function(stack: tuple[str, ...]) -> str:
    own = (frame for frame in reversed(stack) if not _LIBRARY.search(frame))
    return _short(next(own, stack[-1]))


def _short(frame: str) -> str:
    """Without the folders before a library's, or before the program's file."""
    name, _, file = frame.rpartition(" (")
    file = file.removesuffix(")")
    inside = re.sub(r"^.*/(?:(?:site|dist)-packages|lib/python3[\d.]*)/", "", file)
    return f"{name} ({inside if inside != file else file.rpartition('/')[2]})"
