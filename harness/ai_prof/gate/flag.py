"""Compare a workload's runs with its stored baseline, and flag what fresh runs must settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ai_prof.gate import acceptance, drift, judge, notes, profile_cells, reading, screen, structure
from ai_prof.gate.fitness import unfit
from ai_prof.gate.latency import quantile_note, quantile_of
from ai_prof.gate.model import Acceptance, Anchor, Evidence, Reason, Run, WorkloadVerdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.metrics import Rules
    from ai_prof.gate.screen import Prior
    from ai_prof.timeline.profile import Profile

NO_PROFILES: Mapping[str, Profile] = {}


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
    if (no_verdict := unfit(verdict, sound, candidate)) is not None:
        return no_verdict
    decisive = structure.decisive(sound)
    found, totals = reading.read(
        sound,
        candidate,
        lambda base: screen.screen(base, candidate, rules, priors),
        rules,
        accepted,
        excuses=decisive,
    )
    items = list(totals.items.values())
    p = {item.metric.key: item.p_joint for item in items}
    made = judge.cells(
        totals, p, alpha=screen.ALPHA, evidence=Evidence.SCREEN, provisional=verdict.provisional
    )
    seen = profile_cells.examine(sound, candidate, profiles, rules, provisional=verdict.provisional)
    seen = acceptance.leave_out_places(seen, accepted, rules)
    made += seen.cells
    verdict.cells = reading.in_order(made + reading.missing(sound, candidate, totals))
    verdict.structure = found.changes
    verdict.notes = [
        *found.notes,
        *reading.left_out(candidate, totals),
        *found.warned,
        *reading.said_of(totals, found),
        *notes.multimodal(sound, candidate),
        *quantile_note(sound, quantile_of(sound, candidate)),
        *seen.notes,
    ]
    verdict = _concluded(verdict, found, decisive=decisive, totals=len(items))
    if anchor is None or verdict.flagged or verdict.reason not in drift.MAY_HAVE_DRIFTED:
        return verdict
    return drift.flag(verdict, drift.compare(anchor, sound, candidate, rules, priors, accepted), anchor)


def _concluded(
    verdict: WorkloadVerdict, found: structure.Structure, *, decisive: bool, totals: int
) -> WorkloadVerdict:
    """The verdict that counts and cells come to: flagged, unless counts decide it alone."""
    decided = bool(found.worse) and decisive
    verdict.flagged = not decided and (bool(found.worse) or any(cell.flagged for cell in verdict.cells))
    verdict.evidence = Evidence.STRUCTURE if decided else Evidence.SCREEN
    if verdict.flagged:
        for change in found.worse:
            change.reason = Reason.INCONCLUSIVE
    return reading.conclude(verdict, compared=found.compared + totals, warned=found.warned)


def of_same_code(verdict: WorkloadVerdict) -> WorkloadVerdict:
    """A flagged verdict where candidate and baseline are one code: no run of it could find a regression."""
    cells = [
        msgspec.structs.replace(c, reason=Reason.PASS, flagged=False) if c.flagged else c
        for c in verdict.cells
    ]
    changes = [msgspec.structs.replace(c, reason=Reason.STRUCTURE_CHANGED) for c in verdict.structure]
    same = msgspec.structs.replace(verdict, cells=cells, structure=changes, flagged=False, reason=Reason.PASS)
    if changes:
        same.reason = Reason.STRUCTURE_CHANGED
    same.why = f"the baseline is of this very code, so it is the machine that changed: {verdict.why}"
    return same


def unscreened(workload: str, why: str) -> WorkloadVerdict:
    """The verdict of a workload without a stored baseline, which fresh runs of base and head settle."""
    return WorkloadVerdict(workload=workload, reason=Reason.INCONCLUSIVE, why=why, flagged=True)
