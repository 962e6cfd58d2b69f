"""The command that accepts what made a workload red, ready to be pasted into a shell."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from ai_prof.gate.acceptance import acceptable
from ai_prof.gate.model import Reason

if TYPE_CHECKING:
    from ai_prof.gate.model import BuildVerdict, WorkloadVerdict

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def command(verdict: BuildVerdict, workload: WorkloadVerdict) -> str:
    """Return `ai-prof accept WORKLOAD METRIC ... --reason "..."`; empty where it would be refused.

    That is of a gate with a known slowdown, and of a workload that was compared with no stored baseline. Also
    of one with a name that some way of showing it would change: what is pasted is run.
    """
    if workload.reason is not Reason.REGRESSED or verdict.regress or not workload.baseline.get("path"):
        return ""
    if not _PLAIN.fullmatch(workload.workload):
        return ""
    keys = acceptable(workload, {Reason.REGRESSED})
    return shlex.join(["ai-prof", "accept", workload.workload, *keys]) + ' --reason "..."' if keys else ""
