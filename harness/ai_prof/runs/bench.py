"""The bench that one gated build measures on: which interpreter, which checkout, where captures go."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ai_prof.gate import confirm
from ai_prof.gate.decide import Fresh
from ai_prof.runs.base import BaseError, Side
from ai_prof.runs.launch import OWN_FAULTS, Job
from ai_prof.runs.measure import Plan, durations, measure
from ai_prof.say import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ai_prof.gate.metrics import Rules
    from ai_prof.gate.model import Run
    from ai_prof.runs.checkout import Checkout
    from ai_prof.runs.workloads import Workload

BLOCK = 4  # launches between two looks at the clock: one ABBA


@dataclass
class Budget:
    """The minutes that fresh runs may take, from now on; `kept_s` of them for workloads still to come."""

    minutes: float
    begun: float = field(default_factory=time.monotonic)
    kept_s: float = 0.0

    @property
    def spent_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.begun

    @property
    def left_s(self) -> float:
        """Seconds that are left; negative once it is overspent."""
        return 60 * self.minutes - self.spent_s


@dataclass
class Bench:
    """Makes launches one after another, numbered, and knows how long they take.

    `pythons` maps a workload's name to its interpreter, `seconds` to the mean time of a launch so far,
    or to what its stored runs took, `sessions` to the session that its stored runs began, if that goes on.
    """

    checkout: Checkout
    folder: Path
    session: str
    pythons: dict[str, str]
    machine: dict[str, Any]
    regress: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    _orders: Iterator[int] = field(default_factory=itertools.count)

    def candidates(self, workloads: Sequence[Workload], runs: int) -> dict[str, list[Run]]:
        """`runs` launches of each workload, with the fault where it knows it."""
        return self._each(workloads, runs, "candidate")

    def baselines(self, workloads: Sequence[Workload], runs: int) -> dict[str, list[Run]]:
        """`runs` launches of each workload to be stored, always without a fault."""
        return self._each(workloads, runs, "baseline")

    def against_base(
        self,
        workload: Workload,
        base: Side,
        plan: confirm.Plan,
        budget: Budget,
        left_open: Callable[[Fresh], bool],
    ) -> Fresh:
        """Fresh runs of base (without the fault) and head, interleaved, as far as the budget goes.

        Where latency drifts with their order, more are made, to be compared pair by pair; where the plan's
        leave the workload open, more to look at all of them. They end where head fails by itself, whenever it
        does. Raises BaseError where base does not run. Where later than the plan's launches base fails or
        something disturbs, these stand by themselves.
        """
        head = Side(self.checkout, workload, self.pythons[workload.name])
        order = confirm.schedule(confirm.MAX_LAUNCHES)
        made: dict[str, list[Run]] = {"base": [], "head": []}
        wanted, done, first, paired, failed = 2 * plan.launches, 0, 0, False, False
        while done < wanted and not failed:
            sides = order[done : min(done + BLOCK, wanted)]
            more = done == 2 * plan.launches
            # What cannot be finished is not begun; what was begun goes on while there is time.
            needed = wanted - done if more or not done else len(sides)
            left_s = budget.left_s - budget.kept_s if more else budget.left_s
            if needed * self.seconds.get(workload.name, 0.0) >= left_s:
                break
            if more:
                why = "they drift" if paired else "these leave it open"
                say(f"{workload.name}: {needed} more fresh runs, since {why}")
            jobs = [self._job(base if side == "base" else head, side) for side in sides]
            side_of = {job.order: job.side for job in jobs}
            for run in self._measure(jobs, made, wanted - done - len(sides)):
                made[side_of[run.order]].append(run)
            failed = any(run.problem in OWN_FAULTS for run in made["head"])
            unfit = [run for runs in made.values() for run in runs if run.problem is not None]
            broken = [run for run in made["base"] if run.problem in OWN_FAULTS]
            if broken and done < 2 * plan.launches:
                raise BaseError(f"base does not run here ({broken[0].detail})")
            if unfit and not failed and done >= 2 * plan.launches:
                say(f"{workload.name}: {unfit[0].detail}; its first {2 * plan.launches} fresh runs decide")
                break
            done += len(sides)
            if not failed and done == 2 * plan.launches < len(order):
                paired = self._drifts(made, plan, workload.rules)
                first = plan.launches if not paired and left_open(_fresh(made)) else 0
                wanted = len(order) if paired or first else done
        if done < wanted and not failed:  # the plan's own launches stand by themselves
            made = {side: runs[: plan.launches] for side, runs in made.items()}
            paired = False
        return msgspec.structs.replace(_fresh(made), paired=paired, first=first)

    def again(self, workload: Workload, runs: int) -> Fresh:
        """As many fresh runs of the candidate again, where base cannot be run."""
        return Fresh(head=self.candidates([workload], runs)[workload.name])

    def _drifts(self, made: Mapping[str, Sequence[Run]], plan: confirm.Plan, rules: Rules) -> bool:
        """Whether launches drifted with their order, and pairs of them could settle the workload."""
        return (
            confirm.widened(plan).reachable and confirm.trend(made["base"], made["head"], rules) is not None
        )

    def _each(self, workloads: Sequence[Workload], runs: int, side: str) -> dict[str, list[Run]]:
        jobs = [
            self._job(Side(self.checkout, workload, self.pythons[workload.name]), side)
            for workload in workloads
            for _ in range(runs)
        ]
        made = self._measure(jobs)
        return {
            workload.name: [run for run in made if run.workload == workload.name] for workload in workloads
        }

    def _job(self, code: Side, side: str) -> Job:
        order = next(self._orders)
        faulty = side in {"candidate", "head"}
        return Job(
            workload=code.workload,
            side=side,  # type: ignore[arg-type]
            python=code.python,
            capture=self.folder / f"{order:03}-{code.workload.name}-{side}",
            session=self.sessions.get(code.workload.name, self.session),
            order=order,
            regress=code.workload.regress(self.regress) if faulty else None,
            commit=code.checkout.commit,
            dirty=code.checkout.dirty,
        )

    def _measure(
        self, jobs: Sequence[Job], earlier: Mapping[str, Sequence[Run]] | None = None, after: int = 0
    ) -> list[Run]:
        """The runs of `jobs`, a part of a whole: `earlier` were made before, by side, `after` may follow."""
        if not jobs:
            return []
        known = {side: list(runs) for side, runs in (earlier or {}).items()}
        folder = self.folder / f"pytest-{jobs[0].order:03}"
        plan = Plan(
            jobs=list(jobs),
            folder=folder,
            machine=self.machine,
            earlier=known,
            seconds=self.seconds,
            after=after,
        )
        runs = measure(plan)
        self.seconds |= durations(folder)
        return runs


def _fresh(made: Mapping[str, list[Run]]) -> Fresh:
    return Fresh(base=made["base"], head=made["head"])
