"""The scripts that make the evidence: the fault matrix, the gate against itself, the comparison."""

from __future__ import annotations

import lzma
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).with_name("bench")))
import aa
import comparison
import doc_tables
import fault_page
import faults
import verdicts
from fake_project import enter
from fault_page import Row
from test_baselines_store import KEY, baseline

from ai_prof.baselines import store
from ai_prof.gate import decide, screen
from ai_prof.gate.calibration import Calibrated, Calibration
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Evidence, Reason, Run
from ai_prof.runs.gated import Request
from ai_prof.runs.launch import profiles_of, with_evidence
from ai_prof.runs.workloads import find
from ai_prof.trace.open import open_trace

WORKLOADS = find(Path(__file__).parents[1] / "workloads")
PLAN = msgspec.toml.decode(faults.PLAN.read_bytes(), type=faults.Plan)


def row(fault, reason=Reason.REGRESSED, said="", **more):
    values = {"workload": "cl_tiny", "evidence": Evidence.CONFIRMED, "machine_key": "m", "machine": "a card"}
    values |= {"started": "2026-11-30T00:00:00+00:00", "seconds": 60.0, "runs": 15, "stored": 30}
    return Row(fault=fault, reason=reason, said=said, **values | more)


def tables(page):
    """The rows of a page's tables, as lists of cells."""
    lines = [line for line in page.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_matrix_holds_every_fault_of_every_workload():
    assert {w.name: sorted(w.faults) for w in WORKLOADS} == {
        name: sorted(faults_) for name, faults_ in PLAN.strengths.items()
    }
    assert all(size > 0 for w in PLAN.strengths.values() for sizes in w.values() for size in sizes)
    for workload, theirs in PLAN.strengths.items():
        for fault in theirs:
            re.compile(PLAN.of(workload, fault))
    planned = {(cell.workload, cell.fault) for cell in faults.cells(PLAN, WORKLOADS)}
    assert {(name, fault) for name, weak in PLAN.beneath.items() for fault in weak} <= planned


def test_builds_without_a_fault_come_first_and_weak_faults_last():
    wanted = faults.cells(PLAN, [w for w in WORKLOADS if w.device == "opencl"])
    assert len(wanted) == len(set(wanted))
    assert [cell.fault for cell in wanted[:4]] == [None] * 4
    strengths = [float(cell.fault.partition("=")[2]) for cell in wanted[4:]]
    usual = sum(len(PLAN.strengths[name]) for name in ("cl_loader", "cl_overlap", "cl_tiny", "cl_train"))
    assert strengths[:usual] == [1.0] * usual
    assert 1.0 not in strengths[usual:]


def test_a_tiny_matrix_is_built_once_and_gone_on_with(tmp_path, monkeypatch):
    head = enter(tmp_path, monkeypatch).git("rev-parse", "HEAD")
    tree = faults.head_checkout(tmp_path, ExitStack())
    assert tree != tmp_path
    request = Request(root=tree, workloads=tree / "workloads", baselines=tree / "baselines", record=True)
    plan = faults.Plan(cause={"slow": "device works .* longer"}, strengths={"work": {"slow": [1]}})
    raw = tmp_path / "figures" / "raw.jsonl"
    faults.run(request, plan, raw, 0.0, forked=False)
    assert faults.load(raw) == []
    faults.run(request, plan, raw, 60.0, forked=False)
    plain, slow = faults.load(raw)
    assert (plain.workload, plain.fault, plain.reason, plain.stored) == ("work", None, Reason.PASS, 3)
    assert (slow.fault, slow.reason, slow.evidence) == ("slow=1", Reason.REGRESSED, Evidence.CONFIRMED)
    assert slow.runs >= 3 + 12
    assert {plain.commit, slow.commit} == {head}
    assert plan.named(slow)
    before = raw.read_bytes()
    faults.run(request, plan, raw, 60.0, forked=False)  # nothing is missing
    assert raw.read_bytes() == before


def test_what_base_settled_is_made_anew_for_another_sentence_alone():
    scene = SimpleNamespace(machine_key="m", ready=[w for w in WORKLOADS if w.name == "cl_tiny"])
    said = "An iteration takes 50 ms longer: the device works 52 ms longer."
    rows = [row(cell.fault, said=said) for cell in faults.cells(PLAN, scene.ready) if cell.fault]
    rows += [row(None, Reason.PASS), row("stall=1", Reason.PASS), row("slow=1", said=said)]
    rows.append(row("slow=0.25", said=said, evidence=Evidence.REPEATED))
    never, again = faults.missing(PLAN, scene, rows)
    assert never == []
    unnamed = {
        f"{fault}={x:g}" for fault in ("stall", "sync", "tiny") for x in PLAN.strengths["cl_tiny"][fault]
    }
    assert again[-1].fault == "slow=0.25"  # named, and to be settled with base
    assert {cell.fault for cell in again[:-1]} == unnamed - {"stall=1"}  # which base did not find


def test_what_has_no_verdict_is_tried_again():
    rows = [
        row("slow=1", Reason.INVALID_ENVIRONMENT),
        row("sync=1"),
        row("tiny=1", Reason.INCONCLUSIVE),
        row("tiny=1"),
    ]
    done = {each.fault for each in fault_page.latest(rows) if each.done}
    assert done == {"sync=1", "tiny=1"}


def test_the_page_tells_what_was_found_and_what_was_named():
    rows = [
        row(None, Reason.PASS),
        row("slow=1", said="An iteration takes 50 ms longer: the device works 52 ms longer."),
        row("sync=1", said="An iteration takes 2 ms longer: the device works 2 ms longer."),
        row("stall=0.1", Reason.PASS),
        row("tiny=1", Reason.INVALID_ENVIRONMENT, why="another process | on the GPU"),
        row("delay=1", Reason.PASS, workload="torch_train", warned=["host time before gemm"]),
        row(None, Reason.REGRESSED, workload="torch_train"),
        row("slow=0.0157", Reason.PASS, workload="torch_train"),
    ]
    page = fault_page.page(rows, PLAN, {"cl_tiny": 9, "torch_train": 15})
    assert (
        "3 of 4 builds with a fault were found, 2 named first; 0 of 1 with a weaker one were found; "
        "1 of 2 without one failed."
    ) in page
    assert "7 of 24 builds have a verdict, in 8 minutes and 120 runs." in page
    head, *lines = tables(page)
    named = {(line[0], line[1]): line[head.index("named first")] for line in lines}
    assert named == {
        ("cl_tiny", "none"): "",
        ("cl_tiny", "slow=1"): "yes",
        ("cl_tiny", "stall=0.1"): "**no**",
        ("cl_tiny", "sync=1"): "**no**",
        ("cl_tiny", "tiny=1"): "\u2013",
        ("torch_train", "none"): "**no**",
        ("torch_train", "delay=1"): "yes",
        ("torch_train", "slow=0.0157 (weaker)"): "**no**",
    }
    assert all(len(line) == len(head) for line in lines)


def test_a_build_that_passed_tells_what_became_of_kernel_time():
    one = verdicts.workload("cl_tiny", Reason.PASS, cells=[verdicts.cell("kernel_time_ms", 0.004)])
    one.cells[0].why = "kernel time per iteration grew 0.4 %: below the floor of 1 %"
    kept = fault_page.row_of(verdicts.build(one), "cl_tiny", "slow=0.1", 1.0, forked=False)
    head, line = tables(fault_page.page([kept], PLAN, {}))
    assert line[head.index("what is said first")] == one.cells[0].why


def run_of(name, folder):
    """A run that captured a program on an H200, and its profile."""
    path = folder / name / "h-1-0.aiprof"
    path.parent.mkdir()
    packed = Path(__file__).parent / "captures" / "h200" / f"{name}.aiprof.xz"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    where = str(path.parent)
    run = with_evidence(
        Run(workload="w", session="s", order=0, host="h", started="", capture=where), open_trace(path)
    )
    return run, profiles_of([run])


@pytest.mark.parametrize(
    ("program", "fault"),
    [("sync", "sync"), ("tiny", "tiny"), ("stall_start", "stall"), ("stall_middle", "delay_mid")],
)
def test_the_words_looked_for_are_those_of_reports_on_real_captures(program, fault, tmp_path):
    """The same program with a fault and without, once each, taken for as many runs as a build has."""
    (base, before), (head, after) = (run_of(name, tmp_path) for name in ("base", program))

    def times(run, count, session):
        return [msgspec.structs.replace(run, session=session, order=i) for i in range(count)]

    found = before | after
    fresh = {"w": decide.Fresh(base=times(base, 6, "now"), head=times(head, 6, "now"))}
    priors = screen.table_priors("cuda")
    stored = [run for i in range(4) for run in times(base, 3, f"s{i}")]
    seen = decide.screen_workload(
        "w", stored, times(head, 3, "now"), rules=Rules(), priors=priors, profiles=found
    )
    settled = decide.settle([seen], fresh, rules={}, priors=priors, profiles=found)
    build = decide.build(settled, run_id="", started="", finished="", device="cuda", machine_key="k")
    kept = fault_page.row_of(build, "w", f"{fault}=1", 1.0, forked=False)
    assert kept.reason is Reason.REGRESSED
    assert PLAN.named(kept), kept.said


def test_the_page_without_figures_says_so():
    assert fault_page.NOTHING_YET in fault_page.page([], PLAN, {})


def fresh(**more):
    values = {"machine_key": "m", "started": "", "commit": None, "workloads": ["a", "b", "c"], "runs": 9}
    return aa.Fresh(**values | {"flagged": [], "failed": [], "worst": 0.5} | more)


def test_forty_quiet_builds_bound_false_alarms_below_an_eighth():
    rows = [fresh() for _ in range(39)]
    rows += [fresh(flagged=["a"], worst=1.2, runs=21), fresh(open=["b"], failed=["a"]), fresh(forked=True)]
    head, line, forked = tables(aa.page(rows))
    assert forked[:3] == ["m, launches forked", "a, b, c", "1"]
    told = dict(zip(head, line, strict=True))
    # None of 40: 1 - 0.05^(1/40), the exact bound.
    assert told["at most"] == f"{100 * (1 - 0.05 ** (1 / 40)):.1f} %" == "7.2 %"
    assert (told["builds"], told["no verdict"], told["flagged"], told["failed"]) == ("40", "1", "1", "0")
    assert (told["runs"], told["worst"]) == (str(39 * 9 + 21), "1.20")


@pytest.mark.parametrize(("p", "statistic"), [(0.05, 1.0), (0.5, 0.0), (1.0, 0.0), (0.001, 3.0902 / 1.6449)])
def test_how_near_a_build_came_to_a_flag(p, statistic, tmp_path):
    cell = verdicts.cell("iteration_ms", 0.0, evidence=Evidence.SCREEN, p_adjusted=p)
    build = decide.build(
        [verdicts.workload(cells=[cell])], run_id="", started="", finished="", device="cuda", machine_key="k"
    )
    row = aa.row_of(build, forked=False)
    assert row.worst == pytest.approx(statistic, abs=1e-4)
    assert aa.keep(tmp_path / "aa.jsonl", row) == aa.load(tmp_path / "aa.jsonl")


def test_builds_drawn_from_recordings_are_shown_as_such():
    one = {"workload": "a", "runs": 30, "sessions": 3, "draws": 40, "flagged": 2, "failed": 0}
    each = Calibrated(**one, worst_total=0.7, worst_profile=None)
    found = Calibration(draws=40, independent=3, failed=0, bound=0.63, workloads=[each])
    page = aa.page([aa.Drawn(recordings=["one", "two"], found=found)])
    assert "0 of 40 builds failed: at most 63 %, from the 3 that have no run in common." in page
    assert tables(page)[1] == ["one and two", "a", "30", "3", "2 of 40", "0 of 40", "0.70", ""]
    assert "None was made yet." in page


def test_raw_figures_are_kept_and_read_back(tmp_path):
    path = tmp_path / "figures" / "aa.jsonl"
    aa.keep(path, fresh())
    kept = aa.keep(path, fresh(failed=["a"]))
    assert aa.load(path) == kept == [fresh(), fresh(failed=["a"])]


def test_builds_are_drawn_from_a_recording():
    found = aa.draw([Path(aa.__file__).parent / "recordings" / "pocl-busy"], 3).found
    assert found.draws == 3
    assert {each.workload for each in found.workloads} == {"cl_loader", "cl_overlap", "cl_tiny", "cl_train"}
    assert {(each.runs, each.sessions) for each in found.workloads} == {(15, 1)}


def test_builds_are_drawn_from_baselines_of_several_starts(tmp_path):
    for name in ("one", "two"):
        store.save(tmp_path, baseline(sessions=4, workload=name))
    found = aa.draw([tmp_path / KEY], 20).found
    assert (found.draws, found.failed, found.independent) == (20, 0, 4)
    assert [(each.workload, each.sessions) for each in found.workloads] == [("one", 4), ("two", 4)]


OVERHEAD = {
    "date": "2026-11-30",
    "machine": "a card",
    "cupti": "cupti",
    "torch": "2.11",
    "columns": {
        "tiny_us": {"nothing": [4.0, 4.1], "ours, api": [5.0, 5.2], "torch.profiler, CUDA": [7.0, 7.1]},
        "step_ms": {"nothing": [100.0, 101.0], "ours, api": [100.5, 101.0]},
    },
}
READERS = {
    "date": "2026-11-30",
    "cores": 2,
    "load": 0.5,
    "versions": {"HTA": "0.5.0", "ai-prof": "0.1"},
    "traces": {"a_trace": {"HTA": {"seconds": 9.0, "cpu": 9.5, "resident": 600 << 20, "anonymous": 0}}},
}


def test_the_comparison_shows_what_was_measured_and_only_that():
    page = comparison.page(OVERHEAD, READERS, doc_tables.PAGE.read_text(encoding="utf-8"))
    rows = {line[0]: line[1:] for line in reversed(tables(page))}  # the first table's, where two name a tool
    assert rows["ai-prof, level api"][0] == "+1.00"
    assert rows["ai-prof, level api"][2] == "1.005"
    assert rows["torch.profiler, CUDA alone"] == ["+3.00", "+3.00 to +3.00", comparison.NOT_MEASURED, ""]
    assert rows["Nsight Systems"][0] == comparison.NOT_MEASURED
    assert rows["a_trace"] == ["HTA 0.5.0", "9.00", "9.50", "600"]
    empty = comparison.page(None, None, "")
    assert empty.count(comparison.NOT_YET) == 3


def test_the_gates_rows_are_those_of_its_own_table():
    cells = "| rule | false alarms (bound) | a | +load | b |\n| --- | --- | --- | --- | --- |\n"
    one = f"one\n\n{cells}| r | 5.0 % (12 %) | 10 % | 90 % | 20 % |\n"
    two = f"two\n\n{cells}| r | 0 % (7 %) | 100 % | 90 % | 0 % |\n"
    gate = f"<!-- table: peers -->\n{one}\n{two}\n<!-- /table: peers -->\n"
    assert doc_tables.read("table: peers", gate).keys() == {"one", "two"}
    assert comparison.rules(gate) == [["r", "5 %", f"{(10 + 20 + 100 + 0) / 4:.0f} %"]]


def test_committed_pages_are_what_the_scripts_write():
    assert faults.PAGE.read_text("utf-8") == fault_page.page(
        faults.load(faults.RAW), PLAN, faults.sizes(PLAN)
    )
    assert aa.PAGE.read_text("utf-8") == aa.page(aa.load(aa.RAW))
