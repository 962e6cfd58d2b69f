from __future__ import annotations

import aiprof_file as af
import msgspec
import pytest
from test_timeline_profile import loop, of

from ai_prof.baselines import profiles, store
from ai_prof.gate.explain import explain, explained, host_factor
from ai_prof.gate.model import Reason, Run, Why, WorkloadVerdict

SIDES = ("baseline", "candidate")


def more_work(iterations=40):
    """`loop` with another kernel launched twice, the last one slower, and a synchronize between."""
    program = af.Program()
    for _ in range(iterations):
        program.work(500_000)
        program.copy(af.HTOD, 20_000, size=4096)
        program.launch("gemm_128x64", 100_000)
        program.synchronize()
        program.work(30_000)
        program.launch("relu", 300_000)
        program.launch("gemm_64x64", 100_000)
        program.launch("checksum", 50_000)
        program.launch("checksum", 50_000)
        program.synchronize()
    return program


def test_the_same_work_has_nothing_to_explain(tmp_path):
    same = of(loop(40), tmp_path)
    why = explain([same], [same], SIDES)
    assert why.kernels == []
    assert why.gaps == []
    assert why.before == same.typical


def test_kernels_added_and_slower_are_named_with_their_time(tmp_path):
    why = explain([of(loop(40), tmp_path)], [of(more_work(), tmp_path)], SIDES)
    told = {kernel.name: (kernel.changes, kernel.change_ms) for kernel in why.kernels}
    assert told == {
        "relu": (["slower"], pytest.approx(0.2)),
        "checksum": (["added"], pytest.approx(0.1)),
    }


def test_a_gap_is_named_by_its_neighbours_with_its_cause(tmp_path):
    slow = of(loop(40, slow=range(40)), tmp_path)
    (gap,) = explain([of(loop(40), tmp_path)], [slow], SIDES).gaps
    assert (gap.before, gap.after) == ("gemm_#x#", "memcpy host to device")
    assert next(iter(gap.causes)) == "data"
    assert gap.change_us == pytest.approx(1500, abs=5)
    assert gap.count == (1, 1)


def now_and_then(iterations=40, every=2, long=400_000):
    """`loop` whose relu takes `long` ns in each `every`th iteration."""
    program = af.Program()
    for i in range(iterations):
        program.work(500_000)
        program.copy(af.HTOD, 20_000, size=4096)
        program.launch("gemm_128x64", 100_000)
        program.work(30_000)
        program.launch("relu", long if i % every == 0 else 100_000)
        program.launch("gemm_64x64", 100_000)
        program.synchronize()
    return program


def test_a_kernel_that_is_slow_now_and_then_adds_up_with_its_mean(tmp_path):
    why = explain([of(loop(40), tmp_path)], [of(now_and_then(every=4), tmp_path)], SIDES)
    (relu,) = why.kernels
    assert (relu.name, relu.changes) == ("relu", ["slower"])
    assert relu.change_ms == pytest.approx(0.075, rel=0.1)
    assert why.kernel_ms[1] - why.kernel_ms[0] == pytest.approx(relu.change_ms)


def test_a_kernel_that_differs_by_no_more_than_its_runs_is_not_called_slower(tmp_path):
    def runs(*lengths):
        return [of(now_and_then(every=1, long=ns), tmp_path) for ns in lengths]

    old = runs(100_000, 110_000, 120_000)
    assert explain(old, runs(104_000, 114_000, 118_000), SIDES).kernels == []
    (relu,) = explain(old, runs(124_000, 125_000, 126_000), SIDES).kernels
    assert relu.changes == ["slower"]


def test_the_causes_of_gaps_are_those_of_most_of_their_time(tmp_path):
    """One long gap before the first kernel and, in all longer, many short ones between the same names."""

    def program(ns):
        made = af.Program()
        for _ in range(40):
            made.work(100_000)
            made.copy(af.HTOD, 20_000, size=4096)
            made.work(150_000)
            for _ in range(12):
                made.launch("gemm", 5_000)
                made.work(ns)
            made.synchronize()
        return made

    gaps = explain([of(program(1_000), tmp_path)], [of(program(60_000), tmp_path)], SIDES).gaps
    (gap,) = [gap for gap in gaps if (gap.before, gap.after) == ("gemm", "gemm")]
    assert round(gap.count[1]) == 11
    assert next(iter(gap.causes)) == "launch"
    assert sum(gap.causes.values()) == pytest.approx(gap.us[1])


