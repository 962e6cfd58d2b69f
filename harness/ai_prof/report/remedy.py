"""The command that accepts what made a workload red, ready to be pasted into a shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ai_prof.gate.acceptance import acceptable
from ai_prof.gate.model import Reason

if TYPE_CHECKING:
    from ai_prof.gate.model import BuildVerdict, WorkloadVerdict


def command(verdict: BuildVerdict, workload: WorkloadVerdict) -> str:
    """Return `ai-prof accept WORKLOAD METRIC ... --reason "..."`; empty where it would be refused.

    That is of a gate with a known slowdown, and of a workload that was compared with no stored baseline.
    """
    if workload.reason is not Reason.REGRESSED or verdict.regress or not workload.baseline.get("path"):
        return ""
    keys = acceptable(workload, {Reason.REGRESSED})
    return shlex.join(["ai-prof", "accept", workload.workload, *keys]) + ' --reason "..."' if keys else ""
