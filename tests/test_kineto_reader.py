from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_trace import document, event, kernel, launch, training, write

from ai_prof.errors import TraceError, UsageError
from ai_prof.timeline.summary import summarise
from ai_prof.trace.model import CallKind, CopyKind, SyncKind
from ai_prof.trace.open import open_trace
from ai_prof.trace.readers.call_kinds import call_kind
from ai_prof.trace.readers.decimal_ns import INVALID, nanoseconds


@pytest.fixture
def read(tmp_path):
    return lambda content, name="trace.json": open_trace(write(tmp_path / name, content))


# Times


@given(st.lists(st.decimals(-(10**15), 10**15, places=3), min_size=1))
def test_times_are_exact_to_the_nanosecond(numbers):
    found = nanoseconds([str(number).encode() for number in numbers])
    assert found.tolist() == [int(number * 1000) for number in numbers]


@given(st.lists(st.integers(0, 10**19), min_size=1), st.sampled_from([0, 3]))
def test_times_up_to_the_last_that_int64_holds(numbers, places):
    found = nanoseconds([f"{Decimal(number).scaleb(-places):f}".encode() for number in numbers])
    times = [number * 10 ** (3 - places) for number in numbers]
    assert found.tolist() == [time if time // 1000 < 2**63 // 1000 else INVALID for time in times]


@given(st.lists(st.integers(-(10**15), 10**15) | st.floats(-1e12, 1e12), min_size=1))
def test_any_json_number_is_a_time(numbers):
    found = nanoseconds([json.dumps(number).encode() for number in numbers])
    assert found.tolist() == [int(Decimal(json.dumps(number)) * 1000) for number in numbers]


@pytest.mark.parametrize(
    "text",
    [
        "1e300",
        "-1e300",
        "1e999999999",
        "1e-999999999x",
        "9" * 40,
        "null",
        '"soon"',
        '"1,5"',
        "true",
        "9223372036854776",
    ],
)
def test_what_is_no_time_is_invalid_and_harms_no_other(text):
    found = nanoseconds([b"1.5", text.encode(), b'"2.25"'])
    assert (found[0], found[-1]) == (1500, 2250)
    assert INVALID in found.tolist()


def test_an_exponent_costs_no_memory():
    assert nanoseconds([b"1e-999999999", b"-0.5e-3", b"12e-1"]).tolist() == [0, 0, 1200]


def test_end_is_start_plus_duration_where_a_float_would_lose_it(read):
    text = (
        json.dumps(document([kernel(11, 22)]))
        .replace(" 11,", " 1712195495519689.047,")
        .replace(" 22,", " 63.813,")
    )
    trace = read(text.encode())
    assert trace.kernels.start.tolist() == [1712195495519689047]
    assert trace.kernels.end.tolist() == [1712195495519752860]
    assert trace.realtime_offset_ns == 0


# What events mean


def test_columns_of_a_kernel_and_its_launch(read):
    args = {"grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 16, "shared memory": 512}
    trace = read(
        document([launch(5, 2.5, 77), kernel(10, 3, "gemm", 20, 77, **args)], distributedInfo={"rank": 3})
    )
    k, c = trace.kernels, trace.calls
    assert (k.start[0], k.end[0], k.stream[0], k.context[0]) == (10_000, 13_000, 20, 1)
    assert (trace.names[k.name[0]], k.grid.tolist(), k.block.tolist()) == ("gemm", [[4, 2, 1]], [[128, 1, 1]])
    assert (k.registers[0], k.shared_bytes[0], k.graph[0]) == (16, 512, 0)
    assert (c.start[0], c.end[0], c.thread[0], c.kind[0]) == (5000, 7500, 7, CallKind.LAUNCH)
    assert c.correlation[0] == k.correlation[0] > 0
    (device,) = trace.devices
    assert (device.ordinal, device.name, device.memory_bytes, device.units) == (
        0,
        "NVIDIA H200",
        150109880320,
        132,
    )
    assert (trace.processes[0].pid, trace.processes[0].rank) == (7, 3)
    assert trace.source.complete
    assert not trace.source.warnings


@pytest.mark.parametrize(
    ("kernel_cat", "copy_cat", "set_cat", "call_cat"),
    [
        ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime"),
        ("Kernel", "Memcpy", "Memset", "Runtime"),
        ("kernel", "gpu_memcpy", "gpu_memset", "hip_runtime"),
    ],
)
def test_categories_old_and_new(read, kernel_cat, copy_cat, set_cat, call_cat):
    trace = read(
        document(
            [
                event(call_cat, "hipLaunchKernel", 1, 1, correlation=1),
                event(kernel_cat, "k", 10, 5, 0, 7, device=0, stream=7, correlation=1),
                event(copy_cat, "Memcpy HtoD (Pinned -> Device)", 20, 5, 0, 7, device=0, stream=7, bytes=64),
                event(copy_cat, "Memcpy DtoH (Device -> Pageable)", 26, 1, 0, 7, device=0, stream=7, bytes=4),
                event(set_cat, "Memset (Device)", 30, 5, 0, 7, device=0, stream=7, bytes=32),
            ]
        )
    )
    assert len(trace.kernels.start) == len(trace.calls.start) == 1
    assert trace.memory.kind.tolist() == [CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST, CopyKind.SET]
    assert trace.memory.bytes.tolist() == [64, 4, 32]
    assert trace.memory.pageable.tolist() == [0, 1, 0]


def test_a_rocm_copy_says_its_direction_in_its_args_or_name(read):
    trace = read(
        document(
            [
                event("gpu_memcpy", "Memcpy", 1, 1, 2, 0, device=2, stream=0, kind="DtoH"),
                event("gpu_memcpy", "CopyHostToDevice", 2, 1, 2, 0, device=2, stream=0),
            ],
            roctracer_version=4.1,
        )
    )
    assert trace.memory.kind.tolist() == [CopyKind.DEVICE_TO_HOST, CopyKind.HOST_TO_DEVICE]
    assert [(d.ordinal, d.kind) for d in trace.devices] == [(2, "hip")]


def test_device_and_stream_stand_in_pid_and_tid_where_args_lack_them(read):
    trace = read(document([event("kernel", "k", 1, 1, 3, 14, correlation=5)]))
    assert trace.devices[0].ordinal == 3
    assert trace.kernels.stream.tolist() == [14]


def test_syncs_are_records_or_calls_but_counted_once(read):
    trace = read(
        document(
            [
                launch(1, 5, 8, "cudaStreamSynchronize"),
                event("cuda_sync", "Stream Sync", 2, 3, 0, 7, correlation=8, device=0, stream=7),
                event(
                    "cuda_sync", "x", 3, 1, 0, 7, correlation=9, device=0, cuda_sync_kind="Stream Wait Event"
                ),
                launch(10, 5, 10, "hipDeviceSynchronize"),
                kernel(4, 1),
            ]
        )
    )
    kinds = [SyncKind.STREAM_SYNCHRONIZE, SyncKind.STREAM_WAIT_EVENT, SyncKind.CONTEXT_SYNCHRONIZE]
    assert trace.syncs.kind.tolist() == kinds
    assert trace.syncs.thread.tolist() == [-1, -1, 7]


def test_kernels_of_a_graph_launch_belong_to_a_graph(read):
    events = [launch(1, 5, 8, "cudaGraphLaunch"), launch(7, 1, 9)]
    events += [kernel(10, 1, correlation=8), kernel(12, 1, correlation=8), kernel(14, 1, correlation=9)]
    events += [kernel(16, 1, correlation=8, **{"graph id": 21, "graph node id": 5})]
    assert (read(document(events)).kernels.graph > 0).tolist() == [True, True, False, True]


def test_annotations_are_ranges_and_an_old_operator_only_as_a_step(read):
    events = [
        event("user_annotation", "ProfilerStep#4", 1, 10),
        event("user_annotation", "## forward ##", 2, 3, tid="PyTorch Profiler"),
        event("Operator", "ProfilerStep#5", 11, 10),
        event("Operator", "aten::add", 12, 1),
        event("gpu_user_annotation", "ProfilerStep#4", 2, 9, 0),
    ]
    trace = read(document(events))
    named = [trace.names[i] for i in trace.ranges.name]
    assert named == ["ProfilerStep#4", "## forward ##", "ProfilerStep#5"]
    assert trace.ranges.thread.tolist() == [7, -1, 7]


def test_events_of_unknown_categories_are_told(read):
    trace = read(document([kernel(1, 1), event("npu_kernel", "k", 1, 1), event("cpu_op", "aten::add", 1, 1)]))
    (warning,) = trace.source.warnings
    assert warning.endswith("npu_kernel")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernelExC", CallKind.LAUNCH),
        ("cuLaunchKernel", CallKind.LAUNCH),
        ("hipExtModuleLaunchKernel", CallKind.LAUNCH),
        ("cudaLaunchHostFunc", CallKind.OTHER),
        ("hipGraphLaunch", CallKind.GRAPH_LAUNCH),
        ("cudaGraphInstantiateWithFlags", CallKind.GRAPH_INSTANTIATE),
        ("hipMemcpyWithStream", CallKind.COPY),
        ("cuMemcpyDtoHAsync_v2", CallKind.COPY),
        ("cudaEventSynchronize", CallKind.SYNC),
        ("cudaMalloc", CallKind.ALLOC),
        ("cudaMallocHost", CallKind.HOST_ALLOC),
        ("hipHostMalloc", CallKind.HOST_ALLOC),
        ("cuMemHostRegister", CallKind.HOST_ALLOC),
        ("cudaFreeAsync", CallKind.FREE),
        ("cuMemUnmap", CallKind.MAP),
        ("cuLibraryLoadData", CallKind.MODULE_LOAD),
        ("cudaStreamIsCapturing", CallKind.OTHER),
        ("cudaMemsetAsync", CallKind.OTHER),
    ],
)
def test_kind_of_a_call(name, kind):
    assert call_kind(name) == kind


