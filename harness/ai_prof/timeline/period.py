"""The period of a token sequence, robust to a warm-up, to irregular iterations and to repeated layers.

Cut the sequence at the occurrences of any one token: if the token comes once per iteration, the pieces
are equal multisets of tokens, whatever the token. So every token proposes the most frequent of its
pieces, and tokens of one period propose the same multiset. Multisets are compared by the sum of random
64-bit numbers, one for each token: all pieces of all tokens cost one prefix sum and one sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ai_prof.timeline.sequence import COPY_TOKEN, UPDATES

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.sequence import Sequence
    from ai_prof.trace.model import I32, I64

    Dense = npt.NDArray[np.integer[Any]]

MIN_PIECES = 3
_WIDTHS = (1, 4, 16, 64)  # tokens in a row that mark an iteration, tried in turn
_VIABLE = 0.5  # share of the steady span that equal pieces must explain
_LASTING = 0.3  # share of the sequence that the steady span must cover
_NEAR = 0.1  # pieces within this share of the period's size are the same iteration, slightly changed
_LIKE = 0.6  # extra work that mostly repeats the iteration's own kernels (an evaluation) is no new period
_LARGE, _LOGGING = 200, 0.02  # what adds so little to an iteration of so many rows is logging
_COUNTED = 0.2  # a program's own count leaves out warm-up, and a capture may miss some


@dataclass(frozen=True, slots=True)
class Period:
    """One iteration as a piece of the sequence: `size` rows from each of `anchors` on.

    `anchors` are the positions of a token that comes once per iteration, from the first to the last of
    the steady span; `equal` says which of the pieces between them are the very same multiset;
    `explained` is the share of the steady span's rows in pieces that are equal, or nearly; `contact`
    is the closest contact in each of them (see Sequence).
    """

    size: int
    anchors: I64
    equal: npt.NDArray[np.bool_]
    explained: float
    example: int  # position where an equal piece begins
    contact: int


@dataclass(frozen=True, slots=True)
class _Pieces:
    """All pieces between successive occurrences of a token, sorted by token and position."""

    token: Dense
    begin: I32
    size: I32
    hash: npt.NDArray[np.uint64]


def find_period(sequence: Sequence, counted: int | None = None) -> Period | None:
    """The iteration of a sequence; None when no period explains half of it. n log n.

    Rows of equal `launch` > 0 were asked for by one call: what repeats inside one launch of a graph is a
    layer. Where the period found comes not about as often as the program has `counted` iterations, and
    another does, it is that.
    """
    token = sequence.token
    if len(token) < 2 * MIN_PIECES:
        return None
    candidates: list[Period] = []
    for width in _WIDTHS:
        candidates += _candidates(sequence, _pieces(token, sequence.launch, width))
        if any(period.explained == 1 and period.contact for period in candidates):
            break
    if not candidates:
        return None
    candidates.sort(key=lambda period: period.size)
    chosen = candidates[0]
    for larger in candidates[1:]:
        if _is_layer(token, chosen, larger):
            chosen = larger
    return chosen if counted is None else _as_counted(chosen, candidates, counted)


def _as_counted(chosen: Period, candidates: list[Period], counted: int) -> Period:
    def fits(period: Period) -> bool:
        return abs(len(period.anchors) - counted) <= _COUNTED * counted

    if fits(chosen):
        return chosen
    return max(filter(fits, candidates), key=lambda period: period.explained, default=chosen)


def familiar(sequence: Sequence, period: Period) -> float:
    """Share of the steady span's rows that are of the iteration's own kinds.

    Logging and evaluations are: they run the model. Between bursts of an inner loop lies other work.
    """
    kinds = np.unique(sequence.token[period.example : period.example + period.size])
    return float(np.isin(sequence.token[period.anchors[0] : period.anchors[-1]], kinds).mean())


def holds_most(sequence: Sequence, begin: I64, end: I64, period: Period) -> npt.NDArray[np.bool_]:
    """Which stretches meet the host as an iteration does and have nine tenths of its rows; (n,)."""
    example = sequence.token[period.example : period.example + period.size]
    shared = _shared(sequence.token, begin, end - begin, example)
    meets = np.where(sequence.contact >= period.contact, np.arange(len(sequence)), -1)
    closest = np.maximum.accumulate(meets)
    return (shared >= (1 - _NEAR) * period.size) & (closest[end - 1] >= begin)


def _pieces(token: I32, launch: I64, width: int) -> _Pieces:
    """The pieces between occurrences of the same `width` tokens in a row."""
    dense, kinds = _dense(token)
    number = np.random.default_rng(20240229).integers(0, 1 << 64, kinds, dtype=np.uint64)
    prefix = np.zeros(len(token) + 1, np.uint64)
    np.cumsum(number[dense], out=prefix[1:])
    anchor = dense if width == 1 else _grams(number[dense], width)
    position = np.argsort(anchor, kind="stable").astype(np.int32)
    anchor = anchor[position]
    same = anchor[1:] == anchor[:-1]
    begin, end = position[:-1][same], position[1:][same]
    digest = prefix[end]
    digest -= prefix[begin]
    # A piece inside one launch equals no other.
    inside = np.flatnonzero((launch[begin] == launch[end]) & (launch[begin] > 0))
    digest[inside] = inside.astype(np.uint64)
    return _Pieces(anchor[:-1][same], begin, end - begin, digest)


def _dense(token: I32) -> tuple[Dense, int]:
    """The tokens, which are few and small, numbered from 0 in their order, (n,), and how many there are."""
    seen = np.zeros(int(token.max()) + 1, bool)
    seen[token] = True
    kinds = int(seen.sum())
    # Numbers of 16 bits are sorted without comparing them.
    dtype: type[np.integer[Any]] = np.uint16 if kinds <= 1 << 16 else np.int32
    dense: Dense = (np.cumsum(seen) - 1).astype(dtype)[token]
    return dense, kinds


def _grams(number: npt.NDArray[np.uint64], width: int) -> I32:
    """One number for each row and the `width` - 1 rows that follow it, in order; (n - width + 1,)."""
    rows = len(number) - width + 1
    gram = np.zeros(max(rows, 0), np.uint64)
    for i in range(width if rows > 0 else 0):
        gram = gram * np.uint64(0x9E3779B97F4A7C15) + number[i : i + rows]
    return np.unique(gram, return_inverse=True)[1].reshape(-1).astype(np.int32)


def _candidates(sequence: Sequence, pieces: _Pieces) -> list[Period]:
    """The periods that explain enough of the sequence, each once, the smallest first."""
    token = sequence.token
    if not len(pieces.begin):
        return []
    order = np.lexsort((pieces.hash, pieces.token))
    kind, digest = pieces.token, pieces.hash[order]  # by token they were sorted before
    opens = np.flatnonzero(np.concatenate(([True], (kind[1:] != kind[:-1]) | (digest[1:] != digest[:-1]))))
    counts = np.diff(np.concatenate((opens, [len(order)])))
    sizes = pieces.size[order[opens]]
    explained = counts * sizes / len(token)
    best: dict[int, tuple[int, int]] = {}
    occurrences = np.bincount(pieces.token).tolist()
    for row in np.flatnonzero((counts >= MIN_PIECES) & (explained >= _VIABLE / 2)).tolist():
        # Of the tokens of one period, the one that occurs least outside it.
        key, stray = int(digest[opens[row]]), occurrences[int(kind[opens[row]])] - int(counts[row])
        if key not in best or stray < best[key][0]:
            best[key] = (stray, int(kind[opens[row]]))
    periods = [_period(sequence, pieces, which, np.uint64(key)) for key, (_, which) in best.items()]
    return sorted((p for p in periods if p.explained >= _VIABLE), key=lambda p: p.size)


def _period(sequence: Sequence, pieces: _Pieces, which: int, digest: np.uint64) -> Period:
    token = sequence.token
    mine = np.flatnonzero(pieces.token == which)
    begin, size = pieces.begin[mine].astype(np.int64), pieces.size[mine].astype(np.int64)
    equal = pieces.hash[mine] == digest
    wanted = int(size[equal][0])
    steady = np.flatnonzero(equal)
    first, last = int(steady[0]), int(steady[-1])
    span = int(size[first : last + 1].sum())
    explains = _explained(token, begin, size, equal)
    explained = int(size[first : last + 1][explains[first : last + 1]].sum()) / span
    # An iteration of about the size beside the steady span is one too: the first ones differ a little.
    similar = (size >= wanted / 2) & (size <= 2 * wanted)
    while first and similar[first - 1]:
        first -= 1
    while last + 1 < len(size) and similar[last + 1]:
        last += 1
    anchors = np.append(begin[first : last + 1], begin[last] + size[last])
    # A period that lives in a small part of the capture is a warm-up's, not the iteration's.
    example = int(begin[steady[0]])
    works = (token[example : example + wanted] >= COPY_TOKEN).any()  # a host that only waits does not iterate
    explained = explained if works and span >= len(token) * _LASTING else 0.0
    contact = int(sequence.contact[example : example + wanted].max(initial=0))
    return Period(wanted, anchors, equal[first : last + 1], explained, example, contact)


def _explained(token: I32, begin: I64, size: I64, equal: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which pieces are iterations: equal ones beside an equal one, and nearly equal ones beside those.

    A token that comes twice per iteration has equal pieces too, but never two in a row.
    """
    repeated = equal & _beside(equal)
    if not repeated.any():
        return repeated
    wanted = int(size[equal][0])
    close = ~equal & _beside(repeated) & (np.abs(size - wanted) <= _NEAR * wanted)
    rows = np.flatnonzero(close)
    example = int(begin[equal][0])
    shared = _shared(token, begin[rows], size[rows], token[example : example + wanted])
    close[rows] = shared >= (1 - _NEAR) * wanted
    return repeated | close


