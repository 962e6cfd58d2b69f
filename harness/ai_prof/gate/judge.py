"""From comparisons to cells: which changes count, and what each says in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ai_prof.gate import acceptance
from ai_prof.gate.metrics import Floor, Metric, Rules, Scale
from ai_prof.gate.model import Cell, Evidence, Reason
from ai_prof.gate.values import beyond_floor, change, floor_text, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_prof.gate.acceptance import Accepted
    from ai_prof.gate.comparison import Comparison

IMPROVED_P = 0.01  # uncorrected: an improvement fails nobody
_IDLE = frozenset({"gap", "gap_ms", "kernel_busy"})
_SHARES = _IDLE | {"copy_compute_overlap"}
_PLACES = frozenset({"host_profile", "kernel_profile"})
_CARRIERS = ("gap", "copy_compute_overlap", "iteration_ms")
# What a change beyond the floor lacks that is not `real`.
_NOT_REAL = {Evidence.CONFIRMED: "by its medians ", Evidence.REPEATED: "in one half of the runs "}
UNFELT = "in most iterations the device does not wait for it"


@dataclass(frozen=True)
class Totals:
    """A workload's comparisons, with what it takes to read them together.

    Those of `accepted` metrics are in `items` against the accepted level.
    """

    items: Mapping[str, Comparison]
    rules: Rules
    more_kernels: bool = False
    hidden: frozenset[str] = frozenset()  # places whose delay the device doesn't feel
    accepted: Mapping[str, Accepted] = field(default_factory=dict)

    def stored(self, key: str) -> Comparison | None:
        """A metric's comparison with the baseline as it is stored."""
        return self.accepted[key].plain if key in self.accepted else self.items.get(key)

    def improved(self, key: str) -> bool:
        """Whether a metric got better, beyond its floors and by its test."""
        item = self.stored(key)
        return item is not None and item.better and item.real and item.p_better <= IMPROVED_P

    def surely_shorter(self, key: str) -> bool:
        """Whether a time fell by more than its floor, by the whole of its interval."""
        item = self.stored(key)
        return (
            self.improved(key)
            and item is not None
            and item.interval is not None
            and (item.interval[1] <= -item.floor.relative)
        )

    def excused(self, item: Comparison) -> str | None:
        """Why a share or a place that moved the wrong way is none the worse: faster work leaves it behind."""
        key = item.metric.key
        if key in self.hidden:
            return UNFELT
        if key in _SHARES | _PLACES and self.improved("iteration_ms"):
            return "the iteration got shorter"
        latency = self.stored("iteration_ms")
        slower = latency is not None and latency.worse and latency.real
        if key in _IDLE and self.improved("kernel_time_ms") and not slower:
            return "kernel time fell and the iteration got no longer"
        return None

    def suspects(self) -> list[Comparison]:
        """What may fail the build alone, were its p small enough."""
        return [item for item in self.items.values() if item.metric.alone and self._counts(item)]

    def failing(self, p: Mapping[str, float], alpha: float) -> set[str]:
        """The metrics worse at `alpha` by the p-values given, partners' rules included."""
        failing = {item.metric.key for item in self.suspects() if p[item.metric.key] <= alpha}
        mean = self.items.get("kernel_mean_us")
        if mean is not None and self._counts(mean) and p["kernel_mean_us"] <= alpha:
            carried = "kernel_time_ms" in failing if mean.shift > 0 else self.more_kernels
            failing |= {"kernel_mean_us"} if carried else set()
        busy = self.items.get("kernel_busy")
        if busy is not None and self._counts(busy) and p["kernel_busy"] <= alpha:
            failing |= {"kernel_busy"} if failing.intersection(_CARRIERS) else set()
        return failing

    def _counts(self, item: Comparison) -> bool:
        moved = item.worse and item.real and item.judged
        return moved and self.rules.policy_of(item.metric.key) == "fail" and self.excused(item) is None


