"""Find where a history of one metric changed its level: E-divisive with a permutation test, then pruned.

Matteson and James 2014 (Journal of the American Statistical Association 109): the series is cut where the
energy statistic between both sides is largest, the cut stays if a random order of the piece seldom does as
well, and both sides are searched in turn. Values count by their rank in the piece, so that neither the
metric's scale nor a single wild value matters; the statistic is then the squared difference of both sides'
distributions, averaged over LEVELS quantiles of the piece.

The test takes the values of a piece for exchangeable. Those of a machine are not: they drift a little for
days, and with enough of them any drift is significant. So a cut must also be seen: the medians of its sides
lie APART spreads of a single value from each other.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

LEVELS = 64
LEAST = 5  # values on each side of a cut
APART = 2.0  # standard deviations, by the median absolute deviation
BLOCK = 1 << 22  # entries of the statistic's largest array


def change_points(values: Sequence[float], *, alpha: float = 0.01) -> list[int]:
    """The indices at which a new level begins, ascending; `values` in the order they were measured.

    Of series whose values are exchangeable, at most a share `alpha` gets one. A piece of fewer than ten
    values is never cut. The cost is linear in the number of values.
    Raises ValueError where a value is not finite.
    """
    series = np.asarray(values, np.float64)
    if not np.isfinite(series).all():
        raise ValueError("a history has values that are not finite: leave them out")
    cuts = sorted(_cuts(series, 0, len(series), alpha, np.random.default_rng(0)))
    return _placed(series, _seen(series, cuts))


def _cuts(series: F64, start: int, stop: int, alpha: float, rng: np.random.Generator) -> Iterator[int]:
    """Every cut that the permutation test keeps."""
    if stop - start < 2 * LEAST:
        return
    below = _below(series[start:stop])
    strength, at = _best(below[None])
    if _p(below, float(strength[0]), alpha, rng) > alpha:
        return
    cut = start + int(at[0])
    yield from _cuts(series, start, cut, alpha, rng)
    yield cut
    yield from _cuts(series, cut, stop, alpha, rng)


def _seen(series: F64, cuts: list[int]) -> list[int]:
    """The cuts that can be seen; the least is taken away, and the others looked at again, until all can."""
    while cuts:
        edges = [0, *cuts, len(series)]
        pieces = [series[low:high] for low, high in itertools.pairwise(edges)]
        apart = [_apart(old, new) for old, new in itertools.pairwise(pieces)]
        least = int(np.argmin(apart))
        if apart[least] >= APART:
            break
        cuts = cuts[:least] + cuts[least + 1 :]
    return cuts


def _apart(old: F64, new: F64) -> float:
    """The distance of the medians, in standard deviations of the side that varies more."""
    centres = np.median(old), np.median(new)
    sides = zip((old, new), centres, strict=True)
    spread = max(1.4826 * float(np.median(np.abs(side - centre))) for side, centre in sides)
    distance = abs(float(centres[1] - centres[0]))
    return distance / spread if spread > 0 else np.inf * distance if distance > 0 else 0.0


def _placed(series: F64, cuts: list[int]) -> list[int]:
    """Each cut where values change from nearer to the old median to nearer to the new one (least deviations).

    Ranks find that there is a cut; values tell best where, as one in the middle counts for neither side.
    """
    edges = [0, *cuts, len(series)]
    for i in range(1, len(edges) - 1):
        low, at, high = edges[i - 1 : i + 2]
        old, new = np.median(series[low:at]), np.median(series[at:high])
        around = series[low:high]
        change = np.cumsum(np.abs(around - old) - np.abs(around - new))[LEAST - 1 : high - low - LEAST]
        edges[i] = low + LEAST + int(change.argmin())
    return edges[1:-1]


def _below(piece: F64) -> F32:
    """Whether each value lies at or below each of the levels, (n, levels)."""
    levels = np.unique(np.quantile(piece, (np.arange(LEVELS) + 0.5) / LEVELS))
    return (piece[:, None] <= levels).astype(np.float32)


def _best(pieces: F32) -> tuple[F32, I64]:
    """The largest statistic of each piece (r, n, levels) and the size of the side before that cut."""
    n = pieces.shape[1]
    total = np.cumsum(pieces, axis=1)
    size = np.arange(LEAST, n - LEAST + 1, dtype=np.float32)
    before = total[:, LEAST - 1 : n - LEAST]
    # With F and G the sides' distributions: F - G = (before - size * overall) / size * n / (n - size).
    apart = before - (size / n)[None, :, None] * total[:, -1:]
    strength = (apart**2).mean(axis=2) * (n / (size * (n - size)))
    at = strength.argmax(axis=1)
    return strength[np.arange(len(pieces)), at], at + LEAST


def _p(piece: F32, observed: float, alpha: float, rng: np.random.Generator) -> float:
    """The share of orders of the piece with a statistic as large, the observed one counted."""
    rounds = int(np.ceil(5 / alpha)) - 1
    block = max(1, BLOCK // piece.size)
    reached, done = 1, 0
    while done < rounds:
        count = min(block, rounds - done)
        orders = rng.permuted(np.tile(np.arange(len(piece)), (count, 1)), axis=1)
        reached += int((_best(piece[orders])[0] >= observed).sum())
        done += count
        if reached > alpha * (rounds + 1):  # the rest can't bring it back
            break
    return reached / (done + 1)
