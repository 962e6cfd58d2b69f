"""The door of the gate: screen each workload, settle what was flagged, conclude the build. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ai_prof.gate import acceptance, confirm, drift, judge, notes, profile_cells, repeated, screen, structure
from ai_prof.gate.comparison import Comparison, holm
from ai_prof.gate.conclude import FAIL_ON, build
from ai_prof.gate.explain import explained
from ai_prof.gate.latency import quantile_note, quantile_of, summarised
from ai_prof.gate.metrics import METRICS, TOTALS, Rules
from ai_prof.gate.model import Acceptance, Anchor, Cell, Evidence, Reason, Run, WorkloadVerdict
from ai_prof.gate.values import run_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ai_prof.gate.screen import Prior
    from ai_prof.timeline.profile import Profile

__all__ = ["ALPHA", "FAIL_ON", "Fresh", "build", "by_strength", "screen_workload", "settle", "unscreened"]

ALPHA = 0.01
NO_PROFILES: Mapping[str, Profile] = {}


class Fresh(msgspec.Struct, frozen=True, kw_only=True):
    """The fresh runs that settle one flagged workload.

    `base` and `head`: k each by `confirm.schedule`; `order` counts through both.
    With no `base` (it can't be run again) `head` holds as many fresh runs of the candidate as the screen
    had, and `no_base` says why. `paired`: the launches drifted, so more were made, to compare pair by pair.
    """

    base: list[Run] = []
    head: list[Run] = []
    paired: bool = False
    no_base: str = ""


class _Settled(msgspec.Struct, frozen=True):
    """What fresh runs say of one workload, before the correction over all flagged workloads."""

    evidence: Evidence
    totals: judge.Totals
    structure: structure.Structure
    places: list[Cell] = []

    @property
    def p(self) -> float:
        """The smallest joint p of what may fail the build; 1 where nothing may."""
        return min((item.p_joint for item in self.totals.suspects()), default=1.0)


def screen_workload(  # noqa: PLR0913 - all that a comparison rests on
    workload: str,
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    *,
    rules: Rules,
    priors: Mapping[str, Prior],
    profiles: Mapping[str, Profile] = NO_PROFILES,
    accepted: Sequence[Acceptance] = (),
    anchor: Anchor | None = None,
) -> WorkloadVerdict:
    """Compare a candidate's runs with a stored baseline's; flag what fresh runs must settle.

    `priors` are `screen.shared_priors` of all the workloads' baselines, `profiles` the runs' by digest,
    `accepted` the changes that a person accepted since the baseline was stored, `anchor` what drift is held
    against.
    """
    sound = [run for run in baseline if run.problem is None]
    verdict = WorkloadVerdict(
        workload=workload,
        reason=Reason.PASS,
        baseline_runs=list(baseline),
        candidate_runs=list(candidate),
        accepted=list(accepted),
        anchor=anchor,
        provisional=len({run.session for run in sound}) < 2,
    )
    if (unfit := _unfit(verdict, sound, candidate)) is not None:
        return unfit
    found, totals = _read(
        sound,
        candidate,
        lambda base: screen.screen(base, candidate, rules, priors),
        rules,
        accepted,
        excuses=structure.decisive(sound),
    )
    items = list(totals.items.values())
    p = {item.metric.key: item.p_joint for item in items}
    made = judge.cells(
        totals, p, alpha=screen.ALPHA, evidence=Evidence.SCREEN, provisional=verdict.provisional
    )
    seen = profile_cells.examine(sound, candidate, profiles, rules, provisional=verdict.provisional)
    seen = acceptance.leave_out_places(seen, accepted, rules)
    made += seen.cells
    verdict.cells = _in_order(made + _missing(sound, candidate, totals))
    verdict.structure = found.changes
    verdict.notes = [
        *found.notes,
        *_left_out(candidate, totals),
        *found.broken,
        *_notes(totals),
        *notes.multimodal(sound, candidate),
        *quantile_note(sound, quantile_of(sound, candidate)),
        *seen.notes,
    ]
    decided = bool(found.worse) and structure.decisive(sound)
    verdict.flagged = not decided and (bool(found.worse) or any(cell.flagged for cell in made))
    verdict.evidence = Evidence.STRUCTURE if decided else Evidence.SCREEN
    if verdict.flagged:
        for change in found.worse:
            change.reason = Reason.INCONCLUSIVE
    verdict = _conclude(verdict, compared=found.compared + len(items))
    if verdict.reason is Reason.PASS and found.broken:
        verdict.reason, verdict.why = Reason.STRUCTURE_CHANGED, "; ".join(found.broken)
    if anchor is None or verdict.flagged or verdict.reason not in drift.MAY_HAVE_DRIFTED:
        return verdict
    return drift.flag(verdict, drift.compare(anchor, sound, candidate, rules, priors, accepted), anchor)


def unscreened(workload: str, why: str) -> WorkloadVerdict:
    """The verdict of a workload without a stored baseline, which fresh runs of base and head settle."""
    return WorkloadVerdict(workload=workload, reason=Reason.INCONCLUSIVE, why=why, flagged=True)


def settle(  # noqa: PLR0913 - all that a comparison rests on
    verdicts: Sequence[WorkloadVerdict],
    fresh: Mapping[str, Fresh],
    *,
    rules: Mapping[str, Rules],
    priors: Mapping[str, Prior],
    alpha: float = ALPHA,
    profiles: Mapping[str, Profile] = NO_PROFILES,
) -> list[WorkloadVerdict]:
    """Settle every flagged verdict by its workload's fresh runs; the others pass through.

    Takes all verdicts of the build at once, since Holm's correction runs over the flagged workloads. One
    without fresh runs, or with too few (the budget ended), stays inconclusive and still counts among them.
    """
    flagged = [verdict for verdict in verdicts if verdict.flagged]
    settled: dict[str, _Settled] = {}
    unsettled: dict[str, WorkloadVerdict] = {}
    for verdict in flagged:
        name = verdict.workload
        runs = fresh.get(name, Fresh())
        launches = len(runs.base), len(runs.head)
        plan = confirm.planned(len(flagged), alpha, launches, paired=runs.paired)
        disturbed = _disturbed(verdict, (*runs.base, *runs.head))
        if disturbed is not None:
            unsettled[name] = disturbed
        elif verdict.drift:
            unsettled[name] = drift.settled(
                verdict, runs.head, rules.get(name, Rules()), priors, len(verdicts)
            )
        elif runs.base and not plan.reachable:
            unsettled[name] = _with_note(verdict, "not settled: too few fresh runs to reach alpha")
        elif runs.head:
            settled[name] = _evidence(verdict, runs, rules.get(name, Rules()), plan, priors, profiles)
    floors = _step_down(settled, _family(settled, len(flagged), len(verdicts)))
    done = []
    for verdict in verdicts:
        name = verdict.workload
        if name in settled:
            final = _settled(verdict, fresh[name], settled[name], floors[name], alpha)
            if final.reason in drift.MAY_HAVE_DRIFTED:
                # What the screen flagged and fresh runs cleared may have drifted all the same.
                own = rules.get(name, Rules())
                again = drift.settled(final, fresh[name].head, own, priors, len(verdicts))
                final = again if again.reason is Reason.REGRESSED else final
            done.append(final)
        else:
            done.append(unsettled.get(name, verdict))
    return [explained(verdict, profiles) for verdict in done]


def by_strength(verdicts: Sequence[WorkloadVerdict]) -> list[WorkloadVerdict]:
    """The flagged ones, strongest first: changed counts, then places that grew, then the smallest p."""

    def weakness(verdict: WorkloadVerdict) -> tuple[bool, float, str]:
        p = [0.0 if cell.p_adjusted is None else cell.p_adjusted for cell in verdict.cells if cell.flagged]
        counts = any(change.reason is Reason.INCONCLUSIVE for change in verdict.structure)
        return (not counts, min(p, default=1.0), verdict.workload)

    return sorted((verdict for verdict in verdicts if verdict.flagged), key=weakness)


def _unfit(
    verdict: WorkloadVerdict, baseline: Sequence[Run], candidate: Sequence[Run]
) -> WorkloadVerdict | None:
    """The verdict where there is nothing sound to compare."""
    if (disturbed := _disturbed(verdict, candidate)) is not None:
        return disturbed
    if not candidate:
        verdict.reason, verdict.why = Reason.INCOMPARABLE, "there are no runs to compare"
    elif not baseline:
        verdict.reason, verdict.why = (
            Reason.NO_BASELINE,
            "no baseline: record one with `ai-prof gate --record`",
        )
    elif (difference := _taken_otherwise(baseline, candidate)) is not None:
        verdict.reason, verdict.why = Reason.INCOMPARABLE, difference
    else:
        return None
    return verdict


def _taken_otherwise(baseline: Sequence[Run], candidate: Sequence[Run]) -> str | None:
    """How the captures of both sides differ; None where they are alike, or do not say."""
    old, new = ({run.captured for run in side if run.captured} for side in (baseline, candidate))
    if not old or not new or old == new:
        return None
    was, now = (" and ".join(sorted(side)) for side in (old, new))
    return f"captured at {now}, the baseline at {was}: capture both alike, or record the baseline again"


def _disturbed(verdict: WorkloadVerdict, runs: Sequence[Run]) -> WorkloadVerdict | None:
    """A run with a problem makes its workload neither a pass nor a regression."""
    bad = next((run for run in runs if run.problem is not None), None)
    if bad is None or bad.problem is None:
        return None
    why = bad.detail or f"a run was not fit to compare ({bad.problem.value})"
    return msgspec.structs.replace(verdict, reason=bad.problem, why=why, flagged=False)


def _read(  # noqa: PLR0913 - all that a comparison rests on
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
        faster=excuses and totals.shrank("kernel_time_ms") and totals.shrank("iteration_ms"),
        latency=excuses and totals.improved("iteration_ms"),
    )
    found = structure.compare(baseline, candidate, rules, speed, accepted)
    more = any(change.name == "kernels" for change in found.worse)
    return found, replace(totals, more_kernels=more)


def _evidence(  # noqa: PLR0913, PLR0917 - all that a comparison rests on
    verdict: WorkloadVerdict,
    runs: Fresh,
    rules: Rules,
    plan: confirm.Plan,
    priors: Mapping[str, Prior],
    profiles: Mapping[str, Profile],
) -> _Settled:
    """Compare fresh runs: base with head, or the stored baseline with both halves of the candidate's."""
    sound = [run for run in verdict.baseline_runs if run.problem is None]
    provisional, accepted = verdict.provisional, verdict.accepted
    first = profile_cells.examine(sound, verdict.candidate_runs, profiles, rules, provisional=provisional)
    first = acceptance.leave_out_places(first, accepted, rules)
    if runs.base:
        places = profile_cells.pairs(first, runs.base, runs.head, profiles, rules)
        share = quantile_of(sound, (*runs.base, *runs.head))
        head = summarised(runs.head, share)
        found, totals = _read(
            runs.base,
            runs.head,
            lambda base: confirm.compare(summarised(base, share), head, rules, plan, places),
            rules,
            accepted,
        )
        totals = replace(totals, hidden=profile_cells.hidden(first, runs.base, runs.head, profiles))
        return _Settled(Evidence.CONFIRMED, totals, found)
    found, totals = _read(
        sound,
        (*verdict.candidate_runs, *runs.head),
        lambda base: repeated.compare(base, verdict.candidate_runs, runs.head, rules, priors),
        rules,
        accepted,
    )
    second = profile_cells.examine(sound, runs.head, profiles, rules, provisional=provisional)
    second = acceptance.leave_out_places(second, accepted, rules)
    stands = profile_cells.stands_again(first, second, provisional=provisional)
    return _Settled(Evidence.REPEATED, totals, found, stands)


def _family(settled: Mapping[str, _Settled], flagged: int, screened: int) -> int:
    """How many workloads the correction counts.

    Fresh runs of base and head know nothing of the screen. Both halves of a repeated one share its baseline
    and their session, so a flag by chance stands again: there, every workload that was screened counts.
    """
    return screened if any(each.evidence is Evidence.REPEATED for each in settled.values()) else flagged


def _step_down(settled: Mapping[str, _Settled], family: int) -> dict[str, tuple[int, float]]:
    """Holm over the flagged workloads: each one's factor, and the least its adjusted p may be."""
    order = sorted(settled, key=lambda name: settled[name].p)
    adjusted = holm([settled[name].p for name in order], family)
    least = [0.0, *adjusted[:-1]] if adjusted else []
    return {name: (family - rank, least[rank]) for rank, name in enumerate(order)}


def _settled(
    verdict: WorkloadVerdict, runs: Fresh, found: _Settled, step: tuple[int, float], alpha: float
) -> WorkloadVerdict:
    """The verdict after fresh evidence."""
    confirmed = found.evidence is Evidence.CONFIRMED
    provisional = not confirmed and verdict.provisional
    items = found.totals.items
    p = {key: min(1.0, max(step[1], step[0] * item.p_joint)) for key, item in items.items()}
    made = judge.cells(found.totals, p, alpha=alpha, evidence=found.evidence, provisional=provisional)
    made += found.places
    measured = {cell.metric for cell in made}
    kept = [_kept(cell) for cell in verdict.cells if cell.metric not in measured]
    for cell in made:
        before = next((old for old in verdict.cells if old.metric == cell.metric), None)
        if before is not None and before.flagged and cell.reason is not Reason.REGRESSED:
            cell.notes = [*cell.notes, "flagged by the screen, not confirmed"]
    settled = msgspec.structs.replace(
        verdict,
        flagged=False,
        provisional=provisional or (not confirmed and bool(found.structure.worse)),
        evidence=Evidence.STRUCTURE if found.structure.worse else found.evidence,
        cells=_in_order([*made, *kept]),
        structure=found.structure.changes,
        notes=_settled_notes(verdict, runs, found),
        confirm_base=runs.base,
        confirm_head=runs.head,
    )
    settled = _conclude(settled, compared=found.structure.compared + len(items))
    if (
        found.evidence is Evidence.REPEATED
        and settled.reason is Reason.REGRESSED
        and not found.structure.worse
    ):
        shift = repeated.clock_shift(verdict.baseline_runs, (*verdict.candidate_runs, *runs.head))
        if shift is not None:
            settled.reason, settled.why = Reason.INVALID_ENVIRONMENT, shift
    return settled


def _settled_notes(verdict: WorkloadVerdict, runs: Fresh, found: _Settled) -> list[str]:
    said = [*found.structure.notes, *_notes(found.totals)]
    if found.evidence is Evidence.REPEATED:
        why = f" ({runs.no_base})" if runs.no_base else ""
        said.append(f"weaker evidence: base could not be run again{why}, so the flag had to stand twice")
        return said + notes.multimodal(verdict.baseline_runs, (*verdict.candidate_runs, *runs.head))
    counted = any(change.reason is Reason.INCONCLUSIVE for change in verdict.structure)
    if counted and not found.structure.worse:
        said.append("the counts that differ from the baseline don't differ from base run again")
    trend = confirm.trend(runs.base, runs.head, found.totals.rules)
    if runs.paired:
        said.append(f"launches drifted with their order: {len(runs.base)} pairs were made and compared")
    elif trend is not None:
        said.append(trend)
    return said + notes.multimodal(runs.base, runs.head)


def _with_note(verdict: WorkloadVerdict, note: str) -> WorkloadVerdict:
    return msgspec.structs.replace(verdict, notes=[*verdict.notes, note])


def _kept(cell: Cell) -> Cell:
    """A cell that the fresh runs could not measure: what was flagged stays open."""
    if METRICS[cell.metric].role == "profile" and not cell.flagged:
        return cell  # fresh runs measure the flagged places alone
    return msgspec.structs.replace(cell, notes=[*cell.notes, "not measured by the fresh runs"])


def _notes(totals: judge.Totals) -> list[str]:
    return [*notes.kind_of_change(totals), *notes.underpowered(totals.items.values())]


def _missing(baseline: Sequence[Run], candidate: Sequence[Run], totals: judge.Totals) -> list[Cell]:
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


def _left_out(runs: Sequence[Run], totals: judge.Totals) -> list[str]:
    """Say where some of the candidate's runs have no usable value of a total that the others have."""
    said = []
    for item in totals.items.values():
        lacking = len(runs) - len(run_values(runs, item.metric, item.floor))
        if lacking:
            said.append(f"{item.metric.label} has no usable value in {lacking} of {len(runs)} runs: left out")
    return said


def _in_order(made: Sequence[Cell]) -> list[Cell]:
    place = {key: i for i, key in enumerate(METRICS)}
    return sorted(made, key=lambda cell: place[cell.metric])


def _conclude(verdict: WorkloadVerdict, compared: int) -> WorkloadVerdict:
    """Reason and sentence from cells and structure, the gravest first."""
    changes = [change for change in verdict.structure if not change.name.startswith("kernel:")]
    for reason in (Reason.REGRESSED, Reason.INCONCLUSIVE, Reason.INCOMPARABLE):
        whys = [change.why for change in changes if change.reason is reason]
        whys += [cell.why for cell in verdict.cells if cell.reason is reason]
        if whys:
            verdict.reason, verdict.why = reason, "; ".join(whys)
            return verdict
    total = next((cell for cell in verdict.cells if cell.metric == "iteration_ms"), None)
    wanted = [change.why for change in changes if change.reason is Reason.ACCEPTED]
    wanted += [cell.why for cell in verdict.cells if cell.reason is Reason.ACCEPTED]
    if compared == 0:
        verdict.reason, verdict.why = Reason.INCOMPARABLE, "nothing could be compared"
    elif wanted:
        verdict.reason, verdict.why = Reason.ACCEPTED, "; ".join(wanted)
    elif total is not None and total.reason is Reason.IMPROVED:
        verdict.reason, verdict.why = Reason.IMPROVED, total.why
        verdict.notes.append("refresh the baseline: until then what was won can be lost again unseen")
    elif verdict.structure:
        verdict.reason = Reason.STRUCTURE_CHANGED
        verdict.why = "; ".join(change.why for change in changes) or _swapped(verdict)
    else:
        verdict.reason, verdict.why = Reason.PASS, "no change beyond noise and floors"
    return verdict


def _swapped(verdict: WorkloadVerdict) -> str:
    return f"{len(verdict.structure)} kernels changed, with as many kernels per iteration as before"
