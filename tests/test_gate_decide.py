from __future__ import annotations

import math

import msgspec
import pytest
from gate_runs import WORKLOAD, Machine, make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_prof.gate import decide, reading, repeated, screen
from ai_prof.gate.conclude import CODES, code_of
from ai_prof.gate.decide import Fresh
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import BuildVerdict, Cell, Evidence, Reason, WorkloadVerdict

PRIORS = screen.table_priors("cuda")
QUIET = {key: screen.Prior(sd=0.002, df=9) for key in PRIORS}
NO_RULES = Rules()
PROVISIONAL = [make_run(order=i) for i in range(3)]
FACTS = {"run_id": "r", "started": "", "finished": "", "device": "cuda", "machine_key": "k"}


def screened(candidate, baseline=None, rules=NO_RULES, name=WORKLOAD, priors=PRIORS):
    return decide.screen_workload(name, baseline or PROVISIONAL, candidate, rules=rules, priors=priors)


def settled(verdict, fresh, alpha=0.01):
    runs = {} if fresh is None else {verdict.workload: fresh}
    return decide.settle([verdict], runs, rules={}, priors=PRIORS, alpha=alpha)[0]


def candidates(count=3, session="now", **fields):
    return [make_run(session=session, order=i, **fields) for i in range(count)]


def cell(verdict, key):
    return next(cell for cell in verdict.cells if cell.metric == key)


def confirmed(seed=1, **head):
    base, new = Machine(seed).pairs(6, **head)
    return Fresh(base=base, head=new)


def test_no_change_passes():
    verdict = screened(candidates())
    assert (verdict.reason, verdict.flagged, verdict.provisional) == (Reason.PASS, False, True)
    assert all(c.reason is Reason.PASS and c.why for c in verdict.cells)
    assert decide.build([verdict], **FACTS).exit_code == 0


def test_slower_kernels_are_flagged_then_confirmed():
    verdict = screened(candidates(kernel_time=3.3, latency=4.3))
    assert verdict.flagged
    assert verdict.reason is Reason.INCONCLUSIVE
    assert cell(verdict, "kernel_time_ms").flagged
    unsettled = decide.build([settled(verdict, None)], **FACTS)
    assert unsettled.exit_code == 5

    final = settled(verdict, confirmed(kernel_time=3.3, latency=4.3))
    assert (final.reason, final.evidence, final.flagged) == (Reason.REGRESSED, Evidence.CONFIRMED, False)
    assert not final.provisional
    kernel = cell(final, "kernel_time_ms")
    assert kernel.reason is Reason.REGRESSED
    assert kernel.p_adjusted <= 0.01
    assert kernel.interval[0] < 0.1 < kernel.interval[1]
    assert kernel.why == "kernel time per iteration grew 9.9 % (3.01 -> 3.30 ms), floor 1 %"
    assert cell(final, "kernel_mean_us").reason is Reason.REGRESSED
    build = decide.build([final], **FACTS)
    assert build.exit_code == 1
    assert build.summary.startswith("1 of 1 workload regressed: train: iteration latency grew")
    assert msgspec.json.decode(msgspec.json.encode(build), type=BuildVerdict) == build


def test_a_flag_that_fresh_runs_do_not_show_passes():
    final = settled(screened(candidates(kernel_time=3.3)), confirmed())
    assert final.reason is Reason.PASS
    assert "flagged by the screen, not confirmed" in cell(final, "kernel_time_ms").notes
    assert decide.build([final], **FACTS).exit_code == 0


def test_a_change_below_the_floor_is_no_regression_however_sure():
    final = settled(
        screened(candidates(kernel_time=3.3)), confirmed(kernel_time=3.018, latency=4.018, slower=1.0)
    )
    assert final.reason is Reason.PASS


def test_holm_runs_over_all_flagged_workloads():
    """Six launches a side reach 2/924 in two looks: enough beside 3 other flagged workloads, not beside 4."""

    def build(flagged):
        names = [f"w{i}" for i in range(flagged)]
        verdicts = [screened(candidates(kernel_time=3.3), name=name) for name in names]
        return decide.settle(
            verdicts, {"w0": confirmed(kernel_time=3.3, latency=4.3)}, rules={}, priors=PRIORS
        )

    assert build(4)[0].reason is Reason.REGRESSED
    five = build(5)
    assert five[0].reason is Reason.INCONCLUSIVE
    assert "too few fresh runs" in five[0].notes[-1]
    assert {verdict.reason for verdict in five[1:]} == {Reason.INCONCLUSIVE}


