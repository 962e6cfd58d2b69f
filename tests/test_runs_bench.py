"""How many fresh launches a flagged workload gets: the plan's, more where they drift, none without time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from gate_runs import WORKLOAD, Machine, make_run

from ai_prof.gate import confirm, decide, screen
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Reason
from ai_prof.runs.base import BaseError, Side
from ai_prof.runs.bench import Bench, Budget
from ai_prof.runs.checkout import Checkout
from ai_prof.runs.settle import Settler
from ai_prof.runs.workloads import Workload

CODE = Checkout(Path("/nowhere"), "abc", dirty=False)
WORK = Workload(
    name=WORKLOAD, folder=Path("/nowhere"), command=("python",), device="cuda", gpus=1, requires=(),
    programs=(), timeout_s=1, env={}, faults=("slow",), rules=Rules(),
)  # fmt: skip


class FakeBench(Bench):
    """Launches nothing: each run is what `made` gives for its side and order."""

    def __init__(self, made, seconds: float = 0.0, **options: object) -> None:
        super().__init__(
            checkout=CODE,
            folder=Path("/nowhere"),
            session="now",
            pythons={WORKLOAD: "python"},
            machine={},
            **options,
        )
        self.made, self.jobs = made, []
        self.seconds = {WORKLOAD: seconds} if seconds else {}

    def _measure(self, jobs, _earlier=None, _after=0):
        self.jobs += jobs
        return [msgspec.structs.replace(self.made(job), order=job.order) for job in jobs]


def fresh(bench: FakeBench, minutes: float = 20.0, flagged: int = 1, left_open=lambda _: False):
    base = Side(CODE, WORK, "python")
    return bench.against_base(WORK, base, confirm.plan(flagged), Budget(minutes), left_open)


def verdict_of(runs: decide.Fresh):
    flagged = decide.unscreened(WORKLOAD, "no baseline")
    return decide.settle([flagged], {WORKLOAD: runs}, rules={}, priors=screen.table_priors("cuda"))[0]


def drifting(slower: float = 1.0, drift: float = 0.01):
    machine = Machine(1, run_sd=0.001)
    return lambda job: machine.launch(
        (slower if job.side == "head" else 1.0) * (1 + drift) ** job.order, session="now", order=job.order
    )


def test_a_steady_machine_gets_the_plans_launches_in_its_order():
    bench = FakeBench(drifting(drift=0.0), regress="slow=2")
    runs = fresh(bench)
    assert (len(runs.base), len(runs.head), runs.paired) == (6, 6, False)
    assert [job.side for job in bench.jobs] == confirm.schedule(6)
    assert {job.side: job.regress for job in bench.jobs} == {"base": None, "head": "slow=2"}


def test_a_drift_widens_the_design_and_the_verdict_says_so():
    runs = fresh(FakeBench(drifting(slower=1.03)))
    assert (len(runs.base), len(runs.head), runs.paired) == (10, 10, True)
    priors = screen.table_priors("cuda")
    flagged = decide.screen_workload(
        WORKLOAD,
        [make_run(order=i) for i in range(3)],
        [make_run(session="now", order=i, kernel_time=3.3) for i in range(3)],
        rules=Rules(),
        priors=priors,
    )
    (final,) = decide.settle([flagged], {WORKLOAD: runs}, rules={}, priors=priors)
    assert final.reason is Reason.REGRESSED
    assert any("10 pairs were made and compared" in note for note in final.notes)


def test_a_drift_without_time_for_more_leaves_the_plans_own_launches():
    bench = FakeBench(drifting(slower=1.03), seconds=10.0)
    # Time for the plan's own launches alone: it is spent as they are made.
    budget = Budget(20.0)
    made = bench.made

    def spending(job):
        budget.begun -= 1200.0 * (job.order == 11)
        return made(job)

    bench.made = spending
    runs = bench.against_base(WORK, Side(CODE, WORK, "python"), confirm.plan(1), budget, lambda _: False)
    assert (len(runs.base), len(runs.head), runs.paired) == (6, 6, False)


def test_a_drift_that_pairs_cannot_settle_widens_nothing():
    runs = fresh(FakeBench(drifting()), flagged=12)
    assert (len(runs.base), runs.paired) == (8, False)


def test_what_the_plans_launches_leave_open_gets_the_most_of_them(capsys):
    asked = []
    bench = FakeBench(drifting(drift=0.0))
    runs = fresh(bench, left_open=lambda made: asked.append(len(made.base)) or True)
    assert (len(runs.base), len(runs.head), runs.first, runs.paired, asked) == (10, 10, 6, False, [6])
    assert [job.side for job in bench.jobs] == confirm.schedule(10)
    assert "8 more fresh runs, since these leave it open" in capsys.readouterr().err


def test_a_second_look_without_time_for_it_leaves_the_first():
    bench = FakeBench(drifting(drift=0.0), seconds=10.0)
    runs = fresh(bench, minutes=3.0, left_open=lambda _: bench.seconds.update({WORKLOAD: 40.0}) or True)
    assert (len(runs.base), len(runs.head), runs.first) == (6, 6, 6)
    assert "6 launches a side left it open, and no more could be made" in verdict_of(runs).notes


@pytest.mark.parametrize("order", [12, 16, 19])
@pytest.mark.parametrize(
    ("sides", "problem"),
    [
        ({"base"}, Reason.FAILED),
        ({"base"}, Reason.INVALID_ENVIRONMENT),
        ({"base", "head"}, Reason.INVALID_ENVIRONMENT),
    ],
)
def test_a_second_look_that_base_or_the_machine_spoils_leaves_the_first(order, sides, problem, capsys):
    spoiled = make_run(problem=problem, detail="out of memory")
    made = drifting(drift=0.0)
    bench = FakeBench(lambda job: spoiled if job.side in sides and job.order >= order else made(job))
    runs = fresh(bench, left_open=lambda _: True)
    assert (len(runs.base), len(runs.head), runs.first) == (6, 6, 6)
    assert verdict_of(runs).reason is Reason.PASS
    assert "out of memory; its first 12 fresh runs decide" in capsys.readouterr().err


def test_a_second_look_leaves_those_that_come_after_their_first(capsys):
    """Two workloads of 24 launches in 28 launches' time: the first may not take 8 more."""

    def at_ten_seconds(job):
        budgets[0].begun -= 10.0
        return drifting(drift=0.0)(job)

    budgets = []
    bench = FakeBench(at_ten_seconds)
    works = {name: msgspec.structs.replace(WORK, name=name) for name in ("a", "b")}
    bench.pythons, bench.seconds = dict.fromkeys(works, "python"), dict.fromkeys(works, 10.0)
    bases = SimpleNamespace(head=CODE, build="true", side=lambda work, _: Side(CODE, work, "python"))
    settler = Settler(
        bench=bench,
        bases=bases,
        workloads=works,
        stored={},
        against="abc",
        runs=3,
        alpha=0.01,
        minutes=280 / 60,
    )
    make = bench.against_base
    bench.against_base = lambda *given: budgets.insert(0, given[3]) or make(*given)
    made = settler.fresh([decide.unscreened(name, "no baseline") for name in works], lambda *_: True)
    assert [(len(runs.base), len(runs.head), runs.first) for runs in made.values()] == [(6, 6, 6)] * 2
    assert "more fresh runs" not in capsys.readouterr().err


