from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from gate_runs import Machine, make_run
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from ai_prof.gate import screen
from ai_prof.gate.comparison import hommel, simes
from ai_prof.gate.metrics import METRICS, PROVISIONAL_SD, TOTALS, Floor, Rules
from ai_prof.gate.values import beyond_floor, number, session_values

TABLE = screen.table_priors("cuda")
VAGUE = {key: screen.Prior(sd=prior.sd, df=1e-9) for key, prior in TABLE.items()}


def by_metric(items):
    return {item.metric.key: item for item in items}


def test_without_a_prior_it_is_the_t_test_of_one_new_session():
    machine = Machine(5)
    baseline, candidate = machine.baseline(8), machine.session("new", slower=1.01)
    items = by_metric(screen.screen(baseline, candidate, Rules(), VAGUE))
    for key in ("iteration_ms", "kernel_time_ms", "gap"):
        metric = METRICS[key]
        old = session_values(baseline, metric, metric.floor)
        new = session_values(candidate, metric, metric.floor)
        # What `ttest_ind` makes of a sample of one, which it refuses before SciPy 1.11.
        t = (new[0] - old.mean()) / (old.std(ddof=1) * np.sqrt(1 + 1 / len(old)))
        expected = stats.t.sf(t, len(old) - 1)
        assert items[key].p == pytest.approx(expected, rel=1e-6)
        assert items[key].p_better == pytest.approx(1 - expected, rel=1e-6)


def test_runs_of_one_session_are_one_sample():
    machine = Machine(5)
    baseline, candidate = machine.baseline(4), machine.session("new")
    thrice = [run for run in baseline for _ in range(3)]
    once = by_metric(screen.screen(baseline, candidate, Rules(), TABLE))
    again = by_metric(screen.screen(thrice, candidate * 5, Rules(), TABLE))
    assert once["iteration_ms"].p == again["iteration_ms"].p


def test_direction_decides_which_tail_counts():
    baseline = [make_run(order=i) for i in range(3)]
    worse = by_metric(screen.screen(baseline, [make_run(session="n", overlap=0.1)], Rules(), TABLE))
    better = by_metric(screen.screen(baseline, [make_run(session="n", overlap=1.0)], Rules(), TABLE))
    assert worse["copy_compute_overlap"].p < 0.01 < better["copy_compute_overlap"].p
    assert better["copy_compute_overlap"].p_better < 0.05


@settings(deadline=None, max_examples=25)
@given(st.floats(0.01, 1000))
def test_kernel_time_knows_no_unit(scale):
    machine = Machine(2)
    baseline, candidate = machine.baseline(3), machine.session("new", slower=1.02)

    def scaled(runs):
        times = ((run, scale * run.metrics["kernel_time_ms"]) for run in runs)
        return [make_run(session=run.session, kernel_time=time, latency=2 * time) for run, time in times]

    one = by_metric(screen.screen(baseline, candidate, Rules(), TABLE))["kernel_time_ms"]
    two = by_metric(screen.screen(scaled(baseline), scaled(candidate), Rules(), TABLE))["kernel_time_ms"]
    assert (one.p, one.effect, one.mde) == pytest.approx((two.p, two.effect, two.mde), rel=1e-6)


def test_mde_is_found_with_about_its_power():
    """A shift of the printed size, in kernel time alone, is flagged four times out of five."""
    rules = Rules(policy={key: "ignore" for key in METRICS if key != "kernel_time_ms"})
    rng = np.random.default_rng(11)
    sd, hits, rounds = TABLE["kernel_time_ms"].sd, 0, 400
    for _ in range(rounds):
        baseline = [make_run(session=f"s{i}", kernel_time=math.exp(rng.normal(0, sd))) for i in range(10)]
        probe = screen.screen(baseline, baseline[:1], rules, TABLE)[0]
        value = math.exp(rng.normal(0, sd)) * (1 + probe.mde)
        found = screen.screen(baseline, [make_run(session="n", kernel_time=value)], rules, TABLE)[0]
        hits += found.p_joint <= screen.ALPHA
    assert 0.7 < hits / rounds < 0.9


def test_null_flags_stay_near_alpha_per_workload():
    flags, rounds = 0, 300
    for seed in range(rounds):
        machine = Machine(seed, session_sd=0.02)
        baseline, candidate = machine.baseline(10), machine.session("new")
        items = screen.screen(baseline, candidate, Rules(), VAGUE)
        flags += any(item.p_joint <= screen.ALPHA for item in items if item.metric.alone)
    assert flags / rounds <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / rounds)


