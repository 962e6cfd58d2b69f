"""The iterations of the work on a device: from markers, else from the period of the launches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.markers import marked_starts
from ai_prof.timeline.period import Period, familiar, find_period
from ai_prof.timeline.phase import first_rows
from ai_prof.timeline.sequence import KERNEL_TOKEN, Sequence, bones, launch_sequence, normalised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I32, I64, Trace

MIN_CONFIDENCE = 0.5
_SURE = 0.8
_FAMILIAR = 0.7  # share of the rows that must be of the iteration's own kinds
_UNDISTURBED = 0.95  # what the bare bones must explain,
_STEADY = 1.5  # how much the work between them may differ (90th to 10th percentile),
_BARE = 0.75  # and how far they are trusted
_HOST_FREE = 0.7  # what never meets the host may be the layers of one long iteration
_SLOW_START = 1.25  # an early iteration this much longer than the median is warm-up


@dataclass(frozen=True, slots=True)
class Iterations:
    """`count` iterations begin at rows `first_row` of the launch order, at times `starts`; (count,).

    The launch order is `token` and `operation`, (n,), as in a Sequence.

    `warm_up` of them come before the steady state. `last_whole` says whether the last one is complete;
    it has no length, because nothing marks its end. `method` is period, nvtx, profiler_step or none.
    """

    token: I32
    operation: I32
    first_row: I64
    starts: I64
    warm_up: int
    last_whole: bool
    method: str
    confidence: float

    @property
    def count(self) -> int:
        """Whole iterations, warm-up included."""
        return max(len(self.starts) - (not self.last_whole), 0)

    @property
    def lengths(self) -> I64:
        """Ns from start to start, of the iterations after warm-up."""
        return np.diff(self.starts[self.warm_up :])

    @property
    def median_ns(self) -> float:
        """Median length after warm-up; 0 without any."""
        return float(np.median(self.lengths)) if len(self.lengths) else 0.0

    @property
    def window(self) -> tuple[int, int] | None:
        """From the start of the first steady iteration to the end of the last whole one that has an end."""
        if len(self.starts) - self.warm_up < 2:
            return None
        return int(self.starts[self.warm_up]), int(self.starts[-1])


def find_iterations(
    trace: Trace, operations: Operations, device: int, counted: int | None = None
) -> Iterations:
    """The iterations of a device's main process; method "none" and no rows rather than a guess.

    Markers say where they are; without, how often the program says that it iterated, `counted`, decides
    between a period and what repeats inside it.
    """
    sequence = launch_sequence(trace, operations, device)
    marked = marked_starts(trace, operations, sequence)
    if marked is not None:
        method, rows = marked
        return _iterations(operations, sequence, rows, (method, 1.0), last_whole=True)
    found = _most_periodic(trace, operations, sequence, counted)
    if found is None:
        nothing = np.zeros(0, np.int64)
        order = (sequence.token, sequence.operation)
        return Iterations(*order, nothing, nothing, 0, last_whole=False, method="none", confidence=0.0)
    used, period = found
    rows = first_rows(operations, used, period)
    size = min(period.size, len(used))
    last_whole = len(used) - int(rows[-1]) >= size * 0.9
    if used is not sequence:
        # Rows of a coarser sequence; the structure counts all of the work.
        row_of = np.zeros(len(operations), np.int64)
        known = np.flatnonzero(sequence.operation >= 0)
        row_of[sequence.operation[known]] = known
        rows = np.sort(row_of[used.operation[rows]])
    confidence = period.explained * (1 if period.contact else _HOST_FREE)
    return _iterations(operations, sequence, rows, ("period", confidence), last_whole=last_whole)


def _iterations(
    operations: Operations, sequence: Sequence, rows: I64, found: tuple[str, float], *, last_whole: bool
) -> Iterations:
    """Iterations that begin at some rows; `found` is the method and its confidence."""
    starts = operations.start[sequence.operation[rows]]
    # Work of two streams may start out of order; an iteration that starts before the last one is no cut.
    forward = starts > np.concatenate(([starts[0] - 1], np.maximum.accumulate(starts)[:-1]))
    rows, starts = rows[forward], starts[forward]
    warm_up = _warm_up(rows, starts)
    return Iterations(sequence.token, sequence.operation, rows, starts, warm_up, last_whole, *found)


def _most_periodic(
    trace: Trace, operations: Operations, sequence: Sequence, counted: int | None
) -> tuple[Sequence, Period] | None:
    """The period of the whole sequence, or of a coarser one where that is irregular.

    In turn: kernels by name; by normalised name, since shapes choose kernels; without synchronizes; the
    busiest stream alone, since threads interleave as they like; and last the bare bones.
    """
    best: tuple[Sequence, Period] | None = None
    for candidate in _coarser(trace, operations, sequence):
        period = find_period(candidate, counted)
        if period and (best is None or period.explained > best[1].explained):
            best = candidate, period
        if best and best[1].explained >= _SURE:
            break
    if best and best[1].explained >= MIN_CONFIDENCE and familiar(*best) >= _FAMILIAR:
        return best
    return _by_bones(sequence)


def _coarser(trace: Trace, operations: Operations, sequence: Sequence) -> Iterator[Sequence]:
    """The sequence, and then the coarser ones in turn."""
    yield sequence
    coarse = replace(sequence, token=normalised(sequence.token, trace.names))
    yield coarse
    quiet = coarse.without(coarse.is_sync)
    yield quiet
    streams = operations.stream[quiet.operation]
    yield quiet.without(streams != np.bincount(streams).argmax())


def _by_bones(sequence: Sequence) -> tuple[Sequence, Period] | None:
    """A period of uploads, readbacks and updates alone, where nothing disturbs it.

    And where it takes about as much work each time, more than copies: a program reads back when it likes, and
    uploads its parameters one after another.
    """
    bare, row = bones(sequence)
    period = find_period(bare)
    if period is None or period.explained < _UNDISTURBED:
        return None
    works = (bare.token[period.example : period.example + period.size] >= KERNEL_TOKEN).any()
    few, many = np.percentile(np.diff(row[period.anchors]), (10, 90))
    if not works or many > _STEADY * few:
        return None
    return bare, replace(period, explained=_BARE * period.explained)


def _warm_up(rows: I64, starts: I64) -> int:
    """How many of the first iterations differ in work or take long; at most half."""
    if len(rows) < 3:
        return 0
    sizes, lengths = np.diff(rows), np.diff(starts)
    slow = lengths > _SLOW_START * np.median(lengths)
    odd = np.abs(sizes - np.median(sizes)) > 0
    steady = np.flatnonzero(~(slow | odd))
    limit = len(lengths) // 2
    return int(steady[0]) if len(steady) and steady[0] <= limit else 0
