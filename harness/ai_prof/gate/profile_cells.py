"""The aligned profile as the gate's decision reads it: cells for the report, values for fresh runs' test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.gate.comparison import Pair
from ai_prof.gate.judge import UNFELT
from ai_prof.gate.metrics import METRICS, Floor, Metric, Rules
from ai_prof.gate.model import Cell, Evidence, Reason
from ai_prof.gate.profile import (
    CRITICAL,
    Aspect,
    Compared,
    Finding,
    adjusted_us,
    compare,
    feels,
)
from ai_prof.gate.values import floor_text, run_profiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.model import Run
    from ai_prof.timeline.profile import Profile

_KEYS: dict[Aspect, str] = {"host": "host_profile", "host_slow": "host_profile", "kernel": "kernel_profile"}
_NONE = {
    "host_profile": "no place of the host stands out from the others",
    "kernel_profile": "no kernel stands out from the others",
}


@dataclass(frozen=True)
class Examined:
    """What the profiles of a workload's runs say: one cell a metric, notes, and the flagged findings."""

    cells: list[Cell] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    flagged: list[Finding] = field(default_factory=list)
    reference: Profile | None = None


def examine(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    profiles: Mapping[str, Profile],
    rules: Rules,
    *,
    provisional: bool,
) -> Examined:
    """Compare the runs' profiles. `profiles` holds each run's under the name that the run gives it."""
    new = run_profiles(candidate, profiles)
    if not new:
        return Examined()
    old = run_profiles(baseline, profiles)
    if len(old) < CRITICAL[-1][0]:
        why = f"{len(old)} runs of the baseline have one, it takes {CRITICAL[-1][0]}"
        return Examined(notes=[f"no aligned profile: {why}; record it again with `ai-prof baseline refresh`"])
    results = compare(old, new, _floors(rules))
    if not results:
        return Examined(notes=["no aligned profile: too little of the iteration is the same work"])
    made, flagged = [], []
    for key in dict.fromkeys(_KEYS.values()):
        mine = [result for result in results if _KEYS[result.aspect] == key]
        if mine:
            result = max(mine, key=_weight)
            cell = _cell(result, key, rules, provisional=provisional)
            made.append(cell)
            flagged += [result.finding] if cell.flagged and result.finding else []
    return Examined(made, [], flagged, old[-1])


def pairs(
    examined: Examined,
    base: Sequence[Run],
    head: Sequence[Run],
    profiles: Mapping[str, Profile],
    rules: Rules,
) -> list[Pair]:
    """The flagged places' times in fresh runs, as one more metric each of the permutation test's family.

    The places were chosen from other runs, so the fresh ones are as good as any for testing them. One that
    some run lacks is left out.
    """
    old, new = run_profiles(base, profiles), run_profiles(head, profiles)
    if examined.reference is None or len(old) < len(base) or len(new) < len(head):
        return []
    made = []
    for finding in examined.flagged:
        metric = _named(finding)
        floor = rules.floor(metric)
        times = adjusted_us(finding, examined.reference, (*old, *new))
        if times is not None:
            y = np.log(times + floor.absolute)
            made.append(Pair(metric, floor, y[: len(old)], y[len(old) :]))
    return made


def hidden(examined: Examined, head: Sequence[Run], profiles: Mapping[str, Profile]) -> frozenset[str]:
    """The metrics whose flagged places delay the host and, in head's fresh runs, not the device."""
    new = run_profiles(head, profiles)
    if examined.reference is None or not new:
        return frozenset()
    return frozenset(
        _KEYS[finding.aspect] for finding in examined.flagged if not feels(finding, examined.reference, new)
    )


def stands_again(examined: Examined, again: Examined, *, provisional: bool) -> list[Cell]:
    """The cells where base can't be run: a flag fails if fresh runs flag one of its places again.

    Where they flag none, their own cell stands: it may be a warning of a delay that the device does not feel.
    """
    made = []
    first, second = ({cell.metric: cell for cell in each.cells} for each in (examined, again))
    for finding in examined.flagged:
        key = _KEYS[finding.aspect]
        cell, fresh = first[key], second.get(key)
        places = {place for other in again.flagged if _KEYS[other.aspect] == key for place in other.positions}
        stands = not places.isdisjoint(finding.positions)
        if not stands and fresh is not None and not fresh.flagged:
            cell = fresh
        made.append(
            msgspec.structs.replace(
                cell,
                reason=Reason.REGRESSED if stands else Reason.PASS,
                evidence=Evidence.REPEATED,
                flagged=False,
                provisional=provisional,
            )
        )
    return made


def _floors(rules: Rules) -> dict[Aspect, float]:
    """The least growth that matters, us, of each aspect that isn't ignored."""
    return {
        aspect: rules.floor(METRICS[key]).absolute
        for aspect, key in _KEYS.items()
        if rules.policy_of(key) != "ignore"
    }


def _weight(result: Compared) -> tuple[bool, float]:
    return result.finding is not None, result.t / result.critical


def _cell(result: Compared, key: str, rules: Rules, *, provisional: bool) -> Cell:
    metric, finding = METRICS[key], result.finding
    floor = rules.floor(metric)
    cell = Cell(
        metric=key, unit=metric.unit, reason=Reason.PASS, evidence=Evidence.SCREEN, provisional=provisional
    )
    if finding is None:
        cell.missed_us, cell.missed_anywhere_us = result.detectable_us, result.anywhere_us
        seen = f"{result.detectable_us:.0f} us at one place"
        if result.anywhere_us > result.detectable_us:
            seen = (
                f"{result.detectable_us:.0f} us at half of the places and {result.anywhere_us:.0f} us at any"
            )
        # What is beyond the critical value and no finding is of less than the floor.
        least = f" by the floor of {floor_text(metric, floor)}" if result.t >= result.critical else ""
        cell.why = (
            f"{_NONE[key]}{least} (T {result.t:.1f}, critical {result.critical:g}); {seen} would have "
            f"been seen, a slowdown of all places alike not"
        )
        return cell
    cell.place = _named(finding).label
    cell.baseline, cell.candidate = finding.baseline_us, finding.candidate_us
    cell.effect = finding.candidate_us / finding.baseline_us - 1
    cell.floor = floor.absolute / finding.baseline_us
    cell.why = _why(finding, metric, floor)
    if not finding.felt:
        cell.notes = ["warning"]
        cell.why += f": {UNFELT}"
    elif rules.policy_of(key) == "warn":
        cell.notes = ["warning"]
        cell.why += ": worse, and the policy only warns"
    else:
        cell.reason, cell.flagged = Reason.INCONCLUSIVE, True
    return cell


def _why(finding: Finding, metric: Metric, floor: Floor) -> str:
    return (
        f"{_named(finding).label} grew {finding.size_us:.0f} us per iteration ({finding.baseline_us:.0f} -> "
        f"{finding.candidate_us:.0f} us, T {finding.t:.1f}, critical {finding.critical:g}), "
        f"floor {floor_text(metric, floor)}"
    )


def _named(finding: Finding) -> Metric:
    """The finding's metric, with its place in its label."""
    first, count = finding.positions[0], len(finding.positions)
    places = f"operation {first}" if count == 1 else f"{count} operations from {first} on"
    what = (
        f"time of {finding.at}"
        if finding.aspect == "kernel"
        else (f"host time between {finding.before} and {finding.at}")
    )
    return msgspec.structs.replace(METRICS[_KEYS[finding.aspect]], label=f"{what} ({places})")
