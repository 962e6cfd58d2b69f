"""The bench that one gated build measures on: which interpreter, which checkout, where captures go."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ai_prof.gate import confirm
from ai_prof.gate.decide import Fresh
from ai_prof.runs.launch import Job
from ai_prof.runs.measure import Plan, measure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ai_prof.gate.model import Run
    from ai_prof.runs.checkout import Checkout
    from ai_prof.runs.workloads import Workload


@dataclass
class Bench:
    """Makes launches one after another, numbered, and knows how long they take.

    `pythons` maps a workload's name to its interpreter, `seconds` to the mean time of a launch so far.
    """

    checkout: Checkout
    folder: Path
    session: str
    pythons: dict[str, str]
    machine: dict[str, Any]
    regress: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    _orders: Iterator[int] = field(default_factory=itertools.count)

    def candidates(self, workloads: Sequence[Workload], runs: int) -> dict[str, list[Run]]:
        """`runs` launches of each workload, with the fault where it knows it."""
        return self._each(workloads, runs, "candidate")

    def baselines(self, workloads: Sequence[Workload], runs: int) -> dict[str, list[Run]]:
        """`runs` launches of each workload to be stored, always without a fault."""
        return self._each(workloads, runs, "baseline")

    def against_base(self, workload: Workload, plan: confirm.Plan) -> Fresh:
        """Fresh runs of base (this checkout without the fault) and head, interleaved."""
        sides = confirm.schedule(plan.launches)
        runs = self._measure([self._job(workload, side) for side in sides])
        pairs = list(zip(sides, runs, strict=True))
        return Fresh(
            base=[run for side, run in pairs if side == "base"],
            head=[run for side, run in pairs if side == "head"],
        )

    def again(self, workload: Workload, runs: int) -> Fresh:
        """As many fresh runs of the candidate again, where base cannot be run."""
        return Fresh(head=self.candidates([workload], runs)[workload.name])

    def _each(self, workloads: Sequence[Workload], runs: int, side: str) -> dict[str, list[Run]]:
        jobs = [self._job(workload, side) for workload in workloads for _ in range(runs)]
        measured = iter(self._measure(jobs))
        return {workload.name: list(itertools.islice(measured, runs)) for workload in workloads}

    def _job(self, workload: Workload, side: str) -> Job:
        order = next(self._orders)
        faulty = side in {"candidate", "head"}
        return Job(
            workload=workload,
            side=side,  # type: ignore[arg-type]
            python=self.pythons[workload.name],
            capture=self.folder / f"{order:03}-{workload.name}-{side}",
            session=self.session,
            order=order,
            regress=workload.regress(self.regress) if faulty else None,
            commit=self.checkout.commit,
            dirty=self.checkout.dirty,
        )

    def _measure(self, jobs: Sequence[Job]) -> list[Run]:
        if not jobs:
            return []
        start = time.monotonic()
        folder = self.folder / f"pytest-{jobs[0].order:03}"
        runs = measure(Plan(jobs=list(jobs), folder=folder, machine=self.machine))
        mean = (time.monotonic() - start) / len(jobs)
        self.seconds |= {job.workload.name: mean for job in jobs}
        return runs
