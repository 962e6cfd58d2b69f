from __future__ import annotations

import random

import aiprof_file as af
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ai_prof.timeline.causes import CAUSES, gap_causes
from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.intervals import Intervals
from ai_prof.timeline.operations import device_operations
from ai_prof.trace.readers import native

BASE = 1_000_000


def causes(capture, folder, *, starts=(), gaps=None):
    """Causes that are not 0, of the gaps between successive operations."""
    trace = native.read([capture.write(folder)])
    operations = device_operations(trace, 0)
    if gaps is None:
        gaps = [(int(operations.end[0]), int(operations.start[1]))]
    intervals = Intervals(*(np.array(column, np.int64) for column in zip(*gaps, strict=True)))
    found = gap_causes(trace, operations, 0, intervals, np.array(starts, np.int64))
    return {cause: ns for cause, ns in found.total().items() if ns}, found


def capture_with(*, gap_us, launch=None, kind="kernel"):
    """Two operations `gap_us` apart from BASE on; the call of the second spans `launch` (us after BASE)."""
    capture = af.Capture()
    capture.device()
    capture.clock(1, 1, 1)
    capture.call("launch", BASE - 90_000, BASE - 80_000, correlation=1)
    capture.kernel("a", BASE - 50_000, BASE, correlation=1)
    end = BASE + gap_us * 1000
    if kind == "kernel":
        capture.kernel("b", end, end + 10_000, correlation=2)
    else:
        capture.memory(af.HTOD, end, end + 10_000, correlation=2)
    if launch:
        capture.call("launch", BASE + launch[0] * 1000, BASE + launch[1] * 1000, correlation=2)
    return capture


def test_without_the_launch_it_is_unknown(tmp_path):
    assert causes(capture_with(gap_us=30), tmp_path)[0] == {"unknown": 30_000}


def test_launched_before_the_gap_it_is_latency_or_a_wait(tmp_path):
    assert causes(capture_with(gap_us=50, launch=(-20, -10)), tmp_path)[0] == {"device": 50_000}
    assert causes(capture_with(gap_us=51, launch=(-20, -10)), tmp_path)[0] == {"wait": 51_000}
    for gap_us, cause in ((5, "device"), (6, "wait")):  # another stream may be waited for
        capture = capture_with(gap_us=gap_us, launch=(-20, -10))
        capture.kernel("c", BASE + 100_000, BASE + 110_000, stream=9)
        assert causes(capture, tmp_path)[0] == {cause: gap_us * 1000}


def test_what_was_launched_in_the_gap_waits_from_then_on_whatever_the_host_does(tmp_path):
    for gap_us, expected in ((500, {"launch": 20_000, "wait": 480_000}), (70, {"launch": 70_000})):
        capture = capture_with(gap_us=gap_us, launch=(10, 20), kind="copy")
        capture.call("launch", BASE + 80_000, BASE + 90_000, correlation=3)
        capture.call("sync", BASE + 400_000, BASE + 600_000, kind=af.SYNC_CALL, correlation=4)
        found, _ = causes(capture, tmp_path)
        assert found == expected


def test_the_call_and_short_ways_between_calls_are_launch(tmp_path):
    capture = capture_with(gap_us=53, launch=(20, 50))
    capture.call("launch", BASE + 60_000, BASE + 70_000, correlation=3)
    assert causes(capture, tmp_path)[0] == {"launch": 53_000}


def test_a_long_way_between_calls_is_the_host(tmp_path):
    assert causes(capture_with(gap_us=500, launch=(490, 501)), tmp_path)[0] == {
        "host": 490_000,
        "launch": 10_000,
    }


def test_before_an_upload_or_at_an_iterations_start_it_is_data(tmp_path):
    expected = {"data": 490_000, "launch": 10_000}
    assert causes(capture_with(gap_us=500, launch=(490, 501), kind="copy"), tmp_path)[0] == expected
    capture = capture_with(gap_us=500, launch=(490, 501))
    assert causes(capture, tmp_path, starts=[BASE + 500_000])[0] == expected


