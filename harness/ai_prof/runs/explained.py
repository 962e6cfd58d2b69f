"""Add to what regressed why it did, from the profiles that its runs left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.gate.explain import explain
from ai_prof.gate.model import Reason, WorkloadVerdict
from ai_prof.runs.launch import profiles_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.model import Run
    from ai_prof.timeline.profile import Profile

EXPLAINED = frozenset({Reason.REGRESSED, Reason.INCONCLUSIVE})


def add_reasons(
    verdicts: Sequence[WorkloadVerdict], stored: Mapping[str, Mapping[str, Profile]]
) -> list[WorkloadVerdict]:
    """The verdicts, those that regressed or are not settled explained.

    The fresh runs of base and head are compared where there are any; else the candidate's runs with the
    baseline's, whose profiles `stored` holds by workload and digest.
    """
    for verdict in verdicts:
        if verdict.reason not in EXPLAINED:
            continue
        if verdict.confirm_base:
            sides, runs = ("fresh base", "fresh head"), (verdict.confirm_base, verdict.confirm_head)
        else:
            fresh = [*verdict.candidate_runs, *verdict.confirm_head]
            sides, runs = ("baseline", "candidate"), (verdict.baseline_runs, fresh)
        known = {**stored.get(verdict.workload, {}), **profiles_of(run for side in runs for run in side)}
        verdict.explained = explain(_of(runs[0], known), _of(runs[1], known), sides)
    return list(verdicts)


def _of(runs: Sequence[Run], profiles: Mapping[str, Profile]) -> list[Profile]:
    return [profiles[run.profile] for run in runs if run.profile is not None and run.profile in profiles]