def _shared(token: I32, begin: I64, size: I64, example: I32) -> I64:
    """How many rows of each piece an example has too, as multisets; (n,)."""
    kinds, wanted = np.unique(example, return_counts=True)
    piece = np.repeat(np.arange(len(begin)), size)
    row = np.arange(len(piece)) - np.repeat(np.cumsum(size) - size, size) + np.repeat(begin, size)
    at = np.minimum(np.searchsorted(kinds, token[row]), len(kinds) - 1)
    known = kinds[at] == token[row]
    cells, counts = np.unique(piece[known] * len(kinds) + at[known], return_counts=True)
    both = np.minimum(counts, wanted[cells % len(kinds)])
    return np.bincount(cells // len(kinds), weights=both, minlength=len(begin)).astype(np.int64)


def _beside(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Where the neighbour on either side is set."""
    beside = np.zeros(len(flags), bool)
    beside[1:] |= flags[:-1]
    beside[:-1] |= flags[1:]
    return beside


def _is_layer(token: I32, small: Period, large: Period) -> bool:
    """Whether `small` repeats inside the iteration `large`, rather than being the iteration itself.

    An iteration meets the host more closely than its layers: it updates the model, or uploads a batch, or
    reads a result back, or at least waits. What else `large` holds must not speak against it: a few rows
    more are logging, and work like that of a `small` that meets the host too is an evaluation. Where both
    keep from the host, work of other kinds in every `large` is the head and tail of a network.
    """
    low, high = _counts(token, small), _counts(token, large)
    repeats = min(high.get(t, 0) // n for t, n in low.items())
    if repeats < 2:
        return False
    if large.contact == UPDATES > small.contact:
        return True  # the parts of one update are micro-batches
    rest = {t: n - repeats * low.get(t, 0) for t, n in high.items() if n > repeats * low.get(t, 0)}
    rows = sum(n for t, n in rest.items() if t >= COPY_TOKEN)
    like = sum(n for t, n in rest.items() if t in low and t >= COPY_TOKEN)
    if small.size >= _LARGE and rows <= _LOGGING * small.size:
        return False
    if like >= _LIKE * rows > 0 and (small.contact or not large.contact):
        return False
    return large.contact > small.contact or (small.contact == large.contact == 0 and small.explained < 1)


def _counts(token: I32, period: Period) -> dict[int, int]:
    tokens, counts = np.unique(token[period.example : period.example + period.size], return_counts=True)
    return dict(zip(tokens.tolist(), counts.tolist(), strict=True))
