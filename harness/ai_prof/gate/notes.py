"""What a verdict says beside its reason: what kind of change, how blind the test was, whether modes show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.gate.metrics import METRICS
from ai_prof.gate.screen import NOT_JUDGED
from ai_prof.gate.values import F64, change
from ai_prof.timeline import spoken
from ai_prof.timeline.gain import WORK, Gain, by_kernels, gain_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ai_prof.gate.comparison import Comparison
    from ai_prof.gate.judge import Totals
    from ai_prof.gate.model import Run, StructureChange

_GAINS: dict[Gain, str] = {
    "accelerated": "true acceleration: latency fell, and the device is busier",
    "less-work": "less work: latency fell, and so did {fell} per iteration",
    "faster": "faster with no less work counted: what runs or the machine was faster, or kernels are smaller",
}
_MODE_SHARE = 0.2  # the smaller mode holds at least this share
_MODE_APART = 1.10  # and lies at least 10 % away
_MODE_D = 4.5  # Ashman's D of the best split; one normal's halves have 2.6, a uniform's 3.5
_MODE_POINTS = 20


def kind_of_change(totals: Totals, changes: Iterable[StructureChange]) -> list[str]:
    """Tell a true acceleration from less work and from idle time filled with nothing gained."""
    busier = totals.improved("kernel_busy")
    latency = totals.stored("iteration_ms")
    if totals.improved("iteration_ms"):
        fell = [METRICS[each.name].label for each in changes if each.name in WORK and _fell(each)]
        gain = gain_of(busier=busier, by_kernels=_saved_by_kernels(totals), less=bool(fell))
        return [_GAINS[gain].format(fell=" and ".join(fell))]
    if busier and latency is not None and not latency.real:
        return ["idle time filled, nothing gained: the device is busier, and latency did not fall"]
    return []


def _fell(change: StructureChange) -> bool:
    return change.candidate < change.baseline


def _saved_by_kernels(totals: Totals) -> bool:
    """Whether the iteration got shorter mostly by the time in which kernels run: its share of the length."""
    latency, busy = totals.stored("iteration_ms"), totals.stored("kernel_busy")
    if latency is None or busy is None:
        return False
    kernels = busy.candidate * latency.candidate - busy.baseline * latency.baseline
    return by_kernels(latency.candidate - latency.baseline, kernels)


def underpowered(items: Iterable[Comparison]) -> list[str]:
    """Name the totals in which only a large change could have been seen, and none was."""
    blind = [
        item
        for item in items
        if item.metric.alone and item.mde is not None and item.mde > NOT_JUDGED and not item.real
    ]
    if not blind:
        return []
    parts = [f"{item.metric.label} below {change(item.metric, item.mde)}" for item in blind]
    return ["underpowered: can't see changes of " + ", ".join(parts)]


def multimodal(baseline: Sequence[Run], candidate: Sequence[Run]) -> list[str]:
    """Say where the iterations of a run fall into two groups, for which one number is no summary."""
    label = METRICS["iteration_ms"].label
    notes = []
    for side, runs in (("baseline", baseline), ("candidate", candidate)):
        found = [modes for run in runs if (modes := two_modes(run.iteration_ms)) is not None]
        if found:
            low, high = np.median(np.array(found), axis=0)
            notes.append(
                f"multimodal: in {len(found)} of {len(runs)} runs of the {side} {label} has two modes, "
                f"near {spoken.time(low)} and {spoken.time(high)}"
            )
    return notes


def two_modes(values: Sequence[float]) -> tuple[float, float] | None:
    """The centres of two clearly separate modes, or None.

    Splits the sorted logarithms where the halves differ most (Otsu) and asks whether the split is deep by
    Ashman's D = sqrt(2) |m1 - m2| / sqrt(s1^2 + s2^2).
    """
    y = np.sort(np.log(np.array([value for value in values if value > 0 and math.isfinite(value)])))
    least = max(2, math.ceil(_MODE_SHARE * len(y)))
    if len(y) < _MODE_POINTS:
        return None
    at = _best_split(y, least)
    low, high = y[:at], y[at:]
    apart = float(high.mean() - low.mean())
    spread = math.sqrt((float(low.var()) + float(high.var())) / 2)
    if apart < math.log(_MODE_APART) or apart < _MODE_D * spread:
        return None
    return float(np.exp(np.median(low))), float(np.exp(np.median(high)))


def _best_split(y: F64, least: int) -> int:
    """The position that maximises the variance between both parts, each of `least` points or more."""
    n = len(y)
    at = np.arange(least, n - least + 1)
    sums = np.cumsum(y)
    low, high = sums[at - 1] / at, (sums[-1] - sums[at - 1]) / (n - at)
    return int(at[np.argmax(at * (n - at) * (high - low) ** 2)])
