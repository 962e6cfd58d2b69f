"""Confirm a flag with fresh launches of base and head: the plan, and the exact permutation test.

All launches are fresh and interleaved, so under "no change" their labels are exchangeable, whatever the
screen selected: the false alarms of the whole build stay below alpha. The p-values are exact, by
enumeration of all C(2k, k) labellings. Where they leave a workload open, more are made and all are looked
at once more: each look spends half of alpha.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from scipy import special

from ai_prof.errors import UsageError
from ai_prof.gate.comparison import Comparison, Pair, comparison, with_joint
from ai_prof.gate.metrics import METRICS, TOTALS, Rules
from ai_prof.gate.values import F64, I64, beyond_floor, run_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.gate.model import Run

WANDERS = 1999  # random orders that a wandering one is held against
LOOKS = 2  # at the plan's launches, and at the most of them: alpha is shared out (Bonferroni)

Side = Literal["base", "head"]

MIN_LAUNCHES = 6  # five reach 1/252, but find only shifts half as large again
MAX_LAUNCHES = 10  # C(20, 10) = 184,756 relabellings are still enumerated in well under a second


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`launches` a side settle `flagged` workloads at `alpha`; `p_min` is the smallest p they reach.

    `paired`: the i-th launch of base and the i-th of head, neighbours in the schedule, are one pair. What
    decides for pairs is not how far base and head are apart, so they are the only look.
    """

    flagged: int
    alpha: float
    launches: int
    p_min: float
    paired: bool = False

    @property
    def looks(self) -> int:
        """How many looks alpha is shared by."""
        return 1 if self.paired else LOOKS

    @property
    def reachable(self) -> bool:
        """Whether such a plan can fail a build at all."""
        return self.looks * self.p_min <= self.alpha / self.flagged


def plan(flagged: int, alpha: float = 0.01) -> Plan:
    """The fewest launches k a side with 2 / C(2k, k) <= alpha / flagged in the first of both looks.

    The smallest p is 1 / C(2k, k). A second labelling, the mirrored one, ties with it wherever another
    metric moved as clearly the other way (kernels slower, gaps shorter), hence the 2. Raises UsageError where
    even the most launches can't reach it: such a plan could never fail a build.
    """
    if flagged < 1 or not 0 < alpha < 1:
        raise UsageError(f"cannot plan for {flagged} flagged workloads at alpha {alpha}: alpha is in 0..1")
    for launches in range(MIN_LAUNCHES, MAX_LAUNCHES + 1):
        p_min = 1 / math.comb(2 * launches, launches)
        if 2 * LOOKS * p_min <= alpha / flagged:
            return Plan(flagged=flagged, alpha=alpha, launches=launches, p_min=p_min)
    most = math.floor(alpha * math.comb(2 * MAX_LAUNCHES, MAX_LAUNCHES) / 2 / LOOKS)
    raise UsageError(
        f"{flagged} flagged workloads can't be settled at alpha {alpha:g}: {MAX_LAUNCHES} launches a side "
        f"settle at most {most}; raise alpha or gate fewer workloads at once"
    )


def planned(flagged: int, alpha: float, launches: tuple[int, int], *, paired: bool = False) -> Plan:
    """The plan that launches already made amount to, `launches` of base and of head."""
    ways = 2 ** launches[1] if paired else math.comb(sum(launches), launches[1])
    return Plan(flagged=flagged, alpha=alpha, launches=launches[1], p_min=1 / ways, paired=paired)


def widened(plan: Plan) -> Plan:
    """The plan where launches drift with their order: the most launches, compared pair by pair.

    A drift makes launches of one session differ whatever their label. Within an adjacent pair it hardly does,
    so only the labels within pairs are exchanged, 2^k ways instead of C(2k, k).
    """
    return planned(plan.flagged, plan.alpha, (MAX_LAUNCHES, MAX_LAUNCHES), paired=True)