def cells(
    totals: Totals, p: Mapping[str, float], *, alpha: float, evidence: Evidence, provisional: bool
) -> list[Cell]:
    """Every comparison as a cell; what fails is flagged and inconclusive at the screen, else a regression."""
    failing = totals.failing(p, alpha)
    screening = evidence is Evidence.SCREEN
    made = []
    for key, compared in totals.items.items():
        item = compared if key in failing else totals.stored(key) or compared
        won = totals.improved(key) and key not in failing
        reason, why, notes = _reading(totals, item, alpha, p[key], evidence)
        if key in failing:
            reason = Reason.INCONCLUSIVE if screening else Reason.REGRESSED
            why = f"{sentence(item)}, floor {floor_text(item.metric, item.floor)}"
            if key in totals.accepted:
                why = f"{why}, {acceptance.beyond(totals.accepted[key].acceptance)}"
        made.append(
            Cell(
                metric=key,
                unit=item.metric.unit,
                reason=reason,
                evidence=evidence,
                baseline=item.baseline,
                candidate=item.candidate,
                effect=item.effect,
                interval=item.interval,
                floor=_floor(item.metric, item.floor, item.baseline),
                p=item.p_better if won else item.p,
                p_adjusted=None if won else p[key],
                mde=item.mde,
                place=item.metric.label if item.metric.role == "profile" else "",
                flagged=screening and key in failing,
                judged=item.judged or totals.improved(key),
                provisional=provisional,
                notes=notes,
                why=why,
            )
        )
    return made


def _reading(
    totals: Totals, item: Comparison, alpha: float, p: float, evidence: Evidence
) -> tuple[Reason, str, list[str]]:
    """Reason, sentence and notes of a metric that doesn't fail."""
    key, said = item.metric.key, sentence(item)
    notes: list[str] = []
    reason = Reason.PASS
    if key in totals.accepted and item.worse and item.real:
        said += f": {acceptance.note(totals.accepted[key].acceptance)}"
        reason = Reason.ACCEPTED
    elif not item.judged and not totals.improved(key):
        least = change(item.metric, item.mde)
        said += f": not judged, a baseline of one session can't show less than {least}, refresh it in others"
        notes = ["not judged"]
    elif totals.improved(key) and totals.improved("iteration_ms"):
        reason = Reason.IMPROVED
    elif totals.improved(key):
        said += ": better, but latency was not shown to fall"
    elif not item.real:
        beyond = beyond_floor(item.floor, item.baseline, item.candidate)
        by = _NOT_REAL.get(evidence, "") if beyond else ""
        said += f": {by}below the floor of {floor_text(item.metric, item.floor)}"
    elif not item.worse or p > alpha:
        said += ": within the noise"
    elif (excuse := totals.excused(item)) is not None:
        said += f": {excuse}"
        notes = ["warning"] if key in totals.hidden else []
    elif totals.rules.policy_of(key) == "warn":
        said += ": worse, and the policy only warns"
        notes = ["warning"]
    else:
        said += ": no regression of its own"
    return reason, said, notes


def missing(metric: Metric, side: str) -> Cell:
    """The cell of a metric that only one side has; `side` is the one without it."""
    if metric.key == "copy_compute_overlap":
        why, reason = f"no copies in the {side}: no overlap to compare", Reason.PASS
    else:
        why, reason = f"{metric.label} could not be measured in the {side}", Reason.INCOMPARABLE
    return Cell(metric=metric.key, unit=metric.unit, reason=reason, judged=False, why=why)


def sentence(item: Comparison) -> str:
    """What happened: `iteration latency grew 41 % (3.10 -> 4.37 ms)`."""
    metric = item.metric
    old, new = number(metric, item.baseline), number(metric, item.candidate)
    if item.effect is not None and abs(item.effect) < 0.0005:
        return f"{metric.label} did not change ({old})"
    verb = "grew" if item.shift > 0 else "fell"
    if metric.role == "profile":
        size = abs(item.candidate - item.baseline)
        return f"{metric.label} {verb} {size:.0f} us per iteration ({old.removesuffix(' us')} -> {new})"
    unit = " %" if metric.scale is Scale.RAW else f" {metric.unit}"
    return f"{metric.label} {verb} {change(metric, item.effect)} ({old.removesuffix(unit)} -> {new})"


def _floor(metric: Metric, floor: Floor, baseline: float) -> float | None:
    """The larger of both floors as an effect."""
    if metric.scale is Scale.RAW:
        return max(floor.absolute, floor.relative * abs(baseline))
    return max(floor.relative, floor.absolute / baseline) if baseline > 0 else None
