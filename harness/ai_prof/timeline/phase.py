"""Where in its period an iteration begins, and the row at which each one does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.period import holds_most
from ai_prof.timeline.sequence import READBACK_TOKEN, UPDATES, UPLOAD_TOKEN

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.operations import Operations
    from ai_prof.timeline.period import Period
    from ai_prof.timeline.sequence import Sequence
    from ai_prof.trace.model import I32, I64

    Flags = npt.NDArray[np.bool_]
    I8 = npt.NDArray[np.int8]

_SAMPLE = 64  # iterations that vote on where an iteration begins
_AROUND = 3  # rows on either side that tell a beginning from other rows of its token
_CUT_ALIKE = 0.9  # share of its rows that a cut iteration must have in common with another
_ALIKE = 2  # of those 2 * _AROUND, its own among them, which a beginning in an odd iteration must share


def first_rows(operations: Operations, sequence: Sequence, period: Period) -> I64:
    """The rows at which iterations begin, ascending; the last may be of one that the capture's end cuts.

    A beginning is known by the work around it: each iteration begins where that is most alike, so that what
    an odd iteration has more or less elsewhere shifts nothing. Synchronizes do not count: those of another
    thread come anywhere.
    """
    work = np.flatnonzero(~sequence.is_sync)
    synced = sequence.is_sync[work - 1] & (work > 0)
    quiet, period = _quiet(sequence, period, work)
    expected = period.anchors - _phase(operations, quiet, period, synced)
    before, after = _alike(quiet, expected[1:][period.equal])
    rows = _most_alike(period, expected, before + after)
    begins = (before == _AROUND) & (after >= _AROUND - 1)  # another phase soon runs kernels of its own
    rows = _with_other_phases(quiet, period, rows, begins)
    return work[_with_cut_one(quiet, period, rows, begins)]


def _quiet(sequence: Sequence, period: Period, work: npt.NDArray[np.intp]) -> tuple[Sequence, Period]:
    """The sequence without synchronizes, and the period in its rows; `work` are those that stay.

    An anchor that is a synchronize gives way to the work before it.
    """
    quiet = sequence.without(sequence.is_sync)
    anchors = np.searchsorted(work, period.anchors, side="right").astype(np.int64) - 1
    example, end = np.searchsorted(work, (period.example, period.example + period.size)).tolist()
    contact = int(quiet.contact[example:end].max())
    return quiet, replace(period, anchors=anchors, example=example, size=end - example, contact=contact)


def _phase(operations: Operations, sequence: Sequence, period: Period, synced: Flags) -> int:
    """Rows from an iteration's first row to the anchor that follows it.

    A training step begins after the last one's update of the model, with the readbacks that end it. Else an
    iteration begins with the upload of a batch, on the stream of the kernels; one on a stream of its own is
    for the next. Without an upload the only synchronize ends an iteration, or of several the only readback;
    `synced` are the rows after a synchronize. Where none of these fixes it, or several do, the longest
    recurring pause of the host decides.
    """
    ends = period.anchors[1:][period.equal][-_SAMPLE:]
    at = ends[:, None] - np.arange(period.size)[None, :]
    pause = np.median(sequence.pause[at], axis=0)
    rows = at[-1]
    stream = operations.stream[sequence.operation[rows]]
    uploads = (sequence.token[rows] == UPLOAD_TOKEN) & (sequence.token[rows - 1] != UPLOAD_TOKEN)
    uploads &= stream == np.bincount(stream).argmax()
    waited = 2 * synced[at].sum(axis=0) > len(at)
    begins = np.ones(len(rows), bool)
    if (updated := _after_updates(sequence)[rows]).any():
        begins = updated & uploads if (updated & uploads).any() else updated
    elif uploads.any():
        begins = uploads
    elif waited.sum() == 1:
        begins = waited
    elif (read := _after_readbacks(sequence)[rows]).sum() == 1:
        begins = read
    return int(np.argmax((pause + 1) * begins))


def _after_updates(sequence: Sequence) -> Flags:
    """The first work after each run of updates, but for readbacks, which end what was updated; (n,)."""
    work = np.flatnonzero(sequence.token != READBACK_TOKEN)
    updates = sequence.contact[work] == UPDATES
    flags = np.zeros(len(sequence), bool)
    flags[work[1:][updates[:-1] & ~updates[1:]]] = True
    return flags


def _after_readbacks(sequence: Sequence) -> Flags:
    """The first work after each run of readbacks; (n,)."""
    read = sequence.token == READBACK_TOKEN
    return np.concatenate(([False], read[:-1] & ~read[1:]))


def _alike(sequence: Sequence, begins: I64) -> tuple[I8, I8]:
    """How many rows just before each row, and from it on, are as at most beginnings; (n,) each.

    Both are 0 where the row's own token is another.
    """
    token, around = sequence.token, np.arange(-_AROUND, _AROUND)
    before, after = np.zeros(len(token), np.int8), np.zeros(len(token), np.int8)
    inside = begins[(begins >= _AROUND) & (begins + _AROUND <= len(token))]
    if not len(inside):
        return before, after
    for distance in around.tolist():
        same = token == _most_frequent(token[inside + distance])
        low, high = max(0, -distance), min(len(token), len(token) - distance)
        count = before if distance < 0 else after
        count[low:high] += same[low + distance : high + distance]
    own = token == _most_frequent(token[inside])
    return before * own, after * own


def _most_frequent(values: I32) -> int:
    distinct, counts = np.unique(values, return_counts=True)
    return int(distinct[counts.argmax()])


def _most_alike(period: Period, expected: I64, alike: I8) -> I64:
    """For each anchor the row expected or, where that is none, the most alike since the last anchor."""
    rows = expected.copy()
    candidates = np.flatnonzero(alike >= _ALIKE)
    of = np.searchsorted(period.anchors, candidates)
    sought = (expected >= 0) & (alike[expected] < _ALIKE)
    chosen = np.append(sought, False)[of]
    candidates, of = candidates[chosen], of[chosen]
    order = np.lexsort((-np.abs(candidates - expected[of]), alike[candidates], of))
    rows[of[order]] = candidates[order]  # of several of one anchor the last stays
    return np.unique(rows[rows >= 0])


def _with_other_phases(sequence: Sequence, period: Period, rows: I64, begins: Flags) -> I64:
    """Iterations of another phase too (a prefill among decodes): they begin and end as the others do.

    An evaluation begins as a training step does, holds less and ends otherwise: it is of the step before.
    """
    typical = np.append(np.diff(rows) == period.size, False)
    inside = np.setdiff1d(np.flatnonzero(begins), rows)
    if typical[np.searchsorted(rows, inside) - 1].any():
        return rows  # they are parts of every iteration
    both = np.union1d(rows, inside)
    doubtful = np.flatnonzero(begins[both[:-1]] & ~begins[both[1:]] & (np.diff(both) != period.size))
    less = ~holds_most(sequence, both[doubtful], both[doubtful + 1], period)
    last = np.isin(both[-1:], inside)  # nothing says how it ends
    found: I64 = np.delete(both, np.concatenate((doubtful[less], np.flatnonzero(last) + len(both) - 1)))
    return found


def _with_cut_one(sequence: Sequence, period: Period, rows: I64, begins: Flags) -> I64:
    """The iteration too that the end of the capture cuts: it runs as the others do as far as it goes."""
    later = np.flatnonzero(begins)
    later = later[later > max(rows[-1], period.anchors[-1])][:1] if len(rows) else later[:0]
    rest = sequence.token[later[0] :] if len(later) else sequence.token[:0]
    typical = np.flatnonzero(np.diff(rows) == period.size)
    if not len(typical) or not 0 < len(rest) < period.size:
        return rows
    example = sequence.token[rows[typical[-1]] :][: len(rest)]
    return np.append(rows, later) if (rest == example).mean() >= _CUT_ALIKE else rows
