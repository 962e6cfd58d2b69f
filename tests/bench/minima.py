"""Differences of minima over interleaved rounds, with intervals from the bootstrap.

A column holds one value a round, None where the program failed in it or was not run. Only rounds that have
all of the columns are compared: the host of one round may be faster than that of another. Where nothing is
left to compare, figures are nan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Column = Sequence[float | None]
    Figure = tuple[float, tuple[float, float]]

DRAWS = 4000
COVERAGE = 0.9


def least(column: Column) -> float:
    """The minimum of the rounds that did not fail."""
    return min((value for value in column if value is not None), default=float("nan"))


def median(column: Column) -> float:
    """The median of the rounds that did not fail."""
    values = [value for value in column if value is not None]
    return float(np.median(values)) if values else float("nan")


def shared(*columns: Column) -> list[list[float]]:
    """The columns, in the rounds that have a value of each."""
    rounds = [values for values in zip(*columns, strict=True) if None not in values]
    return [list(column) for column in zip(*rounds, strict=True)] or [[float("nan")] for _ in columns]


def drawn_minima(*columns: Column, seed: int = 1) -> list[NDArray[np.float64]]:
    """The minimum of each column over rounds drawn with replacement, the same rounds for all; (DRAWS,) each.

    A host is only ever slowed down by what else runs on it, so the minimum is what a program costs; a round
    is drawn whole because its measurements share what the host did meanwhile.
    """
    rounds = len(columns[0])
    chosen = np.random.default_rng(seed).integers(0, rounds, (DRAWS, rounds))
    return [np.fmin.reduce(np.asarray(column, np.float64)[chosen], axis=1) for column in columns]


def interval(draws: NDArray[np.float64]) -> tuple[float, float]:
    """The middle COVERAGE of the draws (percentile bootstrap; Efron and Tibshirani 1993, chapter 13).

    Draws in which a program failed in every round say nothing.
    """
    said = draws[~np.isnan(draws)]
    if not len(said):
        return float("nan"), float("nan")
    low, high = np.quantile(said, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def added(nothing: Column, own: Column) -> Figure:
    """What `own` costs more than `nothing`: the difference of minima and its interval, in their unit."""
    nothing, own = shared(nothing, own)
    base, drawn = drawn_minima(nothing, own)
    return least(own) - least(nothing), interval(drawn - base)


def ratio_of_added(nothing: Column, own: Column, reference: Column) -> Figure:
    """What `own` adds to `nothing`, in units of what `reference` adds; nan where that adds nothing."""
    nothing, own, reference = shared(nothing, own, reference)
    base, drawn, other = drawn_minima(nothing, own, reference)
    added_by = np.where(other > base, other - base, np.nan)
    whole = least(reference) - least(nothing)
    if not whole > 0:
        return float("nan"), (float("nan"), float("nan"))
    return (least(own) - least(nothing)) / whole, interval((drawn - base) / added_by)


def ratio(nothing: Column, own: Column) -> Figure:
    """`own` in units of `nothing`."""
    nothing, own = shared(nothing, own)
    base, drawn = drawn_minima(nothing, own)
    return least(own) / least(nothing), interval(drawn / base)


def ratio_by_round(nothing: Column, own: Column) -> float:
    """The median over the rounds of `own` in units of that round's `nothing`."""
    nothing, own = shared(nothing, own)
    return float(np.median(np.divide(own, nothing)))