def test_what_the_budget_has_no_time_for_is_not_begun():
    bench = FakeBench(drifting(), seconds=40.0)
    runs = fresh(bench, minutes=6.0)
    assert (runs.base, runs.head, bench.jobs) == ([], [], [])


def test_a_base_that_does_not_run_is_said_after_its_first_block():
    bench = FakeBench(
        lambda job: (
            make_run(problem=Reason.FAILED, detail="no such module") if job.side == "base" else make_run()
        )
    )
    with pytest.raises(BaseError, match="no such module"):
        fresh(bench)
    assert len(bench.jobs) == 4


def test_a_head_that_fails_ends_the_launches_of_both():
    failed = make_run(problem=Reason.FAILED, detail="still running after 60 s")
    bench = FakeBench(lambda job: failed if job.side == "head" else make_run())
    runs = fresh(bench)
    assert len(bench.jobs) == 4
    final = verdict_of(runs)
    assert (final.reason, final.why) == (Reason.FAILED, "still running after 60 s")


@pytest.mark.parametrize("order", range(12, 19))
def test_a_head_that_fails_among_the_launches_of_a_second_look_is_not_hidden(order):
    failed = make_run(problem=Reason.FAILED, detail="still running after 60 s")
    bench = FakeBench(lambda job: failed if job.side == "head" and job.order >= order else make_run())
    runs = fresh(bench, left_open=lambda _: True)
    final = verdict_of(runs)
    assert (final.reason, final.why) == (Reason.FAILED, "still running after 60 s")
