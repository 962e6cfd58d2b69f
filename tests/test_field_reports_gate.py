"""What goes wrong with gates in the field, one test a kind of fault, where no other file is its natural home.

Elsewhere: identical code that is flagged (23: test_gate_decide, test_gate_confirm), disturbed runs and their
repeats (24: test_runs_environment, test_runs_launch), jittering machine keys and foreign baselines
(28: test_baselines_store), slow drift (29: test_gate_drift), blind refreshes (31: test_baselines_refresh), a
report's own run (33: test_report_text), a comment that cannot be posted (34: test_workflows).
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from aiprof_file import Program
from gate_runs import WORKLOAD, Machine, make_run
from test_gate_drift import WHY, facts
from test_runs_environment import FakeNvml

from ai_prof.baselines.refresh import refreshed
from ai_prof.gate import confirm, decide, screen
from ai_prof.gate.decide import Fresh
from ai_prof.gate.metrics import METRICS, Floor, Rules
from ai_prof.gate.model import Reason
from ai_prof.report import view
from ai_prof.runs import bench_workloads, nvml
from ai_prof.runs.environment import describe, disturbances, observe
from ai_prof.timeline.evidence import evidence
from ai_prof.trace.open import open_trace

PRIORS = screen.table_priors("cuda")
BUILD = {"run_id": "r", "started": "", "finished": "", "device": "cuda", "machine_key": "k"}


def screened(baseline, candidate, rules=None, priors=PRIORS):
    return decide.screen_workload(WORKLOAD, baseline, candidate, rules=rules or Rules(), priors=priors)


def settled(verdict, base, head, rules=None):
    (final,) = decide.settle(
        [verdict], {WORKLOAD: Fresh(base=base, head=head)}, rules={WORKLOAD: rules or Rules()}, priors=PRIORS
    )
    return final


def cell(verdict, key):
    return next(cell for cell in verdict.cells if cell.metric == key)


def test_23_identical_code_in_a_session_that_is_4_percent_slower_never_fails():
    """Between sessions 4 %, within one 0.5 %: any fixed threshold of 3 % alarms."""
    failed = 0
    for seed in range(40):
        machine = Machine(seed, session_sd=0.04, run_sd=0.005)
        verdict = screened(machine.baseline(3), machine.session("now", slower=1.04))
        if verdict.flagged:
            verdict = settled(verdict, *machine.pairs(6))
        failed += verdict.reason is Reason.REGRESSED
    assert failed == 0


def test_24_a_slow_clock_in_one_trial_is_made_again_and_never_a_regression(tmp_path, monkeypatch):
    """One launch of three ran at half the clock: it is made again; if it stays so, invalid."""
    clocks = iter([1980, 1980, 990, 1980])
    runs = []

    def fake(_job):
        return make_run(session="now", order=len(runs), environment={"sm_clock_mhz": next(clocks)})

    monkeypatch.setattr(bench_workloads, "launch", fake)
    job = bench_workloads.Job(
        workload=None, side="candidate", python="", capture=tmp_path, session="now", order=0
    )
    for _ in range(3):
        runs.append(bench_workloads.settled(job, runs, repeats=2))
    assert [run.problem for run in runs] == [None] * 3
    assert "990 MHz" in runs[2].environment["repeated_for"][0][0]
    clocks = iter([990] * 3)
    runs[2] = bench_workloads.settled(job, runs[:2], repeats=2)
    verdict = screened([make_run(order=i) for i in range(3)], runs)
    assert verdict.reason is Reason.INVALID_ENVIRONMENT
    assert decide.build([verdict], **BUILD).exit_code == 4


def test_24_another_clock_than_the_stored_runs_had_is_no_regression_without_base():
    """Base can't be run at today's clock, so slower runs at a lower clock prove nothing."""
    old = [make_run(order=i, environment={"sm_clock_mhz": 1980}) for i in range(3)]
    first, second = (
        [
            make_run(session=s, order=i, kernel_time=3.6, latency=4.6, environment={"sm_clock_mhz": mhz})
            for i in range(3)
        ]
        for s, mhz in (("now", 1600), ("later", 1600))
    )
    flagged = screened(old, first)
    assert flagged.flagged
    cold = settled(flagged, [], second)
    assert cold.reason is Reason.INVALID_ENVIRONMENT
    assert "1600 MHz, the baseline's runs at 1980 MHz" in cold.why
    same = [msgspec.structs.replace(run, environment={"sm_clock_mhz": 1980}) for run in (*first, *second)]
    assert settled(screened(old, same[:3]), [], same[3:]).reason is Reason.REGRESSED


def test_25_where_every_sample_is_thrown_out_nothing_passes():
    bad = [make_run(order=i, problem=Reason.INVALID_ENVIRONMENT, detail="throttled") for i in range(3)]
    good = [make_run(order=i) for i in range(3)]
    assert decide.build([screened(good, bad)], **BUILD).exit_code == 4
    assert decide.build([screened(bad, good)], **BUILD).exit_code == 3
    assert decide.build([screened(good, [])], **BUILD).exit_code == 3


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -1.0])
@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_26_zero_nan_and_infinity_are_no_improvement_and_no_crash(value, side):
    odd = [make_run(session="now", order=i, metrics={"kernel_time_ms": value}) for i in range(3)]
    even = [make_run(session="now", order=i) for i in range(3)]
    verdict = screened(odd, even) if side == "baseline" else screened(even, odd)
    assert cell(verdict, "kernel_time_ms").reason is not Reason.PASS or value == 0.0
    assert verdict.reason is not Reason.IMPROVED
    assert all(c.effect is None or math.isfinite(c.effect) for c in verdict.cells)
    assert msgspec.json.decode(msgspec.json.encode(verdict))


def test_26_units_and_directions_stand_in_one_table_and_are_not_guessed():
    """A thousandfold value is a thousandfold change, and a higher busy share is no slowdown."""
    old = [make_run(order=i) for i in range(3)]
    flipped = [make_run(session="now", order=i, latency=4000.0, kernel_time=3000.0) for i in range(3)]
    assert cell(screened(old, flipped), "iteration_ms").effect == pytest.approx(999)
    assert {key: m.direction for key, m in METRICS.items() if m.unit == "ratio"} == {
        "gap": 1,
        "kernel_busy": -1,
        "copy_compute_overlap": -1,
    }
    more_overlap = [make_run(session="now", order=i, overlap=1.0) for i in range(3)]
    assert not screened(old, more_overlap).flagged


def test_26_a_run_is_its_median_not_its_minimum(tmp_path):
    """Three iterations in four take 200 us, the others 100: the value is 200."""
    program = Program()
    for i in range(40):
        program.iteration()
        for _ in range(4):
            program.launch("k", 25_000 if i % 4 == 0 else 50_000)
        program.synchronize()
    program.write(tmp_path)
    assert evidence(open_trace(tmp_path)).metrics["kernel_time_ms"] == pytest.approx(0.2)


def test_27_constants_that_differ_are_a_difference_and_one_run_is_no_proof():
    base = [make_run(order=2 * i) for i in range(6)]
    head = [make_run(order=2 * i + 1, kernel_time=3.3, latency=4.3) for i in range(6)]
    items = {c.metric.key: c for c in confirm.compare(base, head, Rules(), confirm.plan(1))}
    assert items["kernel_time_ms"].p == pytest.approx(1 / 924)
    one = screened([make_run()], [make_run(session="now", kernel_time=3.3)])
    assert one.reason is not Reason.REGRESSED
    alone = settled(decide.unscreened(WORKLOAD, ""), base[:1], head[:1])
    assert alone.reason is Reason.INCONCLUSIVE
    assert "too few fresh runs" in alone.notes[-1]


def test_29_a_step_taken_in_does_not_hide_the_next_one():
    """After an accepted step the baseline starts over, so the step is no part of its spread."""
    machine = Machine(2, session_sd=0.002, run_sd=0.001)
    first = refreshed(facts(machine.baseline(10)), None, WHY)
    wanted = msgspec.structs.replace(
        screened(first.runs, machine.session("s10", slower=1.2)), reason=Reason.ACCEPTED, flagged=False
    )
    second = refreshed(facts(machine.session("s10", slower=1.2), first, wanted), first, WHY)
    for number in range(11, 15):
        runs = machine.session(f"s{number}", slower=1.2)
        second = refreshed(facts(runs, second, screened(second.runs, runs)), second, WHY)
    priors = {key: screen.Prior(sd=0.004, df=4) for key in PRIORS}
    step = screened(second.runs, machine.session("now", slower=1.2 * 1.03), priors=priors)
    assert cell(step, "kernel_time_ms").flagged


def test_30_noise_raises_no_threshold_and_a_regression_under_it_still_fails():
    """Sessions vary by 12 %: identical code passes with the floors as they are, kernels 5 % slower fail."""
    machine = Machine(3, session_sd=0.12, run_sd=0.01)
    baseline = machine.baseline(10)
    quiet = settled(screened(baseline, machine.session("now", slower=1.3)), *machine.pairs(6))
    assert quiet.reason is Reason.PASS
    assert METRICS["kernel_time_ms"].floor == Floor(relative=0.01)
    loud = settled(screened(baseline, machine.session("now", slower=1.3)), *machine.pairs(6, slower=1.05))
    assert loud.reason is Reason.REGRESSED


def test_30_a_raised_floor_is_in_every_report():
    rules = Rules(floors={"kernel_time_ms": Floor(relative=0.3), "kernel_mean_us": Floor(relative=0.3)})
    old = [make_run(order=i) for i in range(3)]
    verdict = screened(old, [make_run(session="now", order=i, kernel_time=3.6) for i in range(3)], rules)
    kernel = cell(verdict, "kernel_time_ms")
    assert (kernel.floor, kernel.flagged) == (0.3, False)
    assert "below the floor of 30 %" in kernel.why


def test_31_an_improvement_asks_for_a_refresh_since_slack_hides_a_loss():
    machine = Machine(3, session_sd=0.001, run_sd=0.001)
    priors = {key: screen.Prior(sd=0.002, df=9) for key in PRIORS}
    verdict = screened(machine.baseline(10), machine.session("now", slower=0.5), priors=priors)
    assert verdict.reason is Reason.IMPROVED
    assert any("refresh the baseline" in note for note in verdict.notes)


def test_32_two_modes_decide_nothing_by_their_mean():
    """A quarter of head's launches fell into a slow mode by chance: half again as slow by the mean."""
    base = [make_run(order=2 * i, latency=2.0 + i / 1000, kernel_time=1.5) for i in range(6)]
    slow = [2.0, 2.001, 4.8, 2.002, 4.8, 2.003]
    head = [make_run(order=2 * i + 1, latency=v, kernel_time=1.5) for i, v in enumerate(slow)]
    flagged = decide.unscreened(WORKLOAD, "")
    assert np.mean(slow) > 1.4 * 2.0
    assert cell(settled(flagged, base, head), "iteration_ms").reason is Reason.PASS


