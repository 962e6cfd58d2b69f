from __future__ import annotations

import aiprof_file as af
import msgspec
import pytest
import verdicts
from test_timeline_profile import of

from ai_prof.gate.explain import explain
from ai_prof.report import lanes


def test_both_sides_are_drawn_on_one_scale_with_few_marks():
    drawn = lanes.draw(verdicts.explained())
    assert [round(side.share) for side in drawn.sides] == [60, 100]
    assert sum(len(lane.marks["start"]) for side in drawn.sides for lane in side.lanes) <= 2000
    legend = dict(drawn.legend)
    assert "changed" in legend
    assert "data" in legend
    for side in drawn.sides:
        for lane in side.lanes:
            assert max(lane.marks["end"]) <= 10 * drawn.length_us + 1


def test_a_number_at_the_edge_of_the_axis_is_left_out_rather_than_cut():
    why = msgspec.structs.replace(verdicts.explained(), after=verdicts.typical(stall_us=3330))
    drawn = lanes.draw(why)
    assert drawn.length_us == pytest.approx(10_000)
    assert drawn.ticks == [(0, "0"), (50, "5"), (100, "")]


def test_without_both_iterations_nothing_is_drawn():
    half = msgspec.structs.replace(verdicts.explained(), before=None)
    assert lanes.draw(half) is None
    assert lanes.draw(None) is None


def test_an_iteration_of_many_kernels_is_drawn_by_few_marks(tmp_path):
    program = af.Program()
    for _ in range(12):
        program.work(100_000)
        for _ in range(3000):
            program.launch("tiny", 1000)
        program.synchronize()
    profile = of(program, tmp_path)
    drawn = lanes.draw(explain([profile], [profile], ("baseline", "candidate")))
    assert sum(len(lane.marks["start"]) for side in drawn.sides for lane in side.lanes) <= 2000
    assert sum(drawn.sides[0].lanes[0].marks["count"]) == 3000
