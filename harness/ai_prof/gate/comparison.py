"""One metric of a baseline against one of a candidate, whatever test compared them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ai_prof.gate.metrics import Floor, Metric, Scale
from ai_prof.gate.values import F64, beyond_floor, effect_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


WIDEST = 50.0  # of a difference on the scale of logarithms: what is wider is as good as unbounded


@dataclass(frozen=True)
class Comparison:
    """What a test says of one metric.

    `baseline` and `candidate` are values in the metric's unit, `shift` their difference on the scale of the
    tests. `p` is one-sided towards worse (two-sided where the metric has no direction), `p_better` towards
    better, `p_joint` is `p` corrected over the workload's metrics. `judged` is False where only a change
    too large to expect could have been seen. `real` says that the change exceeds both floors, and by every
    measure of the centre that the test knows.
    """

    metric: Metric
    floor: Floor
    baseline: float
    candidate: float
    shift: float
    effect: float | None
    interval: tuple[float, float] | None
    mde: float | None
    p: float
    p_better: float
    p_joint: float = 1.0
    judged: bool = True
    real: bool = False

    @property
    def worse(self) -> bool:
        """Whether the shift is towards worse; either way is where the metric has no direction."""
        return self.shift != 0 if self.metric.direction == 0 else self.metric.direction * self.shift > 0

    @property
    def better(self) -> bool:
        """Whether the shift is towards better."""
        return self.metric.direction * self.shift < 0


class Pair(NamedTuple):
    """A metric's values on both sides, shapes (n,) and (m,), on the scale of the tests."""

    metric: Metric
    floor: Floor
    baseline: F64
    candidate: F64


def comparison(
    pair: Pair,
    centres: tuple[float, float],
    *,
    half_width: float,
    detectable: float,
    p: tuple[float, float],
) -> Comparison:
    """Bring a test's numbers, all on its own scale, into the metric's unit.

    `centres` are baseline's and candidate's, `half_width` that of the 95 % interval of their difference,
    `detectable` the difference found with 80 % power, `p` towards worse and towards better.
    """
    metric, floor = pair.metric, pair.floor
    baseline, candidate = (metric.value(y, floor) for y in centres)
    low, high = (
        effect_of(metric, baseline, metric.value(centres[1] + width, floor))
        for width in (-min(half_width, WIDEST), min(half_width, WIDEST))
    )
    return Comparison(
        metric=metric,
        floor=floor,
        baseline=baseline,
        candidate=candidate,
        shift=centres[1] - centres[0],
        effect=effect_of(metric, baseline, candidate),
        interval=None if low is None or high is None else (low, high),
        mde=_mde(metric, floor, baseline, detectable),
        p=p[0],
        p_better=p[1],
        real=beyond_floor(floor, baseline, candidate),
    )


def _mde(metric: Metric, floor: Floor, baseline: float, detectable: float) -> float | None:
    """The detectable difference as an effect; None for a time from 0, which has no relative size."""
    if metric.scale is Scale.RAW:
        return detectable
    if baseline <= 0:
        return None
    return (baseline + floor.absolute) * math.expm1(min(detectable, WIDEST)) / baseline


def holm(p: Sequence[float], family: int | None = None) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979).

    `family` counts the hypotheses where it is larger than the list: the others had no evidence.
    """
    size = len(p) if family is None else family
    adjusted = [1.0] * len(p)
    running = 0.0
    for rank, index in enumerate(np.argsort(p, kind="stable")):
        running = max(running, (size - rank) * p[index])
        adjusted[index] = min(1.0, running)
    return adjusted


def simes(p: Sequence[float]) -> float:
    """Simes' p of the hypothesis that none of the metrics changed (Simes 1986); 1 without any.

    It holds its level for independent and for positively dependent p-values (Sarkar 1998), which metrics of
    one run are, and gains where several are small together.
    """
    size = len(p)
    return min((size * each / rank for rank, each in enumerate(sorted(p), start=1)), default=1.0)


def hommel(p: Sequence[float]) -> list[float]:
    """Hommel's adjusted p-values, in the order given: the closed test of Simes' (Hommel 1988; Wright 1992).

    Never above Holm's, and much below where several hypotheses fall together.
    """
    order = np.argsort(p, kind="stable")
    sorted_p = np.asarray(p, np.float64)[order]
    adjusted, n = sorted_p.copy(), len(sorted_p)
    for size in range(n, 1, -1):
        simes = float((size * sorted_p[n - size :] / np.arange(1, size + 1)).min())
        adjusted[n - size :] = np.maximum(adjusted[n - size :], simes)
        rest = np.minimum(simes, size * sorted_p[: n - size])
        adjusted[: n - size] = np.maximum(adjusted[: n - size], rest)
    result = np.empty(n)
    result[order] = np.minimum(adjusted, 1.0)
    return [float(value) for value in result]


def with_joint(items: Sequence[Comparison], joint: Sequence[float]) -> list[Comparison]:
    """The comparisons with their `p_joint` set."""
    return [replace(item, p_joint=float(p)) for item, p in zip(items, joint, strict=True)]


def jointly(
    items: Sequence[Comparison], correct: Callable[[Sequence[float]], Sequence[float]]
) -> list[Comparison]:
    """The same with `p` corrected over the metrics that may fail a build alone; the others keep their own.

    Those others need a partner, which is in the family, and cost it nothing.
    """
    adjusted = iter(correct([item.p for item in items if item.metric.alone]))
    return with_joint(items, [next(adjusted) if item.metric.alone else item.p for item in items])
