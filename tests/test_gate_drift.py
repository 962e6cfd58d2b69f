"""Many small steps: none alarms alone, the pinned anchor does, and no refresh moves it."""

from __future__ import annotations

import msgspec
import pytest
from gate_runs import WORKLOAD, Machine, make_run

from ai_prof.baselines.refresh import RefreshFacts, refreshed
from ai_prof.baselines.store import Origin
from ai_prof.gate import decide, drift, screen
from ai_prof.gate.acceptance import acceptable
from ai_prof.gate.decide import Fresh
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Acceptance, Anchor, Evidence, Reason

QUIET = {key: screen.Prior(sd=0.004, df=9) for key in screen.table_priors("cuda")}
WHY = Origin(who="ada", why="scheduled", when="2026-01-01T00:00:00+00:00", commit="abcdef1234567890")


def screened(baseline, runs, anchor=None, accepted=()):
    return decide.screen_workload(
        WORKLOAD, baseline.runs, runs, rules=Rules(), priors=QUIET, anchor=anchor, accepted=accepted
    )


def facts(runs, old=None, verdict=None):
    return RefreshFacts(
        workload=WORKLOAD,
        machine_key="k",
        backend="cuda",
        runs=runs,
        dirty=False,
        old=old,
        verdict=verdict,
    )


def settled(verdict, runs, base=()):
    (final,) = decide.settle(
        [verdict],
        {WORKLOAD: Fresh(base=list(base), head=runs)},
        rules={},
        priors=QUIET,
    )
    return final


@pytest.fixture(scope="module")
def stepped():
    """20 steps of +0.4 %, each gated and taken into the baseline; that, and each step's two verdicts."""
    machine = Machine(11, session_sd=0.001, run_sd=0.001)
    baseline = refreshed(facts(machine.session("s00")), None, WHY)
    alone, anchored = [], []
    for step in range(1, 21):
        runs = machine.session(f"s{step:02}", slower=1.004**step)
        verdict = screened(baseline, runs)
        if verdict.flagged:  # the baseline's mean lags behind, the commit before doesn't
            base, head = machine.pairs(6, slower=1.004)
            (verdict,) = decide.settle(
                [verdict], {WORKLOAD: Fresh(base=base, head=head)}, rules={}, priors=QUIET
            )
        alone.append(verdict)
        anchored.append(screened(baseline, runs, baseline.anchor))
        baseline = refreshed(facts(runs, baseline, verdict), baseline, WHY)
    return baseline, alone, anchored


def test_twenty_small_steps_alarm_at_the_anchor_and_nowhere_else(stepped):
    _, alone, anchored = stepped
    assert {verdict.reason for verdict in alone} == {Reason.PASS}
    assert not any(verdict.drift for verdict in anchored[:5])  # below 3 %
    last = anchored[-1]
    assert (last.flagged, last.drift, last.reason) == (True, True, Reason.INCONCLUSIVE)
    fresh = Machine(12, session_sd=0.001, run_sd=0.001).session("again", slower=1.004**20)
    final = settled(last, fresh)
    assert (final.reason, final.evidence) == (Reason.REGRESSED, Evidence.REPEATED)
    assert "since the anchor (2026-01-01, abcdef123456), floor 3 %" in final.why
    (cell,) = [c for c in final.cells if c.metric == "kernel_time_ms"]
    assert cell.effect == pytest.approx(1.004**20 - 1, abs=0.01)


def test_a_drift_behind_a_flag_of_the_screen_alarms_too():
    """The stored baseline is far behind, base is not: fresh runs clear the step, and leave the drift."""
    machine = Machine(12, session_sd=0.001, run_sd=0.001)
    baseline = refreshed(facts(machine.baseline(10)), None, WHY)
    flagged = screened(baseline, machine.session("now", slower=1.05), baseline.anchor)
    assert (flagged.flagged, flagged.drift) == (True, False)
    base = machine.session("now", 6, slower=1.046)
    final = settled(flagged, machine.session("now", 6, slower=1.05), base)
    assert final.reason is Reason.REGRESSED
    assert "since the anchor" in final.why
    assert final.confirm_base == base
    assert settled(flagged, machine.session("now", 6), base).reason is Reason.IMPROVED


def test_no_refresh_moves_the_anchor(stepped):
    baseline, _, _ = stepped
    assert {run.session for run in baseline.anchor.runs} == {"s00"}
    assert baseline.sessions == 21
    assert [entry.sessions for entry in baseline.log] == list(range(1, 22))
    assert baseline.anchor.when == WHY.when


def test_a_drift_that_fresh_runs_do_not_show_passes(stepped):
    _, _, anchored = stepped
    fresh = Machine(12, session_sd=0.001, run_sd=0.001).session("again")
    final = settled(anchored[-1], fresh)
    assert final.reason is Reason.PASS
    assert any("flagged as a drift, not confirmed" in note for c in final.cells for note in c.notes)
    (unsettled,) = decide.settle([anchored[-1]], {}, rules={}, priors=QUIET)
    assert decide.build([unsettled], **BUILD).exit_code == 5


