from __future__ import annotations

import sqlite3

import pytest

from ai_prof.errors import TraceError
from ai_prof.timeline.summary import summarise
from ai_prof.trace.model import CallKind, CopyKind, SyncKind
from ai_prof.trace.open import open_trace

HOST = 1 << 48


def global_pid(pid):
    return HOST | pid << 24


def global_tid(pid, tid):
    return global_pid(pid) | tid


WORK = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1, "globalPid": global_pid(100)}


def kernel(start, end, **columns):
    return {"start": start, "end": end, **WORK, "demangledName": 1, "gridX": 4, "blockX": 128, **columns}


def call(start, end, name, correlation, *, pid=100, tid=101):
    columns = {
        "globalTid": global_tid(pid, tid),
        "correlationId": correlation,
        "nameId": name,
        "returnValue": 0,
    }
    return {"start": start, "end": end, **columns}


STRINGS = [
    {"id": 1, "value": "void gemm<float>(int)"},
    {"id": 2, "value": "cudaLaunchKernel_v7000"},
    {"id": 3, "value": "cudaDeviceSynchronize_v3020"},
    {"id": 4, "value": "train_step"},
]


@pytest.fixture
def export(tmp_path):
    """Write an export with the given rows; its tables have just the columns of their first row."""

    def write(name="report.sqlite", **tables):
        path = tmp_path / name
        connection = sqlite3.connect(path)
        for table, rows in {"StringIds": STRINGS, **tables}.items():
            columns = ", ".join(f'"{column}"' for column in rows[0])
            connection.execute(f'CREATE TABLE "{table}" ({columns})')
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(
                f'INSERT INTO "{table}" VALUES ({marks})',  # noqa: S608 - a test's own names
                [tuple(row.values()) for row in rows],
            )
        connection.commit()
        connection.close()
        return path

    return write


def cupti(**tables):
    return {f"CUPTI_ACTIVITY_KIND_{name}": rows for name, rows in tables.items()}


def test_all_tables(export):
    path = export(
        **cupti(
            KERNEL=[
                kernel(100, 200, registersPerThread=32, staticSharedMemory=16, dynamicSharedMemory=48),
            ],
            MEMCPY=[
                {"start": 210, "end": 260, **WORK, "copyKind": 1, "bytes": 4096, "srcKind": 0, "dstKind": 2},
                {"start": 262, "end": 265, **WORK, "copyKind": 2, "bytes": 8, "srcKind": 2, "dstKind": 1},
            ],
            MEMSET=[{"start": 270, "end": 270, **WORK, "bytes": 64}],
            SYNCHRONIZATION=[{"start": 90, "end": 300, **WORK, "syncType": 4}],
            RUNTIME=[call(50, 60, 2, 1), call(80, 310, 3, 2)],
        ),
        NVTX_EVENTS=[
            {
                "start": 10,
                "end": 400,
                "eventType": 59,
                "text": None,
                "globalTid": global_tid(100, 101),
                "textId": 4,
            },
            {
                "start": 20,
                "end": 30,
                "eventType": 60,
                "text": "own",
                "globalTid": global_tid(100, 101),
                "textId": None,
            },
            {"start": 25, "end": None, "eventType": 34, "text": "mark", "globalTid": 1, "textId": None},
        ],
        TARGET_INFO_GPU=[{"id": 0, "name": "NVIDIA H100", "uuid": None, "totalMemory": 5, "smCount": 132}],
        TARGET_INFO_SESSION_START_TIME=[{"utcEpochNs": 5000, "systemClockNs": 1000}],
        TARGET_INFO_SYSTEM_ENV=[{"name": "Hostname", "value": "node1"}],
        PROCESSES=[{"globalPid": global_pid(100), "pid": 100, "name": "python3"}],
    )
    trace = open_trace(path)
    k, m, s, c, r = trace.kernels, trace.memory, trace.syncs, trace.calls, trace.ranges
    assert (k.start.tolist(), k.end.tolist(), k.registers.tolist(), k.shared_bytes.tolist()) == (
        [100],
        [200],
        [32],
        [64],
    )
    assert (k.grid.tolist(), k.block.tolist()) == ([[4, 0, 0]], [[128, 0, 0]])
    assert (trace.names[k.name[0]], k.stream[0], k.context[0]) == ("void gemm<float>(int)", 7, 1)
    assert m.kind.tolist() == [CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST, CopyKind.SET]
    assert (m.bytes.tolist(), m.pageable.tolist()) == ([4096, 8, 64], [1, 0, 0])
    assert (s.kind.tolist(), s.device.tolist()) == ([SyncKind.CONTEXT_SYNCHRONIZE], [0])
    assert [trace.names[i] for i in c.name] == ["cudaLaunchKernel", "cudaDeviceSynchronize"]
    assert (c.kind.tolist(), c.thread.tolist()) == ([CallKind.LAUNCH, CallKind.SYNC], [101, 101])
    assert c.correlation[0] == k.correlation[0] > 0
    assert [trace.names[i] for i in r.name] == ["train_step", "own"]
    assert (trace.devices[0].name, trace.devices[0].units) == ("NVIDIA H100", 132)
    (process,) = trace.processes
    assert (process.pid, process.host, process.command_line) == (100, "node1", ("python3",))
    assert trace.realtime_offset_ns == 4000
    assert trace.source.complete
    assert not trace.source.warnings


def test_an_old_schema_has_fewer_columns_and_a_driver_table(export):
    old = {"start": 100, "end": 200, "deviceId": 0, "streamId": 7, "correlationId": 3, "shortName": 1}
    path = export(**cupti(KERNEL=[old], DRIVER=[call(50, 60, 2, 3)]))
    trace = open_trace(path)
    assert (trace.names[trace.kernels.name[0]], trace.kernels.context[0]) == ("void gemm<float>(int)", -1)
    assert trace.calls.kind.tolist() == [CallKind.LAUNCH]
    assert summarise(trace).devices[0].name == "device 0"