def test_blocked_in_a_synchronize_is_sync(tmp_path):
    capture = capture_with(gap_us=50, launch=(40, 51))
    capture.sync(af.STREAM_SYNC, BASE - 30_000, BASE + 20_000, thread=af.NONE32, correlation=3)
    capture.call("sync", BASE - 31_000, BASE + 22_000, kind=af.SYNC_CALL, correlation=3)
    found, _ = causes(capture, tmp_path)
    assert found == {"sync": 22_000, "launch": 28_000}


def test_another_threads_synchronize_does_not_count(tmp_path):
    capture = capture_with(gap_us=53, launch=(20, 50))
    capture.sync(af.STREAM_SYNC, BASE - 30_000, BASE + 20_000, thread=2)
    assert "sync" not in causes(capture, tmp_path)[0]


def test_a_copy_that_its_call_waits_for_is_sync(tmp_path):
    capture = capture_with(gap_us=50, kind="copy")
    capture.call("cudaMemcpy", BASE + 10_000, BASE + 90_000, kind=af.COPY, correlation=2)
    assert causes(capture, tmp_path)[0] == {"launch": 10_000, "sync": 40_000}


def test_stream_waits_hold_no_host(tmp_path):
    capture = capture_with(gap_us=53, launch=(20, 50))
    capture.sync(af.STREAM_WAIT, BASE, BASE + 40_000)
    assert "sync" not in causes(capture, tmp_path)[0]


def test_the_shadow_of_a_synchronize_ends_when_the_host_leads(tmp_path):
    program = af.Program()
    for _ in range(10):
        program.launch("k", 40_000)
    program.synchronize()
    drained = program.free[7]
    program.launch("slow start", 1_000)
    program.launch("slow start", 1_000)
    for _ in range(10):
        program.launch("k", 40_000)
    trace = native.read([program.write(tmp_path)])
    found = device_timeline(trace, 0)
    gaps = found.busy.gaps
    shadow = found.causes.sync_shadow
    after = gaps.start >= drained
    assert after.sum() >= 3
    # 3 us of the first gap lie in the synchronize itself.
    assert shadow == (gaps.end - gaps.start)[after].sum() - 3_000


def test_without_a_synchronize_there_is_no_shadow(tmp_path):
    program = af.Program()
    for _ in range(20):
        program.launch("k", 1_000)
    assert device_timeline(native.read([program.write(tmp_path)]), 0).causes.sync_shadow == 0


def any_program(seed, *, calls):
    rng = random.Random(seed)
    program = af.Program(calls=calls)
    for _ in range(rng.randrange(2, 60)):
        program.thread = rng.choice([1, 1, 1, 2])
        action = rng.randrange(6)
        if action == 0:
            program.work(rng.choice([1_000, 50_000, 99_000, 100_001, 3_000_000]))
        elif action == 1:
            program.synchronize(rng.choice([7, 8]))
        elif action == 2:
            program.copy(rng.choice([af.HTOD, af.DTOH]), rng.randrange(50_000), stream=rng.choice([7, 8]))
        else:
            program.launch(rng.choice("abc"), rng.randrange(1, 40_000), stream=rng.choice([7, 8]))
    program.launch("last", 5_000)
    return program


@given(seed=st.integers(0, 2**32), at_once=st.integers(1, 9))
@settings(max_examples=40)
def test_pieces_of_any_size_give_the_same_causes(tmp_path, seed, at_once):
    trace = native.read([any_program(seed, calls=True).write(tmp_path)])
    whole = device_timeline(trace, 0).causes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ai_prof.timeline.causes._AT_ONCE", at_once)
        pieces = device_timeline(trace, 0).causes
    assert [pieces.of(cause).tolist() for cause in CAUSES] == [whole.of(cause).tolist() for cause in CAUSES]
    assert pieces.sync_shadow == whole.sync_shadow


