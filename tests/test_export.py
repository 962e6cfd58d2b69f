from __future__ import annotations

import csv
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

import aiprof_file as af
import pytest

from ai_prof import cli
from ai_prof.timeline.advice import CAUSES
from ai_prof.timeline.device import device_timeline
from ai_prof.trace.open import open_trace

CAPTURES = Path(__file__).parent / "captures"
TRACKS = {"gaps", "iterations"}
REALTIME = 4  # CLOCK_REALTIME over CLOCK_MONOTONIC in af.Program, ns


def program():
    made = af.Program(rank=1)
    for _ in range(4):
        made.copy(af.HTOD, 20_001, size=77)
        made.launch('na"me <T>', 10_003, stream=8)
        made.graph_launch(["a", "b"], 1_000)
        made.synchronize()
    made.memory(6, made.now + 100_000, made.now + 100_007, size=5)
    made.range("step é", 1_000_000_000, made.now)
    made.sample(1_000_010_000, 70)
    made.sample(1_000_020_000, af.NONE32)
    return made


def export(folder, name="out.json"):
    path = program().write(folder)
    target = folder / name
    assert cli.main(["export", "--input", str(path), "--format", "timeline", "--output", str(target)]) == 0
    return target


def load(text):
    return json.loads(text, parse_float=Decimal)


@pytest.fixture
def trace(tmp_path):
    return load(export(tmp_path).read_text())


def test_every_event_has_the_fields_its_phase_requires(trace):
    # Trace Event Format: ph, pid, tid and name always; ts for all but metadata; dur for X; id for flows.
    for event in trace["traceEvents"]:
        assert {"ph", "pid", "tid", "name"} <= set(event)
        assert event["ph"] in {"X", "M", "C", "s", "f"}
        if event["ph"] == "M":
            if event["name"] == "thread_sort_index":
                assert isinstance(event["args"]["sort_index"], int)
                continue
            assert event["name"] in {"process_name", "thread_name"}
            assert isinstance(event["args"]["name"], str)
            continue
        assert event["ts"] >= 0
        assert -event["ts"].as_tuple().exponent == 3
        if event["ph"] == "X":
            assert event["dur"] >= 0
        elif event["ph"] == "C":
            assert all(isinstance(value, (int, Decimal)) for value in event["args"].values())
        else:
            assert {"id", "cat"} <= set(event)


def test_counts_and_times_are_exact(tmp_path, trace):
    made = program()
    by_kind = Counter(e["cat"] for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] not in TRACKS)
    assert by_kind == {
        "kernel": 12,
        "gpu_memcpy": 4,
        "gpu_memset": 1,
        "cuda_runtime": 16,
        "cuda_sync": 4,
        "user_annotation": 1,
    }
    base = trace["baseTimeNanoseconds"] - REALTIME
    assert base == 1_000_000_000 - 1
    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel" and e["name"] == 'na"me <T>']
    assert [int(e["dur"] * 1000) for e in kernels] == [10_003] * 4
    first = next(e for e in trace["traceEvents"] if e.get("cat") == "gpu_memcpy")
    # The first call takes 4 us, and the copy starts 2 us later.
    assert int(first["ts"] * 1000) + base == 1_000_006_000
    assert first["args"]["bytes"] == 77
    assert made.counts[af.KERNEL] == by_kind["kernel"]
    assert tmp_path.exists()


def test_rows_are_named(trace):
    names = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    rows = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "X"}
    assert rows == set(names)
    assert {"stream 7", "stream 8", "thread 1", *TRACKS} == set(names.values())
    groups = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert groups == {"cuda 0: GPU", "prog (rank 1, pid 100 on h)"}


