"""The gate's decisions, as pure functions: screen each workload, settle the flagged, conclude the build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ai_prof.gate.metrics import Backend, Rules
from ai_prof.gate.model import BuildVerdict, Run, WorkloadVerdict

FAIL_ON: tuple[int, ...] = (1, 2, 3, 4, 5)


class Fresh(msgspec.Struct, frozen=True, kw_only=True):
    """The fresh runs that settle one flagged workload.

    `base` and `head`: k each, in the order of `confirm.schedule`, without its warm launches. With no
    `base` (it can't be run again) `head` holds as many fresh runs of the candidate as the screen had.
    """

    base: list[Run] = []
    head: list[Run] = []


def screen_workload(
    workload: str,
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    *,
    backend: Backend,
    rules: Rules,
) -> WorkloadVerdict:
    """Compare a candidate's runs with a stored baseline's; flag what fresh runs must settle."""
    raise NotImplementedError


def settle(
    verdicts: Sequence[WorkloadVerdict],
    fresh: Mapping[str, Fresh],
    *,
    backend: Backend,
    rules: Mapping[str, Rules],
    alpha: float = 0.01,
) -> list[WorkloadVerdict]:
    """Settle every flagged verdict by its workload's fresh runs; the others pass through.

    Takes all verdicts of the build at once, since the correction runs over the flagged workloads. A flagged
    workload without fresh runs (the budget ended) stays inconclusive.
    """
    raise NotImplementedError


def build(
    workloads: Sequence[WorkloadVerdict], *, fail_on: Sequence[int] = FAIL_ON, **facts: Any
) -> BuildVerdict:
    """The build's verdict: exit code, summary line, and the workloads, worst first.

    `facts` are the other fields of `BuildVerdict` (run_id, started, finished, device, machine_key, ...).
    """
    raise NotImplementedError
