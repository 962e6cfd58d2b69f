from __future__ import annotations

import msgspec
import pytest
import verdicts

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
