from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import aiprof_file as af
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_prof.errors import TraceError, UsageError
from ai_prof.trace.model import Loss
from ai_prof.trace.open import open_trace
from ai_prof.trace.readers import native
from ai_prof.trace.readers.native_format import BLOCK_HEADER, MAJOR, PREAMBLE, RECORDS, BlockType

HEADER = Path(__file__).parent.parent / "capture" / "include" / "ai_prof" / "format.h"
STRUCTS = {
    "DeviceRecord": RECORDS[BlockType.DEVICE],
    "KernelRecord": RECORDS[BlockType.KERNEL],
    "MemoryRecord": RECORDS[BlockType.MEMCPY],
    "SyncRecord": RECORDS[BlockType.SYNC],
    "CallRecord": RECORDS[BlockType.CALL],
    "OverheadRecord": RECORDS[BlockType.OVERHEAD],
    "RangeRecord": RECORDS[BlockType.RANGE],
    "ClockRecord": RECORDS[BlockType.CLOCK],
    "SampleRecord": RECORDS[BlockType.SAMPLE],
    "LossRecord": RECORDS[BlockType.LOSS],
    "EndRecord": RECORDS[BlockType.END],
    "Preamble": PREAMBLE,
    "BlockHeader": BLOCK_HEADER,
}


def small_capture() -> af.Capture:
    capture = af.Capture()
    capture.device()
    capture.clock(1000, 1000, 5000)
    capture.call("launch", 1500, 1600, correlation=1)
    capture.kernel("k", 2000, 3000, correlation=1, grid=(4, 2, 1), block=(128, 1, 1))
    capture.memory(af.HTOD, 3000, 3500, size=64, correlation=2, pageable=True)
    capture.memory(6, 3600, 3700, size=32)
    capture.sync(af.STREAM_SYNC, 2500, 3600, correlation=3)
    return capture


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_dtypes_are_the_structs_of_the_header(tmp_path):
    lines = [f'std::printf("major %d\\n", {"ai_prof::format::kMajor"});']
    for name, dtype in STRUCTS.items():
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'std::printf("{name}.{f} %zu\\n", offsetof({name}, {f}));' for f in dtype.names]
    enum = re.search(r"enum BlockType.*?\};", HEADER.read_text(), re.DOTALL).group()
    lines += [f'std::printf("{n} %d\\n", int({n}));' for n in re.findall(r"(k\w+) = ", enum)]
    source = tmp_path / "layout.cpp"
    source.write_text(
        "#include <cstddef>\n#include <cstdio>\n#include <ai_prof/format.h>\n"
        "using namespace ai_prof::format;\n"
        "int main() {" + "\n".join(lines) + "}\n"
    )
    include = HEADER.parent.parent
    subprocess.run(["g++", "-std=c++20", f"-I{include}", source, "-o", tmp_path / "layout"], check=True)
    printed = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    layout = {key: int(value) for key, value in (line.split() for line in printed.splitlines())}

    assert layout.pop("major") == MAJOR
    for name, dtype in STRUCTS.items():
        assert layout.pop(name) == dtype.itemsize
        assert {f: layout.pop(f"{name}.{f}") for f in dtype.names} == {
            f: dtype.fields[f][1] for f in dtype.names
        }
    assert {key[1:].upper(): value for key, value in layout.items()} == {b.name: b.value for b in BlockType}
    assert RECORDS[BlockType.MEMSET] is RECORDS[BlockType.MEMCPY]


def test_reads_every_table(tmp_path):
    trace = open_trace(small_capture().write(tmp_path))
    assert trace.source.complete
    assert trace.source.warnings == ()
    assert trace.names[trace.kernels.name[0]] == "k"
    assert trace.kernels.grid.tolist() == [[4, 2, 1]]
    assert trace.memory.kind.tolist() == [1, 6]
    assert trace.memory.bytes.tolist() == [64, 32]
    assert trace.memory.pageable.tolist() == [1, 0]
    assert trace.syncs.kind.tolist() == [af.STREAM_SYNC]
    assert trace.calls.correlation.tolist() == trace.kernels.correlation.tolist() == [1]
    assert trace.devices[0].name == "GPU"
    assert trace.devices[0].uuid is None
    assert trace.processes[0].command_line == ("prog",)
    assert trace.realtime_offset_ns == 4000
    assert trace.source.losses["kernel"] == Loss(captured=1)


