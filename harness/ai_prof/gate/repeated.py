"""The weaker rule, where base can't be run again: the flag must stand in both halves of the candidate's runs.

Both halves (the first runs and as many fresh ones) are screened against the same baseline, and the larger
of a metric's two p-values counts. Both share the baseline's own error, so this is weaker evidence than
fresh runs of base, and labelled so.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from ai_prof.gate.clock import clock_shifted
from ai_prof.gate.comparison import hommel, jointly
from ai_prof.gate.screen import Prior, screen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.comparison import Comparison
    from ai_prof.gate.metrics import Rules
    from ai_prof.gate.model import Run


def clock_shift(baseline: Sequence[Run], candidate: Sequence[Run]) -> str | None:
    """Why slower runs of the candidate prove nothing: the GPU's clock was another; None where it was not.

    Fresh runs of base would have had the same clock. The stored ones had their own.
    """
    clocks = [
        [run.environment["sm_clock_mhz"] for run in side if "sm_clock_mhz" in run.environment]
        for side in (baseline, candidate)
    ]
    if not all(clocks):
        return None
    old, new = (statistics.median(side) for side in clocks)
    if not clock_shifted(new, old):
        return None
    return f"the GPU ran at {new:g} MHz, the baseline's runs at {old:g} MHz: let it cool, or run base again"


def compare(
    baseline: Sequence[Run],
    first: Sequence[Run],
    fresh: Sequence[Run],
    rules: Rules,
    priors: Mapping[str, Prior],
) -> list[Comparison]:
    """Compare every total that both halves have; values are those of all the candidate's runs together.

    `p`, `p_better` and `p_joint` are the larger of the two halves'; `real` and `judged` hold in both.
    No fresh runs of base say which metric it was, so `p_joint` is Hommel's, each metric's own.
    """
    halves = [
        {item.metric.key: item for item in jointly(screen(baseline, half, rules, priors), hommel)}
        for half in (first, fresh)
    ]
    compared = []
    for item in screen(baseline, (*first, *fresh), rules, priors):
        one, two = (half.get(item.metric.key) for half in halves)
        if one is None or two is None:
            continue
        compared.append(
            replace(
                item,
                p=max(one.p, two.p),
                p_better=max(one.p_better, two.p_better),
                p_joint=max(one.p_joint, two.p_joint),
                judged=one.judged and two.judged,
                real=one.real and two.real and one.shift * two.shift > 0,
            )
        )
    return compared