def test_a_provisional_baseline_judges_only_what_it_can_see():
    baseline = [make_run(order=i) for i in range(3)]

    def latency(value):
        items = by_metric(screen.screen(baseline, [make_run(session="n", latency=value)], Rules(), TABLE))
        return items["iteration_ms"]

    assert latency(4.4).mde > screen.NOT_JUDGED
    assert not latency(4.4).judged
    assert latency(4 * (1 + latency(4.4).mde) * 1.05).judged
    kernel = by_metric(screen.screen(baseline, [make_run(session="n")], Rules(), TABLE))["kernel_time_ms"]
    assert kernel.judged
    grown = by_metric(screen.screen(Machine(0).baseline(2), [make_run(session="n")], Rules(), TABLE))
    assert all(item.judged for item in grown.values())


def test_an_unseen_host_widens_the_interval():
    baseline = [make_run(order=i) for i in range(3)]
    seen = by_metric(screen.screen(baseline, [make_run(session="n")], Rules(), TABLE))
    unseen = by_metric(screen.screen(baseline, [make_run(session="n", host="b")], Rules(), TABLE))
    assert unseen["iteration_ms"].mde > seen["iteration_ms"].mde


def test_a_pod_is_known_by_its_hosts_boot_and_by_hosts_like_it():
    def detectable(sessions, candidate):
        baseline = [make_run(session=s, host=h, order=i) for i, (s, h) in enumerate(sessions)]
        session, host = candidate
        new = [make_run(session=session, host=host)]
        return by_metric(screen.screen(baseline, new, Rules(), TABLE))["iteration_ms"].mde

    usual = detectable([("t1-boot1", "a"), ("t2-boot2", "a")], ("t3-boot3", "a"))
    unseen = detectable([("t1-boot1", "a"), ("t2-boot2", "a")], ("t3-boot3", "b"))
    assert unseen > usual
    # Pods of one host, and one more of it or of another; and each on a host of its own, as the candidate.
    of_one = [("t1-boot1", "pod1"), ("t2-boot1", "pod2")]
    assert detectable(of_one, ("t3-boot1", "pod3")) == usual
    assert detectable(of_one, ("t3-boot3", "pod3")) == unseen
    assert detectable([("t1-boot1", "pod1"), ("t2-boot2", "pod2")], ("t3-boot3", "pod3")) == usual
    assert detectable([("t1-boot1", "pod1")], ("t3-boot3", "pod3")) > detectable(
        [("t1-boot1", "pod1")], ("t3-boot1", "pod3")
    )


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -1.0])
def test_unusable_values_are_left_out_not_compared(bad):
    baseline = [make_run(order=i) for i in range(3)]
    candidate = [
        make_run(session="n", order=0, metrics={"iteration_ms": bad}),
        make_run(session="n", order=1),
    ]
    item = by_metric(screen.screen(baseline, candidate, Rules(), TABLE))["iteration_ms"]
    assert item.candidate == pytest.approx(4.0)
    alone = screen.screen(baseline, candidate[:1], Rules(), TABLE)
    assert "iteration_ms" not in by_metric(alone)


def test_a_time_from_zero_and_to_zero():
    zero = [make_run(order=i, metrics={"gap_ms": 0.0, "gap": 0.0}) for i in range(3)]
    some = [make_run(session="n", metrics={"gap_ms": 5.0, "gap": 0.4})]
    grown = by_metric(screen.screen(zero, some, Rules(), TABLE))["gap_ms"]
    assert grown.effect is None
    assert grown.interval is None
    assert grown.p < 0.01
    assert grown.real
    fallen = by_metric(screen.screen(some, [make_run(session="z", metrics={"gap_ms": 0.0})], Rules(), TABLE))
    assert fallen["gap_ms"].effect == pytest.approx(-1.0)
    assert fallen["gap_ms"].p > 0.99
    same = by_metric(screen.screen(zero, [make_run(session="z", metrics={"gap_ms": 0.0})], Rules(), TABLE))
    assert (same["gap_ms"].baseline, same["gap_ms"].candidate) == (0.0, 0.0)
    assert not same["gap_ms"].real