def test_records_with_impossible_times_are_counted_and_left_out(read):
    events = [
        kernel(10, 5),
        kernel(20, 0),
        kernel(30, -1),
        kernel(0, 5),
        kernel(-4, 5),
        kernel(1e300, 5),
        kernel(1, 1e300),
    ]
    del events[0]["args"]["correlation"]
    no_duration = kernel(50, 1)
    del no_duration["dur"]
    trace = read(document([*events, no_duration, event("gpu_memcpy", "Memcpy DtoH", 9, -2.5, 0, device=0)]))
    assert trace.kernels.start.tolist() == [10_000, 20_000]
    assert trace.kernels.end.tolist() == [15_000, 20_000]
    kernels, copies = trace.source.losses["kernel"], trace.source.losses["memcpy"]
    assert (kernels.captured, kernels.invalid_time) == (2, 6)
    assert (copies.captured, copies.invalid_time) == (0, 1)
    assert any("7 records have times that cannot be" in warning for warning in trace.source.warnings)


def test_a_trace_without_gpu_gives_no_devices_and_a_reason(read):
    trace = read(document([event("cpu_op", "aten::add", 1, 1), event("user_annotation", "a", 1, 1)]))
    summary = summarise(trace)
    assert summary.devices == []
    assert "ProfilerActivity.CUDA" in summary.reason


