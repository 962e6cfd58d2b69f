"""A timeline that we wrote, read back as a trace of torch.profiler, says the same."""

from __future__ import annotations

from pathlib import Path

import aiprof_file as af
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_prof.timeline.summary import summarise
from ai_prof.timeline.tracks import tracks
from ai_prof.trace.open import open_trace
from ai_prof.trace.writers.timeline import write_timeline

CAPTURES = Path(__file__).parent / "captures"
NANOSECONDS = st.integers(1, 300_000)
STREAMS = st.sampled_from([7, 8])
STEPS = st.one_of(
    st.tuples(st.just("launch"), st.sampled_from(["a", 'b"<{},>', "é\\"]), NANOSECONDS, STREAMS),
    st.tuples(
        *(st.just("copy"), st.sampled_from([af.HTOD, af.DTOH, af.DTOD]), NANOSECONDS, st.just(64)),
        *(STREAMS, st.booleans()),  # and whether its host's side is pageable
    ),
    st.tuples(st.just("graph_launch"), st.just(["c", "d"]), NANOSECONDS, STREAMS),
    st.tuples(st.just("synchronize"), STREAMS),
    st.tuples(st.just("work"), NANOSECONDS),
)


def program(steps, kind):
    """A program of two devices: what was drawn runs on the first, which is of `kind`."""
    made = af.Program(rank=3)
    made.rows = [row for row in made.rows if row[0] != af.DEVICE]
    made.device(0, "GPU", kind=kind)
    made.launch("first", 1_001)
    for verb, *args in steps:
        getattr(made, verb)(*args)
    made.device(1)
    made.memory(6, made.now + 500, made.now + 700, device=1)
    made.kernel("other", made.now, made.now + 1, device=1)
    made.range("step 1", 1_000_000_000, made.now)
    return made


def figures(trace):
    """The summary's devices and findings, without what counts from the epoch of the file."""
    summary = msgspec.to_builtins(summarise(trace, "span"))
    for number, device in enumerate(summary["devices"]):
        # A timeline has one number and name for each device, and no uuid.
        assert device.pop("device") in {number, trace.devices[number].ordinal}
        del device["uuid"], device["iterations"]["boundaries_ns"]
        for gap in device["longest_gaps"]:
            del gap["start_ns"]
    return summary["devices"], summary["findings"], summary["tag"]


def read_back(path, folder):
    """The trace of a capture, and that of the timeline written from it."""
    trace = open_trace(path)
    write_timeline(trace, folder / "timeline.json.gz", tracks(trace))
    again = open_trace(folder / "timeline.json.gz")
    assert again.source.complete
    assert not again.source.warnings
    return trace, again


def assert_same_times(one, other):
    """All times and names, on the clock that counts from 1970."""
    for table in ("kernels", "memory", "calls", "syncs", "ranges"):
        a, b = getattr(one, table), getattr(other, table)
        for field in ("start", "end"):
            times = getattr(a, field) + one.realtime_offset_ns
            assert (times == getattr(b, field) + other.realtime_offset_ns).all()
    names = [[trace.names[name] for name in trace.kernels.name] for trace in (one, other)]
    assert names[0] == names[1]


@given(steps=st.lists(STEPS, max_size=40), kind=st.sampled_from([1, 2]))  # CUDA and OpenCL: other advice
def test_any_program_keeps_its_figures(tmp_path_factory, steps, kind):
    folder = tmp_path_factory.mktemp("round_trip")
    trace, again = read_back(program(steps, kind).write(folder), folder)
    assert_same_times(trace, again)
    assert [device.kind for device in again.devices] == [device.kind for device in trace.devices]
    assert (again.memory.pageable == trace.memory.pageable).all()
    assert figures(again) == figures(trace)


@pytest.mark.parametrize("name", ["h200_torch_decode.aiprof", "h200_torch_train.aiprof"])
def test_a_recorded_program_keeps_its_figures(tmp_path, name):
    trace, again = read_back(CAPTURES / name, tmp_path)
    assert_same_times(trace, again)
    assert figures(again) == figures(trace)
