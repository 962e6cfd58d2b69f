"""What a baseline holds, metric by metric: value, spread, what it can show, how far it is from the anchor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.gate import acceptance, latency, screen
from ai_prof.gate.metrics import COUNTS, METRICS, Rules
from ai_prof.gate.values import constant_count, effect_of, session_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.baselines.store import Baseline
    from ai_prof.gate.metrics import Floor, Metric
    from ai_prof.gate.model import Run
    from ai_prof.gate.screen import Prior

CANDIDATES = 3  # runs of a candidate


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a baseline.

    `spread` is the standard deviation between sessions and `mde` the smallest effect that three runs of
    another session show with 80 % power, relative for times, differences for ratios; None where one session
    tells none, or for a count, which is compared exactly. `mde_in_session` is that of three runs of the
    baseline's own and only session, which the gate compares by launches. `drift` is the effect since the
    anchor, accepted changes apart.
    """

    metric: str
    label: str
    unit: str
    value: float | None
    spread: float | None = None
    mde: float | None = None
    mde_in_session: float | None = None
    drift: float | None = None


def contents(baseline: Baseline, rules: Rules, priors: Mapping[str, Prior]) -> list[Held]:
    """Every metric and count of the baseline, in the table's order."""
    last = baseline.runs[-CANDIDATES:]
    # As if of another day: what these runs share with their own session would make it look sharper.
    strangers = [msgspec.structs.replace(run, session="") for run in last]
    compared, own = (
        {c.metric.key: c for c in screen.screen(baseline.runs, candidate, rules, priors)}
        for candidate in (strangers, last)
    )
    summarised = latency.summarised(baseline.runs, latency.quantile_of(baseline.runs))
    anchor = baseline.anchor
    pinned = acceptance.moved(anchor.runs, anchor.accepted, rules) if anchor else []
    held = []
    for key, item in compared.items():
        metric = METRICS[key]
        values = session_values(summarised, metric, item.floor)
        held.append(
            Held(
                metric=key,
                label=metric.label,
                unit=metric.unit,
                value=item.baseline,
                spread=float(np.std(values, ddof=1)) if len(values) > 1 else None,
                mde=item.mde,
                mde_in_session=own[key].mde if baseline.sessions == 1 else None,
                drift=_drift(pinned, baseline.runs, metric, item.floor),
            )
        )
    return [*held, *(_count(baseline, metric) for metric in COUNTS)]


def _drift(pinned: Sequence[Run], runs: Sequence[Run], metric: Metric, floor: Floor) -> float | None:
    """The effect since the anchor, whose runs have kept their medians alone."""
    was, now = (session_values(each, metric, floor) for each in (pinned, runs))
    if not len(was):
        return None
    return effect_of(metric, *(metric.value(float(np.mean(values)), floor) for values in (was, now)))


def _count(baseline: Baseline, metric: Metric) -> Held:
    only = constant_count(baseline.runs, metric)
    value = None if only is None else float(only)
    return Held(metric=metric.key, label=metric.label, unit=metric.unit, value=value)