def test_constants_that_differ_are_a_difference_and_equal_ones_are_not():
    baseline = [make_run(session=f"s{i}") for i in range(10)]
    same = by_metric(screen.screen(baseline, [make_run(session="n")], Rules(), TABLE))
    differ = by_metric(screen.screen(baseline, [make_run(session="n", kernel_time=3.2)], Rules(), TABLE))
    assert same["kernel_time_ms"].p == pytest.approx(0.5)
    assert differ["kernel_time_ms"].p < 1e-6
    one = by_metric(screen.screen(baseline[:1], [make_run(session="n", kernel_time=3.2)], Rules(), TABLE))
    assert one["kernel_time_ms"].p < 0.01


def test_shared_priors_recover_a_known_spread():
    rng = np.random.default_rng(4)
    baselines = {
        f"w{w}": [make_run(session=f"s{i}", kernel_time=3 * math.exp(rng.normal(0, 0.02))) for i in range(4)]
        for w in range(40)
    }
    prior = screen.shared_priors(baselines, "cuda")["kernel_time_ms"]
    assert prior.sd == pytest.approx(0.02, rel=0.15)
    assert prior.df > 20  # all alike: what chance leaves of a difference counts for little
    young = {name: runs[:1] for name, runs in baselines.items()}
    assert screen.shared_priors(young, "cuda") == TABLE


def test_workloads_that_differ_tell_little_of_each_other():
    """Variances drawn as s0^2 d0 / chi^2(d0) give their own d0 and s0 back (Smyth 2004, section 3)."""
    rng = np.random.default_rng(5)
    sd = 0.02 * np.sqrt(4 / rng.chisquare(4, 300))
    logs = math.log(3) + rng.normal(0, sd[:, None], (300, 10))
    baselines = {
        f"w{w}": [make_run(session=f"s{i}", kernel_time=math.exp(log)) for i, log in enumerate(row)]
        for w, row in enumerate(logs)
    }
    prior = screen.shared_priors(baselines, "cuda")["kernel_time_ms"]
    assert prior.sd == pytest.approx(0.02, rel=0.1)
    assert prior.df == pytest.approx(4, rel=0.4)
    beyond = np.var(np.log(np.var(logs, axis=1, ddof=1)), ddof=1) - special.polygamma(1, 9 / 2)
    assert special.polygamma(1, prior.df / 2) == pytest.approx(beyond, rel=1e-9)


def test_one_session_tells_how_much_its_own_runs_vary():
    """On a host that doubles some launches, the table's spread of a session would flag most candidates."""
    flagged = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        runs = [
            make_run(
                order=i, latency=4 * math.exp(rng.normal(0, 0.35)), kernel_time=3.0, metrics={"gap": 0.2}
            )
            for i in range(13)
        ]
        compared = by_metric(screen.screen(runs[:10], runs[10:], Rules(), screen.table_priors("opencl")))
        latency = compared["iteration_ms"]
        flagged += latency.p < screen.ALPHA
        assert latency.mde > 0.2
    assert flagged <= 7


def test_within_one_session_launches_tell_what_chance_does():
    """A training step that varies by 0.5 % from launch to launch: the table's sessions vary by 15 %."""
    machine = Machine(3, run_sd=0.005)
    runs = [machine.launch(1.0, session="s0", order=i) for i in range(6)]
    same = by_metric(screen.screen(runs[:3], runs[3:], Rules(), TABLE))["iteration_ms"]
    later = [msgspec.structs.replace(run, session="n") for run in runs[3:]]
    other = by_metric(screen.screen(runs[:3], later, Rules(), TABLE))["iteration_ms"]
    assert same.mde < 0.05
    assert other.mde > 1
    assert (same.judged, other.judged) == (True, False)
    assert same.effect == other.effect


@settings(deadline=None, max_examples=25)
@given(st.floats(0.1, 10), st.integers(2, 8), st.integers(1, 4))
def test_what_a_session_does_to_all_of_its_runs_cancels_out(speed, stored, new):
    machine = Machine(6)
    runs = [machine.launch(1.0, session="s0", order=i) for i in range(stored + new)]

    def kernel_time(factor):
        times = [factor * run.metrics["kernel_time_ms"] for run in runs]
        shifted = [make_run(order=i, kernel_time=time, latency=2 * time) for i, time in enumerate(times)]
        items = screen.screen(shifted[:stored], shifted[stored:], Rules(), TABLE)
        return by_metric(items)["kernel_time_ms"]

    one, two = kernel_time(1.0), kernel_time(speed)
    assert (one.p, one.effect, one.mde) == pytest.approx((two.p, two.effect, two.mde), rel=1e-6)


