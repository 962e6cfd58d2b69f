"""When a baseline may be replaced, and what a replacement moves. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ai_prof.baselines.store import Baseline
from ai_prof.gate.model import Run, WorkloadVerdict


class RefreshFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh is judged by; the caller gathers it.

    `foreign` are other compute processes on the device, `throttling` the reasons seen during the new runs,
    `verdict` the gate's on the new runs against the old baseline, None where there is no old one.
    """

    workload: str
    machine_key: str
    runs: list[Run]
    dirty: bool
    foreign: list[str] = []
    throttling: list[str] = []
    old: Baseline | None = None
    verdict: WorkloadVerdict | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One value before and after a refresh; None where it did not or does not exist."""

    metric: str
    label: str
    unit: str
    old: float | None
    new: float | None
    change: float | None  # relative for times and counts, a difference for ratios


def refusals(facts: RefreshFacts) -> list[str]:
    """Every reason not to refresh, each saying what to do; empty where a refresh may go ahead."""
    raise NotImplementedError


def renewed(old: Baseline | None, runs: Sequence[Run], verdict: WorkloadVerdict | None) -> list[Run]:
    """The runs of the new baseline: the new ones join the old where nothing moved, else they replace them."""
    raise NotImplementedError


def moved(old: Sequence[Run], new: Sequence[Run]) -> list[Moved]:
    """Every metric and count of the baseline, old beside new, in the table's order."""
    raise NotImplementedError
