"""The build's verdict from its workloads': exit code, order, and one line for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ai_prof.errors import (
    EXIT_ENVIRONMENT,
    EXIT_NOTHING,
    EXIT_PASS,
    EXIT_REGRESSION,
    EXIT_UNSETTLED,
    EXIT_USAGE,
)
from ai_prof.gate.model import BuildVerdict, Reason, WorkloadVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

FAIL_ON: tuple[int, ...] = (1, 2, 3, 4, 5)
PRECEDENCE = (
    EXIT_USAGE,
    EXIT_REGRESSION,
    EXIT_ENVIRONMENT,
    EXIT_UNSETTLED,
    EXIT_NOTHING,
    EXIT_PASS,
)
CODES: dict[Reason, int] = {
    Reason.PASS: EXIT_PASS,
    Reason.REGRESSED: EXIT_REGRESSION,
    Reason.IMPROVED: EXIT_PASS,
    Reason.STRUCTURE_CHANGED: EXIT_PASS,
    Reason.ACCEPTED: EXIT_PASS,
    Reason.SKIPPED: EXIT_PASS,
    Reason.INCONCLUSIVE: EXIT_UNSETTLED,
    Reason.NO_BASELINE: EXIT_NOTHING,
    Reason.INCOMPARABLE: EXIT_NOTHING,
    Reason.NO_GPU_WORK: EXIT_NOTHING,
    Reason.INVALID_ENVIRONMENT: EXIT_ENVIRONMENT,
    Reason.CAPTURE_INCOMPLETE: EXIT_ENVIRONMENT,
    Reason.FAILED: EXIT_ENVIRONMENT,
}
_REASON_ORDER = (
    Reason.REGRESSED,
    Reason.INCONCLUSIVE,
    Reason.FAILED,
    Reason.CAPTURE_INCOMPLETE,
    Reason.INVALID_ENVIRONMENT,
    Reason.NO_GPU_WORK,
    Reason.INCOMPARABLE,
    Reason.NO_BASELINE,
    Reason.STRUCTURE_CHANGED,
    Reason.IMPROVED,
    Reason.ACCEPTED,
    Reason.PASS,
    Reason.SKIPPED,
)
_HEADLINE = {
    EXIT_REGRESSION: "regressed",
    EXIT_ENVIRONMENT: "could not be measured",
    EXIT_UNSETTLED: "flagged but not settled",
    EXIT_NOTHING: "had nothing to compare",
}


def build(
    workloads: Sequence[WorkloadVerdict], *, fail_on: Sequence[int] = FAIL_ON, **facts: Any
) -> BuildVerdict:
    """The build's verdict: exit code, summary line, and the workloads, worst first.

    A code outside `fail_on` ends with 0, and the summary says so. `facts` are the other fields of
    `BuildVerdict` (run_id, started, finished, device, machine_key, ...).
    """
    full = code_of(workloads)
    code = code_of(workloads, fail_on)
    summary = _summary(workloads, full)
    if code != full:
        summary += f" (code {full} is not in fail-on, so this ends with {code})"
    return BuildVerdict(exit_code=code, summary=summary, workloads=sorted(workloads, key=_gravity), **facts)


def code_of(workloads: Sequence[WorkloadVerdict], fail_on: Sequence[int] = FAIL_ON) -> int:
    """The first of 2, 1, 4, 5, 3, 0 among the workloads' codes; 3 where none was compared at all."""
    codes = {CODES[verdict.reason] for verdict in workloads}
    if all(verdict.reason is Reason.SKIPPED for verdict in workloads):
        codes = {EXIT_NOTHING}
    codes = {code if code in fail_on else EXIT_PASS for code in codes}
    return next(code for code in PRECEDENCE if code in codes)


def _summary(workloads: Sequence[WorkloadVerdict], code: int) -> str:
    compared = [verdict for verdict in workloads if verdict.reason is not Reason.SKIPPED]
    if not compared:
        why = "; ".join(f"{verdict.workload}: {verdict.why}" for verdict in workloads)
        return "nothing was compared: " + (why or "no workloads were found")
    total = f"{len(compared)} workload{'' if len(compared) == 1 else 's'}"
    if code == EXIT_PASS:
        improved = sum(verdict.reason is Reason.IMPROVED for verdict in compared)
        accepted = sum(verdict.reason is Reason.ACCEPTED for verdict in compared)
        but = f" but what was accepted in {accepted}" if accepted else ""
        blind = sum(verdict.unjudged for verdict in compared)
        told = f"; the latency of {blind} could not be judged, its baseline is too young" if blind else ""
        better = f", {improved} improved" if improved else ""
        return f"{total} compared, nothing shown to be slower{but}{better}{told}"
    hit = sorted((verdict for verdict in compared if CODES[verdict.reason] == code), key=_gravity)
    return f"{len(hit)} of {total} {_HEADLINE[code]}: " + "; ".join(map(_named, hit))


def _named(verdict: WorkloadVerdict) -> str:
    """A workload and the first thing said of it."""
    first, *others = verdict.why.split("; ")
    mark = " (provisional)" if verdict.provisional else ""
    return f"{verdict.workload}{mark}: {first}" + (f" and {len(others)} more" if others else "")


def _gravity(verdict: WorkloadVerdict) -> tuple[int, float, float, str]:
    """By reason, then evidence, then size of the largest change that counts."""
    bad = [cell for cell in verdict.cells if cell.reason is verdict.reason]
    p = min((cell.p_adjusted for cell in bad if cell.p_adjusted is not None), default=1.0)
    exact = any(change.reason is verdict.reason for change in verdict.structure)
    size = max((abs(cell.effect) for cell in bad if cell.effect is not None), default=0.0)
    return (_REASON_ORDER.index(verdict.reason), 0.0 if exact else p, -size, verdict.workload)