def test_33_reports_sort_by_evidence_and_effect_not_by_name():
    names = [f"w{i:02}" for i in range(60)]
    verdicts = []
    for i, name in enumerate(names):
        slower = 1.5 if name == "w59" else 1.0
        base, head = Machine(i).pairs(6, slower=slower)
        verdict = msgspec.structs.replace(decide.unscreened(name, ""), workload=name)
        (final,) = decide.settle([verdict], {name: Fresh(base=base, head=head)}, rules={}, priors=PRIORS)
        verdicts.append(final)
    assert view.ordered(verdicts)[0].workload == "w59"
    assert decide.build(verdicts, **BUILD).workloads[0].workload == "w59"


def test_35_the_clock_is_read_during_the_run_not_taken_from_what_was_asked_for(tmp_path, monkeypatch):
    """NVML says 1980 MHz after the run; during it the samples saw 1500."""
    program = Program()
    for _ in range(10):
        program.launch("k", 100_000)
        program.work(100_000)
        program.sample(program.now, 90)
    program.write(tmp_path)
    monkeypatch.setattr(nvml, "pynvml", FakeNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    before = observe("cuda")
    seen = describe(before, observe("cuda"), open_trace(tmp_path))
    assert seen["gpus"][0]["sm_clock_mhz"] == 1980
    assert seen["sm_clock_mhz"] == 1500
    locked = [make_run(environment={"sm_clock_mhz": 1980})]
    assert disturbances(seen, locked) == ["the GPU ran at 1500 MHz, the runs before it at 1980 MHz"]