def schedule(launches: int) -> list[Side]:
    """The order of launches: base, head, head, base and its mirror in turn.

    ABBA makes a steady drift of the machine cancel out of the difference; mirrored blocks, a bent one as
    well. Every launch is a fresh process of the same checkout and one value is a median over iterations
    after warm-up, so a switch leaves nothing behind that a launch would have to be thrown away for.
    """
    block: tuple[Side, ...] = ("base", "head", "head", "base")
    mirror: tuple[Side, ...] = ("head", "base", "base", "head")
    order = [side for i in range((launches + 1) // 2) for side in (mirror if i % 2 else block)]
    return order[: 2 * launches]


def compare(
    base: Sequence[Run], head: Sequence[Run], rules: Rules, plan: Plan, places: Sequence[Pair] = ()
) -> list[Comparison]:
    """Compare every total that all launches have; `p_joint` is max-T's p over its metrics, times the looks.

    `places` are the flagged places of the aligned profile: they join the family as any other metric.

    As in the screen, the metrics that may not fail alone stand outside that family and keep their own p.
    The statistic is the studentised difference of means: relabelling seldom changes a median, so that one's
    permutation distribution is too coarse at these sizes. A change is `real` only if the medians moved
    beyond the floor as well, so that a mean between two modes decides nothing.
    """
    pairs = []
    for metric in TOTALS:
        floor = rules.floor(metric)
        pair = Pair(metric, floor, run_values(base, metric, floor), run_values(head, metric, floor))
        complete = len(pair.baseline) == len(base) > 0 and len(pair.candidate) == len(head) > 0
        if complete and rules.policy_of(metric.key) != "ignore":
            pairs.append(pair)
    pairs += places
    if not pairs:
        return []
    values = np.array([np.concatenate((pair.baseline, pair.candidate)) for pair in pairs])
    directions = np.array([pair.metric.direction for pair in pairs])
    alone = np.array([pair.metric.alone for pair in pairs])
    worse, _ = max_t(values, len(base), directions, paired=plan.paired)
    better, _ = max_t(values, len(base), -directions, paired=plan.paired)
    joint = worse.copy()
    if alone.any():
        joint[alone] = max_t(values[alone], len(base), directions[alone], paired=plan.paired)[1]
    level = plan.alpha / plan.flagged / plan.looks / max(1, int(alone.sum()))
    compared = [
        _shift(pair, (float(p), float(q)), level, paired=plan.paired)
        for pair, p, q in zip(pairs, worse, better, strict=True)
    ]
    return with_joint(compared, np.minimum(plan.looks * joint, 1.0).tolist())


def together(first: Sequence[Comparison], second: Sequence[Comparison]) -> list[Comparison]:
    """The second look, at all launches, with the smaller p of both: each look is corrected for the other.

    What one of the later launches lacks, the first look alone tells.
    """
    both = {item.metric.key: item for item in first}
    for item in second:
        earlier = both.get(item.metric.key, item)
        both[item.metric.key] = replace(item, p_joint=min(item.p_joint, earlier.p_joint))
    return list(both.values())


def max_t(values: F64, base: int, directions: I64, *, paired: bool = False) -> tuple[F64, F64]:
    """Exact permutation p-values of a shift in each metric, alone and jointly (Westfall and Young 1993).

    `values` has shape (metrics, launches), the first `base` columns are base's. `directions` (+1, -1, or 0
    for either way) says which shift counts. Returns (own p, max-T p), each of shape (metrics,); the observed
    labelling is one of those counted.

    The studentised difference of means is a rising function of the correlation between value and label,
    the same one for each metric, so the correlation stands in for it: it stays finite where a side does
    not vary at all. A metric that never varies has correlation 0 in every labelling, hence p = 1.

    With `paired`, column i of base and column i of head are one pair: what a pair has in common is taken out,
    and labels are exchanged within pairs alone.
    """
    launches = values.shape[1]
    centred = values - values.mean(axis=1, keepdims=True)
    if paired:
        half = (values[:, base:] - values[:, :base]) / 2
        centred = np.concatenate((-half, half), axis=1)
    norm = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    # Below this the spread is rounding of equal numbers.
    flat = norm <= 1e-12 * np.maximum(1.0, np.abs(values).max(axis=1, keepdims=True))
    unit = np.where(flat, 0.0, centred / np.where(flat, 1.0, norm))
    correlation = unit @ (_swaps(base) if paired else _labels(launches, base))
    signed = np.where(directions[:, None] == 0, np.abs(correlation), directions[:, None] * correlation)
    observed = signed[:, :1] - 1e-9  # ties count as reached, rounding or not
    own = (signed >= observed).mean(axis=1)
    joint = (signed.max(axis=0)[None, :] >= observed).mean(axis=1)
    return own, joint


@lru_cache(maxsize=4)
def _labels(launches: int, base: int) -> F64:
    """Every way to call `launches - base` launches head, shape (launches, ways), columns of length 1.

    Column 0 is the labelling in which the last ones are head. Centred, so that a product with a unit vector
    is a correlation.
    """
    heads = np.array(list(itertools.combinations(range(launches), launches - base)))[::-1]
    labels = np.zeros((len(heads), launches))
    np.put_along_axis(labels, heads, 1.0, axis=1)
    labels -= labels.mean(axis=1, keepdims=True)
    labels /= np.sqrt((labels**2).sum(axis=1, keepdims=True))
    return np.ascontiguousarray(labels.T)


@lru_cache(maxsize=2)
def _swaps(pairs: int) -> F64:
    """Every way to exchange the labels within pairs, shape (2 pairs, 2^pairs), columns of length 1.

    Column 0 exchanges none: the first `pairs` are base, the others head.
    """
    signs = 1.0 - 2.0 * ((np.arange(2**pairs)[None, :] >> np.arange(pairs)[:, None]) & 1)
    return np.concatenate((-signs, signs)) / math.sqrt(2 * pairs)


def _shift(pair: Pair, p: tuple[float, float], level: float, *, paired: bool) -> Comparison:
    """The difference of means with its t interval, and what such a t test at `level` would have found."""
    base, head = pair.baseline, pair.candidate
    if paired:
        df = len(base) - 1
        error = float((head - base).std(ddof=1)) / math.sqrt(len(base))
    else:
        df = len(base) + len(head) - 2
        pooled = (((base - base.mean()) ** 2).sum() + ((head - head.mean()) ** 2).sum()) / df
        error = math.sqrt(float(pooled) * (1 / len(base) + 1 / len(head)))
    tail = level if pair.metric.direction else level / 2
    result = comparison(
        pair,
        (float(base.mean()), float(head.mean())),
        half_width=error * float(-special.stdtrit(df, 0.025)),
        detectable=error * float(special.stdtrit(df, 0.8) - special.stdtrit(df, tail)),
        p=p,
    )
    old, new = (pair.metric.value(float(np.median(side)), pair.floor) for side in (base, head))
    moved = (new - old) * result.shift > 0 and beyond_floor(pair.floor, old, new)
    return replace(result, real=result.real and moved)


def trend(base: Sequence[Run], head: Sequence[Run], rules: Rules) -> str | None:
    """A note where latency drifted or wandered with the order of the launches, at p < 0.01; None else.

    The interleaving cancels a drift out of the difference; it costs power.
    """
    metric = METRICS["iteration_ms"]
    floor = rules.floor(metric)
    sides = [run_values(side, metric, floor) for side in (base, head)]
    if len(sides[0]) < max(3, len(base)) or len(sides[1]) < max(3, len(head)):
        return None
    centred = np.concatenate([side - side.mean() for side in sides])  # the difference itself is no drift
    values = centred[np.argsort([run.order for run in (*base, *head)], kind="stable")]
    if np.ptp(values) < 1e-12:
        return None
    slope, p = _line(values)
    if p >= 0.01:
        wandered = (
            f"{metric.label} wandered with the order of the confirming runs; their interleaving cancels it"
        )
        return wandered if _wander_p(values) < 0.01 else None
    drift = 100 * math.expm1(slope * (len(values) - 1))
    return f"{metric.label} drifted by {drift:+.0f} % over the confirming runs; their interleaving cancels it"


def _line(values: F64) -> tuple[float, float]:
    """The least-squares slope of values, (n,), a step, and the p of Student's test that there is none."""
    x, y = np.arange(len(values)) - (len(values) - 1) / 2, values - values.mean()
    slope, df = float(x @ y) / float(x @ x), len(values) - 2
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / df / float(x @ x))
    return slope, float(2 * special.stdtr(df, -abs(slope) / error)) if error else 0.0


def _wander_p(values: F64) -> float:
    """How seldom successive values lie as close in a random order (von Neumann et al. 1941)."""
    orders = np.random.default_rng(0).permuted(np.tile(values, (WANDERS, 1)), axis=1)
    observed = float((np.diff(values) ** 2).sum())
    steps = (np.diff(orders, axis=1) ** 2).sum(axis=1)
    return (1 + int((steps <= observed * (1 + 1e-9)).sum())) / (WANDERS + 1)