def test_a_file_cut_at_any_byte_is_read_up_to_the_last_whole_block(tmp_path):
    blocks = small_capture().blocks()
    data = b"".join(blocks)
    ends = np.cumsum([len(b) for b in blocks])
    kinds = [0] + [int.from_bytes(b[:4], "little") for b in blocks[1:]]
    path = tmp_path / "h-100-0.aiprof"
    for size in range(len(data)):
        path.write_bytes(data[:size])
        trace = native.read([path])
        assert not trace.source.complete
        assert len(trace.source.warnings) >= 1
        whole = {kind for kind, end in zip(kinds, ends, strict=True) if end <= size}
        assert len(trace.kernels.start) == (af.KERNEL in whole)
        assert len(trace.syncs.start) == (af.SYNC in whole)


def test_a_damaged_block_ends_the_reading(tmp_path):
    blocks = small_capture().blocks()
    at = [int.from_bytes(b[:4], "little") for b in blocks].index(af.KERNEL)
    spoiled = bytearray(blocks[at])
    spoiled[20] ^= 1
    path = tmp_path / "h-100-0.aiprof"
    path.write_bytes(b"".join([*blocks[:at], bytes(spoiled), *blocks[at + 1 :]]))
    trace = native.read([path])
    assert not trace.source.complete
    assert "damaged" in trace.source.warnings[0]
    assert len(trace.calls.start) == 1
    assert len(trace.kernels.start) == len(trace.memory.start) == 0


def test_a_file_without_end_says_so(tmp_path):
    trace = open_trace(small_capture().write(tmp_path, closed=False))
    assert not trace.source.complete
    assert "without closing" in trace.source.warnings[0]
    assert len(trace.kernels.start) == 1


@pytest.mark.parametrize("cut", [af.CLOCK, af.KERNEL, af.CALL])
def test_a_file_cut_in_a_flush_is_known_up_to_the_one_before(tmp_path, cut):
    """Clocks and devices are written first, in a flush and between two, where kernels have filled a block."""
    full = (256 << 10) // RECORDS[BlockType.KERNEL].itemsize + 1
    one = af.Capture()
    for starts in (range(1000, 2000, 100), range(3000, 3000 + full), range(10_000, 10_010)):
        one.clock(1, 1, 5)
        for start in starts:
            one.kernel("k", start, start + 1)
        if len(starts) < full:
            one.call("cudaLaunchKernel", starts[-1] - 10, starts[-1] - 5)
    *before, clock, kernels, calls = one.blocks(closed=False)
    rest = {af.CLOCK: [clock], af.KERNEL: [clock, kernels], af.CALL: [clock, kernels, calls]}[cut]
    path = tmp_path / "h-1-0.aiprof"
    path.write_bytes(b"".join([*before, *rest])[:-8])
    (process,) = native.read([path]).processes
    assert process.known_until == 1900


def test_a_capture_that_ended_for_an_error_is_not_whole(tmp_path):
    capture = small_capture()
    capture.meta(errors=["CUPTI's flush has not returned for 2 s"])
    trace = open_trace(capture.write(tmp_path, reason=5))
    assert not trace.source.complete
    assert "flush has not returned" in trace.source.warnings[0]
    assert len(trace.kernels.start) == 1


def test_unknown_block_types_are_skipped(tmp_path):
    capture = small_capture()
    capture.rows.insert(3, (99, bytes(24)))
    assert open_trace(capture.write(tmp_path)).source.complete


def test_refusals_say_what_to_do(tmp_path):
    newer = af.Capture(major=2).write(tmp_path, "newer.aiprof")
    with pytest.raises(TraceError, match=r"format 2\.0.*reads 1\.x"):
        open_trace(newer)
    other = tmp_path / "other.bin"
    other.write_bytes(b"not a capture")
    with pytest.raises(TraceError, match="no capture"):
        open_trace(other)
    with pytest.raises(TraceError, match="not a capture file"):
        native.read([other])
    with pytest.raises(UsageError, match="does not exist"):
        open_trace(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match=r"no \.aiprof file"):
        open_trace(tmp_path / "empty")


def test_two_captures_in_a_folder_are_listed(tmp_path):
    af.Capture(capture_id="one").write(tmp_path, "a.aiprof")
    af.Capture(capture_id="two").write(tmp_path, "b.aiprof")
    with pytest.raises(UsageError, match=r"one: a\.aiprof; two: b\.aiprof"):
        open_trace(tmp_path)


