from __future__ import annotations

import io
import re

import msgspec
import pytest
import verdicts
from html_page import Page
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ai_prof.gate.model import Cell, Evidence, LastCalibration, Reason, StructureChange
from ai_prof.report import (
    conditions,
    gaps,
    html,
    junit,
    markdown,
    plot,
    provenance,
    svg,
    terminal,
    view,
    words,
)

SAMPLES = {
    "passing": verdicts.passing,
    "mixed": verdicts.mixed,
    "by time": lambda: verdicts.build(verdicts.regressed_by_time(), exit_code=1),
    "by structure": lambda: verdicts.build(verdicts.regressed_by_structure(), exit_code=1),
    "disturbed": verdicts.disturbed,
    "no baseline": verdicts.no_baseline,
    "nasty": verdicts.nasty,
    "empty": lambda: verdicts.build(exit_code=3, summary="No usable device."),
}


@pytest.fixture(params=SAMPLES, scope="module")
def source(request):
    return html.render(SAMPLES[request.param]())


def test_a_page_is_well_formed_with_unique_ids_and_working_links(source):
    page = Page(source)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.tags:
        if "href" in attrs and attrs["href"] != "data:,":
            assert attrs["href"].startswith("#")
            assert attrs["href"][1:] in ids


def test_a_page_needs_no_network_and_scripts_only_where_there_is_something_to_zoom(source):
    page = Page(source)
    tags = [tag for tag, _ in page.tags]
    assert not set(tags) & {"img", "iframe", "object", "form", "base", "button"}
    assert not re.search(r"https?:|//[a-z]|@import|url\(", source.split("<main", 1)[0])
    timelines = sum(attrs.get("class") == "timelines" for _, attrs in page.tags)
    assert tags.count("script") == timelines + (timelines > 0)
    for _, attrs in page.tags:
        assert not any(name.startswith("on") or name == "src" for name in attrs)


def test_tables_have_captions_and_scoped_headers(source):
    page = Page(source)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("caption") == tags.count("table")
    assert all(attrs.get("scope") in {"row", "col"} for tag, attrs in page.tags if tag == "th")
    assert tags.count("h1") == 1
    assert all(a.get("aria-label") or a.get("aria-hidden") for t, a in page.tags if t == "svg")


def test_the_verdict_comes_first_with_what_by_how_much_and_how_sure():
    text = " ".join(Page(html.render(verdicts.mixed())).text.split())
    assert text.index("2 of 7 workloads regressed") < text.index("torch_decode")
    assert (
        "Iteration latency +38.1 % 12.40 ms → 17.12 ms confirmed, p = 0.0011 An iteration takes 4.576 ms "
        "longer: the device waits 4.700 ms longer while the host prepares input. The gap between gemm_2 and "
        "memcpy host to device grew from 200.0 µs to 4.700 ms."
    ) in text
    assert "Synchronizes per iteration +1 1 → 2 exact count · provisional" in text
    assert "64 more kernels, 1 more synchronize" in text
    assert "at most 1 %" in text
    for fact in ("NVIDIA H200", "h200-1x-141gb-r570-cuda12", "8c2e11f0a4", "20250210-101500-5f1c2d9"):
        assert fact in text


