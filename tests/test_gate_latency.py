"""Which iteration stands for a run: chosen from the baseline, and by what it gains."""

from __future__ import annotations

import numpy as np
import pytest
from gate_runs import make_run

from ai_prof.gate import decide, latency, screen
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Reason

PRIORS = screen.table_priors("cuda")


class Farm:
    """Runs of 60 iterations of which a share, another in each session, is slower by half."""

    def __init__(self, seed, disturbed=0.55, sd=0.004):
        self.rng = np.random.default_rng(seed)
        self.disturbed, self.sd = disturbed, sd

    def session(self, name, count=3, grown=1.0):
        share = self.rng.uniform(0, self.disturbed)
        middle = 4.0 * grown * np.exp(self.rng.normal(0, self.sd))
        made = []
        for order in range(count):
            slow = self.rng.random(60) < share
            lengths = middle * np.exp(self.rng.normal(0, 0.05, 60)) * np.where(slow, 1.5, 1.0)
            made.append(
                make_run(
                    session=name,
                    order=order,
                    latency=float(np.median(lengths)),
                    iteration_ms=lengths.tolist(),
                )
            )
        return made

    def baseline(self, sessions=10):
        return [run for i in range(sessions) for run in self.session(f"s{i}")]


def screened(baseline, candidate):
    rules = Rules(policy=dict.fromkeys(("gap", "gap_ms", "kernel_busy"), "ignore"))
    priors = {**PRIORS, "iteration_ms": screen.Prior(sd=0.01, df=4)}
    return decide.screen_workload("train", baseline, candidate, rules=rules, priors=priors)


def test_the_lower_quarter_stands_for_runs_whose_median_a_busy_host_moves():
    baseline = Farm(1).baseline()
    assert latency.quantile_of(baseline) == latency.LOW
    assert latency.spread(baseline, latency.LOW) < latency.spread(baseline, latency.MEDIAN) / 3
    low = latency.summarised(baseline, latency.LOW)
    assert low[0].metrics["iteration_ms"] == pytest.approx(np.quantile(baseline[0].iteration_ms, 0.25))
    assert low[0].metrics["gap_ms"] == baseline[0].metrics["gap_ms"]


@pytest.mark.parametrize("disturbed", [0.0, 0.05])
def test_the_median_stays_where_nothing_is_gained(disturbed):
    assert [latency.quantile_of(Farm(seed, disturbed).baseline()) for seed in range(10)] == [0.5] * 10


def test_too_little_to_choose_by_means_the_median():
    baseline = Farm(1).baseline()
    assert latency.quantile_of(baseline[:15]) == latency.MEDIAN
    assert latency.quantile_of(baseline, [make_run()]) == latency.MEDIAN
    assert latency.quantile_of([]) == latency.MEDIAN
    assert latency.quantile_note(baseline, latency.MEDIAN) == []


def test_it_finds_what_the_median_hides_and_says_so():
    farm = Farm(2)
    baseline = farm.baseline()
    same, slower = (
        screened(baseline, farm.session("now")),
        screened(baseline, farm.session("new", grown=1.06)),
    )
    assert not same.flagged
    assert slower.flagged
    assert any("lower quarter" in note for note in slower.notes)
    short = [make_run(session=run.session, latency=run.metrics["iteration_ms"]) for run in baseline]
    assert not screened(short, farm.session("new", grown=1.06)).flagged


def test_fresh_runs_are_summarised_alike():
    farm = Farm(3)
    baseline = farm.baseline()
    verdict = screened(baseline, farm.session("new", grown=1.08))
    assert verdict.flagged
    fresh = decide.Fresh(base=farm.session("now", 6), head=farm.session("now", 6, grown=1.08))
    (settled,) = decide.settle([verdict], {"train": fresh}, rules={}, priors=PRIORS)
    cell = next(cell for cell in settled.cells if cell.metric == "iteration_ms")
    assert settled.reason is Reason.REGRESSED
    assert cell.effect == pytest.approx(0.08, abs=0.03)
