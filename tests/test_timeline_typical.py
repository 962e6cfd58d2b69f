from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_timeline_profile import RECORDED, loop, of

from ai_prof.timeline import typical
from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.evidence import evidence
from ai_prof.trace.open import open_trace

CAPTURES = Path(__file__).parent / "captures"


def lanes(found, kind):
    return [lane for lane in found.lanes if lane.kind == kind]


def test_an_iteration_is_drawn_as_it_happened(tmp_path):
    found = of(loop(40), tmp_path).typical
    (stream,), (gaps,) = lanes(found, "stream"), lanes(found, "gap")
    assert [found.names[i] for i in stream.name] == ["memcpy host to device", "gemm_#x#", "relu", "gemm_#x#"]
    lengths = np.subtract(stream.end, stream.start)
    assert lengths.tolist() == [20_000, 100_000, 100_000, 100_000]
    assert sum(lengths) + sum(np.subtract(gaps.end, gaps.start)) == found.length
    assert [found.names[i] for i in gaps.name] == ["data"]
    assert lanes(found, "waits")[0].count == [1]


def test_the_iteration_is_the_one_nearest_to_the_median(tmp_path):
    few = of(loop(60, slow=range(5, 60, 10)), tmp_path).typical
    many = of(loop(60, slow=[i for i in range(60) if i % 3]), tmp_path).typical
    assert few.length < 1_000_000
    assert many.length > 2_000_000


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_iteration_keeps_every_operation_and_few_marks(name):
    trace = open_trace(next(CAPTURES.glob(f"{name}*")))
    found = evidence(trace).profile.typical
    assert sum(len(lane.start) for lane in found.lanes) <= 1000
    operations = device_timeline(trace, 0).operations
    drawn = sum(sum(lane.count) for lane in lanes(found, "stream"))
    assert drawn == len(evidence(trace).profile.names)
    assert drawn < len(operations)
    for lane in found.lanes:
        assert all(0 <= a <= b <= found.length for a, b in zip(lane.start, lane.end, strict=True))


def test_the_longest_waits_come_first_with_what_the_host_did(tmp_path):
    (wait, *_) = of(loop(40), tmp_path).typical.waits
    assert (wait.before, wait.after, wait.cause) == ("gemm_#x#", "memcpy host to device", "data")
    assert "cudaStreamSynchronize" in wait.calls_ms


@pytest.mark.parametrize("count", [0, 1, 10, 10_000])
def test_marks_that_cannot_be_told_apart_are_one_and_no_operation_is_lost(count):
    start = np.arange(count, dtype=np.int64) * 1000
    cut = typical._Cut(0, 1000 * count + 1, lambda _: 0)
    lane = cut.lane(("stream", "s"), (start, start + 600), str, 50)
    assert len(lane.start) <= 50
    assert sum(lane.count) == count
    assert lane.start == sorted(lane.start)


def test_a_mark_of_several_bears_the_name_of_the_longest():
    start = np.arange(1000, dtype=np.int64) * 1000
    length = np.tile([10, 600], 500)
    cut = typical._Cut(0, 1_000_000, ["device", "launch"].index)
    lane = cut.lane(("gap", "gaps"), (start, start + length), lambda row: ["device", "launch"][row % 2], 50)
    assert len(lane.name) <= 50
    assert set(lane.name) == {1}