def test_what_the_first_launches_leave_open_more_of_them_settle():
    """30 % slower on a host whose launches vary by 12 %: where 6 a side are near, 10 are mostly enough."""
    verdict = screened(candidates(kernel_time=3.3, latency=6.0))
    machine, near, failed = Machine(5, run_sd=0.12), 0, [0, 0]
    for _ in range(40):
        base, head = (machine.session("later", 10, slower=slower) for slower in (1.0, 1.3))
        first = Fresh(base=base[:6], head=head[:6])
        if not decide.left_open(verdict, first, 1, rules=NO_RULES, priors=PRIORS):
            continue
        near += 1
        assert settled(verdict, first).reason is Reason.PASS
        final = settled(verdict, Fresh(base=base, head=head, first=6))
        failed[final.reason is Reason.REGRESSED] += 1
        assert "6 launches a side left it open: 10 were made" in final.notes
    assert near >= 10
    assert failed[1] >= 0.7 * near


def test_what_is_settled_or_far_from_it_gets_no_second_look():
    verdict = screened(candidates(kernel_time=3.3, latency=4.3))

    def left_open(fresh):
        return decide.left_open(verdict, fresh, 1, rules=NO_RULES, priors=PRIORS)

    assert not left_open(confirmed(kernel_time=3.3, latency=4.3))  # fails
    assert not left_open(confirmed())  # no change
    assert not left_open(confirmed(kernel_time=2.7, latency=3.7))  # better
    more = confirmed()
    for run in more.head:
        run.structure["syncs"] = 3
    assert not left_open(more)  # a count fails
    more.head[0] = make_run(problem=Reason.FAILED, detail="ended")
    assert not left_open(more)


def test_one_metric_that_is_asked_for_is_left_open_whatever_else_fails():
    """Latency is near, kernel time fails, and there is a kernel more: bisect may ask for latency."""
    slower = [4.0, 4.1, 4.2, 4.3, 4.4, 4.5]
    base = [make_run(latency=ms, kernel_time=3.0 + ms / 1000) for ms in slower]
    head = [make_run(latency=ms + 0.35, kernel_time=3.3 + ms / 1000) for ms in slower]
    for run in head:
        run.structure["kernels"] = 101
    verdict = decide.unscreened(WORKLOAD, "bisected")

    def left_open(metric):
        fresh = Fresh(base=base, head=head)
        return decide.left_open(verdict, fresh, 1, rules=NO_RULES, priors=PRIORS, metric=metric)

    asked = (None, "iteration_ms", "kernel_time_ms", "kernels")
    assert [left_open(metric) for metric in asked] == [False, True, False, False]


def test_a_confirmation_cut_short_settles_nothing():
    base, head = Machine(1).pairs(4, kernel_time=3.3)
    final = settled(screened(candidates(kernel_time=3.3)), Fresh(base=base[:3], head=head))
    assert final.reason is Reason.INCONCLUSIVE
    assert decide.build([final], **FACTS).exit_code == 5


def test_without_base_the_flag_must_stand_twice():
    verdict = screened(candidates(kernel_time=3.3))
    again = settled(verdict, Fresh(head=candidates(session="later", kernel_time=3.31)))
    assert (again.reason, again.evidence, again.provisional) == (Reason.REGRESSED, Evidence.REPEATED, True)
    assert any("weaker" in note for note in again.notes)
    assert "(provisional)" in decide.build([again], **FACTS).summary
    once = settled(verdict, Fresh(head=candidates(session="later", kernel_time=3.0)))
    assert once.reason is Reason.PASS


def test_without_base_every_screened_workload_counts_for_its_totals_and_for_its_places():
    verdicts = [screened(candidates(), name=f"quiet{i}") for i in range(3)]
    verdicts.append(screened(candidates(kernel_time=3.12)))
    first, fresh = candidates(kernel_time=3.12), candidates(session="later", kernel_time=3.12)
    final = decide.settle(verdicts, {WORKLOAD: Fresh(head=fresh)}, rules={}, priors=PRIORS)[-1]
    kernel = cell(final, "kernel_time_ms")
    compared = repeated.compare(PROVISIONAL, first, fresh, NO_RULES, PRIORS)
    alone = next(item.p_joint for item in compared if item.metric.key == "kernel_time_ms")
    assert kernel.p_adjusted == pytest.approx(2 * 4 * alone)
    assert (4 * alone < 0.01 < kernel.p_adjusted, final.reason) == (True, Reason.PASS)


