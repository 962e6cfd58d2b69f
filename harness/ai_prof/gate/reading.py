"""Read a workload's counts and totals together, and put what they come to into one reason and sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ai_prof.gate import acceptance, judge, notes, structure
from ai_prof.gate.metrics import METRICS, TOTALS, Rules
from ai_prof.gate.model import Acceptance, Cell, Reason, Run, WorkloadVerdict
from ai_prof.gate.values import run_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ai_prof.gate.comparison import Comparison


def read(  # noqa: PLR0913 - all that a comparison rests on
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    compare: Callable[[Sequence[Run]], list[Comparison]],
    rules: Rules,
    accepted: Sequence[Acceptance],
    *,
    excuses: bool = True,
) -> tuple[structure.Structure, judge.Totals]:
    """Read structure and totals together: each may excuse or carry the other.

    `compare` compares a baseline's runs with the candidate's, metric by metric. Without `excuses` no count
    that grew is excused by speed: a narrow baseline may be of a slower hour.
    """
    items = compare(acceptance.moved(baseline, accepted, rules) if accepted else baseline)
    wanted = acceptance.accepted_totals(compare(baseline), accepted) if accepted else {}
    totals = judge.Totals({item.metric.key: item for item in items}, rules, accepted=wanted)
    speed = structure.Speed(
        faster=excuses and totals.surely_shorter("kernel_time_ms") and totals.surely_shorter("iteration_ms"),
        latency=excuses and totals.improved("iteration_ms"),
    )
    found = structure.compare(baseline, candidate, rules, speed, accepted)
    more = any(change.name == "kernels" for change in found.worse)
    return found, replace(totals, more_kernels=more)


def missing(baseline: Sequence[Run], candidate: Sequence[Run], totals: judge.Totals) -> list[Cell]:
    """Cells of the totals that one side has and the other lacks."""
    made = []
    for metric in TOTALS:
        if metric.key in totals.items or totals.rules.policy_of(metric.key) == "ignore":
            continue
        has = [
            len(run_values(side, metric, totals.rules.floor(metric))) > 0 for side in (baseline, candidate)
        ]
        if any(has):
            made.append(judge.missing(metric, "candidate" if has[0] else "baseline"))
    return made


def left_out(runs: Sequence[Run], totals: judge.Totals) -> list[str]:
    """Say where some of the candidate's runs have no usable value of a total that the others have."""
    said = []
    for item in totals.items.values():
        lacking = len(runs) - len(run_values(runs, item.metric, item.floor))
        if lacking:
            said.append(f"{item.metric.label} has no usable value in {lacking} of {len(runs)} runs: left out")
    return said


def in_order(made: Sequence[Cell]) -> list[Cell]:
    """Cells in the order of the metric table."""
    place = {key: i for i, key in enumerate(METRICS)}
    return sorted(made, key=lambda cell: place[cell.metric])


def conclude(verdict: WorkloadVerdict, compared: int, warned: Sequence[str] = ()) -> WorkloadVerdict:
    """Reason and sentence from cells and structure, the gravest first; `warned` is the structure's."""
    changes = [change for change in verdict.structure if not change.name.startswith("kernel:")]
    for reason in (Reason.REGRESSED, Reason.INCONCLUSIVE, Reason.INCOMPARABLE):
        whys = [change.why for change in changes if change.reason is reason]
        whys += [cell.why for cell in verdict.cells if cell.reason is reason]
        if whys:
            verdict.reason, verdict.why = reason, "; ".join(whys)
            return verdict
    total = verdict.cell("iteration_ms")
    wanted = [change.why for change in changes if change.reason is Reason.ACCEPTED]
    wanted += [cell.why for cell in verdict.cells if cell.reason is Reason.ACCEPTED]
    if compared == 0:
        verdict.reason, verdict.why = Reason.INCOMPARABLE, "nothing could be compared"
    elif wanted:
        verdict.reason, verdict.why = Reason.ACCEPTED, "; ".join(wanted)
    elif total is not None and total.reason is Reason.IMPROVED:
        verdict.reason, verdict.why = Reason.IMPROVED, total.why
        if not verdict.provisional:  # one session may have been a slow one
            verdict.notes.append("refresh the baseline: until then what was won can be lost again unseen")
    elif verdict.structure:
        verdict.reason = Reason.STRUCTURE_CHANGED
        verdict.why = "; ".join(change.why for change in changes) or _swapped(verdict)
    elif warned:
        verdict.reason, verdict.why = Reason.STRUCTURE_CHANGED, "; ".join(warned)
    else:
        verdict.reason, verdict.why = Reason.PASS, "no change beyond noise and floors"
    return verdict


def said_of(totals: judge.Totals, found: structure.Structure) -> list[str]:
    """What both show besides verdicts: the kind of change, and what could not have been seen."""
    return [*notes.kind_of_change(totals, found.changes), *notes.underpowered(totals.items.values())]


def _swapped(verdict: WorkloadVerdict) -> str:
    return f"{len(verdict.structure)} kernels changed, with as many kernels per iteration as before"