def test_a_single_disturbed_run_has_no_say_in_the_causes_of_gaps(tmp_path):
    def program(ns):
        made = af.Program()
        for _ in range(40):
            made.work(ns)
            made.copy(af.HTOD, 20_000, size=4096)
            made.launch("gemm", 100_000)
            made.synchronize()
        return of(made, tmp_path)

    slower = [program(2_000_000), program(2_000_000), program(50_000_000)]
    (gap,) = explain([program(500_000)], slower, SIDES).gaps
    assert gap.us[1] < 3_000
    assert sum(gap.causes.values()) == pytest.approx(gap.us[1])
    assert gap.shadow_us < gap.us[1]


def test_a_side_without_profiles_explains_nothing(tmp_path):
    assert explain([], [of(loop(40), tmp_path)], SIDES) is None


def test_every_iteration_to_draw_survives_the_file(tmp_path):
    first, last = of(loop(40), tmp_path), of(loop(41, slow=range(41)), tmp_path)
    found = profiles.decode(profiles.encode([first, last]), tmp_path)
    assert found[first.digest()].typical == first.typical
    assert found[last.digest()].typical == last.typical
    assert [found[each.digest()].spent for each in (first, last)] == [first.spent, last.spent]


def test_a_baseline_keeps_the_last_iteration_to_draw_alone(tmp_path):
    pair = [of(loop(40), tmp_path), of(loop(41, slow=range(41)), tmp_path)]
    run = Run(workload="w", session="s", order=0, host="h", started="2025-01-01T00:00:00Z")
    runs = [msgspec.structs.replace(run, order=i, profile=p.digest()) for i, p in enumerate(pair)]
    origin = store.Origin(who="me", why="test", when="2025-01-01T00:00:00Z")
    baseline = store.Baseline(workload="w", machine_key="m", backend="cuda", origin=origin, runs=runs)
    path = store.save(tmp_path, baseline, {p.digest(): p for p in pair})
    found = store.load_profiles(path, store.load(tmp_path, "m", "w"))
    assert [found[p.digest()].typical for p in pair] == [None, pair[1].typical]


def test_reasons_survive_json(tmp_path):
    why = explain([of(loop(40), tmp_path)], [of(more_work(), tmp_path)], SIDES)
    verdict = WorkloadVerdict(workload="w", reason=Reason.REGRESSED, explained=why)
    again = msgspec.json.decode(msgspec.json.encode(verdict), type=WorkloadVerdict)
    assert isinstance(again.explained, Why)
    assert again == verdict


def test_a_regression_is_explained_by_the_fresh_runs_and_a_pass_is_not(tmp_path):
    same, slow = of(loop(40), tmp_path), of(loop(40, slow=range(40)), tmp_path)
    known = {"a": same, "b": slow}
    run = Run(workload="w", session="s", order=0, host="h", started="2025-01-01T00:00:00Z")
    old, new = (msgspec.structs.replace(run, profile=name) for name in known)
    fields = {"workload": "w", "baseline_runs": [new], "candidate_runs": [new], "confirm_base": [old]}
    verdict = WorkloadVerdict(reason=Reason.REGRESSED, confirm_head=[new], **fields)
    why = explained(verdict, known).explained
    assert why.sides == ("fresh base", "fresh head")
    assert len(why.gaps) == 1
    alone = msgspec.structs.replace(verdict, confirm_base=[], confirm_head=[])
    assert explained(alone, known).explained.sides == SIDES
    assert explained(msgspec.structs.replace(verdict, reason=Reason.PASS), known).explained is None
    assert explained(verdict, {}).explained is None


def host(iterations, ns, stall=0):
    """A loop of 25 kernels whose host takes `ns` before each of them, and `stall` more before one."""
    program = af.Program()
    for _ in range(iterations):
        program.work(3 * ns)
        program.copy(af.HTOD, 20_000, size=4096)
        for i, name in enumerate(("gemm", "relu", "add", "norm", "bias") * 5):
            program.work(ns + stall * (i == 7))
            program.launch(name, 5_000)
        program.synchronize()
    return program


def test_a_slower_host_is_a_factor_and_a_delay_at_one_place_is_none(tmp_path):
    base = of(host(40, 100_000), tmp_path)
    slower = of(host(40, 140_000), tmp_path)
    assert host_factor([base], [slower]) == pytest.approx(1.4, abs=0.05)
    assert host_factor([base], [base]) == 1.0
    assert host_factor([base], [of(host(40, 100_000, stall=900_000), tmp_path)]) == pytest.approx(1)
    assert host_factor([of(loop(40), tmp_path)], [of(loop(41), tmp_path)]) is None
    assert host_factor([], [base]) is None
