"""What is said of the launches to come: which it is, and how long they take."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from gate_runs import make_run

from ai_prof.gate.metrics import Rules
from ai_prof.runs import bench_workloads
from ai_prof.runs.bench_workloads import Progress
from ai_prof.runs.launch import Job
from ai_prof.runs.measure import Plan
from ai_prof.runs.time_left import seconds_left, usual_seconds
from ai_prof.runs.workloads import Workload


@pytest.fixture(autouse=True)
def no_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def tell(monkeypatch, capsys):
    """Tells of the launches of workloads, each named by a letter; the lines."""

    def told(names, took=None, **options):
        now = 0.0
        monkeypatch.setattr(bench_workloads.time, "monotonic", lambda: now)
        jobs = [make_job(name, order) for order, name in enumerate(names)]
        progress = Progress(Plan(jobs=jobs, folder=Path("/nowhere"), **options))
        for job in jobs:
            progress.tell(job)
            now += (took or {}).get(job.workload.name, 1.0)
        return capsys.readouterr().err.splitlines()

    return told


def make_job(name, order):
    workload = Workload(
        name=name, folder=Path("/nowhere"), command=("python",), device="cuda", gpus=1, requires=(),
        programs=(), timeout_s=1, env={}, faults=(), rules=Rules(),
    )  # fmt: skip
    return Job(
        workload=workload, side="head", python="python", capture=Path("/nowhere"), session="s", order=order
    )


def test_progress_is_a_line_a_launch(tell):
    assert tell("aabb", {"b": 1.0}) == [
        "ai-prof: a (head), run 1/4",
        "ai-prof: a (head), run 2/4, about 3 s left",
        "ai-prof: b (head), run 3/4, about 2 s left",
        "ai-prof: b (head), run 4/4, about 1 s left",
    ]


def test_in_ci_progress_is_a_line_a_workload(tell, monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert len(tell("aabb")) == 2


def test_what_each_workload_is_known_to_take_keeps_the_time_left_steady(tell):
    took = {"a": 20.0, "b": 50.0}
    said = [line.partition("about ")[2] for line in tell("aabb", took, seconds=took)]
    assert said == ["2 min left", "2 min left", "100 s left", "50 s left"]


def test_parts_of_one_comparison_are_counted_through(tell):
    earlier = {"base": [make_run(), make_run()], "head": [make_run()]}
    told = tell("aa", {"a": 2.0}, earlier=earlier, after=4, seconds={"a": 2.0})
    assert told == [
        "ai-prof: a (head), run 4/9, about 12 s left",
        "ai-prof: a (head), run 5/9, about 10 s left",
    ]


def test_a_workload_that_is_not_known_takes_as_long_as_the_others():
    assert seconds_left(["a", "b", "new"], {"a": 2.0, "b": 4.0}) == 9.0
    assert seconds_left(["new"], {}) is None


def test_stored_runs_tell_how_long_a_launch_takes():
    starts = [("s0", 4, "10:00:00"), ("s0", 5, "10:00:07"), ("s0", 6, "10:00:16"), ("s1", 7, "23:00:00")]
    runs = [
        make_run(session=session, order=order, started=f"2026-01-01T{at}+00:00")
        for session, order, at in starts
    ]
    assert usual_seconds(runs) == 8.0
    # Those of a second build in the same session have the same numbers.
    again = [msgspec.structs.replace(run, started=run.started.replace("T10", "T11")) for run in runs]
    assert usual_seconds([*runs, *again]) == 8.0
    assert usual_seconds(runs[:1]) is None
