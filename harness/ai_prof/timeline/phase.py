"""Where in its period an iteration begins, and the row at which each one does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.period import holds_most
from ai_prof.timeline.sequence import READBACK_TOKEN, UPDATES, UPLOAD_TOKEN

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.operations import Operations
    from ai_prof.timeline.period import Period
    from ai_prof.timeline.sequence import Sequence
    from ai_prof.trace.model import I64

    Flags = npt.NDArray[np.bool_]

_SAMPLE = 64  # iterations that vote on where an iteration begins
_AROUND = 3  # rows on either side that tell a beginning from other rows of its token
_ALIKE = 3  # of those 2 * _AROUND, which a beginning in an odd iteration must share


def first_rows(operations: Operations, sequence: Sequence, period: Period) -> I64:
    """The rows at which iterations begin, ascending.

    A beginning is known by the rows around it: each iteration begins where they are most alike, so that what
    an odd iteration has more or less elsewhere shifts nothing.
    """
    expected = period.anchors - _phase(operations, sequence, period)
    before, after = _alike(sequence, expected[1:][period.equal])
    rows = _most_alike(period, expected, before + after)
    begins = (before == _AROUND) & (after >= _AROUND - 1)  # another phase soon runs kernels of its own
    return _with_other_phases(sequence, period, rows[rows >= 0], begins)


def _phase(operations: Operations, sequence: Sequence, period: Period) -> int:
    """Rows from an iteration's first row to the anchor that follows it.

    A training step begins after the last one's update of the model, with the readbacks and waits that end it.
    Else an iteration begins with the upload of a batch, on the stream of the kernels; one on a stream of its
    own is for the next. Without an upload the only synchronize ends an iteration. Where none of these fixes
    it, or several do, the longest recurring pause of the host decides.
    """
    ends = period.anchors[1:][period.equal][-_SAMPLE:]
    at = ends[:, None] - np.arange(period.size)[None, :]
    pause = np.median(sequence.pause[at], axis=0)
    rows = at[-1]
    work = sequence.operation[rows] >= 0
    stream = operations.stream[sequence.operation[rows]]
    uploads = (sequence.token[rows] == UPLOAD_TOKEN) & (sequence.token[rows - 1] != UPLOAD_TOKEN)
    uploads &= stream == np.bincount(stream[work]).argmax()
    synced = work & sequence.is_sync[rows - 1]
    begins = work
    if (updated := work & _after_updates(sequence)[rows]).any():
        begins = updated & uploads if (updated & uploads).any() else updated
    elif uploads.any():
        begins = uploads
    elif synced.sum() == 1:
        begins = synced
    return int(np.argmax((pause + 1) * begins))


def _after_updates(sequence: Sequence) -> Flags:
    """The first work after each run of updates, but for readbacks, which end what was updated; (n,)."""
    ending = sequence.is_sync | (sequence.token == READBACK_TOKEN)
    work = np.flatnonzero(~ending)
    updates = sequence.contact[work] == UPDATES
    flags = np.zeros(len(sequence), bool)
    flags[work[1:][updates[:-1] & ~updates[1:]]] = True
    return flags


def _alike(sequence: Sequence, begins: I64) -> tuple[I64, I64]:
    """How many rows just before each row, and from it on, are as at most beginnings; (n,) each.

    Both are 0 where the row's own token is another.
    """
    token, around = sequence.token, np.arange(-_AROUND, _AROUND)
    before, after = np.zeros(len(token), np.int64), np.zeros(len(token), np.int64)
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


def _most_frequent(values: I64) -> int:
    distinct, counts = np.unique(values, return_counts=True)
    return int(distinct[counts.argmax()])


def _most_alike(period: Period, expected: I64, alike: I64) -> I64:
    """For each anchor the row expected or, where that is none, the most alike since the last anchor."""
    rows = expected.copy()
    candidates = np.flatnonzero(alike >= _ALIKE)
    of = np.searchsorted(period.anchors, candidates)
    sought = (expected >= 0) & (alike[expected] < _ALIKE)
    chosen = np.append(sought, False)[of]
    candidates, of = candidates[chosen], of[chosen]
    order = np.lexsort((-np.abs(candidates - expected[of]), alike[candidates], of))
    rows[of[order]] = candidates[order]  # of several of one anchor the last stays
    return np.unique(rows)


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