def test_kernels_of_a_stream_that_overlap_lie_in_rows_of_their_own(tmp_path):
    # A viewer drops a span that overlaps another of its row: with a dependent launch kernels of a stream do.
    made = af.Program(rank=1)
    for number, (start, end) in enumerate(
        [(0, 900), (800, 1_700), (850, 1_000), (1_000, 1_200), (1_700, 1_800)]
    ):
        at = 1_000_100_000
        made.call("cudaLaunchKernel", at - 1_000 + number, at - 999 + number, correlation=number + 1)
        made.kernel(f"k{number}", at + start, at + end, correlation=number + 1)
    target = tmp_path / "out.json"
    path = made.write(tmp_path)
    assert cli.main(["export", "--input", str(path), "--output", str(target)]) == 0
    events = load(target.read_text())["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {
        (e["pid"], e["tid"]): e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"
    }
    kernels = [e for e in events if e.get("cat") == "kernel"]
    rows = {e["name"]: named[e["pid"], e["tid"]] for e in kernels}
    assert rows == {
        "k0": "stream 7", "k1": "stream 7 (2)", "k2": "stream 7 (3)", "k3": "stream 7", "k4": "stream 7"
    }  # fmt: skip
    below = {title: order[row] for row, title in named.items() if row in order}
    assert below["stream 7"] < below["stream 7 (2)"] < below["stream 7 (3)"]
    ends = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "f"}
    assert ends == {(e["pid"], e["tid"], e["ts"]) for e in kernels}
    assert open_trace(target).kernels.stream.tolist() == [7] * 5


@pytest.mark.parametrize("name", ["torch_train_sync", "graph_decode"])
def test_no_span_of_a_row_overlaps_another(tmp_path, name):
    packed = CAPTURES / "h200" / f"{name}.aiprof.xz"
    (tmp_path / "one.aiprof").write_bytes(lzma.decompress(packed.read_bytes()))
    target = tmp_path / "out.json"
    assert cli.main(["export", "--input", str(tmp_path / "one.aiprof"), "--output", str(target)]) == 0
    rows = {}
    for event in load(target.read_text())["traceEvents"]:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    for spans in rows.values():
        open_until = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_what_is_unknown_of_a_process_is_not_made_up(tmp_path):
    # torch.profiler tells no host, and CUPTI's synchronize records no thread.
    made = af.Program(rank=1)
    made.launch("a", 1_000)
    made.sync(3, made.now, made.now + 100, thread=af.NONE32)
    made.write(tmp_path)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert cli.main(["export", "--input", str(tmp_path), "--output", str(first)]) == 0
    assert cli.main(["export", "--input", str(first), "--output", str(second)]) == 0
    titles = [
        {e["args"]["name"] for e in load(file.read_text())["traceEvents"] if e["name"].endswith("_name")}
        for file in (first, second)
    ]
    assert "thread unknown" in titles[0]
    assert "process (rank 1, pid 100)" in titles[1]


def test_arrows_join_launches_to_their_work(trace):
    flows = {}
    for event in trace["traceEvents"]:
        if event["ph"] in {"s", "f"}:
            flows.setdefault(event["id"], {})[event["ph"]] = event
    # 4 copies, 4 kernels, and two nodes of each of 4 graph launches.
    assert len(flows) == 16
    events = [
        e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] not in {"user_annotation", *TRACKS}
    ]
    slices = {(e["pid"], e["tid"], e["ts"]): e for e in events}
    for flow in flows.values():
        origin, target = (slices[e["pid"], e["tid"], e["ts"]] for e in (flow["s"], flow["f"]))
        assert origin["cat"] == "cuda_runtime"
        assert target["cat"] in {"kernel", "gpu_memcpy"}
        assert origin["args"]["correlation"] == target["args"]["correlation"]


def test_gaps_and_iterations_are_rows_of_their_device(tmp_path):
    path = CAPTURES / "h200_torch_train.aiprof"
    target = tmp_path / "out.json"
    assert cli.main(["export", "--input", str(path), "--output", str(target)]) == 0
    written = load(target.read_text())
    base = written["baseTimeNanoseconds"] - open_trace(path).realtime_offset_ns
    spans = {
        kind: [(int(e["ts"] * 1000) + base, int(e["dur"] * 1000), e) for e in written["traceEvents"]
               if e.get("cat") == kind]
        for kind in TRACKS
    }  # fmt: skip
    timeline = device_timeline(open_trace(path), 0, "span")
    starts = timeline.iterations.starts.tolist()
    assert [start for start, _, _ in spans["iterations"]] == starts[:-1]
    assert [start + length for start, length, _ in spans["iterations"]] == starts[1:]
    assert spans["iterations"][0][2]["name"].startswith("iteration 0")
    assert sum(length for _, length, _ in spans["gaps"]) == timeline.busy.gap
    for _, length, event in spans["gaps"]:
        assert sum(event["args"].values()) == length
        cause = next(cause for cause, words in CAUSES.items() if words == event["name"])
        assert event["args"][f"{cause}_ns"] == max(event["args"].values())


