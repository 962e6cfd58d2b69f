"""What a baseline holds, metric by metric: value, spread, what it can show, how far it is from the anchor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.gate import acceptance, screen
from ai_prof.gate.metrics import COUNTS, METRICS, Rules
from ai_prof.gate.values import effect_of, session_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_prof.baselines.store import Baseline
    from ai_prof.gate.metrics import Metric
    from ai_prof.gate.screen import Prior

CANDIDATES = 3  # runs of a candidate


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a baseline.

    `spread` is the standard deviation between sessions and `mde` the smallest effect that three runs show
    with 80 % power, relative for times, differences for ratios; None where one session tells none, or for a
    count, which is compared exactly. `drift` is the effect since the anchor, accepted changes apart.
    """

    metric: str
    label: str
    unit: str
    value: float | None
    spread: float | None = None
    mde: float | None = None
    drift: float | None = None


def contents(baseline: Baseline, rules: Rules, priors: Mapping[str, Prior]) -> list[Held]:
    """Every metric and count of the baseline, in the table's order."""
    # A candidate of another day: what these runs share with their own session would make it look sharper.
    last = [msgspec.structs.replace(run, session="") for run in baseline.runs[-CANDIDATES:]]
    compared = {c.metric.key: c for c in screen.screen(baseline.runs, last, rules, priors)}
    anchor = baseline.anchor
    pinned = acceptance.moved(anchor.runs, anchor.accepted, rules) if anchor else []
    held = []
    for key, item in compared.items():
        metric = METRICS[key]
        values = session_values(baseline.runs, metric, item.floor)
        first = session_values(pinned, metric, item.floor)
        was = metric.value(float(np.mean(first)), item.floor) if len(first) else None
        held.append(
            Held(
                metric=key,
                label=metric.label,
                unit=metric.unit,
                value=item.baseline,
                spread=float(np.std(values, ddof=1)) if len(values) > 1 else None,
                mde=item.mde,
                drift=effect_of(metric, was, item.baseline) if was is not None else None,
            )
        )
    return [*held, *(_count(baseline, metric) for metric in COUNTS)]


def _count(baseline: Baseline, metric: Metric) -> Held:
    counts = {run.structure.get(metric.key) for run in baseline.runs}
    only = counts.pop() if len(counts) == 1 else None
    value = None if only is None else float(only)
    return Held(metric=metric.key, label=metric.label, unit=metric.unit, value=value)
