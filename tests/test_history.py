"""The history of gated builds: kept, carried, and cut where a commit changed a level."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from datetime import datetime, timedelta, timezone

import msgspec
import numpy as np
import pytest
from gate_runs import WORKLOAD, Machine
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_prof.baselines import history
from ai_prof.baselines.history import Point
from ai_prof.cli import main
from ai_prof.cli.gate import remember
from ai_prof.errors import BaselineError
from ai_prof.gate import decide
from ai_prof.gate.model import Reason, WorkloadVerdict

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def sha(number: int) -> str:
    return f"{number:02x}" * 20


def build(number: int, slower: float = 1.0, structure: dict[str, int | None] | None = None, **facts: object):
    """The verdict of one build; three runs of one workload."""
    machine = Machine(number, session_sd=0.002)
    runs = machine.session(f"s{number}", slower=slower, structure=structure)
    workload = WorkloadVerdict(workload=WORKLOAD, reason=Reason.PASS, candidate_runs=runs)
    started = (START + timedelta(days=number)).isoformat()
    values = {"device": "cuda", "machine_key": "k", "commit": sha(number), "finished": started, **facts}
    return decide.build([workload], run_id=f"r{number:03}", started=started, **values)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """40 builds, 5 % slower from number 23 on."""
    monkeypatch.chdir(tmp_path)
    for number in range(40):
        remember(tmp_path, build(number, 1.05 if number >= 23 else 1.0))
    return tmp_path / ".ai-prof" / history.FILE


@pytest.mark.usefixtures("kept")
def test_the_commit_of_a_change_is_named(capsys):
    assert main(["history", "--metric", "kernel_time_ms", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["points"], second["points"]) == (23, 17)
    assert (second["before"], second["commit"]) == (sha(22), sha(23))
    assert second["change"] == pytest.approx(0.05, abs=0.005)
    assert main(["history", "--workload", WORKLOAD]) == 0
    out = capsys.readouterr().out
    assert sha(23)[:12] in out
    assert "iteration latency" in out


def test_few_builds_and_uncommitted_ones_are_told_as_what_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, slower in enumerate((1.0, 1.25, 1.25, 1.5)):
        remember(tmp_path, build(number, slower, commit=sha(7), dirty=number > 0))
    assert main(["history", "--metric", "iteration_ms", "--json"]) == 0
    (level,) = json.loads(capsys.readouterr().out)
    assert (level["points"], level["uncommitted"], level["dirty"]) == (4, 3, False)
    assert level["highest"] / level["lowest"] == pytest.approx(1.5, rel=0.02)
    assert main(["history"]) == 0
    out = capsys.readouterr().out
    assert "4 (3 uncommitted)" in out
    assert out.endswith("shows from 10 builds on, 5 on each side; that of a count at once.\n")


@pytest.mark.usefixtures("kept")
def test_enough_builds_need_no_word_about_it(capsys):
    assert main(["history"]) == 0
    assert "on each side" not in capsys.readouterr().out


def test_a_count_is_listed_where_it_changed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, kernels in enumerate((100, 100, 140, None)):
        remember(tmp_path, build(number, structure={"kernels": kernels}, dirty=number == 2))
    assert main(["history"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    (new,) = [row for row in rows if row[:2] == ["140", "+40"]]
    assert new[-1] == sha(2)[:12] + "+"
    assert ["kernels", "100"] in [row[:2] for row in rows]
    assert "synchronizes" not in {row[0] for row in rows if row}
    assert main(["history", "--metric", "syncs", "--json"]) == 0
    (level,) = json.loads(capsys.readouterr().out)
    assert (level["median"], level["points"]) == (1, 4)


def test_values_of_a_newer_ai_prof_are_left_out_and_counted(kept, tmp_path, capsys):
    latest = history.load(kept)[-1]
    newer = [msgspec.structs.replace(latest, metric=metric) for metric in ("nope", "neither")]
    lines = tmp_path / "newer.jsonl"
    lines.write_bytes(history.to_lines(newer))
    assert main(["history", "import", str(lines)]) == 0
    capsys.readouterr()
    assert main(["history"]) == 0
    told = capsys.readouterr()
    assert told.err == "ai-prof: left out 2 values of metrics that this ai-prof does not know\n"
    assert "iteration latency" in told.out
    lines.write_text('{"a":' * 100_000)
    assert main(["history", "import", str(lines)]) == 2


def test_what_is_exported_is_imported_once(kept, tmp_path, capsys):
    assert main(["history", "export"]) == 0
    lines = tmp_path / "history.jsonl"
    lines.write_text(capsys.readouterr().out)
    assert len(lines.read_text().splitlines()) == len(history.load(kept))
    other = tmp_path / "elsewhere" / "history.sqlite"
    for added in (len(history.load(kept)), 0):
        assert main(["history", "--history", str(other), "import", str(lines)]) == 0
        assert f"{added} of {len(history.load(kept))} values were new" in capsys.readouterr().err
    assert history.load(other) == history.load(kept)


points_of = st.builds(
    Point,
    run_id=st.text(min_size=1),
    workload=st.text(),
    metric=st.sampled_from(["gap", "gap_ms"]),
    machine_key=st.text(),
    started=st.text(),
    session=st.text(),
    host=st.text(),
    commit=st.none() | st.text(),
    dirty=st.booleans(),
    runs=st.integers(0, 99),
    value=st.floats(0, 1e18),
    reason=st.text(),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(points_of.filter(lambda p: p.run_id.isprintable()), max_size=5))
def test_lines_keep_every_value(points):
    assert history.from_lines(history.to_lines(points), "file") == points


def test_values_come_back_as_they_were(tmp_path):
    path = tmp_path / "h.sqlite"
    verdict = build(1)
    history.append(path, history.points(verdict))
    assert sorted(history.load(path), key=lambda p: p.metric) == sorted(
        history.points(verdict), key=lambda p: p.metric
    )
    values = [run.metrics["iteration_ms"] for run in verdict.workloads[0].candidate_runs]
    (latency,) = [p for p in history.load(path) if p.metric == "iteration_ms"]
    assert latency.value == np.median(values)
    assert latency.runs == 3


def test_a_known_slowdown_and_runs_that_failed_are_no_history():
    assert history.points(build(1, regress="slow")) == []
    failed = build(1)
    for workload in failed.workloads:
        workload.candidate_runs = [
            msgspec.structs.replace(run, problem=Reason.FAILED) for run in workload.candidate_runs
        ]
    assert history.points(failed) == []


def test_builds_at_once_are_all_kept(tmp_path):
    path = tmp_path / "h.sqlite"
    threads = [
        threading.Thread(target=lambda n=n: history.append(path, history.points(build(n)))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({point.run_id for point in history.load(path)}) == 8


def test_a_history_that_cannot_be_used_is_said_and_decides_no_build(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".ai-prof" / history.FILE
    path.parent.mkdir()
    path.write_bytes(b"not a database, and longer than a header of one would be" * 4)
    remember(tmp_path, build(1))
    assert "not in the history" in capsys.readouterr().err
    assert main(["history"]) == 2
    assert str(path) in capsys.readouterr().err
    path.unlink()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 9")
    with pytest.raises(BaselineError, match="newer ai-prof"):
        history.load(path)


@pytest.mark.usefixtures("kept")
def test_a_disk_that_is_full_is_no_reason_to_move_a_history_away(tmp_path, capsys, monkeypatch):
    connect = sqlite3.connect

    def small(*arguments, **options):
        history = connect(*arguments, **options)
        (pages,) = history.execute("PRAGMA page_count").fetchone()
        history.execute(f"PRAGMA max_page_count = {pages}")
        return history

    monkeypatch.setattr(sqlite3, "connect", small)
    points = history.points(build(1))
    new = [msgspec.structs.replace(point, run_id=f"new{i}") for i in range(999) for point in points]
    (tmp_path / "lines").write_bytes(history.to_lines(new))
    assert main(["history", "import", str(tmp_path / "lines")]) == 2
    assert "is full): make room" in capsys.readouterr().err


def test_nothing_kept_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["history"]) == 3
    assert "`ai-prof gate` adds them" in capsys.readouterr().err
    (tmp_path / "bad.jsonl").write_text('{"run_id": "r"}\n')
    assert main(["history", "import", "bad.jsonl"]) == 2
    assert "line 1 is no point" in capsys.readouterr().err
    assert main(["history", "import", "missing"]) == 2
