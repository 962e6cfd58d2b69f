from __future__ import annotations

import gzip
import json

import msgspec
import pytest
import verdicts
from test_timeline_profile import loop

from ai_prof.errors import UsageError
from ai_prof.report.write import write_reports


def captured(workload, folder):
    return [msgspec.structs.replace(run, capture=str(folder)) for run in workload.confirm_head]


def test_the_full_timelines_of_a_regression_lie_beside_the_report(tmp_path):
    workload = verdicts.regressed_by_time("a b/c")
    folder = tmp_path / "capture"
    folder.mkdir()
    loop(12).write(folder)
    workload.confirm_head = captured(workload, folder)
    page = write_reports(verdicts.build(workload, exit_code=1), tmp_path / "report")
    (written,) = (tmp_path / "report" / "timelines").iterdir()
    assert f'href="timelines/{written.name}"' in page.read_text()
    with gzip.open(written) as file:
        assert json.load(file)["traceEvents"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "its capture is not here"),
        (b"", "its capture holds no device work"),
        (b"junk", "its capture cannot be read"),
    ],
)
def test_a_capture_without_anything_to_show_has_no_link_and_a_word_why(tmp_path, content, why):
    workload = verdicts.regressed_by_time()
    capture = tmp_path / "h-1-0.aiprof"
    if content is not None:
        capture.write_bytes(content)
    workload.confirm_head = captured(workload, capture)
    page = write_reports(verdicts.build(workload, exit_code=1), tmp_path / "report")
    assert f"none of head: {why}" in page.read_text()
    assert 'href="timelines/' not in page.read_text()
    assert not (tmp_path / "report" / "timelines").exists()


def test_a_timeline_that_cannot_be_written_is_a_usage_error(tmp_path):
    workload = verdicts.regressed_by_time()
    (tmp_path / "capture").mkdir()
    loop(12).write(tmp_path / "capture")
    workload.confirm_head = captured(workload, tmp_path / "capture")
    (tmp_path / "timelines").write_text("mine")
    with pytest.raises(UsageError, match="name another folder with --report"):
        write_reports(verdicts.build(workload, exit_code=1), tmp_path)