def test_a_drift_that_is_not_confirmed_leaves_what_was_accepted(stepped):
    """Else the next refresh would join the new runs to the old ones, and forget it."""
    baseline, _, _ = stepped
    more = {"structure": {"kernels": 101}}
    wanted = Acceptance(metric="kernels", old=100, new=101, who="ada", why="one more", when="")
    runs = Machine(12, session_sd=0.001, run_sd=0.001).session("s21", slower=1.004**20, **more)
    verdict = screened(baseline, runs, baseline.anchor, [wanted])
    assert verdict.drift
    final = settled(verdict, Machine(13, session_sd=0.001, run_sd=0.001).session("again", **more))
    assert final.reason is Reason.ACCEPTED
    assert "one more" in final.why


BUILD = {"run_id": "r", "started": "", "finished": "", "device": "cuda", "machine_key": "k"}


def test_an_accepted_drift_is_green_and_stays_so_after_a_refresh(stepped):
    baseline, _, anchored = stepped
    wanted = [
        Acceptance(
            metric=c.metric,
            old=c.baseline,
            new=c.candidate,
            place=c.place,
            who="ada",
            why="features",
            when="",
        )
        for c in anchored[-1].cells
        if c.flagged
    ]
    runs = Machine(12, session_sd=0.001, run_sd=0.001).session("s21", slower=1.004**20)
    verdict = screened(baseline, runs, baseline.anchor, wanted)
    assert (verdict.reason, verdict.flagged) == (Reason.PASS, False)
    after = refreshed(facts(runs, baseline, verdict), baseline, WHY)
    assert not screened(after, runs, after.anchor).flagged
    further = Machine(13, session_sd=0.001, run_sd=0.001).session("s22", slower=1.004**30)
    assert drift.compare(after.anchor, after.runs, further, Rules(), QUIET)[0].real


@pytest.fixture(scope="module")
def wanted():
    """A baseline of five sessions, and what is accepted of a change by 10 % that fresh runs confirmed."""
    machine = Machine(11, session_sd=0.001, run_sd=0.001)
    baseline = refreshed(facts(machine.session("s0")), None, WHY)
    for name in ("s1", "s2", "s3", "s4"):
        runs = machine.session(name)
        baseline = refreshed(facts(runs, baseline, screened(baseline, runs, baseline.anchor)), baseline, WHY)
    base, head = machine.pairs(6, slower=1.1)
    red = settled(screened(baseline, machine.session("s5", slower=1.1), baseline.anchor), head, base)
    who = {"who": "ada", "why": "more layers", "when": ""}
    rows = acceptable(red, {Reason.REGRESSED}).values()
    return baseline, [msgspec.convert({**row, **who}, Acceptance) for row in rows]


def test_what_is_accepted_of_a_baseline_is_no_drift_from_its_anchor(wanted):
    baseline, accepted = wanted
    machine = Machine(12, session_sd=0.001, run_sd=0.001)
    green = screened(baseline, machine.session("s6", slower=1.1), baseline.anchor, accepted)
    assert (green.reason, green.flagged) == (Reason.ACCEPTED, False)
    # Nor is it after the next refresh, which takes it in once; what goes beyond it is.
    after = refreshed(facts(machine.session("s7", slower=1.1), baseline, green), baseline, WHY)
    sessions = [run for i in range(3) for run in machine.session(f"t{i}", slower=1.1)]
    assert not any(
        item.real and item.worse
        for item in drift.compare(after.anchor, sessions, machine.session("s8", slower=1.1), Rules(), QUIET)
    )
    further = drift.compare(after.anchor, sessions, machine.session("s9", slower=1.15), Rules(), QUIET)
    assert any(item.real and item.worse and item.p_joint < 0.01 for item in further)


def test_a_wanted_change_counts_for_the_anchor_and_a_won_one_too():
    machine = Machine(3, session_sd=0.001, run_sd=0.001)
    first = refreshed(facts(machine.session("s0")), None, WHY)
    faster = machine.session("s1", slower=0.8)
    verdict = screened(first, faster, first.anchor)
    assert verdict.reason is Reason.IMPROVED
    second = refreshed(facts(faster, first, verdict), first, WHY)
    assert {run.session for run in second.runs} == {"s1"}
    assert {run.session for run in second.anchor.runs} == {"s0"}
    # Back to where the anchor was pinned would be a loss of what was won.
    since = [*second.runs, *machine.session("s2", slower=0.8), *machine.session("s3", slower=0.8)]
    back = drift.compare(second.anchor, since, machine.session("s4"), Rules(), QUIET)
    assert any(item.real and item.worse and item.p_joint < 0.01 for item in back)


def test_policies_and_floors_hold_for_drift():
    baseline = [make_run(session=f"s{i}") for i in range(3)]
    anchor = Anchor(when="2026-01-01", commit=None, runs=baseline[:1])
    slow = [make_run(session="now", order=i, kernel_time=3.3, latency=4.3) for i in range(3)]
    everything = {c.metric.key for c in drift.compare(anchor, baseline, slow, Rules(), QUIET) if c.real}
    assert everything == {"iteration_ms", "kernel_time_ms"}
    rules = Rules(policy={"kernel_time_ms": "warn"})
    assert "kernel_time_ms" not in {c.metric.key for c in drift.compare(anchor, baseline, slow, rules, QUIET)}


