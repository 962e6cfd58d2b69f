"""What pytest collects: one benchmark a workload, one round a launch. Started by `measure`, with a plan."""

from __future__ import annotations

import os
import signal
import threading
import time
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ai_prof.gate.model import Reason, Run
from ai_prof.runs.environment import disturbances
from ai_prof.runs.launch import OWN_FAULTS, Job, launch
from ai_prof.runs.measure import Plan, load
from ai_prof.runs.time_left import seconds_left
from ai_prof.say import say

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_AGAIN = "(not launched again)"
SHOWN_S = 120  # of the time left; more is told in minutes


class Progress:
    """Lines on stderr: workload, launch i of N, time left. In CI, one for each workload."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.jobs = [job for jobs in plan.by_workload().values() for job in jobs]
        # What is known already counts as one launch more.
        self.took = {name: [seconds] for name, seconds in plan.seconds.items()}
        self.under_way: tuple[str, float] | None = None
        self.quiet = "CI" in os.environ
        self.told = ""

    def tell(self, job: Job) -> None:
        """Say that `job` starts now, and with it that the one before has ended."""
        name, now = job.workload.name, time.monotonic()
        if self.under_way is not None:
            before, begun = self.under_way
            self.took.setdefault(before, []).append(now - begun)
        self.under_way = name, now
        if self.plan.progress and not (self.quiet and name == self.told):
            self.told = name
            say(f"{name} ({job.side}), {self._place(job)}")

    def _place(self, job: Job) -> str:
        """Where among the launches it stands, and how long it and those after it take."""
        at = self.jobs.index(job)
        before = sum(map(len, self.plan.earlier.values()))
        total = before + len(self.jobs) + self.plan.after
        names = [each.workload.name for each in self.jobs[at:]] + [job.workload.name] * self.plan.after
        seconds = seconds_left(names, {name: fmean(took) for name, took in self.took.items()})
        place = f"run {before + at + 1}/{total}"
        if seconds is None:
            return place
        about = f"{seconds:.0f} s" if seconds < SHOWN_S else f"{seconds / 60:.0f} min"
        return f"{place}, about {about} left"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each workload of the plan."""
    groups = load(metafunc.config.getoption("ai_prof_plan")).by_workload()
    metafunc.parametrize("workload", list(groups))


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest) -> Plan:
    """The plan that this pytest was started with."""
    return load(request.config.getoption("ai_prof_plan"))


@pytest.fixture(scope="session")
def progress(plan: Plan) -> Progress:
    """One count of launches over all workloads."""
    return Progress(plan)


@pytest.fixture(scope="session", autouse=True)
def _end_with_parent() -> None:
    """Unwind, and the workload with us, once nobody holds the other end of our stdin any more."""
    # A shell has what it starts in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def watch() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


def test_workload(benchmark: Any, plan: Plan, progress: Progress, workload: str) -> None:
    """Launch each job of the workload, disturbed ones again, and keep the runs beside the timings.

    A side that failed by itself is not launched again: minutes of a hang would say no more than the first.
    """
    jobs = plan.by_workload()[workload]
    waiting = iter(jobs)
    runs: list[tuple[Job, Run]] = []

    def same_side(job: Job) -> list[Run]:
        return [*plan.earlier.get(job.side, ()), *(run for other, run in runs if other.side == job.side)]

    def next_job() -> tuple[tuple[Job | None], dict[str, Any]]:
        job = next(waiting)
        if any(run.problem in OWN_FAULTS for run in same_side(job)):
            return (None,), {}
        progress.tell(job)
        return (job,), {}

    def target(job: Job | None) -> None:
        if job is not None:
            run = settled(job, same_side(job), plan.repeats)
            left = any(other.side == job.side and other.order > job.order for other in jobs)
            if run.problem in OWN_FAULTS and left:
                run = msgspec.structs.replace(run, detail=f"{run.detail} {NOT_AGAIN}")
            runs.append((job, run))

    benchmark.extra_info["workload"] = workload
    try:
        benchmark.pedantic(target, setup=next_job, rounds=len(jobs), iterations=1)
    except KeyboardInterrupt:
        # The launch has unwound, and nobody waits for results that pytest-benchmark could not make of it.
        os._exit(128 + signal.SIGINT)
    benchmark.extra_info["runs"] = [msgspec.to_builtins(run) for _, run in runs]


def settled(job: Job, earlier: Sequence[Run], repeats: int) -> Run:
    """Launch until nothing disturbs, at most `repeats` times more; a run still disturbed is invalid.

    A run that failed by itself is not made again: it would fail again.
    """
    reasons: list[list[str]] = []
    good = [run for run in earlier if run.problem is None]
    while True:
        attempt = len(reasons)
        folder = job.capture.with_name(f"{job.capture.name}-again{attempt}") if attempt else job.capture
        run = launch(msgspec.structs.replace(job, capture=folder))
        disturbed = disturbances(run.environment, good)
        if reasons:
            run = msgspec.structs.replace(run, environment={**run.environment, "repeated_for": reasons})
        if not disturbed or run.problem in OWN_FAULTS:
            return run
        if attempt == repeats:
            detail = "; ".join(disturbed)
            return msgspec.structs.replace(run, problem=Reason.INVALID_ENVIRONMENT, detail=detail)
        reasons.append(disturbed)
