"""Iterations of two lengths: what a median of them is the length of neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ai_prof.trace.model import I64

_LEAST, _SHARE = 3, 0.05  # iterations of either kind
_APART = 1.15  # the shortest of the long ones over the longest of the short ones


@dataclass(frozen=True, slots=True)
class Kinds:
    """How many of `count` iterations are long, and the median of either kind, ns.

    `turn` is how many came before the other kind did, where each kind is of one stretch.
    """

    count: int
    long: int
    long_ns: float
    short_ns: float
    turn: int | None
    long_first: bool


def kinds(lengths: I64) -> Kinds | None:
    """The two kinds that some lengths in order, (n,), are of; None where they are of one."""
    least = max(_LEAST, round(_SHARE * len(lengths)))
    if len(lengths) < 2 * least or lengths.min() <= 0:
        return None
    ordered = np.sort(lengths)
    steps = ordered[least : len(ordered) - least + 1] / ordered[least - 1 : len(ordered) - least]
    if steps.max() < _APART:
        return None
    long = lengths >= ordered[least + int(steps.argmax())]
    turns = np.flatnonzero(np.diff(long)) + 1
    return Kinds(
        len(lengths),
        int(long.sum()),
        float(np.median(lengths[long])),
        float(np.median(lengths[~long])),
        int(turns[0]) if len(turns) == 1 else None,
        bool(long[0]),
    )
