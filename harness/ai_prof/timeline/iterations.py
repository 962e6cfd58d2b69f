"""The iterations of the work on a device: from markers, else from the period of the launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.markers import marked_starts
from ai_prof.timeline.period import Period, find_period
from ai_prof.timeline.sequence import COPY_TOKEN, UPLOAD_TOKEN, Sequence, launch_sequence, normalised

if TYPE_CHECKING:
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I64, Trace

MIN_CONFIDENCE = 0.5
_SURE = 0.8
_HOST_FREE = 0.7  # what never meets the host may be the layers of one long iteration
_SLOW_START = 1.25  # an early iteration this much longer than the median is warm-up
_NEAREST = 64  # rows to look through for a token that comes once per iteration
_SAMPLE = 64  # iterations that vote on where an iteration begins


@dataclass(frozen=True, slots=True)
class Iterations:
    """`count` iterations begin at rows `first_row` of `sequence`, at times `starts`; (count,).

    `warm_up` of them come before the steady state. `last_whole` says whether the last one is complete;
    it has no length, because nothing marks its end. `method` is period, nvtx, profiler_step or none.
    """

    sequence: Sequence
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


def find_iterations(trace: Trace, operations: Operations, device: int) -> Iterations:
    """The iterations of a device's main process; method "none" and no rows rather than a guess."""
    sequence = launch_sequence(trace, operations, device)
    marked = marked_starts(trace, operations, sequence)
    if marked is not None:
        method, rows = marked
        return _iterations(operations, sequence, rows, (method, 1.0), last_whole=True)
    found = _most_periodic(trace, operations, sequence)
    if found is None:
        nothing = np.zeros(0, np.int64)
        return Iterations(sequence, nothing, nothing, 0, last_whole=False, method="none", confidence=0.0)
    used, period = found
    rows = _first_rows(operations, used, period)
    # A synchronize is no work of the device: the iteration starts with the first operation after it.
    next_operation = np.append(np.flatnonzero(used.operation >= 0), len(used))
    rows = next_operation[np.searchsorted(next_operation, rows)]
    rows = np.unique(rows[rows < len(used)])
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
    return Iterations(sequence, rows, starts, _warm_up(rows, starts), last_whole, *found)


def _most_periodic(
    trace: Trace, operations: Operations, sequence: Sequence
) -> tuple[Sequence, Period] | None:
    """The period of the whole sequence, or of a coarser one where that is irregular.

    In turn: kernels by name; by normalised name, since shapes choose kernels; without synchronizes; the
    busiest stream alone, since threads interleave as they like.
    """
    coarse = normalised(sequence, trace.names)
    quiet = coarse.without(coarse.is_sync)
    streams = operations.stream[quiet.operation]
    alone = quiet.without(streams != np.bincount(streams).argmax())
    best: tuple[Sequence, Period] | None = None
    for candidate in (sequence, coarse, quiet, alone):
        period = find_period(candidate.token, candidate.launch)
        if period and (best is None or period.explained > best[1].explained):
            best = candidate, period
        if best and best[1].explained >= _SURE:
            break
    return best if best and best[1].explained >= MIN_CONFIDENCE else None


def _first_rows(operations: Operations, sequence: Sequence, period: Period) -> I64:
    """The rows at which iterations begin.

    They are counted back from the next token that comes once per iteration, so that what an odd iteration
    has more or less elsewhere shifts nothing.
    """
    offset = _phase(operations, sequence, period)
    last = int(period.anchors[1:][period.equal][-1]) - offset
    example = sequence.token[last : last + period.size]
    low = max(int(period.anchors[0]) - offset - period.size // 2, 0)
    for distance in range(min(len(example), _NEAREST)):  # the last may be cut by the end of the sequence
        if (example == example[distance]).sum() == 1:
            rows = low + np.flatnonzero(sequence.token[low:] == example[distance]) - distance
            if len(rows) == len(period.anchors):
                return rows[rows >= 0]
    rows = period.anchors - offset
    return rows[rows >= 0]


def _phase(operations: Operations, sequence: Sequence, period: Period) -> int:
    """Rows from an iteration's first row to the anchor that follows it.

    The upload of a batch begins an iteration, on the stream of the kernels; one on a stream of its own is for
    the next. Without an upload the end of a synchronize does, since the host's view of an iteration ends
    there; without either, or among several, the longest recurring pause of the host, which counts double
    after a synchronize.
    """
    ends = period.anchors[1:][period.equal][-_SAMPLE:]
    back = np.arange(period.size)
    at = ends[:, None] - back[None, :]
    pause = np.median(sequence.pause[at], axis=0)
    rows = at[-1]
    token, before, operation = sequence.token[rows], sequence.token[rows - 1], sequence.operation[rows]
    stream = operations.stream[operation]
    main = np.bincount(stream[operation >= 0]).argmax()
    uploads = (token == UPLOAD_TOKEN) & (before != UPLOAD_TOKEN) & (stream == main)
    synced = (before < COPY_TOKEN) & (operation >= 0)
    begins = next((rows for rows in (uploads, synced) if rows.any()), operation >= 0)
    return int(np.argmax((pause + 1) * np.where(synced, 2, 1) * begins))


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
