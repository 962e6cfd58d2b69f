"""The door of the gate: screen each workload, settle what was flagged, conclude the build. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ai_prof.bounds import Count
from ai_prof.gate import acceptance, confirm, drift, judge, notes, profile_cells, reading, repeated, structure
from ai_prof.gate.comparison import holm
from ai_prof.gate.conclude import FAIL_ON, build
from ai_prof.gate.explain import explained
from ai_prof.gate.fitness import disturbed
from ai_prof.gate.flag import NO_PROFILES, of_same_code, screen_workload, unscreened
from ai_prof.gate.latency import quantile_of, summarised
from ai_prof.gate.metrics import METRICS, Rules
from ai_prof.gate.model import Acceptance, Cell, Evidence, Reason, Run, WorkloadVerdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.comparison import Comparison
    from ai_prof.gate.screen import Prior
    from ai_prof.timeline.profile import Profile

__all__ = [
    "ALPHA",
    "FAIL_ON",
    "Fresh",
    "build",
    "by_strength",
    "left_open",
    "of_same_code",
    "screen_workload",
    "settle",
    "unscreened",
]

ALPHA = 0.01
REPEATED_TESTS = 2  # totals and places, each by a test of its own
NEAR = 0.2  # a p above this is not near enough to alpha for more launches to settle it


class Fresh(msgspec.Struct, frozen=True, kw_only=True):
    """The fresh runs that settle one flagged workload.

    `base` and `head`: k each by `confirm.schedule`; `order` counts through both.
    With no `base` (it can't be run again) `head` holds as many fresh runs of the candidate as the screen
    had, and `no_base` says why. `paired`: the launches drifted, so more were made, to compare pair by pair.
    `first`: so many a side left it open; where more could be made, all are looked at. 0 where it was settled.
    `accepted_at_base` is what of the stored baseline was accepted at base already, and is in its runs.
    """

    base: list[Run] = []
    head: list[Run] = []
    paired: bool = False
    first: Count = 0
    no_base: str = ""
    accepted_at_base: list[Acceptance] = []

    @property
    def looked_twice(self) -> bool:
        """Whether there are more launches than those that left it open."""
        return 0 < self.first < len(self.head)


class _Settled(msgspec.Struct, frozen=True):
    """What fresh runs say of one workload, before the correction over all flagged workloads."""

    evidence: Evidence
    totals: judge.Totals
    structure: structure.Structure
    places: list[Cell] = []

    @property
    def p(self) -> float:
        """The smallest joint p of what may fail the build; 1 where nothing may."""
        return min(self.suspected.values(), default=1.0)

    @property
    def suspected(self) -> dict[str, float]:
        """The joint p of each metric that may fail the build."""
        return {item.metric.key: item.p_joint for item in self.totals.suspects()}


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
        no_run = disturbed(verdict, (*runs.base, *runs.head))
        if no_run is not None:
            unsettled[name] = no_run
        elif verdict.drift:
            unsettled[name] = drift.settled(
                verdict, runs.head, rules.get(name, Rules()), priors, len(verdicts)
            )
        elif runs.base and not plan.reachable:
            unsettled[name] = _with_note(verdict, "not settled: too few fresh runs to reach alpha")
        elif runs.head:
            settled[name] = _evidence(verdict, runs, rules.get(name, Rules()), plan, priors, profiles)
    steps = _corrected(settled, len(flagged), len(verdicts))
    done = []
    for verdict in verdicts:
        name = verdict.workload
        if name in settled:
            final = _settled(verdict, fresh[name], settled[name], steps[name], alpha)
            if final.reason in drift.MAY_HAVE_DRIFTED:
                # What the screen flagged and fresh runs cleared may have drifted all the same.
                own = rules.get(name, Rules())
                again = drift.settled(final, fresh[name].head, own, priors, len(verdicts))
                final = again if again.reason is Reason.REGRESSED else final
            done.append(final)
        else:
            done.append(unsettled.get(name, verdict))
    return [explained(verdict, profiles) for verdict in done]


def left_open(  # noqa: PLR0913 - all that a comparison rests on
    verdict: WorkloadVerdict,
    runs: Fresh,
    flagged: int,
    *,
    rules: Rules,
    priors: Mapping[str, Prior],
    alpha: float = ALPHA,
    profiles: Mapping[str, Profile] = NO_PROFILES,
    metric: str | None = None,
) -> bool:
    """Whether more launches may settle what a first look at fresh runs of base and head leaves open.

    They may where something is worse by a p that is near alpha and not below it, and no count fails anyway;
    where one `metric` alone is asked for, whatever else fails. `flagged` workloads share alpha.
    """
    if disturbed(verdict, (*runs.base, *runs.head)) is not None:
        return False
    plan = confirm.planned(flagged, alpha, (len(runs.base), len(runs.head)))
    found = _evidence(verdict, runs, rules, plan, priors, profiles)
    p = found.p if metric is None else found.suspected.get(metric, 1.0)
    return alpha / flagged < p <= NEAR and (metric is not None or not found.structure.worse)


def by_strength(verdicts: Sequence[WorkloadVerdict]) -> list[WorkloadVerdict]:
    """The flagged ones, strongest first: changed counts, then places that grew, then the smallest p."""

    def weakness(verdict: WorkloadVerdict) -> tuple[bool, float, str]:
        p = [0.0 if cell.p_adjusted is None else cell.p_adjusted for cell in verdict.cells if cell.flagged]
        counts = any(change.reason is Reason.INCONCLUSIVE for change in verdict.structure)
        return (not counts, min(p, default=1.0), verdict.workload)

    return sorted((verdict for verdict in verdicts if verdict.flagged), key=weakness)


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
        share = quantile_of(sound, (*runs.base, *runs.head))

        def look(base: Sequence[Run], launches: int) -> list[Comparison]:
            head = runs.head[:launches]
            places = profile_cells.pairs(first, runs.base[:launches], head, profiles, rules)
            old, new = summarised(base[:launches], share), summarised(head, share)
            return confirm.compare(old, new, rules, plan, places)

        def looks(base: Sequence[Run]) -> list[Comparison]:
            last = look(base, len(runs.head))
            return confirm.together(look(base, runs.first), last) if runs.looked_twice else last

        found, totals = reading.read(
            runs.base, runs.head, looks, rules, acceptance.not_in(runs.accepted_at_base, accepted)
        )
        totals = replace(totals, hidden=profile_cells.hidden(first, runs.head, profiles))
        return _Settled(Evidence.CONFIRMED, totals, found)
    found, totals = reading.read(
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


def _corrected(settled: Mapping[str, _Settled], flagged: int, screened: int) -> dict[str, tuple[int, float]]:
    """Each workload's factor, and the least its adjusted p may be, by the kind of its evidence.

    Fresh runs of base and head know nothing of the screen, and test all that may fail a workload as one: the
    flagged workloads count. Both halves of a repeated one share its baseline and their session, so a flag by
    chance stands again: every workload that was screened counts, and twice, since its places stand or fall
    beside its totals.
    """
    steps: dict[str, tuple[int, float]] = {}
    for evidence, family in (
        (Evidence.CONFIRMED, flagged),
        (Evidence.REPEATED, REPEATED_TESTS * screened),
    ):
        steps |= _step_down({name: one for name, one in settled.items() if one.evidence is evidence}, family)
    return steps


def _step_down(settled: Mapping[str, _Settled], family: int) -> dict[str, tuple[int, float]]:
    """Holm over some workloads of a family: each one's factor, and the least its adjusted p may be."""
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
        before = verdict.cell(cell.metric)
        shown = cell.p_adjusted is not None and cell.p_adjusted <= alpha
        unproven = not shown and cell.reason is not Reason.REGRESSED and "warning" not in cell.notes
        if before is not None and before.flagged and unproven:
            cell.notes = [*cell.notes, "flagged by the screen, not confirmed"]
    settled = msgspec.structs.replace(
        verdict,
        flagged=False,
        provisional=provisional or (not confirmed and bool(found.structure.worse)),
        evidence=Evidence.STRUCTURE if found.structure.worse else found.evidence,
        cells=reading.in_order([*made, *kept]),
        structure=found.structure.changes,
        notes=_settled_notes(verdict, runs, found),
        confirm_base=runs.base,
        confirm_head=runs.head,
    )
    compared = found.structure.compared + len(items)
    settled = reading.conclude(settled, compared, found.structure.warned)
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
    counted = found.structure
    said = [*counted.notes, *counted.warned, *reading.said_of(found.totals, counted)]
    if found.evidence is Evidence.REPEATED:
        why = f" ({runs.no_base})" if runs.no_base else ""
        said.append(f"weaker evidence: base could not be run again{why}, so the flag had to stand twice")
        return said + notes.multimodal(verdict.baseline_runs, (*verdict.candidate_runs, *runs.head))
    if not verdict.baseline_runs:
        said.append("no aligned profile: without a stored baseline, only totals show a delay at one place")
    differed = {change.name for change in verdict.structure if change.reason is Reason.INCONCLUSIVE}
    if differed and differed.isdisjoint(change.name for change in counted.changes):
        said.append("the counts that differ from the baseline don't differ from base run again")
    trend = confirm.trend(runs.base, runs.head, found.totals.rules)
    if runs.first:
        more = f": {len(runs.head)} were made" if runs.looked_twice else ", and no more could be made"
        said.append(f"{runs.first} launches a side left it open{more}")
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
