from __future__ import annotations

import verdicts

from ai_prof.baselines.history import Point
from ai_prof.gate.model import Anchor
from ai_prof.report import history_plot, html
from ai_prof.report.write import write_reports


def point(build, value, **changes):
    fields = {
        "run_id": f"run-{build}",
        "workload": "torch_train",
        "metric": "iteration_ms",
        "machine_key": "h200-1x-141gb-r570-cuda12",
        "started": f"2025-01-{build + 1:02}T10:00:00+00:00",
        "session": f"s{build}",
        "host": "runner-7",
        "commit": f"{build:040x}",
        "dirty": False,
        "runs": 3,
        "value": value,
        "reason": "pass",
    }
    return Point(**(fields | changes))


def steps(before=12, after=12):
    """Builds at 12 ms, and from one of them on at 15 ms."""
    return [point(i, (12.0 if i < before else 15.0) + 0.01 * (i % 3)) for i in range(before + after)]


def marks(drawing, css):
    return [each for each in verdicts.parse(drawing).iter() if each.get("class") == css]


def test_every_build_is_a_mark_and_a_change_parts_two_levels():
    drawing = history_plot.draw(steps(), verdicts.workload(), "run-23")
    assert len(marks(drawing, "baseline")) == 23
    assert len(marks(drawing, "candidate")) == 1
    assert len(marks(drawing, "level")) == 2
    assert len(marks(drawing, "change-point")) == 1
    assert marks(drawing, "anchor") == []


def test_the_baseline_its_anchor_and_its_refresh_are_drawn():
    anchor = Anchor(when="2025-01-01T00:00:00Z", commit=None, runs=verdicts.runs("torch_train", 3))
    workload = verdicts.workload(anchor=anchor)
    drawing = history_plot.draw(steps(), workload, "run-23")
    assert len(marks(drawing, "floor")) == 1
    assert len(marks(drawing, "anchor")) == 1
    (refresh,) = marks(drawing, "divide")
    assert refresh.find("title").text == "baseline recorded 2025-01-10 10:29:00 UTC"


def test_few_builds_are_no_history_and_many_are_cut_to_the_latest():
    assert history_plot.draw(steps(1, 1), verdicts.workload(), "run-1") is None
    many = [point(0, 12.0, run_id=f"run-{i}") for i in range(300)]
    drawing = history_plot.draw(many, verdicts.workload(), "none")
    assert len(marks(drawing, "baseline")) == history_plot.MOST


def test_only_this_machine_and_latency_are_the_workloads_history(tmp_path):
    others = [point(30, 99.0, machine_key="another"), point(31, 99.0, metric="gap")]
    verdict = verdicts.build(verdicts.workload("torch_train"))
    found = history_plot.of([*steps(), *others], verdict)
    assert [len(points) for points in found.values()] == [24]
    page = write_reports(verdict, tmp_path, [*steps(), *others]).read_text()
    assert "Earlier builds on this machine" in page
    assert "Earlier builds on this machine" not in html.render(verdict)
