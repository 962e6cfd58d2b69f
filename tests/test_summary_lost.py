from __future__ import annotations

import json

import aiprof_file as af
import pytest
from summaries import ids, loop, summary

from ai_prof import cli


def lost(capsys, folder, *, meta=(), **counts):
    program = loop()
    program.loss(af.KERNEL, 60, **counts)
    program.meta(**dict(meta))
    found = summary(capsys, folder, program)
    assert ids(found)[0] == "lost-records"
    assert "incomplete-capture" not in ids(found)
    return found["findings"][0]


def test_losses_come_before_everything(tmp_path, capsys):
    finding = lost(capsys, tmp_path, budget=7)
    assert finding["evidence"]["lost"] == {"kernel": 7}
    assert finding["evidence"]["budget_dropped"] == 7


@pytest.mark.parametrize(
    ("counts", "meta", "remedy"),
    [
        ({"budget": 7}, {}, "AI_PROF_BUFFER_MB"),
        ({"cupti": 7}, {}, "AI_PROF_BUFFER_MB"),
        ({"invalid": 7}, {}, "AI_PROF_GRAPHS"),
        ({"budget": 7}, {"write_errors": 1}, "free some space"),
    ],
)
def test_the_remedy_fits_what_lost_the_records(tmp_path, capsys, counts, meta, remedy):
    (action,) = lost(capsys, tmp_path, meta=meta, **counts)["actions"]
    assert remedy in action


def test_of_a_trace_that_was_cut_at_once_nothing_is_claimed(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_text("[1,2")
    assert cli.main(["summary", "--input", str(path)]) == 3
    assert "whether the program did any can't be told" in capsys.readouterr().err


def test_of_a_trace_that_was_cut_before_its_device_work_no_absence_is_claimed(tmp_path, capsys):
    # torch.profiler writes what the host did first.
    path = tmp_path / "trace.json"
    call = '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%d,"dur":5}'
    path.write_text('{"traceEvents": [' + ",".join(call % (10 * i) for i in range(1, 50)) + ',{"ph":"X","ca')
    assert cli.main(["summary", "--input", str(path), "--json"]) == 3
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["id"], finding["severity"]) == ("incomplete-capture", "critical")
    assert finding["actions"][0].startswith("Capture again: the device work may lie in the part")


def test_of_what_a_cut_trace_lost_it_is_not_said_that_there_was_none(tmp_path, capsys):
    work = {"ph": "X", "cat": "kernel", "name": "k", "dur": 50}
    events = [work | {"ts": 100 + 100 * i, "args": {"device": 0, "stream": 7}} for i in range(9)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events})[:-2])
    assert cli.main(["summary", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert "No copies could be read; 1 stream; no synchronizes could be read." in text
    assert "AI_PROF_LEVEL" not in text
    path.write_text(json.dumps({"traceEvents": events}))
    assert cli.main(["summary", "--input", str(path)]) == 0
    assert "No copies; 1 stream; no synchronizes in these iterations." in capsys.readouterr().out


def test_a_cut_capture_is_summarised_and_said(tmp_path, capsys):
    path = loop().write(tmp_path, closed=False)
    assert cli.main(["summary", "--input", str(path), "--json"]) == 0
    captured = capsys.readouterr()
    assert "without closing" in captured.err
    found = json.loads(captured.out)
    assert not found["source"]["complete"]
    assert ids(found)[0] == "incomplete-capture"


def flushes(iterations, *, each=10, work=50_000):
    """The blocks of a capture whose records of all kinds were written every few iterations, kind by kind."""
    program, begin = af.Program(level="api"), 0
    for i in range(iterations):
        program.work(work)
        program.copy(af.HTOD, 20_000)
        for k in range(3):
            program.launch(f"k{k}", 100_000)
        program.copy(af.DTOH, 20_000)
        program.synchronize()
        if i % each == each - 1:
            program.rows[begin:] = sorted(program.rows[begin:], key=lambda row: row[0])
            begin = len(program.rows)
    return program.blocks()


def kind(block):
    return int.from_bytes(block[:4], "little")


def cut_at(blocks, what, folder):
    """The capture without its last block of a kind and all that follows, but for that block's begin."""
    last = max(i for i, block in enumerate(blocks) if kind(block) == what)
    path = folder / "h-100-0.aiprof"
    path.write_bytes(b"".join(blocks[:last]) + blocks[last][:40])
    return path


@pytest.mark.parametrize("what", [af.KERNEL, af.MEMCPY, af.SYNC, af.CALL])
def test_the_figures_of_a_cut_capture_end_with_the_last_flush(tmp_path, capsys, what):
    path = cut_at(flushes(40), what, tmp_path)
    assert cli.main(["summary", "--input", str(path), "--json"]) == 0
    captured = capsys.readouterr()
    assert "it was cut" in captured.err
    assert ("; some kinds of records end before others" in captured.err) == (what != af.KERNEL)
    found = json.loads(captured.out)
    (device,) = found["devices"]
    assert (device["iterations"]["count"], device["gap_causes"]["unknown"]) == (30, 0)
    assert device["memcpy_count"] == 2 * 29
    assert device["sync_count"] == 29
    assert "gap-unknown" not in ids(found)


def test_gaps_of_a_cut_capture_are_not_laid_to_its_level(tmp_path, capsys):
    path = cut_at(flushes(40, each=40, work=100_000), af.CALL, tmp_path)
    assert cli.main(["summary", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert "unknown (its launch is not in the file)" in text
    assert "The launches of what ran after these gaps are missing, with what could not be read" in text
    assert "AI_PROF_LEVEL" not in text


def test_of_a_capture_that_is_mostly_damaged_the_share_is_said_and_no_advice_given(tmp_path, capsys):
    blocks = flushes(60, each=2)
    third = [i for i, block in enumerate(blocks) if kind(block) == af.KERNEL][2]
    blocks[third] = blocks[third][:-1] + b"\xff"
    path = tmp_path / "h-100-0.aiprof"
    path.write_bytes(b"".join(blocks))
    share = f"{sum(map(len, blocks[:third])) / path.stat().st_size:.1%}"
    assert cli.main(["summary", "--input", str(path)]) == 0
    captured = capsys.readouterr()
    assert f"is damaged: what follows was not read; {share} of the file could be" in captured.err
    steps = [line for line in captured.out.splitlines() if line[0] != " "][1:]
    remedy = f"Capture again: {share} of it could be read, and no figure speaks for the rest."
    assert steps == [f"1. The capture is incomplete (critical). {remedy}"]
    path.write_bytes(b"AIPROF\r\n\x01\x00")
    assert cli.main(["summary", "--input", str(path)]) == 3
    assert "Capture again: nothing of it could be read" in capsys.readouterr().out
