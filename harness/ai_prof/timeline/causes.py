"""Why the device idled: every ns of gap has exactly one cause.

The operation after the gap decides, and the thread that launched it. Without the launch's record the gap is
`unknown`. If the launch had returned before the gap began, it is `device` up to 5 us (hardware latency),
else `wait` (for a stream or an event); where there is but one stream, `device` up to 50 us. Of an operation
that was launched within the gap and begins more than 50 us later, that later part is `wait`. Otherwise,
stretch by stretch: `sync` while the thread is blocked in a synchronize or a blocking copy; `launch` in any
other call, or between two calls at most 100 us apart; and outside CUDA for longer, `data` at an iteration's
start, before an upload or where the thread was seen in a data loader, else `host`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ai_prof.timeline.intervals import Intervals, intersect_pieces, lengths, merge, union
from ai_prof.timeline.operations import call_row
from ai_prof.timeline.stacks import under_loader
from ai_prof.timeline.syncs import host_syncs, sync_threads, threads_of
from ai_prof.trace.model import CallKind, CopyKind

if TYPE_CHECKING:
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I32, I64, Trace

CAUSES = ("launch", "sync", "data", "host", "wait", "device", "unknown")
LATENCY_NS = 5_000
ALONE_NS = 50_000  # no operation takes the device longer to begin, and no other stream is waited for
BETWEEN_CALLS_NS = 100_000

_AT_ONCE = 1 << 18  # gaps; bounds what is made on the way

_LAUNCH, _SYNC, _DATA, _HOST, _WAIT, _DEVICE, _UNKNOWN = range(len(CAUSES))


@dataclass(frozen=True, slots=True)
class GapCauses:
    """For each of CAUSES the gaps that have some of it, and its ns in each, which add up to the gaps.

    `next_operation` is (n gaps,). `shadow` has, in the same form, the ns that there would not be if no
    synchronize that drained the device had made the host wait: it would have led by that time.
    """

    parts: tuple[tuple[I32, I64], ...]
    next_operation: I32
    shadow: tuple[I32, I64]

    @property
    def sync_shadow(self) -> int:
        """Ns of gap in the shadow of synchronizes."""
        return int(self.shadow[1].sum())

    def total(self) -> dict[str, int]:
        """Ns of each cause."""
        return {cause: int(ns.sum()) for cause, (_, ns) in zip(CAUSES, self.parts, strict=True)}

    def of(self, cause: str) -> I64:
        """Ns of one cause in each gap; (n gaps,)."""
        gaps, ns = self.parts[CAUSES.index(cause)]
        column = np.zeros(len(self.next_operation), np.int64)
        column[gaps] = ns
        return column

    def main(self) -> I32:
        """The cause of most of each gap, as its position in CAUSES; (n gaps,)."""
        most = np.zeros(len(self.next_operation), np.int64)
        cause = np.zeros(len(self.next_operation), np.int32)
        for number, (gaps, ns) in enumerate(self.parts):
            more = ns > most[gaps]
            most[gaps[more]], cause[gaps[more]] = ns[more], number
        return cause


class _Drains(NamedTuple):
    """Gaps in which synchronizes ended: (m,) gaps, rising, how long the host waited, and their part of it."""

    gap: I64
    waited: I64
    inside: I64


class _Piece(NamedTuple):
    """Of some successive gaps: ns by cause, (n, len(CAUSES)), and those that the host decides, (n,)."""

    by_gap: I64
    by_host: I64
    drains: _Drains


def gap_causes(
    trace: Trace, operations: Operations, device: int, gaps: Intervals, iteration_starts: I64
) -> GapCauses:
    """Causes of some gaps of a device; `iteration_starts` are starts of operations, any number."""
    following = np.searchsorted(operations.start, gaps.end, side="left").astype(np.int32)
    np.minimum(following, len(operations) - 1, out=following)
    states = _HostStates(trace, operations, device)
    begins = range(0, max(len(following), 1), _AT_ONCE)
    parts: list[list[tuple[I32, I64]]] = [[] for _ in CAUSES]
    by_host, drains = [], []
    for begin in begins:
        some = slice(begin, begin + _AT_ONCE)
        piece = _causes(
            states, Intervals(gaps.start[some], gaps.end[some]), following[some], iteration_starts
        )
        for part, ns in zip(parts, piece.by_gap.T, strict=True):
            rows = np.flatnonzero(ns)
            part.append(((begin + rows).astype(np.int32), ns[rows]))
        by_host.append(piece.by_host)
        drains.append(piece.drains._replace(gap=piece.drains.gap + begin))
    return GapCauses(
        tuple(
            (np.concatenate(gap), np.concatenate(ns))
            for gap, ns in (zip(*part, strict=True) for part in parts)
        ),
        following,
        _sync_shadow(
            np.concatenate(by_host),
            operations.process[following],
            _Drains(*map(np.concatenate, zip(*drains, strict=True))),
        ),
    )


def _causes(states: _HostStates, gaps: Intervals, following: I32, iteration_starts: I64) -> _Piece:
    """Causes of some gaps, each ended by the operation `following`; (n,)."""
    operations = states.operations
    by_gap = np.zeros((len(gaps.start), len(CAUSES)), np.int64)
    launched = operations.launched[following]
    known = launched >= 0
    by_gap[~known, _UNKNOWN] = (gaps.end - gaps.start)[~known]
    hosts = known & (launched > gaps.start)
    ready = np.where(known & ~hosts, gaps.end - gaps.start, 0)
    by_gap[:, _DEVICE] = np.where(ready <= states.latency_ns, ready, 0)
    late = np.where(hosts, gaps.end - launched, 0)
    late[late <= ALONE_NS] = 0
    by_gap[:, _WAIT] = ready - by_gap[:, _DEVICE] + late
    by_host = np.where(hosts, gaps.end - gaps.start - late, 0)
    feeds = (operations.kind[following] == CopyKind.HOST_TO_DEVICE) | np.isin(gaps.end, iteration_starts)
    waited = np.zeros(len(gaps.start), np.int64)
    processes, threads = operations.process[following], operations.thread[following]
    for process, thread in threads_of(processes[hosts], threads[hosts]):
        mine = np.flatnonzero(hosts & (processes == process) & (threads == thread))
        stretches = Intervals(gaps.start[mine], gaps.start[mine] + by_host[mine])
        blocked, inside = states.of(process, thread)
        sync, sync_gap = intersect_pieces(stretches, blocked)
        calls, calls_gap = intersect_pieces(stretches, inside)
        in_sync = lengths(sync, sync_gap, len(mine))
        in_calls = lengths(calls, calls_gap, len(mine)) - in_sync
        outside = by_host[mine] - in_sync - in_calls
        by_gap[mine, _SYNC], by_gap[mine, _LAUNCH] = in_sync, in_calls
        feeding = feeds[mine] | under_loader(states.trace, process, thread, stretches)
        by_gap[mine, _DATA] = np.where(feeding, outside, 0)
        by_gap[mine, _HOST] = np.where(feeding, 0, outside)
        over = sync.end <= launched[mine[sync_gap]]  # and not waiting for the operation itself
        which = np.searchsorted(blocked.end, sync.end[over])
        np.add.at(waited, mine[sync_gap[over]], blocked.end[which] - blocked.start[which])
    drains = np.flatnonzero(waited).astype(np.int64)
    return _Piece(by_gap, by_host, _Drains(drains, waited[drains], by_gap[drains, _SYNC]))


class _HostStates:
    """When each thread was blocked, and when it was at work on calls."""

    def __init__(self, trace: Trace, operations: Operations, device: int) -> None:
        self.trace = trace
        self.operations = operations
        self.sync_rows = host_syncs(trace, device, operations)
        self.sync_threads = sync_threads(trace, self.sync_rows)
        # A copy call that returns after the copy has ended was blocked in it.
        copies = np.flatnonzero(operations.is_memcpy & (operations.launched >= operations.end))
        blocking = call_row(trace, operations.correlation[copies])
        self.blocking = trace.calls.kind == CallKind.SYNC
        self.blocking[blocking[blocking >= 0]] = True
        alone = len(operations) > 0 and bool((operations.stream == operations.stream[0]).all())
        self.latency_ns = ALONE_NS if alone else LATENCY_NS
        self.known: dict[tuple[int, int], tuple[Intervals, Intervals]] = {}

    def of(self, process: int, thread: int) -> tuple[Intervals, Intervals]:
        """Blocked; and in calls or at most 100 us between two of them, blocked times included."""
        if (process, thread) not in self.known:
            self.known[process, thread] = self._find(process, thread)
        return self.known[process, thread]

    def _find(self, process: int, thread: int) -> tuple[Intervals, Intervals]:
        calls, syncs = self.trace.calls, self.trace.syncs
        mine = (calls.process == process) & (calls.thread == thread)
        rows = self.sync_rows[(self.sync_threads == thread) & (syncs.process[self.sync_rows] == process)]
        waits = mine & self.blocking
        waiting = union(syncs.start[rows], syncs.end[rows])
        blocked = merge(waiting, union(calls.start[waits], calls.end[waits]))
        working = union(calls.start[mine], calls.end[mine], BETWEEN_CALLS_NS)
        return blocked, merge(working, blocked, BETWEEN_CALLS_NS)


def _sync_shadow(by_host: I64, processes: I32, drains: _Drains) -> tuple[I32, I64]:
    """Gap after draining synchronizes that there would not be if none had blocked its process; rows rise."""
    of = processes[drains.gap]
    found = [
        _shadow_of_process(
            np.where(processes == process, by_host, 0), _Drains(*(part[of == process] for part in drains))
        )
        for process in np.unique(of).tolist()
    ]
    if not found:
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    rows, ns = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(rows, kind="stable")
    return rows[order], ns[order]


def _shadow_of_process(by_host: I64, drains: _Drains) -> tuple[I32, I64]:
    """The shadow in what one process decides of each gap.

    It would have been earlier by all the time it waited so far, and each gap takes from what is left of that.
    """
    lost = earlier = 0  # ns that the host waited before a piece, and by which its operations begin earlier
    rows, shadows = [], []
    for begin in range(0, len(by_host), _AT_ONCE):
        length = by_host[begin : begin + _AT_ONCE]
        mine = slice(*np.searchsorted(drains.gap, (begin, begin + len(length))))
        ended = drains.gap[mine] - begin
        waited = np.zeros(len(length), np.int64)
        waited[ended] = drains.waited[mine]
        before = np.append(earlier, _earlier(length, lost + np.cumsum(waited), earlier))
        shadow = np.diff(before)
        shadow[ended] -= np.minimum(shadow[ended], drains.inside[mine])  # that is no shadow but the wait
        found = np.flatnonzero(shadow)
        rows.append((begin + found).astype(np.int32))
        shadows.append(shadow[found])
        lost, earlier = lost + int(waited.sum()), int(before[-1])
    return np.concatenate(rows), np.concatenate(shadows)


def _earlier(gap: I64, lost: I64, before: int) -> I64:
    """By how much the operation after each gap would begin earlier, (n,), were the host by `lost` earlier.

    x[i] = min(x[i-1] + gap[i], lost[i]), from `before` on: no gap gets below nothing.
    """
    total = np.cumsum(gap)
    earlier: I64 = total + np.minimum(before, np.minimum.accumulate(lost - total))
    return earlier