def test_a_base_that_cannot_be_run_costs_the_others_nothing():
    """Six launches a side reach 1/924, which would not do for 2 x 12 tests."""
    names = [f"w{i}" for i in range(12)]
    verdicts = [screened(candidates(kernel_time=3.3 if i < 2 else 3.0), name=n) for i, n in enumerate(names)]
    fresh = {
        "w0": confirmed(kernel_time=3.3, latency=4.3),
        "w1": Fresh(head=candidates(session="later", kernel_time=3.3)),
    }
    final = decide.settle(verdicts, fresh, rules={}, priors=PRIORS)
    assert [each.reason for each in final[:2]] == [Reason.REGRESSED, Reason.REGRESSED]
    assert [each.evidence for each in final[:2]] == [Evidence.CONFIRMED, Evidence.REPEATED]


def test_structure_of_a_young_baseline_needs_base_again():
    verdict = screened(candidates(structure={"syncs": 3}))
    assert (verdict.flagged, verdict.reason) == (True, Reason.INCONCLUSIVE)
    base = candidates(6)
    worse = settled(verdict, Fresh(base=base, head=candidates(6, structure={"syncs": 3})))
    assert (worse.reason, worse.evidence, worse.provisional) == (Reason.REGRESSED, Evidence.STRUCTURE, False)
    assert worse.why == "2 more synchronizes per iteration (1 -> 3)"
    both = candidates(6, structure={"syncs": 3})
    cleared = settled(verdict, Fresh(base=both, head=both))
    assert cleared.reason is Reason.PASS
    assert any("don't differ from base run again" in note for note in cleared.notes)
    repeated = settled(verdict, Fresh(head=candidates(structure={"syncs": 3})))
    assert (repeated.reason, repeated.provisional) == (Reason.REGRESSED, True)


def test_structure_of_a_broad_baseline_decides_alone():
    baseline = [make_run(session=f"s{s}", order=i) for s in range(3) for i in range(3)]
    verdict = screened(candidates(structure={"kernels": 101}), baseline)
    assert (verdict.reason, verdict.evidence, verdict.flagged) == (
        Reason.REGRESSED,
        Evidence.STRUCTURE,
        False,
    )
    assert screened(candidates(structure={"kernels": 99}), baseline).reason is Reason.STRUCTURE_CHANGED


def test_a_count_is_excused_by_speed_only_where_the_baseline_knows_it():
    # A baseline of one session may be of an hour in which the host was slow.
    faster = {"structure": {"syncs": 3}, "latency": 2.0, "kernel_time": 1.5}
    verdict = screened(candidates(**faster))
    assert (verdict.flagged, verdict.reason) == (True, Reason.INCONCLUSIVE)
    stale = settled(
        verdict, Fresh(base=candidates(6, latency=2.0, kernel_time=1.5), head=candidates(6, **faster))
    )
    assert stale.reason is Reason.REGRESSED
    base, head = Machine(1).pairs(6, **faster)
    assert settled(verdict, Fresh(base=base, head=head)).reason is not Reason.REGRESSED
    # By little more than the floor, and maybe by less: no excuse for three times the synchronizes.
    base, head = Machine(1).pairs(6, **(faster | {"latency": 3.955, "kernel_time": 2.965}))
    assert settled(verdict, Fresh(base=base, head=head)).reason is Reason.REGRESSED
    broad = [make_run(session=f"s{s}", order=i) for s in range(3) for i in range(3)]
    won = screened(candidates(**faster), broad)
    assert won.reason is Reason.IMPROVED
    # How sure that is, is told as of what improved: the chance of as much without it.
    assert all(cell.p < 0.05 for cell in won.cells if cell.reason is Reason.IMPROVED)


def test_the_same_commit_can_be_no_regression_of_itself():
    verdict = screened(candidates(latency=8.0, structure={"syncs": 3}))
    assert verdict.flagged
    same = decide.of_same_code(verdict)
    assert (same.flagged, same.reason) == (False, Reason.STRUCTURE_CHANGED)
    assert "this very code" in same.why
    assert not decide.by_strength([same])
    assert decide.build([same], **FACTS).exit_code == 0
    slower = decide.of_same_code(screened(candidates(latency=8.0)))
    assert (slower.reason, slower.flagged) == (Reason.PASS, False)


def test_shorter_kernels_alone_do_not_fail():
    """More, smaller kernels fail by their number; smaller ones of the same number are good."""
    good = screened(candidates(kernel_time=2.7, latency=3.7))
    assert not good.flagged
    assert "better" in cell(good, "kernel_time_ms").why
    split = screened(candidates(structure={"kernels": 200}))
    assert cell(split, "kernel_mean_us").flagged


