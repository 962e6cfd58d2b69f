"""Kineto traces in pieces of any size, in layouts of other writers, cut and damaged."""

from __future__ import annotations

import contextlib
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_trace import LAUNCHES, document, event, kernel, training, write

from ai_prof.errors import TraceError
from ai_prof.trace.open import open_trace
from ai_prof.trace.readers import kineto_stream


@pytest.fixture
def read(tmp_path):
    return lambda content, name="trace.json": open_trace(write(tmp_path / name, content))


def columns(trace):
    """All that a trace holds, whatever the order of its names."""
    found = {}
    for table in (trace.kernels, trace.memory, trace.syncs, trace.calls, trace.ranges):
        for name in table.__dataclass_fields__:
            values = getattr(table, name).tolist()
            found[type(table), name] = [trace.names[i] for i in values] if name == "name" else values
    return found


# Reading in pieces


@pytest.mark.parametrize("chunk", [97, 1000, 4096])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_pieces_of_any_size_give_the_same_trace(tmp_path, monkeypatch, chunk, indent, name):
    # A false boundary in nested args, strings that look like one, and a tail that does.
    events = training()
    events[3]["args"]["layers"] = [{"name": "a"}, {"name": "b"}]
    events[8]["name"] = '}, {"ph": "X"'
    events.append(event("cpu_op", "]}", 1, 1, note="}],"))
    tail = {"traceName": "x", "baseTimeNanoseconds": 5, "list": [{"name": 1}, {"name": 2}]}
    path = write(tmp_path / name, json.dumps(document(events, **tail), indent=indent).encode())
    whole = open_trace(path)
    monkeypatch.setattr(kineto_stream, "_CHUNK", chunk)
    pieces = open_trace(path)
    assert columns(pieces) == columns(whole)
    assert len(pieces.kernels.start) == LAUNCHES
    assert pieces.source.complete
    assert pieces.realtime_offset_ns == 5


@pytest.mark.parametrize(
    "text", [b"[%s]", b"\xef\xbb\xbf [%s]", b'{"traceEvents" : [%s ]}', b'{"traceEvents":[%s],"a":[]}\n\n']
)
def test_a_list_of_events_alone_is_a_trace(read, text):
    trace = read(text % json.dumps(training())[1:-1].encode())
    assert len(trace.kernels.start) == LAUNCHES
    assert trace.source.complete


def test_gzip_of_several_members(tmp_path):
    text = json.dumps(document(training())).encode()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(text[:500]) + gzip.compress(text[500:]) + b"\0" * 512)
    trace = open_trace(path)
    assert len(trace.kernels.start) == LAUNCHES
    assert trace.source.complete


# What goes wrong