def test_rows_are_sorted_by_start(read):
    trace = read(document(training()[::-1]))
    assert (np.diff(trace.kernels.start) > 0).all()
    assert (np.diff(trace.calls.start) > 0).all()


# Several ranks


def rank_file(folder, rank, epoch, name=None, device=0):
    fields = {"distributedInfo": {"rank": rank}} if rank is not None else {}
    if epoch is not None:
        fields["baseTimeNanoseconds"] = epoch
    events = [launch(1, 1, 1), kernel(10, 5, f"k{rank}", correlation=1, device=device)]
    return write(folder / (name or f"host_{rank}.pt.trace.json"), document(events, **fields))


def test_ranks_in_a_folder_are_one_job_on_one_clock(tmp_path):
    rank_file(tmp_path, 0, 1_000_000)
    rank_file(tmp_path, 8, 1_002_000)
    trace = open_trace(tmp_path)
    assert trace.kernels.start.tolist() == [10_000, 12_000]
    assert [process.rank for process in trace.processes] == [0, 8]
    assert len(set(trace.kernels.device.tolist())) == len(set(trace.kernels.correlation.tolist())) == 2
    assert [device.rank for device in summarise(trace).devices] == [0, 8]
    assert not trace.source.warnings


def test_a_rank_may_stand_in_the_name_and_a_missing_epoch_is_said(tmp_path):
    rank_file(tmp_path, None, None, "rank0.json")
    rank_file(tmp_path, None, None, "rank-1.json")
    trace = open_trace(tmp_path)
    assert [process.rank for process in trace.processes] == [1, 0]
    assert any("epoch" in warning for warning in trace.source.warnings)


def test_a_rank_without_device_work_is_told(tmp_path):
    rank_file(tmp_path, 0, 5)
    fields = {"distributedInfo": {"rank": 1}, "baseTimeNanoseconds": 5}
    write(tmp_path / "b.json", document([event("cpu_op", "aten::add", 1, 1)], **fields))
    (warning,) = open_trace(tmp_path).source.warnings
    assert warning == "b.json: it holds no device work, unlike others"


def test_two_traces_of_one_rank_are_refused(tmp_path):
    rank_file(tmp_path, 0, 0, "a.json")
    rank_file(tmp_path, 0, 0, "b.json")
    with pytest.raises(UsageError, match="both of rank 0"):
        open_trace(tmp_path)


def test_a_folder_of_nothing_or_of_two_formats_is_refused(tmp_path):
    with pytest.raises(TraceError, match="and no other trace"):
        open_trace(tmp_path)
    write(tmp_path / "a.json", document(training()))
    (tmp_path / "b.sqlite").write_bytes(b"SQLite format 3\0")
    with pytest.raises(UsageError, match="different formats"):
        open_trace(tmp_path)