def test_files_of_several_processes_are_one_trace(tmp_path):
    for pid, device_uuid in ((1, b"a" * 16), (2, b"b" * 16), (3, b"a" * 16)):
        capture = af.Capture(pid=pid)
        capture.string(f"only {pid}")
        capture.device(0, uuid=device_uuid)
        capture.clock(1, 1, 1)
        capture.call("launch", 10 + pid, 20, correlation=1)
        capture.kernel("shared", 100 - pid, 200, correlation=1)
        capture.loss(af.KERNEL, 1, cupti=pid)
        capture.write(tmp_path, f"h-{pid}-0.aiprof")
    trace = open_trace(tmp_path)
    assert trace.kernels.start.tolist() == [97, 98, 99]
    assert trace.kernels.device.tolist() == [0, 1, 0]
    assert trace.kernels.process.tolist() == [2, 1, 0]
    assert [trace.names[i] for i in trace.kernels.name] == ["shared"] * 3
    assert len(set(trace.kernels.correlation.tolist())) == 3
    assert sorted(trace.calls.correlation.tolist()) == sorted(trace.kernels.correlation.tolist())
    assert trace.source.losses["kernel"] == Loss(captured=3, cupti_dropped=6)


def test_rows_with_impossible_times_are_counted_and_left_out(tmp_path):
    capture = small_capture()
    capture.kernel("k", 5000, 4000)
    capture.kernel("k", 0, 4000)
    capture.kernel("k", 5000, 5000)
    capture.loss(af.KERNEL, 4, invalid=3)
    trace = open_trace(capture.write(tmp_path))
    assert trace.kernels.start.tolist() == [2000, 5000]
    assert trace.source.losses["kernel"] == Loss(captured=2, invalid_time=5)


def test_work_in_flight_at_the_end_is_counted_and_no_loss(tmp_path):
    capture = small_capture()
    capture.loss(af.KERNEL, 1, unfinished=95)
    trace = open_trace(capture.write(tmp_path))
    assert trace.source.losses["kernel"] == Loss(captured=1, unfinished=95)
    assert trace.source.losses["kernel"].lost == 0


def test_fewer_rows_than_the_file_counted_is_said(tmp_path):
    capture = small_capture()
    capture.loss(af.KERNEL, 7)
    trace = open_trace(capture.write(tmp_path))
    assert not trace.source.complete
    assert "7 kernel records" in trace.source.warnings[0]


def test_later_meta_replaces_the_header(tmp_path):
    capture = af.Capture(rank=None)
    capture.clock(1, 1, 1)
    capture.meta(rank=3, errors=["x"])
    process = open_trace(capture.write(tmp_path)).processes[0]
    assert process.rank == 3
    assert process.header["errors"] == ["x"]


def test_what_the_library_noted_is_said(tmp_path):
    capture = small_capture()
    capture.meta(errors=["no kernel was recorded"], warnings=["host calls are not recorded"])
    source = open_trace(capture.write(tmp_path)).source
    said = "\n".join(source.warnings)
    assert "no kernel was recorded" in said
    assert "host calls are not recorded" in said
    assert source.complete


def test_a_missing_calibration_is_said(tmp_path):
    capture = af.Capture()
    capture.device()
    capture.kernel("k", 5, 6)
    trace = open_trace(capture.write(tmp_path))
    assert trace.kernels.start.tolist() == [5]
    assert "no clock" in trace.source.warnings[0]


@given(
    offset=st.integers(-(10**18), 10**18),
    ppm=st.integers(-400, 400),
    times=st.lists(st.integers(0, 4 * 10**9), min_size=1, max_size=20),
)
@settings(deadline=None)
def test_clocks_are_mapped_exactly(tmp_path_factory, offset, ppm, times):
    base = 3 * 10**18

    def monotonic(source: int) -> int:
        return source + offset + (source - base) * ppm // 1_000_000

    capture = af.Capture()
    capture.device()
    for second in range(5):
        at = base + second * 10**9
        capture.clock(at, monotonic(at), monotonic(at) + 7)
    for t in times:
        capture.kernel("k", base + t, base + t + 1000)
    trace = open_trace(capture.write(tmp_path_factory.mktemp("clock")))
    expected = sorted(monotonic(base + t) for t in times)
    assert np.abs(trace.kernels.start - np.array(expected, np.int64)).max() <= 1
    assert trace.realtime_offset_ns == 7


