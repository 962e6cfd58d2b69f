from __future__ import annotations

import msgspec
import pytest
from gate_runs import Machine, make_run
from test_baselines_store import KEY, baseline

from ai_prof.baselines.refresh import RefreshFacts, busy_host, moved, refusals, renewed
from ai_prof.gate.model import Reason, StructureChange, WorkloadVerdict


def verdict(reason, why="because", **more):
    old = baseline(sessions=3).runs
    return WorkloadVerdict(workload="train", reason=reason, why=why, baseline_runs=old, **more)


def changed(name):
    """A verdict that only tells of another count, or of other kernels."""
    change = StructureChange(name=name, baseline=10, candidate=9, reason=Reason.IMPROVED)
    return verdict(Reason.STRUCTURE_CHANGED, structure=[change])


def busy(*foreign_cores):
    """Runs beside which other programs kept so many cores busy."""
    return [make_run(order=i, environment={"foreign_cores": one}) for i, one in enumerate(foreign_cores)]


def facts(**changes):
    values = {
        "workload": "train",
        "machine_key": KEY,
        "backend": "cuda",
        "runs": Machine(3).session("new"),
        "dirty": False,
        "old": baseline(sessions=3),
        "verdict": verdict(Reason.PASS),
    }
    return RefreshFacts(**{**values, **changes})


def test_a_busy_host_is_told_where_most_runs_were_on_one():
    assert busy_host(busy(0.1, 7.5, 3.9), 8) is None
    assert busy_host(busy(4.2, 0.1, 6.0), 8).startswith("other programs kept 4.2 of 8 cores busy")


def test_a_sound_refresh_is_not_refused():
    assert refusals(facts()) == []
    assert refusals(facts(old=None, verdict=None)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dirty": True}, "uncommitted changes"),
        ({"foreign": ["python (pid 7)"]}, "busy with python"),
        ({"throttling": ["thermal slowdown"]}, "throttled"),
        ({"machine_key": "other"}, "its own kind of machine"),
        ({"runs": Machine(3).session("new", 1)}, "too few"),
        (
            {"runs": [make_run(order=i, kernel_time=3 + i / 5) for i in range(3)]},
            "kernel time spread by 13.3 %",
        ),
        ({"runs": [make_run(problem=Reason.INVALID_ENVIRONMENT, detail="hot")] * 3}, "not fit to keep"),
        ({"verdict": verdict(Reason.REGRESSED, "latency grew 9 %")}, "bury a regression (latency grew 9 %)"),
        ({"verdict": verdict(Reason.INCONCLUSIVE)}, "settle that first"),
        ({"verdict": None}, "run `ai-prof gate` first"),
        ({"verdict": changed("kernel:gemm")}, "strength from 3 sessions to 1"),
    ],
)
def test_each_reason_refuses_and_says_what_to_do(changes, said):
    reasons = refusals(facts(**changes))
    assert any(said in reason for reason in reasons)
    assert all("\n" not in reason for reason in reasons)


def test_a_spread_on_a_busy_host_says_so():
    for took, said in ((0.1, "%: find what disturbs"), (1.5, "%, while other programs kept 1.5 cores of")):
        runs = [
            make_run(order=i, kernel_time=3 + i / 5, environment={"foreign_cores": took}) for i in range(3)
        ]
        assert any(said in reason for reason in refusals(facts(runs=runs)))


def test_kernels_of_other_names_may_be_of_chance_and_lower_no_strength():
    (reason,) = refusals(facts(verdict=changed("kernel:gemm")))
    assert reason.endswith("if its code is gone for good, remove it")


@pytest.mark.parametrize(("kernels", "joins"), [(100, True), (101, False)])
def test_what_is_only_warned_of_joins_where_no_count_is_lost(kernels, joins):
    more = [make_run(order=i, session="new", structure={"kernels": kernels}) for i in range(3)]
    warned = facts(runs=more, verdict=verdict(Reason.STRUCTURE_CHANGED))
    assert len(renewed(warned.old, more, warned.verdict)) == (12 if joins else 3)
    assert bool(refusals(warned)) is not joins


@pytest.mark.parametrize(
    "wanted", [verdict(Reason.IMPROVED), verdict(Reason.ACCEPTED), changed("kernels"), changed("syncs")]
)
def test_a_wanted_move_starts_over(wanted):
    wanted = facts(verdict=wanted)
    assert refusals(wanted) == []
    assert renewed(wanted.old, wanted.runs, wanted.verdict) == wanted.runs


def test_where_nothing_moved_the_baseline_grows_stronger():
    same = facts()
    assert renewed(same.old, same.runs, same.verdict) == [*same.old.runs, *same.runs]
    assert renewed(None, same.runs, None) == same.runs


def test_every_moved_value_is_shown():
    old = [make_run(session=f"s{i}") for i in range(3)]
    new = [make_run(kernel_time=3.3, overlap=None, structure={"syncs": 2})]
    rows = {row.metric: row for row in moved(old, new)}
    assert rows["kernel_time_ms"].change == pytest.approx(0.1)
    assert (rows["iteration_ms"].old, rows["iteration_ms"].change) == (pytest.approx(4.0), pytest.approx(0))
    assert (rows["syncs"].old, rows["syncs"].new, rows["syncs"].change) == (1, 2, 1)
    assert (rows["copy_compute_overlap"].new, rows["copy_compute_overlap"].change) == (None, None)
    assert rows["gap"].change == pytest.approx(-0.075)
    assert msgspec.json.encode(list(rows.values()))
