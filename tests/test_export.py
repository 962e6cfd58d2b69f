from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal

import aiprof_file as af
import pytest

from ai_prof import cli


def program():
    made = af.Program(rank=1)
    for _ in range(4):
        made.copy(af.HTOD, 20_001, size=77)
        made.launch('na"me <T>', 10_003, stream=8)
        made.graph_launch(["a", "b"], 1_000)
        made.synchronize()
    made.memory(6, made.now + 100_000, made.now + 100_007, size=5)
    made.range("step é", 1_000_000_000, made.now)
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
        assert event["ph"] in {"X", "M", "s", "f"}
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "thread_name"}
            assert isinstance(event["args"]["name"], str)
            continue
        assert event["ts"] >= 0
        assert -event["ts"].as_tuple().exponent == 3
        if event["ph"] == "X":
            assert event["dur"] >= 0
        else:
            assert {"id", "cat"} <= set(event)


def test_counts_and_times_are_exact(tmp_path, trace):
    made = program()
    by_kind = Counter(e["cat"] for e in trace["traceEvents"] if e["ph"] == "X")
    assert by_kind == {"kernel": 12, "memcpy": 4, "memset": 1, "call": 16, "sync": 4, "range": 1}
    base = trace["baseTimeNanoseconds"]
    assert base == 1_000_000_000
    kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel" and e["name"] == 'na"me <T>']
    assert [int(e["dur"] * 1000) for e in kernels] == [10_003] * 4
    first = next(e for e in trace["traceEvents"] if e.get("cat") == "memcpy")
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
    assert {"stream 7", "stream 8", "thread 1"} == set(names.values())
    groups = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert groups == {"cuda 0: GPU", "prog (rank 1, pid 100 on h)"}


def test_arrows_join_launches_to_their_work(trace):
    flows = {}
    for event in trace["traceEvents"]:
        if event["ph"] in {"s", "f"}:
            flows.setdefault(event["id"], {})[event["ph"]] = event
    # 4 copies, 4 kernels, and two nodes of each of 4 graph launches.
    assert len(flows) == 16
    events = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] != "range"]
    slices = {(e["pid"], e["tid"], e["ts"]): e for e in events}
    for flow in flows.values():
        origin, target = (slices[e["pid"], e["tid"], e["ts"]] for e in (flow["s"], flow["f"]))
        assert origin["cat"] == "call"
        assert target["cat"] in {"kernel", "memcpy"}
        assert origin["args"]["correlation"] == target["args"]["correlation"]


def test_gzip_holds_the_same(tmp_path, trace):
    target = export(tmp_path, "out.json.gz")
    assert load(gzip.decompress(target.read_bytes()))["traceEvents"] == trace["traceEvents"]


def test_an_empty_capture_gives_a_valid_file(tmp_path):
    path = af.Capture().write(tmp_path)
    target = tmp_path / "out.json"
    assert cli.main(["export", "--input", str(path), "--output", str(target)]) == 0
    assert [e["ph"] for e in load(target.read_text())["traceEvents"]] == ["M"]


def test_nothing_is_overwritten_by_a_failure(tmp_path, capsys):
    target = tmp_path / "out.json"
    target.write_text("old")
    assert cli.main(["export", "--input", str(tmp_path / "absent"), "--output", str(target)]) == 2
    assert target.read_text() == "old"
    path = af.Capture().write(tmp_path)
    assert cli.main(["export", "--input", str(path), "--output", str(tmp_path / "out.txt")]) == 2
    assert cli.main(["export", "--input", str(path), "--output", str(tmp_path / "no" / "out.json")]) == 2
    assert capsys.readouterr().err.count("\n") >= 3