def test_the_spread_is_that_of_steps_not_of_the_drift():
    baseline = [make_run(session=f"s{i}", latency=4 * 1.004**i, kernel_time=3 * 1.004**i) for i in range(20)]
    anchor = Anchor(when="", commit=None, runs=baseline[:1])
    runs = [make_run(session="now", latency=4 * 1.004**20, kernel_time=3 * 1.004**20)]
    prior = {key: screen.Prior(sd=0.0001, df=1) for key in QUIET}
    item = drift.compare(anchor, baseline, runs, Rules(), prior)[0]
    assert item.mde < 0.02
    by_mean = screen.screen(baseline, runs, Rules(), prior)[0]
    assert by_mean.mde > 0.05


def test_the_same_work_cut_into_other_iterations_does_not_compare():
    old = [make_run(order=i, iterations=200) for i in range(3)]
    part: dict[str, float | None] = {"iteration_ms": 0.2, "kernel_time_ms": 0.15, "kernel_mean_us": 30.0}
    varying = dict.fromkeys(old[0].structure)
    new = [
        make_run(session="now", order=i, iterations=4000, metrics=part, structure=varying, kernels={})
        for i in range(3)
    ]
    verdict = decide.screen_workload(WORKLOAD, old, new, rules=Rules(), priors=QUIET)
    assert verdict.reason is Reason.INCOMPARABLE
    assert (
        "cut into 4,000 iterations of 5.0 kernels, the baseline's into 200 iterations of 100.0" in verdict.why
    )
    assert decide.build([verdict], **BUILD).exit_code == 3
    longer = [msgspec.structs.replace(run, session="now", iterations=400) for run in old]  # runs for longer
    compared = decide.screen_workload(WORKLOAD, old, longer, rules=Rules(), priors=QUIET)
    assert compared.reason is not Reason.INCOMPARABLE


def test_captures_taken_otherwise_do_not_compare():
    old = [make_run(order=i, captured="api, graphs by node") for i in range(3)]
    new = [msgspec.structs.replace(run, session="now", captured="api, graphs by graph") for run in old]
    verdict = decide.screen_workload(WORKLOAD, old, new, rules=Rules(), priors=QUIET)
    assert verdict.reason is Reason.INCOMPARABLE
    assert "captured at api, graphs by graph, the baseline at api, graphs by node" in verdict.why
    assert decide.build([verdict], **BUILD).exit_code == 3
    young = [make_run(order=i) for i in range(3)]  # recorded before runs said how they were captured
    assert decide.screen_workload(WORKLOAD, young, new, rules=Rules(), priors=QUIET).reason is Reason.PASS


def test_a_promised_count_that_varies_is_said():
    old = [make_run(order=i) for i in range(3)]
    new = [make_run(session="now", order=i, structure={"syncs": None}) for i in range(3)]
    rules = Rules(promised=("kernels", "syncs"))
    verdict = decide.screen_workload(WORKLOAD, old, new, rules=rules, priors=QUIET)
    assert verdict.reason is Reason.STRUCTURE_CHANGED
    said = "synchronizes per iteration vary, though workload.toml promises them constant: make them so again"
    assert verdict.why.startswith(said)
    assert decide.build([verdict], **BUILD).exit_code == 0
    ignored = Rules(promised=("syncs",), policy={"syncs": "ignore"})
    assert decide.screen_workload(WORKLOAD, old, new, rules=ignored, priors=QUIET).reason is Reason.PASS
    assert decide.screen_workload(WORKLOAD, old, new, rules=Rules(), priors=QUIET).reason is Reason.PASS


@pytest.mark.parametrize("session_sd", [0.002, 0.02, 0.12])
def test_identical_code_drifts_no_more_often_than_it_should(session_sd):
    """Each draw is an anchor of one session, a baseline of three, and a candidate's two halves."""
    alarms, draws = 0, 150
    for seed in range(draws):
        machines = [Machine(100 * seed + i, session_sd=session_sd) for i in range(4)]
        baselines = {str(i): machine.baseline(3) for i, machine in enumerate(machines)}
        priors = screen.shared_priors(baselines, "cuda")
        anchor = Anchor(when="", commit=None, runs=baselines["0"][:3])
        runs = machines[0].session("now", 6)
        stood = [
            {
                item.metric.key
                for item in drift.compare(anchor, baselines["0"], half, Rules(), priors)
                if item.worse and item.real and item.p_joint <= drift.ALPHA
            }
            for half in (runs[:3], runs[3:])
        ]
        alarms += bool(stood[0] & stood[1])
    assert alarms <= 5  # 1 % of 150, and no more than chance allows beyond (99.5 %)


def test_a_young_baseline_knows_no_drift():
    runs = [make_run(order=i) for i in range(3)]
    anchor = Anchor(when="", commit=None, runs=runs)
    slow = [make_run(session="now", order=i, kernel_time=6.0, latency=7.0) for i in range(3)]
    assert drift.compare(anchor, runs, slow, Rules(), QUIET) == []