@pytest.mark.parametrize(
    "odd",
    [
        {"ph": "M", "name": "process_name", "pid": 0},
        {"ph": "X", "cat": "npu_kernel", "name": "k", "ts": 1, "dur": 1},
        {"ph": "X", "cat": None, "name": "k", "ts": 1, "dur": 1},
        {"ph": "X", "cat": ["kernel"], "name": "k", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": 5, "ts": {}, "dur": [], "args": None},
    ],
)
def test_an_odd_event_changes_nothing_of_others(read, odd):
    assert columns(read(document([*training(), odd]))) == columns(read(document(training())))


@pytest.mark.parametrize("events", [[], [{}]])
def test_an_empty_trace_is_no_fault(read, events):
    assert len(read(document(events)).kernels.start) == 0


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_cut_file_gives_what_is_whole(tmp_path, name, share):
    path = write(tmp_path / name, document(training(400)))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    trace = open_trace(path)
    assert not trace.source.complete
    assert any("cut" in warning for warning in trace.source.warnings)
    assert 0 < len(trace.kernels.start) < 400
    assert trace.kernels.start.tolist() == [1_020_000 + 100_000 * i for i in range(len(trace.kernels.start))]
    assert trace.devices[0].name == "NVIDIA H200"


@given(at=st.floats(0.1, 1), junk=st.binary(min_size=1, max_size=60))
def test_a_cut_or_damaged_file_is_read_or_refused(tmp_path_factory, at, junk):
    text = json.dumps(document(training())).encode()
    cut = int(len(text) * at)
    path = tmp_path_factory.mktemp("damaged") / "t.json"
    for content in (text[:cut], text[:cut] + junk + text[cut + len(junk) :]):
        path.write_bytes(content)
        with contextlib.suppress(TraceError):
            assert len(open_trace(path).kernels.start) <= LAUNCHES


@pytest.mark.parametrize("junk", [b"\0" * 40, b"}}]]", b'"', b"}], {", b"\xff\xfe{[", b'"}, {"ph":'])
def test_damage_in_the_middle_costs_the_events_it_hits(tmp_path, junk):
    text = json.dumps(document(training())).encode()
    at = text.index(b"void gemm<1", len(text) // 2)
    trace = open_trace(write(tmp_path / "t.json", text[:at] + junk + text[at + len(junk) :]))
    assert len(trace.kernels.start) >= LAUNCHES - 2
    assert len(trace.calls.start) >= LAUNCHES - 1


def test_broken_json_in_the_middle_is_counted(tmp_path):
    events = training()
    text = json.dumps(document(events)).encode().replace(b'"ts": 3000, "dur": 5,', b'"ts": , "dur" 5')
    trace = open_trace(write(tmp_path / "t.json", text))
    assert len(trace.calls.start) == LAUNCHES - 1
    assert len(trace.kernels.start) == LAUNCHES
    assert not trace.source.complete
    assert any("1 damaged piece" in warning for warning in trace.source.warnings)


def test_names_that_are_not_utf8_are_mended(read):
    text = (
        json.dumps(document([kernel(1, 1, "caf#"), kernel(3, 1, "plain")]))
        .encode()
        .replace(b"#", b"\xe9\xff")
    )
    trace = read(text)
    assert [trace.names[i] for i in trace.kernels.name] == ["caf��", "plain"]
    assert any("UTF-8" in warning for warning in trace.source.warnings)


@pytest.mark.parametrize("number", [b"inf", b"nan", b"Infinity", b"-inf", b"NaN"])
def test_numbers_that_are_not_finite_cost_no_event(read, number):
    events = training()
    events[3]["args"]["memory bandwidth (GB/s)"] = "#"
    trace = read(json.dumps(document(events)).encode().replace(b'"#"', number))
    assert len(trace.kernels.start) == LAUNCHES
    assert trace.source.complete


@pytest.mark.parametrize(
    "args",
    [
        None,
        {"stream": "0x7f", "device": "0", "correlation": -1},
        {"stream": 2**70, "device": 0, "correlation": 2**33, "context": None},
        {"grid": [1, 2], "block": "x", "bytes": [], "registers per thread": None},
        {"stream": [1], "device": 0, "grid": [[1], [2], [3]]},
    ],
)
def test_odd_args_cost_no_event(read, args):
    odd = event("kernel", "k", 5, 1, 0, 7)
    odd["args"] = args
    trace = read(document([kernel(1, 1), odd]))
    assert len(trace.kernels.start) == 2
    assert [device.ordinal for device in trace.devices] == [0]


@pytest.mark.parametrize("where", ["args", "name", "ts", "x"])
def test_values_nested_without_end_cost_their_event_alone(read, where):
    events = training()
    events[3][where] = "#"
    text = json.dumps(document(events)).encode()
    for nested in (b"[" * 200_000 + b"]" * 200_000, b"[" * 200_000):
        trace = read(text.replace(b'"#"', nested))
        assert len(trace.kernels.start) >= LAUNCHES - 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<!DOCTYPE html><html></html>",
        b'{"a": 1}',
        b"\x1f\x8bnothing",
        b"\0" * 5000,
        gzip.compress(b"<html>", mtime=0),
        b"3",
    ],
)
@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t"])
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceError) as refused:
        open_trace(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