@pytest.mark.parametrize("count", [3, 10])
def test_null_flags_within_one_session_stay_near_alpha_per_workload(count):
    flags, rounds = 0, 300
    for seed in range(rounds):
        machine = Machine(seed, run_sd=0.02)
        runs = [machine.launch(1.0, session="s0", order=i) for i in range(count + 3)]
        items = screen.screen(runs[:count], runs[count:], Rules(), TABLE)
        flags += any(item.p_joint <= screen.ALPHA for item in items if item.metric.alone)
    assert flags / rounds <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / rounds)


def test_equal_runs_of_one_session_do_not_differ_and_one_run_each_is_judged_by_the_table():
    runs = [make_run(order=i) for i in range(6)]
    same = by_metric(screen.screen(runs[:3], runs[3:], Rules(), TABLE))
    assert all(item.p == pytest.approx(0.5) for item in same.values() if item.metric.direction)
    grown = make_run(order=3, kernel_time=3.3)
    assert by_metric(screen.screen(runs[:3], [grown], Rules(), TABLE))["kernel_time_ms"].p < 1e-3
    alone = by_metric(screen.screen(runs[:1], runs[1:2], Rules(), TABLE))
    young = by_metric(screen.screen(runs[:1], [make_run(session="n")], Rules(), TABLE))
    assert alone["iteration_ms"].mde == young["iteration_ms"].mde


def test_slow_launches_in_the_sessions_do_not_blunt_their_medians():
    """Every other session has one launch of three that took half as long again: its median knows nothing."""
    machine = Machine(7)
    clean = machine.baseline(10)
    tail = [
        make_run(session=run.session, order=run.order, latency=6.0, kernel_time=run.metrics["kernel_time_ms"])
        if i % 6 == 0
        else run
        for i, run in enumerate(clean)
    ]
    candidate = machine.session("new", slower=1.02)
    one, two = (
        by_metric(screen.screen(baseline, candidate, Rules(), TABLE))["iteration_ms"]
        for baseline in (clean, tail)
    )
    assert two.mde < 1.2 * one.mde


def test_metrics_that_grew_together_are_flagged_where_each_alone_would_not_be():
    """Kernel time, latency and gap time of a candidate are longer by 2 %, sessions vary by 1 %."""
    priors = {key: screen.Prior(sd=0.01, df=60) for key in TABLE}
    baseline = Machine(4, session_sd=0.01, run_sd=0.001).baseline(10)
    candidate = [make_run(session="n", latency=4.085, kernel_time=3.063)]
    compared = [each for each in screen.screen(baseline, candidate, Rules(), priors) if each.metric.alone]
    p = [each.p for each in compared]
    assert min(hommel(p)) > screen.ALPHA
    assert {each.metric.key for each in compared if each.p_joint <= screen.ALPHA} == {
        "iteration_ms",
        "kernel_time_ms",
        "gap_ms",
    }


def test_one_small_p_among_many_flags_nothing():
    assert simes([0.02, 0.4, 0.5, 0.6, 0.9]) == pytest.approx(0.1)
    assert simes([0.02, 0.025, 0.03, 0.4, 0.9]) == pytest.approx(0.05)
    assert simes([]) == 1.0


def test_ignored_metrics_leave_the_family():
    baseline = [make_run(order=i) for i in range(3)]
    rules = Rules(policy={"gap": "ignore"})
    keys = by_metric(screen.screen(baseline, [make_run(session="n")], rules, TABLE))
    assert "gap" not in keys


def test_the_table_is_whole():
    for backend in ("cuda", "opencl"):
        assert set(PROVISIONAL_SD[backend]) == {metric.key for metric in TOTALS}
    assert {m.key for m in METRICS.values() if m.direction < 0} == {"kernel_busy", "copy_compute_overlap"}


def test_a_floor_asks_for_both_its_parts():
    floor = Floor(relative=0.01, absolute=0.02)
    assert not beyond_floor(floor, 1.0, 1.015)
    assert not beyond_floor(floor, 10.0, 10.05)
    assert beyond_floor(floor, 10.0, 10.2)
    assert beyond_floor(floor, 0.0, 0.03)


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.1, "3.10 ms"), (43.21, "43.2 ms"), (1234.5, "1234 ms"), (0.9999, "1.00 ms"), (0.0, "0.00 ms")],
)
def test_numbers_keep_three_digits(value, text):
    assert number(METRICS["iteration_ms"], value) == text