def test_idle_left_behind_by_faster_kernels_is_excused():
    baseline = Machine(3, session_sd=0.001, run_sd=0.001).baseline(10)
    verdict = screened(candidates(kernel_time=1.5, latency=4.0), baseline)
    assert not verdict.flagged
    assert "kernel time fell" in cell(verdict, "gap").why
    slower = screened(candidates(kernel_time=1.5, latency=4.4), baseline)
    assert slower.flagged


def test_lost_overlap_fails_alone():
    verdict = screened(candidates(overlap=0.1))
    assert [c.metric for c in verdict.cells if c.flagged] == ["copy_compute_overlap"]


@pytest.mark.parametrize(
    ("latency", "kernel_time", "kernels", "said"),
    [
        (3.2, 3.0, 100, "true acceleration"),
        (3.6, 2.6, 90, "less work: latency fell, and so did kernels per iteration"),
        (2.2, 1.9, 90, "less work"),  # busier, and yet it is kernels' time that was saved
        (2.2, 1.9, 100, "no less work counted"),
        (3.6, 2.6, 100, "no less work counted"),
        (4.0, 3.6, 100, "nothing gained"),
    ],
)
def test_kinds_of_better_are_told_apart(latency, kernel_time, kernels, said):
    baseline = Machine(3, session_sd=0.001, run_sd=0.001).baseline(10)
    runs = candidates(latency=latency, kernel_time=kernel_time, structure={"kernels": kernels})
    verdict = screened(runs, baseline, priors=QUIET)
    assert said in verdict.notes[0]
    assert (verdict.reason is Reason.IMPROVED) == (latency < 4)


def test_more_work_is_no_idle_time_filled():
    """The device is busier, and so is what the iteration takes."""
    baseline = Machine(3, session_sd=0.001, run_sd=0.001).baseline(10)
    verdict = screened(candidates(latency=6.0, kernel_time=5.6), baseline, priors=QUIET)
    assert cell(verdict, "kernel_busy").candidate > cell(verdict, "kernel_busy").baseline
    assert not any("nothing gained" in note for note in verdict.notes)


def test_not_judged_is_said():
    verdict = screened(candidates(latency=4.4))
    latency = cell(verdict, "iteration_ms")
    assert (latency.judged, latency.reason, latency.flagged) == (False, Reason.PASS, False)
    assert "not judged" in latency.why
    assert any(note.startswith("underpowered") for note in verdict.notes)


@pytest.mark.parametrize("problem", [Reason.INVALID_ENVIRONMENT, Reason.CAPTURE_INCOMPLETE, Reason.FAILED])
def test_a_disturbed_run_is_neither_regression_nor_pass(problem):
    bad = make_run(session="now", kernel_time=9.0, problem=problem, detail="another process on the GPU")
    verdict = screened([*candidates(2), bad])
    assert (verdict.reason, verdict.why, verdict.cells) == (problem, "another process on the GPU", [])
    assert decide.build([verdict], **FACTS).exit_code == 4
    flagged = screened(candidates(kernel_time=3.3))
    fresh = confirmed(kernel_time=3.3)
    assert settled(flagged, Fresh(base=[*fresh.base[:5], bad], head=fresh.head)).reason is problem


def test_nothing_compared_is_no_pass():
    assert screened([]).reason is Reason.INCOMPARABLE
    none = decide.screen_workload(WORKLOAD, [], candidates(), rules=Rules(), priors=PRIORS)
    assert none.reason is Reason.NO_BASELINE
    empty = make_run(structure=dict.fromkeys(make_run().structure), metrics=dict.fromkeys(make_run().metrics))
    assert screened([empty], [empty]).reason is Reason.INCOMPARABLE
    skipped = WorkloadVerdict(workload="w", reason=Reason.SKIPPED, why="needs torch: pip install torch")
    for verdicts in ([], [skipped]):
        build = decide.build(verdicts, **FACTS)
        assert build.exit_code == 3
        assert build.summary.startswith("nothing was compared")


@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_a_lost_metric_is_incomparable_not_equal(bad):
    verdict = screened(candidates(metrics={"iteration_ms": bad}))
    assert verdict.reason is Reason.INCOMPARABLE
    assert verdict.why == "iteration latency could not be measured in the candidate"
    partly = screened([*candidates(2), make_run(session="now", order=2, metrics={"iteration_ms": bad})])
    assert partly.reason is Reason.PASS
    assert any("in 1 of 3 runs: left out" in note for note in partly.notes)


def test_no_copies_means_no_overlap_to_compare():
    verdict = screened(candidates(overlap=None, structure={"copies": 0, "copy_bytes": 0}))
    assert cell(verdict, "copy_compute_overlap").why == "no copies in the candidate: no overlap to compare"
    assert verdict.reason is Reason.STRUCTURE_CHANGED