@given(seed=st.integers(0, 2**32), calls=st.booleans())
@example(seed=1171004, calls=False)  # its last iteration is cut by the end
@settings(max_examples=40)
def test_causes_add_up_to_every_gap(tmp_path, seed, calls):
    found = device_timeline(native.read([any_program(seed, calls=calls).write(tmp_path)]), 0)
    gaps = found.busy.gaps
    by_gap = np.stack([found.causes.of(cause) for cause in CAUSES], axis=1)
    assert by_gap.sum(axis=1).tolist() == (gaps.end - gaps.start).tolist()
    assert (by_gap >= 0).all()
    assert found.causes.main().tolist() == by_gap.argmax(axis=1).tolist()
    assert sum(found.causes.total().values()) == found.busy.gap
    assert 0 <= found.causes.sync_shadow <= found.busy.gap
    if not calls:
        assert found.causes.total()["unknown"] == found.busy.gap


def test_every_cause_has_a_column():
    assert len(set(CAUSES)) == 7


@pytest.mark.parametrize("window", ["auto", "span"])
def test_the_window_is_what_was_asked_for(tmp_path, window):
    program = af.Program()
    program.launch("init", 10_000)
    for _ in range(10):
        program.copy(af.HTOD, 10_000)
        program.launch("k", 10_000)
        program.synchronize()
    found = device_timeline(native.read([program.write(tmp_path)]), 0, window)
    assert found.window == ("iterations" if window == "auto" else "span")
    if window == "span":
        assert found.busy.low == found.operations.start.min()
        assert found.busy.high == found.operations.end.max()


@pytest.mark.parametrize(("pause", "all_of_it"), [(300_000, True), (900_000, False)])
def test_a_short_lead_does_not_end_the_shadow(tmp_path, pause, all_of_it):
    # The host waits 400 us for the device, leads it by one kernel soon after, and then pauses: without the
    # synchronize the device would have had work for the first 400 us of the pause.
    program = af.Program()
    for _ in range(10):
        program.launch("k", 44_000)
    program.synchronize()
    drained = program.now
    for _ in range(2):
        program.launch("k", 20_000)
    program.work(pause)
    program.launch("k", 20_000)
    trace = native.read([program.write(tmp_path)])
    found = device_timeline(trace, 0)
    gaps = found.busy.gaps
    after = int((gaps.end - gaps.start)[gaps.end > drained].sum())
    waited = int(trace.syncs.end[0] - trace.syncs.start[0])
    assert found.causes.sync_shadow + found.causes.total()["sync"] == min(after, waited)
    assert (after < waited) == all_of_it


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_synchronizes_and_their_shadow_are_the_gap_that_there_is_not_without_them(tmp_path, seed):
    """The same program is simulated once more, with synchronizes that don't block."""
    timelines = []
    for blocks in (True, False):
        folder = tmp_path / str(blocks)
        folder.mkdir(exist_ok=True)
        trace = native.read([waiting_program(seed, blocks).write(folder)])
        timelines.append(device_timeline(trace, 0, "span"))
    with_them, without = timelines
    causes, gone = with_them.causes, with_them.busy.gap - without.busy.gap
    # One launch and one synchronize take 7 us at the least, whoever waits.
    assert abs(gone - causes.total()["sync"] - causes.sync_shadow) <= 7_000


def test_a_process_that_waits_casts_no_shadow_on_another(tmp_path):
    waits, pauses = af.Program(pid=1), af.Program(pid=2)
    waits.launch("k", 400_000)
    waits.synchronize()
    waits.launch("k", 1_000)
    alone = native.read([waits.write(tmp_path, "h-1-0.aiprof")])
    pauses.now = waits.now + 10_000
    for _ in range(2):
        pauses.launch("k", 1_000)
        pauses.work(100_000)
    both = native.read([tmp_path / "h-1-0.aiprof", pauses.write(tmp_path, "h-2-0.aiprof")])
    shadows = [device_timeline(trace, 0, "span").causes.sync_shadow for trace in (alone, both)]
    assert shadows[0] == shadows[1]


def waiting_program(seed: int, blocks: bool) -> af.Program:
    rng, program = random.Random(seed), af.Program()
    for _ in range(rng.randint(5, 80)):
        what, ns = rng.choice("kkkws"), rng.choice([5_000, 20_000, 100_000, 400_000])
        if what == "k":
            program.launch("k", ns)
        elif what == "w":
            program.work(ns)
        elif blocks:
            program.synchronize()
    program.launch("k", 1_000)
    return program
