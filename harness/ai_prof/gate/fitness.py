"""Whether a workload's runs are fit to compare, and what its verdict is where they aren't."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ai_prof.gate.model import Reason, Run, WorkloadVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence


def unfit(
    verdict: WorkloadVerdict, baseline: Sequence[Run], candidate: Sequence[Run]
) -> WorkloadVerdict | None:
    """The verdict where there is nothing sound to compare."""
    if (no_run := disturbed(verdict, candidate)) is not None:
        return no_run
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


def disturbed(verdict: WorkloadVerdict, runs: Sequence[Run]) -> WorkloadVerdict | None:
    """A run with a problem makes its workload neither a pass nor a regression."""
    bad = next((run for run in runs if run.problem is not None), None)
    if bad is None or bad.problem is None:
        return None
    why = bad.detail or f"a run was not fit to compare ({bad.problem.value})"
    return msgspec.structs.replace(verdict, reason=bad.problem, why=why, flagged=False)


def _taken_otherwise(baseline: Sequence[Run], candidate: Sequence[Run]) -> str | None:
    """How the captures of both sides differ; None where they are alike, or do not say."""
    old, new = ({run.captured for run in side if run.captured} for side in (baseline, candidate))
    if not old or not new or old == new:
        return None
    was, now = (" and ".join(sorted(side)) for side in (old, new))
    return f"captured at {now}, the baseline at {was}: capture both alike, or record the baseline again"
