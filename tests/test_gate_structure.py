from __future__ import annotations

import pytest
from gate_runs import make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_prof.gate.metrics import COUNTS, Rules
from ai_prof.gate.model import Reason
from ai_prof.gate.structure import Speed, compare, decisive

NO_RULES = Rules()
SLOW, FAST = Speed(), Speed(faster=True, latency=True)
BASE = [make_run(order=i) for i in range(3)]


def found(structure, *, speed=SLOW, rules=NO_RULES, base=BASE, **fields):
    return compare(base, [make_run(order=i, structure=structure, **fields) for i in range(3)], rules, speed)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("syncs", 2, "1 more synchronize per iteration (1 -> 2)"),
        ("syncs", 3, "2 more synchronizes per iteration (1 -> 3)"),
        ("kernels", 101, "1 more kernel per iteration (100 -> 101)"),
        ("copies", 4, "2 more copies per iteration (2 -> 4)"),
        ("copy_bytes", 8192, "4,096 more bytes copied per iteration (4,096 -> 8,192)"),
        ("graph_launches", 1, "1 more graph launch per iteration (0 -> 1)"),
    ],
)
def test_more_of_anything_fails(key, value, said):
    result = found({key: value})
    assert [(change.name, change.why) for change in result.worse] == [(key, said)]
    assert result.compared == len(COUNTS)


def test_more_is_excused_where_kernel_time_and_latency_both_improved():
    result = found({"kernels": 110}, speed=FAST)
    assert not result.worse
    assert result.changes[0].reason is Reason.STRUCTURE_CHANGED
    assert "both improved" in result.changes[0].why


def test_a_move_to_graphs_needs_only_latency():
    latency = Speed(latency=True)
    assert not found({"graph_launches": 1}, speed=latency).worse
    base = [make_run(structure={"graph_launches": 1})]
    assert found({"graph_launches": 2}, speed=latency, base=base).worse
    assert found({"syncs": 2}, speed=latency).worse


def test_fewer_is_an_improvement():
    (change,) = [c for c in found({"syncs": 0}).changes if c.name == "syncs"]
    assert change.reason is Reason.IMPROVED
    assert change.why == "1 fewer synchronize per iteration (1 -> 0)"


def test_no_graph_any_more_is_no_improvement_with_as_many_kernels():
    base = [make_run(structure={"graph_launches": 2})]
    (change,) = found({}, base=base).changes
    assert change.reason is Reason.STRUCTURE_CHANGED
    assert change.why == "2 fewer graph launches per iteration (2 -> 0): its kernels are launched one by one"
    assert {each.reason for each in found({"graph_launches": 1}, base=base).changes} == {Reason.IMPROVED}
    counts = [
        each for each in found({"kernels": 99}, base=base).changes if each.name in {"kernels", change.name}
    ]
    assert [each.reason for each in counts] == [Reason.IMPROVED] * 2


def test_kernels_are_named():
    result = found({}, kernels={"gemm": 97, "softmax": 2, "extra": 1})
    assert not result.worse
    assert [(c.name, c.baseline, c.candidate) for c in result.changes] == [
        ("kernel:extra", 0, 1),
        ("kernel:gemm", 98, 97),
    ]
    removed = found({}, kernels={"gemm": 100})
    assert any("softmax removed (2 -> 0" in c.why for c in removed.changes)


def test_what_is_not_constant_is_left_to_statistics_and_said():
    varying = [make_run(structure={"syncs": n}, order=n) for n in (1, 2, 1)]
    assert not compare(BASE, varying, Rules(), SLOW).worse
    result = compare(varying, [make_run(structure={"syncs": 9})], Rules(), SLOW)
    assert not result.worse
    assert result.notes == [
        "synchronizes per iteration vary (baseline): left to the statistics of the totals"
    ]
    inside = found({"kernels": None}, kernels=None)
    assert "kernels per iteration vary (candidate)" in inside.notes[0]
    assert inside.compared == len(COUNTS) - 1


def test_policy():
    assert not found({"syncs": 5}, rules=Rules(policy={"syncs": "ignore"})).changes
    assert not found({"kernels": 101}, rules=Rules(policy={"kernels": "ignore"})).changes
    (change,) = found({"syncs": 5}, rules=Rules(policy={"syncs": "warn"})).changes
    assert change.reason is Reason.STRUCTURE_CHANGED


def test_decides_alone_from_nine_runs_of_three_sessions():
    def runs(sessions, each):
        return [make_run(session=f"s{s}", order=i) for s in range(sessions) for i in range(each)]

    assert decisive(runs(3, 3))
    assert not decisive(runs(2, 9))
    assert not decisive(runs(8, 1))


counts = st.fixed_dictionaries({metric.key: st.integers(1, 5) for metric in COUNTS})


@settings(deadline=None, max_examples=100)
@given(counts, counts)
def test_each_difference_is_found_once_and_mirrored(one, two):
    there = compare([make_run(structure=one)], [make_run(structure=two)], Rules(), SLOW)
    back = compare([make_run(structure=two)], [make_run(structure=one)], Rules(), SLOW)
    differing = {key for key in one if one[key] != two[key]}
    assert {c.name for c in there.changes if ":" not in c.name} == differing
    worse = {c.name for c in there.worse}
    assert worse == {key for key in differing if two[key] > one[key]}
    assert worse.isdisjoint(c.name for c in back.worse)


LEAK = [4.0] * 23 + [20.0] * 17
EVEN = [4.0] * 40


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([EVEN] * 3, [LEAK] * 3, "mean one is 2.7 times as long as its median one, the baseline's 1;"),
        ([EVEN] * 3, [[4.0, 4.0, 4.0, 20.0] * 10] * 3, "mean one is 2 times as long"),
        ([EVEN] * 3, [LEAK, EVEN, LEAK], None),  # the host's doing
        ([EVEN, LEAK, EVEN], [LEAK] * 3, None),  # known before
        ([EVEN] * 3, [[8.0] * 40] * 3, None),  # every iteration: the median tells
        ([EVEN] * 3, [[]] * 3, None),
        ([EVEN] * 3, [[0.0] * 40] * 3, None),
    ],
)
def test_what_moves_no_median_is_told(before, after, told):
    """A leak makes the last iterations slow, and the median one is as before."""
    base, runs = ([make_run(iteration_ms=each) for each in side] for side in (before, after))
    warned = compare(base, runs, NO_RULES, SLOW).warned
    assert warned == [] if told is None else told in warned[0]
    assert compare(base, runs, Rules(policy={"iteration_ms": "ignore"}), SLOW).warned == []


@pytest.mark.parametrize(
    ("iterations", "latency", "told"),
    [
        (80, 4.0, "a run has 80 iterations and takes 2.0 times as long, the baseline's has 40"),
        (49, 4.0, None),  # iterations are found, and their ends are not
        (80, 2.0, None),  # it goes on for a given time, and is faster
        (20, 4.0, None),
        (0, 4.0, None),
    ],
)
def test_a_run_that_does_its_work_again_is_told(iterations, latency, told):
    base = [make_run(iterations=40, latency=4.0)] * 3
    runs = [make_run(iterations=iterations, latency=latency)] * 3
    warned = compare(base, runs, NO_RULES, SLOW).warned
    assert warned == [] if told is None else warned[0].startswith(told)
    assert compare([], runs, NO_RULES, SLOW).warned == []
