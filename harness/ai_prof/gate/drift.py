"""Drift: the candidate against a pinned anchor, so that many small steps alarm although none does alone.

Steps below a floor pass, and each refresh takes them into the baseline. The anchor stays where it was pinned,
with what people accepted since added, and a wider floor is held against it. A session's spread is estimated
from the differences of successive sessions (von Neumann et al. 1941): a drift, which is what is looked for,
would inflate a variance around the mean.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from scipy import special

from ai_prof.gate import acceptance, reading
from ai_prof.gate.comparison import Comparison, Pair, comparison, holm, with_joint
from ai_prof.gate.judge import sentence
from ai_prof.gate.metrics import TOTALS, Floor, Metric, Rules
from ai_prof.gate.model import Anchor, Cell, Evidence, Reason, WorkloadVerdict
from ai_prof.gate.values import F64, floor_text, run_values, session_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.model import Acceptance, Run
    from ai_prof.gate.screen import Prior

ALPHA = 0.01
FLOORS = 3.0  # a drift must exceed this many of a metric's floors: 3 % of latency
LEAST_SESSIONS = 3  # of the baseline: before, nobody knows how sessions of this workload vary
PLACE = "since the anchor"
# One that improved is on its way back.
MAY_HAVE_DRIFTED = frozenset({Reason.PASS, Reason.STRUCTURE_CHANGED, Reason.ACCEPTED})


def compare(  # noqa: PLR0913, PLR0917 - all that a comparison rests on
    anchor: Anchor,
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    rules: Rules,
    priors: Mapping[str, Prior],
    accepted: Sequence[Acceptance] = (),
) -> list[Comparison]:
    """Every total that may fail alone against the anchor; `p_joint` holds Holm's p over them.

    What was `accepted` since the last refresh, of the baseline or of the anchor, is as wanted here as there.
    Nothing is compared while the baseline is too young to tell how sessions vary.
    """
    if len({run.session for run in baseline}) < LEAST_SESSIONS:
        return []
    since = [*anchor.accepted, *(each for each in accepted if each.place in {"", PLACE})]
    pinned = acceptance.moved(anchor.runs, [msgspec.structs.replace(each, place="") for each in since], rules)
    compared = []
    for metric in TOTALS:
        if not metric.alone or rules.policy_of(metric.key) != "fail":
            continue
        floor = rules.floor(metric)
        wide = Floor(relative=FLOORS * floor.relative, absolute=FLOORS * floor.absolute)
        # The scale of the test is the metric's own; only the size that matters is a wider one.
        pair = Pair(
            metric, floor, session_values(pinned, metric, floor), run_values(candidate, metric, floor)
        )
        if len(pair.baseline) and len(pair.candidate):
            spread = _spread(session_values(baseline, metric, floor), priors[metric.key])
            compared.append(_predict(pair, spread, wide))
    return with_joint(compared, holm([item.p for item in compared]))


def flag(verdict: WorkloadVerdict, compared: Sequence[Comparison], anchor: Anchor) -> WorkloadVerdict:
    """The verdict with the drifted metrics flagged; itself where none drifted."""
    drifted = {item.metric.key: item for item in compared if _drifted(item)}
    if not drifted:
        return verdict
    cells = [
        _cell(drifted[cell.metric], anchor, Evidence.SCREEN) if cell.metric in drifted else cell
        for cell in verdict.cells
    ]
    why = "; ".join(cell.why for cell in cells if cell.flagged)
    return msgspec.structs.replace(
        verdict, cells=cells, flagged=True, drift=True, reason=Reason.INCONCLUSIVE, why=why
    )


def settled(
    verdict: WorkloadVerdict,
    fresh: Sequence[Run],
    rules: Rules,
    priors: Mapping[str, Prior],
    screened: int,
) -> WorkloadVerdict:
    """The verdict after fresh runs of the candidate, of which there are as many again; open without any."""
    anchor = verdict.anchor
    if anchor is None or not fresh:
        return verdict
    sound = [run for run in verdict.baseline_runs if run.problem is None]
    first, second = (
        compare(anchor, sound, half, rules, priors, verdict.accepted)
        for half in (verdict.candidate_runs, fresh)
    )
    marked = flag(verdict, first, anchor)
    return _settled(marked, fresh, (first, second), anchor, screened) if marked.drift else verdict


def _settled(
    verdict: WorkloadVerdict,
    fresh: Sequence[Run],
    halves: tuple[Sequence[Comparison], Sequence[Comparison]],
    anchor: Anchor,
    screened: int,
) -> WorkloadVerdict:
    """The verdict after fresh runs: a drift fails where it stands in both halves, corrected for `screened`.

    Both halves are of one session, so that a flag raised by chance may stand again: all workloads count.
    """
    first, second = ({item.metric.key: item for item in half} for half in halves)
    cells = []
    for cell in verdict.cells:
        item, again = first.get(cell.metric), second.get(cell.metric)
        if not cell.flagged or item is None:
            cells.append(cell)
            continue
        p = min(1.0, screened * max(item.p_joint, again.p_joint if again else 1.0))
        if again is not None and _drifted(again) and p <= ALPHA:
            cells.append(_cell(replace(again, p_joint=p), anchor, Evidence.REPEATED))
        else:
            made = _cell(item, anchor, Evidence.REPEATED)
            notes = ["flagged as a drift, not confirmed"]
            cells.append(msgspec.structs.replace(made, reason=Reason.PASS, notes=notes))
    done = msgspec.structs.replace(
        verdict, cells=cells, flagged=False, evidence=Evidence.REPEATED, confirm_head=list(fresh)
    )
    return reading.conclude(done, compared=len(cells))


def _spread(sessions: F64, prior: Prior) -> tuple[float, float]:
    """A session's standard deviation and its degrees of freedom, the prior's among them."""
    steps = np.diff(sessions)
    if not len(steps):
        return prior.sd, prior.df
    df = 2 / 3 * len(steps)  # successive differences share their ends
    variance = (prior.df * prior.sd**2 + df * float(np.mean(steps**2)) / 2) / (prior.df + df)
    return math.sqrt(variance), prior.df + df


def _predict(pair: Pair, spread: tuple[float, float], wide: Floor) -> Comparison:
    sd, df = spread
    error = sd * math.sqrt(1 + 1 / len(pair.baseline))
    centres = float(np.mean(pair.baseline)), float(np.median(pair.candidate))
    worse = pair.metric.direction * (centres[1] - centres[0]) / error
    item = comparison(
        pair,
        centres,
        half_width=error * float(-special.stdtrit(df, 0.025)),
        detectable=error * float(special.stdtrit(df, 0.8) - special.stdtrit(df, ALPHA)),
        p=(float(special.stdtr(df, -worse)), float(special.stdtr(df, worse))),
    )
    moved = abs(item.candidate - item.baseline)
    beyond = moved > max(wide.relative * abs(item.baseline), wide.absolute)
    return replace(item, floor=wide, real=beyond)


def _drifted(item: Comparison) -> bool:
    return item.worse and item.real and item.p_joint <= ALPHA


def _cell(item: Comparison, anchor: Anchor, evidence: Evidence) -> Cell:
    metric: Metric = item.metric
    settled = evidence is Evidence.REPEATED
    commit = f", {anchor.commit[:12]}" if anchor.commit else ""
    return Cell(
        metric=metric.key,
        unit=metric.unit,
        reason=Reason.REGRESSED if settled else Reason.INCONCLUSIVE,
        evidence=evidence,
        baseline=item.baseline,
        candidate=item.candidate,
        effect=item.effect,
        interval=item.interval,
        floor=item.floor.relative or item.floor.absolute,
        p=item.p,
        p_adjusted=item.p_joint,
        mde=item.mde,
        flagged=not settled,
        place=PLACE,
        why=f"{sentence(item)} since the anchor ({anchor.when[:10]}{commit}), "
        f"floor {floor_text(metric, item.floor)}",
    )
