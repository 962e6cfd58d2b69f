"""Differences of minima over interleaved rounds, with intervals from the bootstrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DRAWS = 4000
COVERAGE = 0.9


def drawn_minima(*columns: Sequence[float], seed: int = 1) -> list[NDArray[np.float64]]:
    """The minimum of each column over rounds drawn with replacement, the same rounds for all; (DRAWS,) each.

    A host is only ever slowed down by what else runs on it, so the minimum is what a program costs; a round
    is drawn whole because its measurements share what the host did meanwhile.
    """
    rounds = len(columns[0])
    chosen = np.random.default_rng(seed).integers(0, rounds, (DRAWS, rounds))
    return [np.asarray(column, float)[chosen].min(axis=1) for column in columns]


def interval(draws: NDArray[np.float64]) -> tuple[float, float]:
    """The middle COVERAGE of the draws (percentile bootstrap; Efron and Tibshirani 1993, chapter 13)."""
    low, high = np.quantile(draws, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def added(nothing: Sequence[float], own: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """What `own` costs more than `nothing`: the difference of minima and its interval, in their unit."""
    base, drawn = drawn_minima(nothing, own)
    return min(own) - min(nothing), interval(drawn - base)


def ratio_of_added(
    nothing: Sequence[float], own: Sequence[float], reference: Sequence[float]
) -> tuple[float, tuple[float, float]]:
    """What `own` adds to `nothing`, in units of what `reference` adds; nan where that adds nothing."""
    base, drawn, other = drawn_minima(nothing, own, reference)
    added_by = np.where(other > base, other - base, np.nan)
    whole = min(reference) - min(nothing)
    ratios = (drawn - base) / added_by
    if whole <= 0 or np.isnan(ratios).all():
        return float("nan"), (float("nan"), float("nan"))
    return (min(own) - min(nothing)) / whole, interval(ratios[~np.isnan(ratios)])


def ratio(nothing: Sequence[float], own: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """`own` in units of `nothing`."""
    base, drawn = drawn_minima(nothing, own)
    return min(own) / min(nothing), interval(drawn / base)