def test_a_baseline_is_named_by_its_place_in_the_project(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    inside, outside = verdicts.workload("inside"), verdicts.workload("outside")
    inside.baseline["path"] = str(tmp_path / "baselines" / "key" / "inside.json")
    outside.baseline["path"] = "/elsewhere/baselines/key/outside.json"
    page = html.render(verdicts.build(inside, outside))
    assert f'title="{inside.baseline["path"]}">baselines/key/inside.json</td>' in page
    assert ">/elsewhere/baselines/key/outside.json</td>" in page
    assert f'title="{inside.baseline["sha256"]}">9f86d081884c</td>' in page


def test_rows_of_fresh_runs_are_not_taken_for_the_stored_baseline():
    said = "baseline and candidate of a confirmed row are the fresh runs of both"
    assert said in html.render(verdicts.build(verdicts.regressed_by_time(), exit_code=1))
    page = html.render(verdicts.passing())
    assert said not in page
    assert "<td>2025-01-10 10:29:00 UTC</td>" in page


def test_what_takes_longer_stands_before_what_only_counts_more():
    more = StructureChange(name="syncs", baseline=1, candidate=200, reason=Reason.REGRESSED)
    slower = verdicts.regressed_by_time("slower")
    slower.structure = [msgspec.structs.replace(more, candidate=2)]
    counts = verdicts.workload("counts", Reason.REGRESSED, evidence=Evidence.STRUCTURE, structure=[more])
    assert [each.workload for each in view.ordered([counts, slower])] == ["slower", "counts"]


def test_workloads_stand_in_order_and_unchanged_ones_are_folded():
    page = html.render(verdicts.mixed())
    names = re.findall(r'<h2 id="workload-\d+-name">(.*?)</h2>', page)
    assert names == [
        "cl_tiny",
        "torch_decode",
        "cl_overlap",
        "cl_loader",
        "torch_eval",
        "cl_new",
        "torch_ddp",
    ]
    assert re.search(r'<details class="group">\s*<summary><h2>1 workload without a finding', page)


def test_names_are_escaped_and_long_on_hover():
    page = html.render(verdicts.nasty())
    titles = [attrs.get("title") for _, attrs in Page(page).tags]
    name = verdicts.NASTY[2]
    assert any(title and len(title) > 900 and name.startswith(title.split("…")[0]) for title in titles)
    assert "<img" not in page
    assert page.count("</script") == page.count("<script") == 2
    assert "\x00" not in page
    assert "\x1b" not in page


def test_a_large_build_is_shown_whole_and_says_which_rows_it_left_out():
    page = html.render(verdicts.large())
    assert len(page.encode()) <= html.MAX_BYTES
    assert "more differences in report.json" in page
    assert "Not drawn" in page
    assert page.count("workload_") > 60
    assert "To keep this page small" not in page
    Page(page)


def of_long_names(size=300_000):
    """A build in which every text is long, and none the same."""
    kernels = [f"{letter * size}<{letter}>" for letter in "ab"]
    sample = verdicts.regressed_by_time("w" * size)
    sample.notes, sample.why = ["n" * size], "y" * size
    sample.structure = [
        StructureChange(name=f"kernel:{kernels[0]}", baseline=1, candidate=2, reason=Reason.REGRESSED)
    ]
    sample.cells[1].why, sample.cells[1].notes = "c" * size, ["d" * size]
    sample.explained = verdicts.explained(kernels)
    sample.candidate_runs = [
        msgspec.structs.replace(run, session="s" * size, environment={"e" * size: "f" * size})
        for run in sample.candidate_runs
    ]
    facts = {"machine_key": "k" * size, "commit": "h" * size, "run_id": "r" * size, "device": "v" * size}
    return verdicts.build(sample, exit_code=1, notes=["m" * size], machine={"g" * size: "i" * size}, **facts)


TOO_LARGE = {
    "regressed": lambda: verdicts.build(
        *(verdicts.regressed_by_time(f"w{i}") for i in range(250)), exit_code=1
    ),
    "unchanged": lambda: verdicts.build(*(verdicts.workload(f"w{i}") for i in range(400))),
    "facts": lambda: verdicts.build(
        verdicts.workload(), machine={f"<{i}>": "&" * 999 for i in range(3000)}, notes=["'" * 999] * 3000
    ),
    "metrics": lambda: verdicts.build(
        verdicts.workload(cells=[verdicts.cell(f"m{i}", notes=['"' * 999]) for i in range(3000)]),
        verdicts.regressed_by_structure(),
    ),
}


@pytest.mark.parametrize("sample", TOO_LARGE)
def test_a_page_too_large_is_cut_and_says_what_it_left_out(sample):
    page = html.render(TOO_LARGE[sample]())
    assert 20_000 < len(page.encode()) <= html.MAX_BYTES
    Page(page)
    assert re.search(r"details of \d+ workloads? are left out|more rows in report.json", page)


def test_no_name_makes_a_report_large():
    verdict = of_long_names()
    page = html.render(verdict)
    Page(page)
    assert len(page.encode()) < 300_000
    texts = [markdown.render(verdict), junit.render(verdict), terminal.plain(verdict)]
    assert max(map(len, texts)) < 50_000
    stream = io.StringIO()
    terminal.render(verdict, Console(file=stream, force_terminal=True))
    assert len(stream.getvalue()) < 50_000


def test_nothing_of_what_changed_is_left_out_for_what_did_not():
    page = html.render(
        verdicts.build(
            *(verdicts.regressed_by_structure(f"changed_{i}") for i in range(60)),
            *(verdicts.workload(f"same_{i}") for i in range(400)),
            exit_code=1,
        )
    )
    changed, unchanged = page.split('<details class="group">')
    assert changed.count('class="metrics"') == 60
    assert changed.count("<h3>Every run, in launch order") == html.DRAWN
    assert 0 < unchanged.count('class="metrics"') < 400
    assert unchanged.count("same_") >= 400


def test_every_run_is_a_mark_of_its_side():
    sample = verdicts.regressed_by_time()
    drawing = plot.strip(sample.cells[1], sample)
    marks = [use.get("href") for use in verdicts.parse(drawing).iter("use")]
    assert {side: marks.count(f"#mark-{side}") for side in plot.ROLES} == {
        "baseline": 30,
        "candidate": 3,
        "base": 6,
        "head": 6,
    }


def test_marks_stand_in_launch_order_and_at_their_values():
    sample = verdicts.workload()
    drawing = verdicts.parse(plot.strip(sample.cells[0], sample))
    marks = [(float(use.get("x")), float(use.get("y"))) for use in drawing.iter("use")]
    values = [run.metrics["iteration_ms"] for run in (*sample.baseline_runs, *sample.candidate_runs)]
    assert [x for x, _ in marks] == sorted(x for x, _ in marks)
    by_height = sorted(range(len(marks)), key=lambda i: -marks[i][1])
    assert [values[i] for i in by_height] == pytest.approx(sorted(values), abs=0.01)


def test_iterations_are_at_most_two_thousand_marks():
    sample = verdicts.workload()
    sample.candidate_runs[0].iteration_ms.extend([12.0] * 50_000)
    assert plot.iterations(sample).count("h0") <= 2000


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_inside(low, span):
    ticks = svg.Scale(low, low + span, 0, 100).ticks()
    assert 3 <= len(ticks) <= 8
    assert all(low - 1e-6 * span <= tick <= low + 1.000001 * span for tick in ticks)


@given(st.floats(-1e30, 1e30), st.floats(0, 1e30), st.booleans())
def test_every_axis_has_a_number(low, span, alike):
    scale = svg.Scale(low, low + (abs(low) * 1e-15 if alike else span), 0, 100)
    assert 1 <= len(scale.labels()) <= 10


def test_the_numbers_of_an_axis_have_one_number_of_decimals():
    assert [text for _, text in svg.Scale(11.9, 13.1, 0, 1).labels()] == ["12.0", "12.5", "13.0"]
    assert [text for _, text in svg.Scale(0, 3500, 0, 1).labels()] == ["0", "1,000", "2,000", "3,000"]


def test_a_part_that_did_not_change_has_no_sign():
    before, after = gaps.compared(verdicts.regressed_by_time())
    changes = {row.cause: row.change for row in gaps.table(before, after)}
    assert (changes["data"], changes["sync"]) == ("+4.70 ms", "0.00 ms")


def test_a_metric_that_no_run_has_is_not_drawn():
    assert plot.strip(verdicts.cell("absent_ms"), verdicts.workload()) is None


def test_parts_of_the_bars_sum_to_the_iteration():
    section = Page(html.render(verdicts.build(verdicts.regressed_by_time(), exit_code=1))).text
    assert "gap: data" in section
    for split in gaps.splits(verdicts.regressed_by_time()):
        assert sum(split.parts.values()) == pytest.approx(split.iteration_ms)


def test_a_pass_in_name_only_is_called_not_judged():
    young = verdicts.workload(cells=[verdicts.cell(judged=False, mde=0.4, notes=["not judged"])])
    page = html.render(verdicts.build(young))
    assert ">not judged</td>" in page
    assert ">unchanged</td>" not in page


def test_a_change_beyond_the_floor_that_passed_is_not_called_unchanged():
    vague = verdicts.workload(cells=[verdicts.cell(effect=0.215, p=0.066), verdicts.cell("gap_ms")])
    page = html.render(verdicts.build(vague))
    assert page.count(">no finding</td>") == 1
    assert page.count(">unchanged</td>") == 1
    assert [row.word.tone for row in view.metric_rows(vague)] == ["quiet", "pass"]
    assert terminal.plain(verdicts.build(vague)).startswith("torch_train  no finding  Iteration latency ")


def test_facts_are_named_in_words():
    page = Page(html.render(verdicts.mixed())).text
    for name in (
        "GPU 0: memory, bytes",
        "Driver: CUDA",
        "Cores kept busy by other programs",
        "SM clock, MHz",
    ):
        assert name in page
    assert words.fact("opencl.0.driver") == "OpenCL 0: driver"
    shown = [*provenance.machine(verdicts.mixed()), *provenance.environment(verdicts.mixed())]
    assert not [name for name, *_ in shown if "_" in name or "." in name]


def test_every_reason_and_kind_of_evidence_has_a_word():
    assert set(words.REASONS) == set(Reason)
    assert set(words.EVIDENCE) == set(Evidence)


def test_badges_name_what_disturbed_the_runs():
    calm = [badge.text for badge in conditions.badges([{"slowdowns": [], "sm_clock_mhz": 1980}], 2)]
    assert calm == ["no throttling", "SM clock 1,980 MHz"]
    spoiled = {"slowdowns": ["power brake"], "foreign_gpu_processes": [42], "foreign_cores": 1.2}
    told = conditions.badges([spoiled, {"repeated_for": "power brake"}], 2)
    assert [badge.text for badge in told] == [
        "power brake",
        "other processes on the GPU",
        "other programs kept up to 1.2 of 2 cores busy",
        "1 run repeated",
    ]


def test_the_headline_follows_the_worst_workload():
    assert view.headline(verdicts.passing()) == ("Pass: no regression in 3 workloads", "pass")
    assert view.headline(verdicts.no_baseline())[0] == "Nothing was compared"
    some = verdicts.build(verdicts.workload("a"), *verdicts.no_baseline().workloads, exit_code=3)
    assert view.headline(some)[0] == "2 of 3 workloads had nothing to compare"
    assert view.headline(verdicts.disturbed())[0] == "1 of 1 workload could not be measured"
    unsettled = verdicts.build(verdicts.workload(reason=Reason.INCONCLUSIVE), exit_code=5)
    assert view.headline(unsettled)[0] == "1 of 1 workload flagged but not settled"


def test_iterations_that_are_drawn_and_differ_otherwise_than_the_mean_ones_are_said_to():
    slower = verdicts.regressed_by_time()
    assert "These two differ" not in html.render(verdicts.build(slower))
    why = verdicts.explained()
    less = msgspec.structs.replace(why, after=verdicts.typical(stall_us=1200))
    page = html.render(verdicts.build(msgspec.structs.replace(slower, explained=less)))
    said = "These two differ by +1.000 ms; the mean iterations, by medians over all runs, by +4."
    assert said in " ".join(Page(page).text.split())


def test_a_slower_host_is_said_and_drawn():
    slow = verdicts.workload(host_factor=1.4)
    page = html.render(verdicts.build(slow))
    assert "own code 1.4 times slower than when the baseline was recorded." in page
    drawing = verdicts.parse(plot.strip(slow.cells[0], slow))
    (line,) = (path for path in drawing.iter("path") if path.get("class") == "expected")
    # 40 % of the 1.4 ms that the baseline's host takes: 12.40 to 12.96 ms.
    assert line.find("title").text == "baseline at this host's speed, estimated: 12.96 ms"
    assert "over the baseline:" not in html.render(verdicts.build(verdicts.workload(host_factor=1.02)))


def test_a_pass_in_name_only_and_a_gain_that_nobody_checked_are_shown_as_that():
    blind = verdicts.cell("iteration_ms", 0.4, judged=False)
    gain = verdicts.cell("iteration_ms", -0.3, reason=Reason.IMPROVED, evidence=Evidence.SCREEN)
    unsure = verdicts.workload("a", cells=[blind])
    faster = verdicts.workload("b", cells=[gain], reason=Reason.IMPROVED, evidence=Evidence.SCREEN)
    told = [(word.label, count) for word, count in view.tally(verdicts.build(unsure, faster))]
    assert sorted(told) == [("faster, not confirmed", 1), ("not judged", 1)]
    build = verdicts.build(unsure, faster)
    assert view.headline(build)[0] == "Pass: no regression in 2 workloads, 1 of them not judged"
    page = html.render(build)
    assert "+40.0 % not judged</text>" in page
    assert "-30.0 % faster, not confirmed</text>" in page


def test_a_comparison_by_place_that_found_none_does_not_say_that_all_is_as_before():
    cell = Cell(metric="kernel_profile", unit="us", reason=Reason.PASS, evidence=Evidence.SCREEN)
    assert view.metric_row("w", cell).verdict == "none stands out"


@pytest.mark.parametrize(
    ("when", "failed", "badge"),
    [
        ("2025-02-10T09:00:00+00:00", 0, "calibrated today: 0 of 200 builds without a change failed"),
        ("2025-02-03T09:00:00+00:00", 7, "calibrated 7 days ago: 7 of 200 builds without a change failed"),
    ],
)
def test_the_age_of_the_last_calibration_is_told(when, failed, badge):
    build = verdicts.passing()
    assert "not calibrated" in [each.text for each in provenance.badges(build)]
    build.calibration = LastCalibration(when=when, draws=200, failed=failed, bound=0.1)
    (shown,) = [each for each in provenance.badges(build) if each.text == badge]
    assert shown.tone == ("warn" if failed else "pass")
