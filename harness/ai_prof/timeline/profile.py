"""One iteration, position by position: the host's time before each submission, and the device's after it.

Submission i of an iteration is the same work in every iteration and every run of a program. What a run is
like at each position is therefore comparable between runs, however fast their hosts were.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ai_prof.timeline.gaps import normalised_name
from ai_prof.timeline.intervals import union
from ai_prof.timeline.sequence import main_process, normalised
from ai_prof.timeline.spent import Spent, spent
from ai_prof.timeline.syncs import host_syncs, sync_threads
from ai_prof.timeline.typical import Typical, typical

if TYPE_CHECKING:
    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I32, I64, Trace

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]

ROWS = ("host_p10", "host_p25", "host_p75", "device_us", "gap_us")
MIN_ITERATIONS = 10  # below these, a tenth of the iterations is none
_LEAST_NS = 100  # two threads may submit in any order; their distance has no logarithm below this


@dataclass(frozen=True, slots=True)
class Profile:
    """The P operations of one iteration in the order of their submission.

    `names` are normalised; `kind` is KERNEL or a CopyKind; `thread` numbers the launching threads in the
    order in which they first submit, -1 where the call is unknown. `values` is (5, P), row by row as in
    ROWS: quantiles over iterations of the host interval before the submission (ln us; NaN where the
    operation is no submission of its own, as a graph's further nodes are), and the medians of the
    operation's duration and of the idle time of the device before it, us. `typical` is one such iteration to
    draw, and `spent` what the mean one's time goes to; None where the profile was stored without, and no part
    of its digest.
    """

    names: tuple[str, ...]
    kind: I8
    thread: I8
    values: F32
    typical: Typical | None = None
    spent: Spent | None = None

    def digest(self) -> str:
        """A name for exactly this profile."""
        text = "\0".join(self.names).encode()
        columns = (self.kind.tobytes(), self.thread.tobytes(), self.values.tobytes())
        return hashlib.sha256(b"\0".join((text, *columns))).hexdigest()[:20]


def profile(trace: Trace, timeline: DeviceTimeline) -> Profile | None:
    """The profile of a device's most frequent kind of iteration after warm-up.

    None where fewer than MIN_ITERATIONS consist of the same operations in the same order.
    """
    found = timeline.iterations
    rows = np.flatnonzero(found.operation >= 0)
    edges = np.searchsorted(rows, found.first_row[found.warm_up :])
    token = normalised(found.token, trace.names)[rows]
    first, size = _alike(token, edges)
    if len(first) < MIN_ITERATIONS:
        return None
    operation = found.operation[rows]
    at = first[:, None] + np.arange(size)
    operations = timeline.operations
    example = operation[at[-1]]
    return Profile(
        names=tuple(normalised_name(trace, operations, int(row)) for row in example),
        kind=operations.kind[example].astype(np.int8),
        thread=_numbered(operations.thread[example]),
        values=_values(trace, timeline, operation, at),
        typical=_typical(trace, timeline, np.searchsorted(edges, first)),
        spent=spent(trace, timeline),
    )


def _typical(trace: Trace, timeline: DeviceTimeline, alike: npt.NDArray[np.intp]) -> Typical:
    """Of the iterations after warm-up numbered `alike`, the one whose length is nearest to their median."""
    edges = timeline.iterations.starts[timeline.iterations.warm_up :]
    lengths = np.diff(edges)[alike]
    chosen = int(alike[np.abs(lengths - np.median(lengths)).argmin()])
    return typical(trace, timeline, int(edges[chosen]), int(edges[chosen + 1]))


def _alike(token: I32, edges: I64) -> tuple[I64, int]:
    """Where the iterations of the most frequent kind begin, and their size.

    The very first operation of a program has no submission before it, and its iteration is left out.
    """
    pairs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    kinds = {low: token[low:high].tobytes() for low, high in pairs if 0 < low < high}
    if not kinds:
        return np.zeros(0, np.int64), 0
    ((most, _),) = Counter(kinds.values()).most_common(1)
    first = np.array([low for low, kind in kinds.items() if kind == most], np.int64)
    return first, len(most) // token.itemsize


def _numbered(thread: I64) -> I8:
    """Threads by the order of their first appearance; -1 stays."""
    known = dict.fromkeys(t for t in thread.tolist() if t >= 0)
    number = {t: min(i, 127) for i, t in enumerate(known)}
    return np.array([number.get(t, -1) for t in thread.tolist()], np.int8)


def _values(trace: Trace, timeline: DeviceTimeline, operation: I32, at: I64) -> F32:
    """The rows of ROWS over iterations whose operations are `operation[at]`, `at` (iterations, P)."""
    operations = timeline.operations
    interval = host_intervals(trace, timeline.device, operations, operation)[at] / 1e3
    submits = np.isfinite(interval).all(axis=0)
    host = np.full((3, at.shape[1]), np.nan)
    host[:, submits] = np.log(np.quantile(interval[:, submits], (0.10, 0.25, 0.75), axis=0))
    duration = (operations.end - operations.start)[operation[at]]
    # The device is idle before an operation from the end of all that started earlier.
    reach = np.concatenate((operations.start[:1], np.maximum.accumulate(operations.end)[:-1]))
    gap = np.maximum(operations.start - reach, 0)[operation[at]]
    device = [np.median(each, axis=0) / 1e3 for each in (duration, gap)]
    return np.vstack((host, *device)).astype(np.float32)


def host_intervals(
    trace: Trace, device: int, operations: Operations, operation: I32
) -> npt.NDArray[np.float64]:
    """The host's own time before each of some operations, ns, (n,); they are given in launch order.

    From the start of the submission before it to the start of its own, less the time in which its thread
    was blocked in a synchronize. NaN for what is not submitted by a call of its own, and for the first.
    """
    launch, thread = operations.launch[operation], operations.thread[operation]
    correlation = operations.correlation[operation]
    own = (launch >= 0) & (np.diff(correlation, prepend=-1) != 0)
    at = np.flatnonzero(own)
    result = np.full(len(operation), np.nan)
    if not len(at):
        return result
    start, by = launch[at], thread[at]
    interval = np.diff(start).astype(np.float64)
    waits, waiting = _waits(trace, device, operations)
    for each in np.unique(by).tolist():
        mine = waits[(waiting == each) | (waiting < 0)]
        blocked = _blocked_until(trace, mine, start)
        here = by[1:] == each
        interval[here] -= np.diff(blocked)[here]
    result[at[1:]] = np.maximum(interval, _LEAST_NS)
    return result


def _waits(trace: Trace, device: int, operations: Operations) -> tuple[I64, I64]:
    """The rows of `trace.syncs` in which a thread of the main process waited, and those threads."""
    rows = host_syncs(trace, device, operations)
    rows = rows[trace.syncs.process[rows] == main_process(operations)]
    return rows, sync_threads(trace, rows)


def _blocked_until(trace: Trace, rows: I64, time: I64) -> I64:
    """The time spent in some waits before each time, ns."""
    if not len(rows):
        return np.zeros(len(time), np.int64)
    spans = union(trace.syncs.start[rows], trace.syncs.end[rows])
    spent = np.concatenate(([0], np.cumsum(spans.end - spans.start)))
    before = np.searchsorted(spans.start, time, side="right")
    open_end = np.where(before > 0, spans.end[np.maximum(before - 1, 0)], time)
    blocked: I64 = spent[before] - np.maximum(open_end - time, 0)
    return blocked
