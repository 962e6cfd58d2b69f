"""Whether a workload's runs are fit to compare, and what its verdict is where they aren't."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ai_prof.gate.model import Reason, Run, WorkloadVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

RECUT = 2.0  # times as many iterations, or as few,
SAME_WORK = 0.25  # of as many kernels in all, up to this share


class _Cut(NamedTuple):
    """Medians over runs: how many iterations one has, and kernels an iteration."""

    iterations: float
    kernels: float


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
    elif (
        difference := _taken_otherwise(baseline, candidate) or _cut_otherwise(baseline, candidate)
    ) is not None:
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


def _cut_otherwise(baseline: Sequence[Run], candidate: Sequence[Run]) -> str | None:
    """How both sides' iterations differ where the same work is cut into others; None where it is not.

    An upload before every layer makes iterations of the layers: that each takes less is no improvement.
    """
    old, new = _cut(baseline), _cut(candidate)
    if not old or not new:
        return None
    more = new.iterations / old.iterations
    same = abs(more * new.kernels / old.kernels - 1) <= SAME_WORK
    if not same or max(more, 1 / more) < RECUT:
        return None
    now, was = (f"{side.iterations:,.0f} iterations of {side.kernels:,.1f} kernels" for side in (new, old))
    return (
        f"a run's work is cut into {now}, the baseline's into {was}: these are other iterations; mark each "
        'with an NVTX range named step, or print {"iterations": N} last, and record the baseline again'
    )


def _cut(runs: Sequence[Run]) -> _Cut | None:
    cuts = [
        _Cut(run.iterations, 1e3 * total / mean)
        for run in runs
        if run.iterations
        and (total := run.metrics.get("kernel_time_ms"))
        and (mean := run.metrics.get("kernel_mean_us"))
    ]
    return _Cut(*map(statistics.median, zip(*cuts, strict=True))) if cuts else None
