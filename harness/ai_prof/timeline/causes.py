"""Why the device idled: every ns of gap has exactly one cause.

The operation after the gap decides, and the thread that launched it. Without the launch's record the gap is
`unknown`. If the launch had returned before the gap began, it is `device` up to 5 us (hardware latency), else
`wait` (for a stream or an event). Otherwise, stretch by stretch: `sync` while the thread is blocked in a
synchronize or a blocking copy; `launch` in any other call, or between two calls at most 100 us apart; and
outside CUDA for longer, `data` at an iteration's start, before an upload or where the thread was seen in a
data loader, else `host`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.intervals import Intervals, intersect_pieces, merge, union
from ai_prof.timeline.operations import call_row
from ai_prof.timeline.stacks import under_loader
from ai_prof.timeline.syncs import host_syncs, sync_threads
from ai_prof.trace.model import CallKind, CopyKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I32, I64, Trace

CAUSES = ("launch", "sync", "data", "host", "wait", "device", "unknown")
LATENCY_NS = 5_000
BETWEEN_CALLS_NS = 100_000

_LAUNCH, _SYNC, _DATA, _HOST, _WAIT, _DEVICE, _UNKNOWN = range(len(CAUSES))


@dataclass(frozen=True, slots=True)
class GapCauses:
    """`by_gap` is (n gaps, len(CAUSES)) ns, and its rows add up to the gaps; `next_operation` is (n,).

    `sync_shadow` is the gap, in ns, between a synchronize that drained the device and the moment the host
    leads the device again by what it lost while it waited; no more than that.
    """

    by_gap: I64
    next_operation: I64
    sync_shadow: int

    def total(self) -> dict[str, int]:
        """Ns of each cause."""
        return dict(zip(CAUSES, self.by_gap.sum(axis=0).tolist(), strict=True))


def gap_causes(
    trace: Trace, operations: Operations, device: int, gaps: Intervals, iteration_starts: I64
) -> GapCauses:
    """Causes of some gaps of a device; `iteration_starts` are starts of operations, any number."""
    following = np.searchsorted(operations.start, gaps.end, side="left")
    following = np.minimum(following, len(operations) - 1).astype(np.int64)
    by_gap = np.zeros((len(gaps.start), len(CAUSES)), np.int64)
    launched = operations.launched[following]
    known = launched >= 0
    by_gap[~known, _UNKNOWN] = (gaps.end - gaps.start)[~known]
    hosts = known & (launched > gaps.start)
    ready = np.where(known & ~hosts, gaps.end - gaps.start, 0)
    by_gap[:, _DEVICE] = np.where(ready <= LATENCY_NS, ready, 0)
    by_gap[:, _WAIT] = ready - by_gap[:, _DEVICE]
    feeds = (operations.kind[following] == CopyKind.HOST_TO_DEVICE) | np.isin(gaps.end, iteration_starts)
    drained = Intervals(np.full(len(gaps.start), -1, np.int64), np.full(len(gaps.start), -1, np.int64))
    states = _HostStates(trace, operations, device)
    processes, threads = operations.process[following], operations.thread[following]
    for process, thread in _pairs(processes[hosts], threads[hosts]):
        mine = np.flatnonzero(hosts & (processes == process) & (threads == thread))
        stretches = Intervals(gaps.start[mine], gaps.end[mine])
        blocked, inside = states.of(process, thread)
        sync, sync_gap = intersect_pieces(stretches, blocked)
        calls, calls_gap = intersect_pieces(stretches, inside)
        in_sync = _sum(sync, sync_gap, len(mine))
        in_calls = _sum(calls, calls_gap, len(mine)) - in_sync
        outside = gaps.end[mine] - gaps.start[mine] - in_sync - in_calls
        by_gap[mine, _SYNC], by_gap[mine, _LAUNCH] = in_sync, in_calls
        feeding = feeds[mine] | under_loader(trace, process, thread, stretches)
        by_gap[mine, _DATA] = np.where(feeding, outside, 0)
        by_gap[mine, _HOST] = np.where(feeding, 0, outside)
        over = sync.end <= launched[mine[sync_gap]]  # and not waiting for the operation itself
        which = np.searchsorted(blocked.end, sync.end[over])
        # Of several in one gap the last stays.
        drained.start[mine[sync_gap[over]]] = blocked.start[which]
        drained.end[mine[sync_gap[over]]] = sync.end[over]
    return GapCauses(by_gap, following, _sync_shadow(operations, gaps, following, hosts, drained))


def _pairs(processes: I32, threads: I64) -> list[tuple[int, int]]:
    """Each process with each of its threads, once; rows of both columns belong together."""
    return [
        (process, thread)
        for process in np.unique(processes).tolist()
        for thread in np.unique(threads[processes == process]).tolist()
    ]


class _HostStates:
    """When each thread was blocked, and when it was at work on calls."""

    def __init__(self, trace: Trace, operations: Operations, device: int) -> None:
        self.trace = trace
        self.sync_rows = host_syncs(trace, device, operations)
        self.sync_threads = sync_threads(trace, self.sync_rows)
        # A copy call that returns after the copy has ended was blocked in it.
        copies = np.flatnonzero(operations.is_memcpy & (operations.launched >= operations.end))
        blocking = call_row(trace, operations.correlation[copies])
        self.blocking = (trace.calls.kind == CallKind.SYNC) | np.isin(
            np.arange(len(trace.calls.start)), blocking[blocking >= 0]
        )

    def of(self, process: int, thread: int) -> tuple[Intervals, Intervals]:
        """Blocked; and in calls or at most 100 us between two of them, blocked times included."""
        calls, syncs = self.trace.calls, self.trace.syncs
        mine = (calls.process == process) & (calls.thread == thread)
        rows = self.sync_rows[(self.sync_threads == thread) & (syncs.process[self.sync_rows] == process)]
        waits = mine & self.blocking
        waiting = union(syncs.start[rows], syncs.end[rows])
        blocked = merge(waiting, union(calls.start[waits], calls.end[waits]))
        return blocked, _closed(merge(union(calls.start[mine], calls.end[mine]), blocked))


def _closed(intervals: Intervals) -> Intervals:
    """The intervals with their holes of up to BETWEEN_CALLS_NS filled."""
    if not len(intervals.start):
        return intervals
    apart = intervals.start[1:] - intervals.end[:-1] > BETWEEN_CALLS_NS
    return Intervals(
        intervals.start[np.concatenate(([True], apart))], intervals.end[np.concatenate((apart, [True]))]
    )


def _sum(pieces: Intervals, of: I64, count: int) -> I64:
    """Total length of the pieces of each of `count` stretches."""
    total = np.zeros(count, np.int64)
    np.add.at(total, of, pieces.end - pieces.start)
    return total


def _sync_shadow(
    operations: Operations, gaps: Intervals, following: I64, hosts: npt.NDArray[np.bool_], drained: Intervals
) -> int:
    """Gap after draining synchronizes, each up to where the host has its lead again.

    `drained` is the synchronize that ended in each gap, -1 without one. Without it the host would have been
    ahead by the time it waited. Each gap until then takes from that; the rest is made up once some operation
    waits for the device as long.
    """
    count = len(gaps.start)
    if not count:
        return 0
    number, drains = np.arange(count), drained.end >= 0
    segment = np.maximum.accumulate(np.where(drains, number, -1))
    known = segment >= 0
    begin = np.where(drains, np.maximum(gaps.start, drained.end), gaps.start)
    ours = np.where(hosts & known, gaps.end - begin, 0)
    total = np.cumsum(ours)
    spent = total - np.where(known, (total - ours)[segment], 0)
    lost = (drained.end - drained.start)[segment]
    shadow = np.minimum(spent, lost) - np.minimum(spent - ours, lost)
    leads = np.where(known & (_lead(operations, following) >= lost - spent), number, -1)
    led = np.concatenate(([-1], np.maximum.accumulate(leads)[:-1]))
    return int(shadow[known & (segment > led)].sum())


def _lead(operations: Operations, following: I64) -> I64:
    """The longest that an operation between each gap and the next waited for the device; ns, (n gaps,)."""
    waited = np.where(operations.launched >= 0, operations.start - operations.launched, 0)
    waited[following] = 0  # for these the device waited
    lead: I64 = np.maximum.reduceat(waited, following)
    return lead