def test_a_device_has_its_own_clock(tmp_path):
    capture = af.Capture()
    capture.device()
    capture.clock(10**9, 10**9, 0)
    capture.clock(10**9, 10**9 + 500, 0, clock=0)
    capture.kernel("k", 10**9 + 1, 10**9 + 2)
    capture.sync(af.STREAM_SYNC, 10**9 + 1, 10**9 + 2)
    trace = open_trace(capture.write(tmp_path))
    assert trace.kernels.start.tolist() == [10**9 + 501]
    assert trace.syncs.start.tolist() == [10**9 + 1]


def test_an_unreadable_file_is_one_line(tmp_path):
    path = small_capture().write(tmp_path)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads everything")
    with pytest.raises(TraceError, match="cannot be read"):
        open_trace(path)


def test_kinds_of_a_later_minor_version_are_unknown_ones(tmp_path):
    capture = small_capture()
    capture.memory(77, 4000, 4100)
    capture.sync(77, 4000, 4100)
    capture.call("new", 4000, 4100, kind=2**32 - 1)
    trace = open_trace(capture.write(tmp_path))
    assert trace.memory.kind.tolist() == [1, 6, 0]
    assert trace.syncs.kind.tolist() == [af.STREAM_SYNC, 0]
    assert trace.calls.kind.tolist() == [af.LAUNCH, 0]


@pytest.mark.parametrize(("key", "value"), [("pid", "x"), ("command_line", 1), ("host", {}), ("rank", [0])])
def test_a_header_of_other_types_is_refused(tmp_path, key, value):
    with pytest.raises(TraceError, match=key):
        open_trace(af.Capture(**{key: value}).write(tmp_path))
    capture = af.Capture()
    capture.meta(**{key: value})
    with pytest.raises(TraceError, match=key):
        open_trace(capture.write(tmp_path))


def test_what_is_no_file_is_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe.aiprof"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(TraceError, match=r"pipe\.aiprof is"):
            open_trace(path)


def test_an_unreadable_folder_is_no_empty_one(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    if os.access(tmp_path / "closed", os.R_OK):
        pytest.skip("this user reads everything")
    with pytest.raises(TraceError, match="cannot be read"):
        open_trace(tmp_path / "closed")


def test_a_copied_file_counts_once(tmp_path):
    program = af.Program(started_monotonic_ns=12345)
    program.launch("k", 5_000)
    path = program.write(tmp_path)
    (tmp_path / "copy of it.aiprof").write_bytes(path.read_bytes()[:-8])
    trace = open_trace(tmp_path)
    assert len(trace.kernels.start) == 1
    assert trace.source.files == (str(path),)
    assert trace.source.complete
    assert trace.source.warnings == ("copy of it.aiprof is a copy of h-100-0.aiprof: counted once",)


def test_two_windows_of_one_process_are_two_files(tmp_path):
    for number in range(2):
        program = af.Program(started_monotonic_ns=number)
        program.launch("k", 5_000)
        program.write(tmp_path, f"h-100-{number}.aiprof")
    assert len(open_trace(tmp_path).kernels.start) == 2


def test_files_of_several_machines_share_the_first_ones_clock(tmp_path):
    # Both started a kernel at the same moment; the machines booted at different times.
    for boot, monotonic in (("one", 1_000_000), ("two", 50_000_000)):
        program = af.Capture(host=boot, boot_id=boot, pid=len(boot))
        program.device(0, uuid=boot.encode().ljust(16))
        program.clock(monotonic, monotonic, 9_000_000_000)
        program.kernel(boot, monotonic + 500, monotonic + 700)
        program.sync(af.STREAM_SYNC, monotonic + 100, monotonic + 700)
        program.sample(monotonic + 600, 50)
        program.write(tmp_path, f"{boot}-1-0.aiprof")
    trace = open_trace(tmp_path)
    for column, moment in (
        (trace.kernels.start, 500),
        (trace.syncs.end, 700),
        (trace.samples.time, 600),
    ):
        assert column.tolist() == [1_000_000 + moment] * 2
    assert trace.realtime_offset_ns == 9_000_000_000 - 1_000_000
