"""Confirm a flag with fresh launches of base and head: the plan, and the exact permutation test."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ai_prof.errors import UsageError

F64 = npt.NDArray[np.float64]
Side = Literal["base", "head"]

MIN_LAUNCHES = 6  # five reach 1/252, but find only shifts half as large again
MAX_LAUNCHES = 10  # C(20, 10) = 184,756 relabellings are still enumerated in well under a second


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How many launches a side settle `flagged` workloads at `alpha`; `p_min` is the smallest p they reach."""

    flagged: int
    alpha: float
    launches: int
    p_min: float


class Launch(msgspec.Struct, frozen=True):
    """One launch of the schedule; a warm one is run and thrown away."""

    side: Side
    warm: bool = False


def plan(flagged: int, alpha: float = 0.01) -> Plan:
    """The fewest launches k a side with 1 / C(2k, k) <= alpha / flagged.

    Raises UsageError where even the most launches can't reach it: such a plan could never fail a build.
    """
    if flagged < 1 or not 0 < alpha < 1:
        raise UsageError(f"cannot plan for {flagged} flagged workloads at alpha {alpha}: alpha is in 0..1")
    for launches in range(MIN_LAUNCHES, MAX_LAUNCHES + 1):
        p_min = 1 / math.comb(2 * launches, launches)
        if p_min <= alpha / flagged:
            return Plan(flagged=flagged, alpha=alpha, launches=launches, p_min=p_min)
    most = math.floor(alpha * math.comb(2 * MAX_LAUNCHES, MAX_LAUNCHES))
    raise UsageError(
        f"{flagged} flagged workloads can't be settled at alpha {alpha:g}: {MAX_LAUNCHES} launches a side "
        f"settle at most {most}; raise alpha or gate fewer workloads at once"
    )


def schedule(launches: int) -> list[Launch]:
    """The order of launches: one warm launch a side, then base, head, head, base and its mirror in turn.

    Every launch is a fresh process, so nothing is carried over a switch except what lies on disk (page
    cache, compiled kernels of that side's worktree): one warm launch a side, at the start, fills that. ABBA
    makes a steady drift of the machine cancel out of the difference; mirrored blocks, a bent one as well.
    """
    block: tuple[Side, ...] = ("base", "head", "head", "base")
    mirror: tuple[Side, ...] = ("head", "base", "base", "head")
    order = [side for i in range((launches + 1) // 2) for side in (mirror if i % 2 else block)]
    return [Launch("base", warm=True), Launch("head", warm=True), *map(Launch, order[: 2 * launches])]