def test_nvml_runs_below_as_counters(trace):
    counters = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).append(event["args"])
    # The second sample has no GPU utilization; memory utilization is in none.
    assert counters["utilization, %"] == [{"gpu": 70}]
    assert counters["power, W"] == [{"power": 300}] * 2
    assert counters["memory used, MiB"] == [{"used": 1024}] * 2


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def export_tables(folder, kind, made):
    target = folder / kind
    path = made.write(folder)
    assert cli.main(["export", "--input", str(path), "--format", kind, "--output", str(target)]) == 0
    return target


def test_csv_holds_every_record(tmp_path):
    folder = export_tables(tmp_path, "csv", program())
    trace = open_trace(tmp_path / "h-100-0.aiprof")
    assert {path.name for path in folder.iterdir()} == {
        *("capture.csv", "devices.csv", "processes.csv", "kernels.csv", "memory.csv", "syncs.csv"),
        *("calls.csv", "ranges.csv", "samples.csv", "gaps.csv", "iterations.csv"),
    }
    kernels = read_csv(folder / "kernels.csv")
    assert [int(row["start_ns"]) for row in kernels] == trace.kernels.start.tolist()
    assert [int(row["end_ns"]) for row in kernels] == trace.kernels.end.tolist()
    assert {row["name"] for row in kernels} == {'na"me <T>', "a", "b"}
    assert {(row["grid_x"], row["block_z"], row["registers"]) for row in kernels} == {("1", "1", "32")}
    memory = read_csv(folder / "memory.csv")
    assert Counter(row["kind"] for row in memory) == {"host_to_device": 4, "set": 1}
    assert sum(int(row["bytes"]) for row in memory) == 4 * 77 + 5
    samples = read_csv(folder / "samples.csv")
    assert [row["gpu_utilization_percent"] for row in samples] == ["70", ""]
    (process,) = read_csv(folder / "processes.csv")
    assert (process["pid"], process["rank"], process["command_line"]) == ("100", "1", "prog")
    (range_row,) = read_csv(folder / "ranges.csv")
    assert range_row["name"] == "step é"
    gaps = read_csv(folder / "gaps.csv")
    for row in gaps:
        start, end = int(row.pop("start_ns")), int(row.pop("end_ns"))
        assert sum(int(value) for key, value in row.items() if key.endswith("_ns")) == end - start
    assert {row["device"] for row in gaps} == {"0"}


def test_csv_of_two_devices_keeps_their_gaps_apart(tmp_path):
    made = af.Program()
    made.device(1)
    for i in range(5):
        made.launch("a", 10_000)
        made.kernel("b", made.now + i * 100_000, made.now + i * 100_000 + 20_000, device=1)
        made.work(300_000)
    gaps = read_csv(export_tables(tmp_path, "csv", made) / "gaps.csv")
    assert Counter(row["device"] for row in gaps) == {"0": 4, "1": 4}


@pytest.mark.parametrize(("devices", "told"), [((0,), {"0"}), ((0, 1), {""})])
def test_a_synchronize_that_names_no_device_is_for_the_only_one(tmp_path, devices, told):
    made = af.Capture()
    for device in devices:
        made.device(device)
        made.kernel("k", 1_000, 2_000, device=device)
    made.sync(af.STREAM_SYNC, 1_500, 2_500, stream=af.NONE32, device=af.NONE32)
    folder = export_tables(tmp_path, "csv", made)
    syncs = read_csv(folder / "syncs.csv")
    assert {row["device"] for row in syncs} == told
    assert {row["stream"] for row in syncs} == {""}


def test_a_kind_of_a_later_version_is_unknown(tmp_path):
    made = af.Program()
    made.launch("a", 10_000)
    made.memory(99, made.now + 100_000, made.now + 110_000, size=5)
    (row,) = read_csv(export_tables(tmp_path, "csv", made) / "memory.csv")
    assert row["kind"] == "unknown"


