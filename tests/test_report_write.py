from __future__ import annotations

import json
import os
from pathlib import Path

import fake_project
import msgspec
import pytest
import verdicts

from ai_prof.cli import main
from ai_prof.errors import UsageError
from ai_prof.gate.model import BuildVerdict
from ai_prof.report import write
from ai_prof.report.write import write_reports


def test_a_folder_gets_all_reports(tmp_path):
    verdict = verdicts.mixed()
    page = write_reports(verdict, tmp_path / "reports" / "run")
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "comment.txt",
        "index.html",
        "junit.xml",
        "report.json",
        "report.md",
    ]
    assert msgspec.json.decode((page.parent / "report.json").read_bytes(), type=BuildVerdict) == verdict


def test_a_second_report_replaces_the_first(tmp_path):
    write_reports(verdicts.mixed(), tmp_path)
    write_reports(verdicts.passing(), tmp_path)
    assert "Pass: no regression" in (tmp_path / "index.html").read_text()
    assert len(list(tmp_path.iterdir())) == 5


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(UsageError, match="taken"):
        write_reports(verdicts.passing(), taken)
    assert taken.read_text() == "mine"


def test_a_renderer_that_fails_leaves_the_old_reports(tmp_path, monkeypatch):
    write_reports(verdicts.passing(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(write.html, "render", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_reports(verdicts.mixed(), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def not_utf8(folder):
    made = Path(os.fsdecode(bytes(folder) + b"/caf\xe9"))
    made.mkdir()
    return made


def test_a_path_that_is_no_utf8_is_replaced_where_it_is_shown(tmp_path):
    folder = not_utf8(tmp_path)
    sample = verdicts.regressed_by_time()
    sample.baseline["path"] = str(folder / "key" / "torch_decode.json")
    verdict = verdicts.build(sample, exit_code=1, notes=[f"{folder}: a note"])
    write_reports(verdict, folder / "report")
    read = {path.name: path.read_text(encoding="utf-8") for path in (folder / "report").iterdir()}
    assert "caf\ufffd/key/torch_decode.json</td>" in read["index.html"]
    assert all("caf\ufffd: a note" in read[name] for name in ("index.html", "report.md", "comment.txt"))
    stored = msgspec.json.decode(read["report.json"], type=BuildVerdict).workloads[0].baseline
    assert str(stored["path"]).endswith("/caf\\udce9/key/torch_decode.json")


def test_a_repository_at_a_path_that_is_no_utf8_is_gated(tmp_path, monkeypatch, capsys):
    project = fake_project.enter(not_utf8(tmp_path), monkeypatch)
    assert project.gate("--record") == 0
    assert "Pass: no regression in 1 workload" in capsys.readouterr().out
    assert "/caf\\udce9/.ai-prof/" in project.workload()["baseline"]["path"]
    assert project.gate("--shard", "1/1", "--report", "shards") == 0
    capsys.readouterr()
    assert main(["report", "merge", "shards", "--json"]) == 0
    (workload,) = json.loads(capsys.readouterr().out)["workloads"]
    assert "/caf\\udce9/.ai-prof/" in workload["baseline"]["path"]
