"""The ranks of one job side by side, and which of them the others wait for.

A collective ends on all ranks at once, so a rank that comes to it late spends less time in it than the
others: the difference of the kernels' durations is the lateness, and no clock of another machine enters it.
Clocks only say which kernels are of one collective, and those of two hosts are set by their common ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from ai_prof.timeline.advice import ACTIONS
from ai_prof.timeline.communication import comm_exposed, communication_rows
from ai_prof.timeline.finding import Finding, Severity
from ai_prof.timeline.healthy import EXPOSED, GAP_STARVED, NOTABLE
from ai_prof.timeline.sequence import main_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I64, Trace


_SHIFTS = 64  # tried, the least first
_SAME_END_NS = 20_000  # ends of one collective lie nearer than this once the clocks are set


class RankSummary(msgspec.Struct, frozen=True):
    """One rank. Times are ms per iteration of its own.

    `late_ms` is what the other ranks (their median) spend in communication beyond it: they wait for it.
    `last_share` is the share of collectives that it came to last; None without common collectives.
    """

    rank: int
    device: int
    iteration_ms: float
    gap_ms: float
    comm_exposed_ms: float
    late_ms: float | None
    last_share: float | None


class LateRank(NamedTuple):
    """The rank that the others wait for most, and what that costs them at most: ms an iteration.

    Waiting that computing hides costs nothing.
    """

    rank: RankSummary
    costs_ms: float


def rank_of(trace: Trace, timeline: DeviceTimeline) -> int | None:
    """The rank of the process with most work on the device."""
    return trace.processes[main_process(timeline.operations)].rank if trace.processes else None


def rank_summaries(trace: Trace, timelines: Sequence[DeviceTimeline]) -> list[RankSummary]:
    """By rank; nothing for a job of one."""
    known = [(rank, timeline) for timeline in timelines if (rank := rank_of(trace, timeline)) is not None]
    ranks = sorted(known, key=lambda pair: pair[0])
    if len({rank for rank, _ in ranks}) < 2:
        return []
    durations = _collectives([_communication(trace, timeline) for _, timeline in ranks])
    late, count = _late(durations), durations.shape[1]
    last = np.bincount(durations.argmin(axis=0), minlength=len(ranks)) if count else None
    return [
        _summary(trace, rank, timeline, late[i], None if last is None else int(last[i]) / count)
        for i, (rank, timeline) in enumerate(ranks)
    ]


def late_rank(trace: Trace, timelines: Sequence[DeviceTimeline]) -> LateRank | None:
    """The rank that the others wait for most, where that is worth a word."""
    ranks = [rank for rank in rank_summaries(trace, timelines) if rank.late_ms is not None]
    late = max(ranks, key=lambda rank: rank.late_ms or 0.0, default=None)
    if late is None or not late.late_ms:
        return None
    costs_ms = min(late.late_ms, max(rank.comm_exposed_ms for rank in ranks if rank is not late))
    return LateRank(late, costs_ms) if costs_ms >= NOTABLE * late.iteration_ms else None


def late_finding(late: LateRank) -> Finding:
    """What a late rank costs the others."""
    rank, costs_ms = late
    share = costs_ms / rank.iteration_ms if rank.iteration_ms else 0.0
    severity: Severity = "critical" if share >= GAP_STARVED else "warning" if share >= EXPOSED else "info"
    return Finding("late-rank", severity, msgspec.to_builtins(rank), costs_ms, list(ACTIONS["late-rank"]))


def _summary(
    trace: Trace, rank: int, timeline: DeviceTimeline, late: I64, last_share: float | None
) -> RankSummary:
    busy, count = timeline.busy, timeline.iterations_in_window
    exposed = comm_exposed(timeline.operations, trace.names, busy.low, busy.high)
    return RankSummary(
        rank,
        timeline.device,
        timeline.iterations.median_ns / 1e6,
        busy.gap / count / 1e6,
        exposed / count / 1e6,
        None if last_share is None else int(late.sum()) / count / 1e6,
        last_share,
    )


def _communication(trace: Trace, timeline: DeviceTimeline) -> Operations:
    """The communication kernels that start in the window, by their end."""
    operations, busy = timeline.operations, timeline.busy
    inside = operations.begin_in(busy.low, busy.high)
    chosen = operations.rows(inside & communication_rows(operations, trace.names))
    return chosen.rows(np.argsort(chosen.end, kind="stable"))


def _late(durations: I64) -> I64:
    """How much later than the others' median each rank came to each collective; ns, (ranks, n)."""
    others = [np.median(np.delete(durations, rank, axis=0), axis=0) for rank in range(len(durations))]
    late: I64 = np.maximum(np.stack(others).astype(np.int64) - durations, 0)
    return late


def _collectives(ranks: Sequence[Operations]) -> I64:
    """Durations in ns of what all ranks ran as one, (ranks, n): kernels of one name, nearest in their ends.

    A kernel counts where it is the nearest of its rank to the first rank's, and that one the nearest to it.
    """
    first, *others = ranks
    common = np.ones(len(first), bool)
    partners = [np.arange(len(first))]
    for other in others:
        if not len(other) or not len(first):
            return np.zeros((len(ranks), 0), np.int64)
        ends = other.end - _clock_error(first.end, other.end)
        there, back = _nearest(first.end, ends), _nearest(ends, first.end)
        common &= (back[there] == np.arange(len(first))) & (other.name[there] == first.name)
        partners.append(there)
    pairs = zip(ranks, partners, strict=True)
    return np.stack([(rank.end - rank.start)[at[common]] for rank, at in pairs])


def _clock_error(ends: I64, theirs: I64) -> int:
    """How far their clock is ahead: the least shift, of those that bring some end to ours, that suits all."""
    middle = ends[len(ends) // 2]
    shifts = theirs - middle
    shifts = shifts[np.argsort(np.abs(shifts), kind="stable")][:_SHIFTS]
    distances = [np.median(np.abs(theirs[_nearest(ends + s, theirs)] - s - ends)) for s in shifts.tolist()]
    suits = np.flatnonzero(np.array(distances) <= 2 * min(distances) + _SAME_END_NS)
    return int(shifts[suits[0]])


def _nearest(times: I64, among: I64) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """For each time the position of the nearest in a sorted array; 0 where that is empty."""
    if not len(among):
        return np.zeros(len(times), np.intp)
    after = np.minimum(np.searchsorted(among, times), len(among) - 1)
    before = np.maximum(after - 1, 0)
    return np.where(np.abs(among[before] - times) <= np.abs(among[after] - times), before, after)