def test_parquet_holds_what_csv_holds(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    tables, columns = export_tables(tmp_path, "csv", program()), export_tables(tmp_path, "parquet", program())
    for path in sorted(tables.iterdir()):
        table = parquet.read_table(columns / f"{path.stem}.parquet")
        rows = [
            {key: "" if value is None else str(value) for key, value in row.items()}
            for row in table.to_pylist()
        ]
        assert rows == read_csv(path)
    assert str(parquet.read_schema(columns / "kernels.parquet").field("start_ns").type) == "int64"


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = program().write(tmp_path)
    target = tmp_path / "out"
    assert cli.main(["export", "--input", str(path), "--format", "parquet", "--output", str(target)]) == 2
    assert "pip install 'ai-prof[parquet]'" in capsys.readouterr().err
    assert not target.exists()


def test_a_folder_in_use_is_left_alone(tmp_path, capsys):
    path = program().write(tmp_path)
    target = tmp_path / "out"
    target.mkdir()
    assert cli.main(["export", "--input", str(path), "--format", "csv", "--output", str(target)]) == 0
    before = sorted(target.iterdir())
    assert cli.main(["export", "--input", str(path), "--format", "csv", "--output", str(target)]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert sorted(target.iterdir()) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["h-100-0.aiprof", "out"]
    missing = tmp_path / "no" / "out"
    assert cli.main(["export", "--input", str(path), "--format", "csv", "--output", str(missing)]) == 2


def test_gzip_holds_the_same(tmp_path, trace):
    target = export(tmp_path, "out.json.gz")
    assert load(gzip.decompress(target.read_bytes()))["traceEvents"] == trace["traceEvents"]


@pytest.mark.parametrize("data", [af.Capture().data(), af.Capture().data()[:10]])
@pytest.mark.parametrize("kind", ["timeline", "csv"])
def test_of_a_capture_without_records_nothing_is_written(tmp_path, capsys, data, kind):
    path, target = tmp_path / "h-100-0.aiprof", tmp_path / "out.json"
    path.write_bytes(data)
    assert cli.main(["export", "--input", str(path), "--format", kind, "--output", str(target)]) == 3
    assert "no record could be read from" in capsys.readouterr().err
    assert not target.exists()


def test_a_capture_of_calls_alone_is_exported(tmp_path):
    made = af.Capture()
    made.call("cuInit", 1_000, 2_000, kind=0)
    path, target = made.write(tmp_path), tmp_path / "out.json"
    assert cli.main(["export", "--input", str(path), "--output", str(target)]) == 0
    assert [e["ph"] for e in load(target.read_text())["traceEvents"]] == ["M", "M", "X"]


def test_nothing_is_overwritten_by_a_failure(tmp_path, capsys):
    target = tmp_path / "out.json"
    target.write_text("old")
    assert cli.main(["export", "--input", str(tmp_path / "absent"), "--output", str(target)]) == 2
    assert target.read_text() == "old"
    path = program().write(tmp_path)
    assert cli.main(["export", "--input", str(path), "--output", str(tmp_path / "out.txt")]) == 2
    assert cli.main(["export", "--input", str(path), "--output", str(tmp_path / "no" / "out.json")]) == 2
    assert capsys.readouterr().err.count("\n") >= 3


def test_links_and_devices_stay_what_they_are(tmp_path):
    path = program().write(tmp_path)
    link, target, pipe = tmp_path / "link.json", tmp_path / "target.json", tmp_path / "pipe.json"
    link.symlink_to(target)
    assert cli.main(["export", "--input", str(path), "--output", str(link)]) == 0
    assert link.is_symlink()
    assert load(target.read_text())["traceEvents"]
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert cli.main(["export", "--input", str(path), "--output", str(pipe)]) == 0
    assert load(os.read(reader, 1 << 16).decode())["traceEvents"]
    os.close(reader)
    assert pipe.is_fifo()


def test_an_export_that_is_ended_leaves_no_half_of_a_file(tmp_path):
    made = af.Program()
    for _ in range(100_000):
        made.launch("k", 10_000)
    capture = made.write(tmp_path)
    for name, options, begun in (
        ("out.json", [], ".out.json.*"),
        ("tables", ["--format", "csv"], ".tables.*/*"),
    ):
        command = [sys.executable, "-m", "ai_prof", "export", "--input", str(capture), *options]
        exporting = subprocess.Popen([*command, "--output", str(tmp_path / name)], stderr=subprocess.DEVNULL)
        while exporting.poll() is None and not any(path.stat().st_size for path in tmp_path.glob(begun)):
            time.sleep(0.001)
        exporting.terminate()
        assert exporting.wait() == 128 + signal.SIGINT
        assert list(tmp_path.iterdir()) == [capture]