def test_policy_warn_does_not_flag():
    rules = Rules(policy={"kernel_time_ms": "warn", "kernel_mean_us": "ignore"})
    verdict = screened(candidates(kernel_time=3.3), rules=rules)
    assert not verdict.flagged
    assert cell(verdict, "kernel_time_ms").notes == ["warning"]


def test_a_bad_session_costs_runs_and_no_build():
    """Everything 3 % slower today, base and head alike: flagged, never failed."""
    machine = Machine(9)
    alarms = flags = 0
    for _ in range(12):
        names = [f"w{i}" for i in range(4)]
        verdicts = [
            screened(machine.session("now", slower=1.03), machine.baseline(10), name=name) for name in names
        ]
        fresh = {}
        for verdict in verdicts:
            base, head = machine.pairs(6)
            fresh[verdict.workload] = Fresh(base=base, head=head)
        flags += sum(verdict.flagged for verdict in verdicts)
        final = decide.settle(verdicts, fresh, rules={}, priors=PRIORS)
        alarms += decide.build(final, **FACTS).exit_code == 1
    assert flags > 12
    assert alarms == 0


def test_strongest_flags_first():
    verdicts = [
        screened(candidates(kernel_time=3.15), name="weak"),
        screened(candidates(), name="none"),
        screened(candidates(kernel_time=3.9), name="strong"),
        screened(candidates(structure={"syncs": 2}), name="counted"),
    ]
    assert [v.workload for v in decide.by_strength(verdicts)] == ["counted", "strong", "weak"]


def test_modes_inside_runs_are_said():
    modes = [2.0 + i / 100 for i in range(20)] + [4.8 + i / 100 for i in range(20)]
    smooth = [2.0 + i / 100 for i in range(40)]
    verdict = screened(
        candidates(iteration_ms=modes), [make_run(order=i, iteration_ms=smooth) for i in range(3)]
    )
    (note,) = [note for note in verdict.notes if note.startswith("multimodal")]
    assert "3 of 3 runs of the candidate" in note
    assert verdict.reason is Reason.PASS


verdicts_of = st.lists(
    st.sampled_from(Reason).map(lambda reason: WorkloadVerdict(workload="w", reason=reason)), max_size=6
)


@settings(deadline=None, max_examples=100)
@given(verdicts_of, st.sets(st.integers(1, 5)))
def test_exit_code_is_the_first_that_counts(verdicts, fail_on):
    codes = [CODES[verdict.reason] for verdict in verdicts]
    if all(verdict.reason is Reason.SKIPPED for verdict in verdicts):
        codes = [3]
    expected = next((code for code in (2, 1, 4, 5, 3) if code in codes and code in fail_on), 0)
    assert code_of(verdicts, sorted(fail_on)) == expected


def test_a_code_that_does_not_fail_is_still_said():
    build = decide.build([WorkloadVerdict(workload="w", reason=Reason.INCONCLUSIVE)], fail_on=(1,), **FACTS)
    assert build.exit_code == 0
    assert "code 5 is not in fail-on" in build.summary


def test_worst_first():
    order = [Reason.PASS, Reason.REGRESSED, Reason.SKIPPED, Reason.IMPROVED, Reason.INCONCLUSIVE]
    build = decide.build([WorkloadVerdict(workload=r.value, reason=r) for r in order], **FACTS)
    assert [v.workload for v in build.workloads] == [
        "regressed",
        "inconclusive",
        "improved",
        "pass",
        "skipped",
    ]


@pytest.mark.parametrize("provisional", [True, False])
def test_a_gain_over_one_session_asks_for_no_refresh(provisional):
    gain = Cell(metric="iteration_ms", unit="ms", reason=Reason.IMPROVED, evidence=Evidence.SCREEN)
    verdict = WorkloadVerdict(workload="w", reason=Reason.PASS, cells=[gain], provisional=provisional)
    said = reading.conclude(verdict, compared=1)
    assert said.reason is Reason.IMPROVED
    assert any("refresh the baseline" in note for note in said.notes) is not provisional


def test_a_pass_in_name_only_is_not_summed_up_as_one():
    blind = Cell(metric="iteration_ms", unit="ms", reason=Reason.PASS, effect=0.8, judged=False)
    verdicts = [WorkloadVerdict(workload=name, reason=Reason.PASS, cells=[blind]) for name in "ab"]
    build = decide.build([*verdicts, WorkloadVerdict(workload="c", reason=Reason.PASS)], **FACTS)
    assert build.exit_code == 0
    assert build.summary == (
        "3 workloads compared, nothing shown to be slower; the latency of 2 could not be judged, its "
        "baseline is too young"
    )
