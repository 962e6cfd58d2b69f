from __future__ import annotations

import html as escapes
import io
import re

import msgspec
import pytest
import verdicts
from rich.console import Console

from ai_prof.cli import gate
from ai_prof.gate.model import BuildVerdict, Evidence, Reason, StructureChange, SyncChange
from ai_prof.report import annotations, cause, html, junit, markdown, remedy, terminal, view, words
from ai_prof.report import format as fmt


def plain(text):
    return escapes.unescape(re.sub(r"<[^>]+>", " ", text)).replace("\\", "").replace("*", "")


MARKS = "✕?△↓✓○ "


def cells_of(page):
    """The cells of every table row of the HTML report, as a wide window has them."""
    page = re.sub('<span class="narrow">.*?</span>', "", page)
    found = set()
    for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL):
        cells = [" ".join(plain(cell).split()) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        found.add(tuple(cell.lstrip(MARKS) for cell in cells))
    return found


def rows_of(summary):
    """The cells of every row of the Markdown summary, without its workload."""
    lines = [plain(line).replace("\u200b", "").strip("| ").split(" | ") for line in summary.splitlines()]
    return {tuple(cell.strip().lstrip(MARKS) for cell in cells[1:]) for cells in lines if len(cells) > 5}


def figures(*texts):
    """The numbers of a row's cells, those in per cent as shares."""
    found = [re.fullmatch(r"([+-]?[\d,.]+)( (?:%|pts|MB))?.*", text) for text in texts]
    scale = {" %": 0.01, " pts": 0.01, " MB": 1e6}
    return [float(each[1].replace(",", "")) * scale.get(each[2], 1) for each in found]


def test_every_report_shows_the_same_numbers():
    """Read back from each of them, the JSON's among them, and compared row by row."""
    verdict = verdicts.mixed()
    page, summary = cells_of(html.render(verdict)), rows_of(markdown.render(verdict))
    suites = {suite.get("name"): suite for suite in verdicts.parse(junit.render(verdict))}
    stored = msgspec.json.decode(msgspec.json.encode(verdict), type=BuildVerdict)
    compared = 0
    for workload in stored.workloads:
        cases = {
            case.get("name"): "".join(case.itertext()) for case in suites[workload.workload].iter("testcase")
        }
        for row in view.rows(workload):
            told = (row.name.replace("*", ""), row.before, row.after, row.change)
            bounds, kind = (row.interval, row.floor, row.mde), words.EVIDENCE[row.evidence][0]
            counted = row.evidence is Evidence.STRUCTURE
            beside = (row.verdict,) if counted else (*bounds, row.p, kind, row.verdict)
            assert (*told, *beside) in page
            assert (*told, *bounds, row.sureness, row.verdict) in summary
            assert row.sentence in cases[row.name]
            assert f"verdict: {row.verdict}" in cases[row.name]
            assert all(bound in cases[row.name] for bound in bounds if bound != fmt.NOTHING)
            compared += 1
    assert compared > 25


def test_what_the_reports_show_is_what_the_json_holds():
    """Read as numbers from the page's rows, which the other reports share, and set against the JSON's."""
    verdict = verdicts.mixed()
    shown = cells_of(html.render(verdict))
    compared = 0
    for workload in msgspec.json.decode(msgspec.json.encode(verdict))["workloads"]:
        for cell in workload["cells"]:
            held = [cell["baseline"], cell["candidate"], cell["effect"], cell["floor"], cell["mde"]]
            name = words.metric(cell["metric"])
            assert any(
                figures(*row[1:4], *row[5:7]) == pytest.approx(held, rel=6e-4, abs=6e-4)
                for row in shown
                if row[0] == name and len(row) > 6
            ), (workload["workload"], name)
            compared += 1
        for change in workload["structure"]:
            name = words.counted(change["name"]).replace("*", "")
            before, after = figures(*next(row for row in shown if row[0] == name)[1:3])
            assert [before, after] == pytest.approx([change["baseline"], change["candidate"]], rel=6e-4)
            compared += 1
    assert compared > 25


def test_every_report_carries_its_run_and_its_inputs_hash():
    verdict = verdicts.mixed()
    texts = html.render(verdict), markdown.render(verdict), terminal.plain(verdict), junit.render(verdict)
    assert all(verdict.run_id in text.replace("\\", "") for text in texts)
    stored = {workload.baseline["sha256"] for workload in verdict.workloads if "sha256" in workload.baseline}
    assert stored
    for sha256 in stored:
        assert sha256 in texts[0]
        assert sha256 in texts[-1]


def test_what_the_gate_says_is_typeset_alike_in_every_report():
    workload = verdicts.workload(reason=Reason.CAPTURE_INCOMPLETE, notes=["grew 40 us (1 -> 41 us)"])
    verdict = verdicts.build(workload, exit_code=4, notes=["9 us -> 10 us"])
    said = io.StringIO()
    terminal.render(verdict, Console(file=said, width=300))
    for page in (html.render(verdict), markdown.render(verdict), said.getvalue()):
        assert "9 µs → 10 µs" in page.replace("\N{NO-BREAK SPACE}", " ")
    for page in (html.render(verdict), junit.render(verdict)):
        assert "grew 40 µs (1 → 41 µs)" in page.replace("\N{NO-BREAK SPACE}", " ")


def test_markdown_is_sorted_by_evidence_and_effect_with_unchanged_rows_folded():
    summary = markdown.render(verdicts.mixed())
    table, folded = summary.split("<details>")
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert [row[0].strip("| ") for row in rows[:4]] == ["cl\\_tiny"] * 3 + ["torch\\_decode"]
    assert "unchanged" not in "".join(map("".join, rows))
    assert folded.startswith("<summary>19 rows without a finding")


def test_a_green_build_says_for_every_workload_what_it_could_have_missed():
    verdict = verdicts.passing()
    for workload in verdict.workloads:
        quiet = verdicts.cell("host_profile", mde=None, missed_us=27.4)
        workload.cells = [*workload.cells, quiet]
    said = io.StringIO()
    terminal.render(verdict, Console(file=said, width=300))
    pages = (said.getvalue(), markdown.render(verdict), html.render(verdict))
    for page in pages:
        assert len(
            re.findall(r"could have missed: iteration latency worse by less than 2\.1 %", page)
        ) == len(verdict.workloads)
    for page in pages[1:]:
        assert len(re.findall(r"host time at one place longer by less than 27 µs", page)) == len(
            verdict.workloads
        )
    lines = said.getvalue().splitlines()[: len(verdict.workloads)]
    assert all(
        line.endswith("could have missed: iteration latency worse by less than 2.1 %") for line in lines
    )
    told = msgspec.json.decode(msgspec.json.encode(verdict))["workloads"]
    assert all(any(cell["missed_us"] for cell in workload["cells"]) for workload in told)


def test_what_could_have_been_missed_is_no_less_than_the_floor():
    """What is found and lies below the floor passes all the same."""
    kernels = verdicts.cell("kernel_profile", mde=None, missed_us=20.0, missed_anywhere_us=114.6)
    cells = [verdicts.cell(mde=0.0), verdicts.cell("host_profile", mde=None, missed_us=13598.0), kernels]
    assert view.unseen(verdicts.workload(cells=cells)) == (
        "could have missed: iteration latency worse by less than 1.0 %, "
        "host time at one place longer by less than 13,598 µs, "
        "kernel time at one place longer by less than 20 µs (115 µs at some)"
    )


def test_a_baseline_of_one_other_session_says_why_it_sees_little_and_what_its_places_see():
    blind = [verdicts.cell(mde=1.705), verdicts.cell("host_profile", mde=None, missed_us=27.4)]
    young = {"cells": blind, "provisional": True, "baseline_runs": verdicts.runs("torch_train", 3)}
    other = verdicts.workload(**young)
    same = verdicts.workload(**young, candidate_runs=verdicts.runs("torch_train", 3))
    why = "(one session is stored, and sessions differ: refresh the baseline in more)"
    for workload, said in ((other, f" {why}"), (same, "")):
        out = io.StringIO()
        terminal.render(verdicts.build(workload), Console(file=out, width=300))
        line = out.getvalue().splitlines()[0]
        assert line.endswith(
            "could have missed: iteration latency worse by less than 170.5 %, "
            f"host time at one place longer by less than 27 µs{said}"
        )


def test_markdown_cells_hold_no_markup_from_names_or_units():
    verdict = verdicts.nasty()
    verdict.workloads[0].cells.append(msgspec.structs.replace(verdicts.cell(), unit=verdicts.NASTY[1]))
    summary = markdown.render(verdict)
    rows = [line for line in summary.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 11 for row in rows)
    assert not re.search(r"@[A-Za-z]", summary)
    assert not re.search(r"(?<!\\)[`\[]", summary)
    assert "<img" not in summary
    assert "\x1b" not in summary


def test_markdown_counts_the_notes_that_it_leaves_out():
    verdict = verdicts.build(verdicts.workload(), notes=[f"note {i}" for i in range(33)])
    assert "- note 19\n- 13 more notes in report.json\n" in markdown.render(verdict)


def test_markdown_stays_under_its_limit_and_counts_what_it_hides():
    verdict = verdicts.large()
    total = sum(len(view.rows(workload)) for workload in verdict.workloads)
    assert len(markdown.render(verdict).encode()) <= markdown.MAX_BYTES
    short = markdown.render(verdict, 60_000)
    assert len(short.encode()) <= 60_000
    rows = len([line for line in short.splitlines() if line.startswith("| workload\\_")])
    hidden = int(re.search(r"([\d,]+) rows hidden", short)[1].replace(",", ""))
    assert rows > 50
    assert rows + hidden == total


def test_junit_has_one_case_a_metric_and_one_a_structure_change():
    verdict = verdicts.mixed()
    root = verdicts.parse(junit.render(verdict))
    for suite in root:
        workload = next(w for w in verdict.workloads if w.workload == suite.get("name"))
        cases = [case.get("name") for case in suite.iter("testcase")]
        expected = len(workload.cells) + len(workload.structure)
        assert len(cases) == max(expected, 1)
        assert len(cases) == len(set(cases))
        assert suite.get("tests") == str(len(cases))
    assert root.get("failures") == "7"
    assert root.get("errors") == "2"
    assert root.get("skipped") == "2"
    assert [suite.get("name") for suite in root][:2] == ["cl_tiny", "torch_decode"]


def test_junit_carries_a_workloads_verdict_that_no_metric_has():
    lone = verdicts.workload(reason=Reason.CAPTURE_INCOMPLETE, why="12 kernels were dropped.")
    root = verdicts.parse(junit.render(verdicts.build(lone, exit_code=4)))
    (case,) = (c for c in root.iter("testcase") if c.get("name") == "workload")
    assert case.find("error").get("message") == "capture incomplete: 12 kernels were dropped."


@pytest.mark.parametrize(("limit", "unlisted"), [(30_000, 14), (120_000, 0), (600_000, 0)])
def test_junit_stays_under_its_limit_and_stays_red_for_what_has_no_room(limit, unlisted):
    """The gravest have room: the case that stands for the others fails where one of them does."""
    verdict = verdicts.large(workloads=30)
    text = junit.render(verdict, limit)
    assert limit / 3 < len(text.encode()) <= limit
    shown = {suite.get("name"): list(suite) for suite in verdicts.parse(text)}
    others = shown.pop(junit.MORE_CASE, [])
    assert ["".join(case.itertext()).strip() for case in others] == [
        f"{unlisted} more workloads in report.json" for _ in others
    ]
    assert len(shown) + unlisted == len(verdict.workloads)
    left_out = 0
    for workload in verdict.workloads:
        _, *cases = shown.get(workload.workload, [None])
        if not cases or cases[-1].get("name") != junit.MORE_CASE:
            assert len(cases) in {0, len(view.rows(workload))}
            continue
        rows, last = len(view.rows(workload)), cases.pop()
        message = f"{fmt.plural(rows - len(cases), 'more row')} in report.json"
        if workload.reason is Reason.REGRESSED:
            assert last.find("failure").get("message") == f"regressed: {message}"
        else:
            assert last.find("system-out").text == message
        left_out += 1
    assert left_out


def test_junit_parses_with_any_name():
    assert len(list(verdicts.parse(junit.render(verdicts.nasty())).iter("failure"))) == 3


def test_junit_says_the_encoding_that_it_is_written_in():
    assert junit.render(verdicts.passing()).startswith('<?xml version="1.0" encoding="UTF-8"?>\n')


def test_terminal_prints_one_plain_line_a_workload_and_the_verdict():
    verdict = verdicts.mixed()
    stream = io.StringIO()
    terminal.render(verdict, Console(file=stream, width=40))
    lines = stream.getvalue().splitlines()
    remedies = [line for line in lines if line.startswith("if this is wanted: ai-prof accept torch_decode ")]
    assert len(lines) == len(verdict.workloads) + len(remedies) + len(verdict.notes) + 1
    assert [line.endswith('--reason "..."') for line in remedies] == [True]
    assert lines[1].startswith("torch_decode  regressed  Iteration latency +38.1 %")
    assert "while the host prepares input. The gap between gemm_2 and memcpy host to device grew" in lines[1]
    assert lines[-1] == "2 of 7 workloads regressed (exit 1)"
    assert "\x1b" not in stream.getvalue()


def test_a_log_names_each_metric_that_was_accepted():
    why = (
        "16 more kernels per iteration (18 -> 34): accepted by ada, 18 to 34 (a second pass); "
        "kernel mean time fell 42 % (169 -> 97.8 us): accepted by ada, 117 to 69.9 us (a second pass)"
    )
    line, *_ = terminal.plain(verdicts.build(verdicts.workload(reason=Reason.ACCEPTED, why=why))).splitlines()
    assert line.endswith(fmt.typeset(why))


def test_a_log_cuts_no_sentence_short_for_the_one_before_it():
    workload = verdicts.regressed_by_time()
    workload.structure = [StructureChange(name="syncs", baseline=3, candidate=9, reason=Reason.REGRESSED)]
    calls = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")
    sites = [SyncChange(call, "memcpy host to device, pageable", (0.0, 2.0)) for call in calls]
    workload.explained = msgspec.structs.replace(workload.explained, syncs=sites)
    told = cause.sentences(workload)[:2]
    assert len(" ".join(told)) > 320
    line, *_ = terminal.plain(verdicts.build(workload)).splitlines()
    assert line.endswith(" ".join(told).rstrip("."))


def test_another_structure_is_told_by_its_counts_before_its_kernels():
    changes = [
        StructureChange(name="kernels", baseline=16, candidate=12, reason=Reason.IMPROVED),
        StructureChange(name="kernel:blend", baseline=7, candidate=3, reason=Reason.STRUCTURE_CHANGED),
    ]
    other = verdicts.workload(reason=Reason.STRUCTURE_CHANGED, structure=changes)
    line, *_ = terminal.plain(verdicts.build(other)).splitlines()
    assert "structure changed  Kernels per iteration -4 (16 to 12; exact count), and 1 more" in line


def test_a_log_says_what_disturbed_the_runs():
    workload = verdicts.workload()
    assert "busy" not in terminal.plain(verdicts.build(workload))
    for run in workload.candidate_runs:
        run.environment.update({"foreign_cores": 1.5, "slowdowns": ["thermal slowdown"]})
    *_, thermal, busy, verdict, _ = terminal.plain(verdicts.build(workload)).splitlines()
    assert thermal == "thermal slowdown: the device ran slower for it"
    assert busy == "other programs kept up to 1.5 cores busy: host times, and kernels on a CPU, vary with it"
    assert verdict.startswith("Pass")


def test_a_terminal_gets_a_table_and_no_foreign_escapes():
    stream = io.StringIO()
    terminal.render(verdicts.nasty(), Console(file=stream, force_terminal=True, width=100, color_system=None))
    assert "Workload" in stream.getvalue()
    assert "\x1b[31mred" not in stream.getvalue()


def test_annotations_are_one_safe_line_a_finding():
    lines = annotations.render(verdicts.mixed()).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 3 + ["::warning"]
    assert "+38.1 %25" in lines[1]
    assert "confirmed, p = 0.0011). An iteration takes 4.576 ms longer" in lines[1]
    assert len(annotations.render(verdicts.large()).splitlines()) == annotations.MOST
    assert len(annotations.render(verdicts.nasty()).splitlines()) == 1
    assert annotations.render(verdicts.passing()) == ""


def test_what_a_log_takes_for_a_command_begins_no_line():
    hostile = verdicts.regressed_by_time()
    hostile.workload = "x\n::stop-commands::t"
    other = verdicts.workload("::add-mask::a")
    verdict = verdicts.build(hostile, other, notes=["a note\n::error::not ours", " ::error::nor this"])
    assert not any(line.lstrip().startswith("::") for line in terminal.plain(verdict).splitlines())


def test_no_line_of_a_log_holds_a_command_of_githubs_older_kind():
    """GitHub looks for `##[name]` anywhere in a line."""
    name = "##[add-mask]x ##[stop-commands]t"
    workload = verdicts.workload(name, Reason.REGRESSED, why=name, cells=[], structure=[])
    comment = terminal.plain(verdicts.build(workload, exit_code=1, notes=[name], run_id="##[group]"))
    assert "# #[add-mask]x" in comment
    assert "##[" not in comment


def test_githubs_log_has_no_table_whose_breaks_begin_a_command(monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("FORCE_COLOR", "1")
    workload = verdicts.regressed_by_time("a" * 20 + " ::error::not ours")
    gate.show(verdicts.build(workload, exit_code=1), as_json=False)
    *lines, annotation = capsys.readouterr().out.splitlines()
    assert annotation.startswith("::error title=ai-prof")
    assert not any(line.lstrip().startswith("::") for line in lines)


def test_no_name_turns_the_text_after_it_round():
    turned = "\N{RIGHT-TO-LEFT OVERRIDE}ssap\N{RIGHT-TO-LEFT ISOLATE}\N{LEFT-TO-RIGHT EMBEDDING}"
    verdict = verdicts.build(verdicts.regressed_by_time(turned), exit_code=1, notes=[turned], run_id=turned)
    texts = (html.render(verdict), markdown.render(verdict), terminal.plain(verdict), junit.render(verdict))
    for text in (*texts, annotations.render(verdict)):
        assert "ssap" in text
        assert not set(turned) & set(text) - set("ssap")


def test_a_comment_is_short_counts_what_it_hides_and_ends_with_the_verdict():
    many = verdicts.build(
        *(verdicts.workload(f"same_{i}") for i in range(500)), verdicts.regressed_by_time(), exit_code=1
    )
    comment = terminal.plain(many)
    assert len(comment.encode()) < 60_000
    first, *_, hidden, verdict, run = comment.splitlines()
    assert first.startswith("torch_decode  regressed")
    shown = comment.count("same_")
    assert 0 < shown < 500
    assert hidden == f"{500 - shown + 1} more lines in the report"  # and the command that accepts it
    assert (verdict, run) == ("1 of 501 workloads regressed (exit 1)", f"run {many.run_id}")


@pytest.mark.parametrize(
    "name", ["a\n::x", "$(touch x)", "'" * 50, "-x", "a b", "a" * 200, "\N{RIGHT-TO-LEFT OVERRIDE}a"]
)
def test_a_name_that_could_not_be_pasted_has_no_command(name):
    workload = verdicts.regressed_by_time()
    assert remedy.command(verdicts.build(workload), workload).startswith("ai-prof accept torch_decode ")
    workload.workload = name
    assert remedy.command(verdicts.build(workload), workload) == ""


def test_a_p_that_nothing_corrects_says_so():
    won = verdicts.cell(effect=-0.4, reason=Reason.IMPROVED, p=0.002, p_adjusted=None)
    assert "p = 0.0020 uncorrected" in markdown.render(verdicts.build(verdicts.workload(cells=[won])))