def test_processes_have_their_own_correlations_and_share_a_device(export):
    rows = [kernel(100, 200), kernel(150, 250, globalPid=global_pid(200))]
    path = export(**cupti(KERNEL=rows, RUNTIME=[call(50, 60, 2, 1), call(55, 65, 2, 1, pid=200, tid=201)]))
    trace = open_trace(path)
    assert [process.pid for process in trace.processes] == [100, 200]
    assert trace.kernels.correlation.tolist() == trace.calls.correlation.tolist()
    assert len(set(trace.calls.correlation.tolist())) == 2
    assert trace.kernels.device.tolist() == [0, 0]
    assert summarise(trace, "span").devices[0].kernel_busy == 1


def test_a_process_that_sees_one_gpu_calls_it_zero(export):
    rows = [kernel(100, 200), kernel(150, 250, globalPid=global_pid(200))]
    seen = [{"gpuId": 4, "cudaId": 0, "pid": 100}, {"gpuId": 5, "cudaId": 0, "pid": 200}]
    gpus = [{"id": 4, "name": "four", "uuid": "GPU-AB-cd"}, {"id": 5, "name": "five", "uuid": None}]
    path = export(**cupti(KERNEL=rows), TARGET_INFO_CUDA_DEVICE=seen, TARGET_INFO_GPU=gpus)
    trace = open_trace(path)
    devices = [(device.ordinal, device.name, device.uuid) for device in trace.devices]
    assert devices == [(4, "four", "abcd"), (5, "five", None)]
    assert trace.kernels.device.tolist() == [0, 1]


def test_graphs_recorded_node_by_node_or_as_wholes(export):
    node = kernel(100, 200, graphNodeId=(9 << 32) + 2)
    whole = {"start": 300, "end": 500, **WORK, "graphId": 9}
    trace = open_trace(
        export(**cupti(KERNEL=[node, kernel(250, 260, graphNodeId=None)], GRAPH_TRACE=[whole]))
    )
    assert trace.kernels.graph.tolist() == [9, 0, 9]
    assert [trace.names[i] for i in trace.kernels.name][-1] == "cudaGraph"


def test_impossible_times_are_counted_and_left_out(export):
    rows = [kernel(100, 200), kernel(0, 50), kernel(300, 250), kernel(400, 400), kernel(None, "x")]
    trace = open_trace(export(**cupti(KERNEL=rows)))
    assert trace.kernels.start.tolist() == [100, 400]
    loss = trace.source.losses["kernel"]
    assert (loss.captured, loss.invalid_time) == (2, 3)
    assert any("times that cannot be" in warning for warning in trace.source.warnings)


def test_lost_events_that_the_report_tells_of_are_told(export):
    events = [{"text": "Not all CUDA events might have been collected."}, {"text": "Profiling has started."}]
    trace = open_trace(export(**cupti(KERNEL=[kernel(1, 2)]), DIAGNOSTIC_EVENT=events))
    assert not trace.source.complete
    (warning,) = trace.source.warnings
    assert "Not all CUDA events" in warning


def test_names_that_are_not_utf8_are_mended(export):
    path = export(**cupti(KERNEL=[kernel(1, 2)]))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE StringIds SET value = CAST(x'6bff' AS TEXT) WHERE id = 1")
    connection.commit()
    connection.close()
    trace = open_trace(path)
    assert trace.names[trace.kernels.name[0]] == "k�"


def test_an_export_without_gpu_work_says_so(export):
    summary = summarise(open_trace(export(PROCESSES=[{"globalPid": 1, "pid": 1, "name": "x"}])))
    assert summary.devices == []
    assert "--trace=cuda" in summary.reason


def test_a_database_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE users (id)")
    connection.commit()
    connection.close()
    with pytest.raises(TraceError, match="no export of Nsight Systems"):
        open_trace(path)


@pytest.mark.parametrize("keep", [20, 3000, 9000])
def test_a_cut_database_is_refused_in_one_line(export, keep):
    path = export(**cupti(KERNEL=[kernel(i, i + 1) for i in range(1, 500)]))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TraceError) as refused:
        open_trace(path)
    assert "\n" not in str(refused.value)


def test_a_damaged_schema_is_refused_in_one_line(export):
    path = export(**cupti(KERNEL=[kernel(1, 2)]))
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE\n\xfe\xfeBLE"))
    with pytest.raises(TraceError, match="is damaged") as refused:
        open_trace(path)
    assert "\n" not in str(refused.value)


def test_the_file_is_not_written_to(tmp_path, export):
    path = export(**cupti(KERNEL=[kernel(1, 2)]))
    before = path.read_bytes()
    path.chmod(0o444)
    open_trace(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_report_that_was_not_exported_says_how(tmp_path):
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"\x00\x01binary")
    with pytest.raises(TraceError, match="nsys export --type sqlite"):
        open_trace(path)


def test_exports_of_two_hosts_are_one_job_on_one_clock(tmp_path, export):
    for name, epoch in (("a.sqlite", 5000), ("b.sqlite", 5300)):
        clock = [{"utcEpochNs": epoch, "systemClockNs": 0}]
        export(name, **cupti(KERNEL=[kernel(100, 200)]), TARGET_INFO_SESSION_START_TIME=clock)
    trace = open_trace(tmp_path)
    assert trace.kernels.start.tolist() == [100, 400]
    assert trace.kernels.device.tolist() == [0, 1]
