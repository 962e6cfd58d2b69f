"""A wanted change: red, accepted with a reason, green without a refresh, and red again where it grows."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from fake_project import Project, enter
from gate_runs import WORKLOAD, Machine
from test_baselines_store import KEY, baseline

from ai_prof.baselines import accepted, store
from ai_prof.cli import main
from ai_prof.collect.autostart import library_path
from ai_prof.errors import BaselineError
from ai_prof.gate import decide, screen
from ai_prof.gate.decide import Fresh
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Acceptance, Cell, Reason
from ai_prof.report import cause
from ai_prof.report.write import write_reports
from ai_prof.runs import stored

if TYPE_CHECKING:
    from pathlib import Path

PRIORS = screen.table_priors("cuda")
BY = {"who": "ada", "why": "a larger model", "when": "2026-01-02T00:00:00+00:00"}


def wanted(metric, old, new, **more):
    return Acceptance(metric=metric, old=old, new=new, **BY, **more)


def verdict_of(changes, **candidate):
    base = Machine(4).baseline(10)
    runs = Machine(5).session("now", **candidate)
    return decide.screen_workload(WORKLOAD, base, runs, rules=Rules(), priors=PRIORS, accepted=changes)


def cell(verdict, key):
    return next(cell for cell in verdict.cells if cell.metric == key)


SLOWER = [
    wanted("iteration_ms", 4.0, 4.3),
    wanted("kernel_time_ms", 3.0, 3.3),
    wanted("kernel_mean_us", 30.0, 33.0),
]


def test_what_was_accepted_is_no_regression_and_says_who_wanted_it():
    assert verdict_of([], kernel_time=3.3, latency=4.3).flagged
    verdict = verdict_of(SLOWER, kernel_time=3.3, latency=4.3)
    assert (verdict.reason, verdict.flagged) == (Reason.ACCEPTED, False)
    kernel = cell(verdict, "kernel_time_ms")
    assert kernel.reason is Reason.ACCEPTED
    assert kernel.effect == pytest.approx(
        0.1, abs=0.01
    )  # from the stored baseline, not from what was accepted
    assert "accepted by ada, 3.00 to 3.30 ms (a larger model)" in kernel.why
    assert verdict.accepted == SLOWER
    assert (
        decide.build([verdict], run_id="r", started="", finished="", device="cuda", machine_key="k").exit_code
        == 0
    )


def test_beyond_what_was_accepted_is_a_regression_again():
    verdict = verdict_of(SLOWER, kernel_time=3.6, latency=4.6)
    assert verdict.flagged
    kernel = cell(verdict, "kernel_time_ms")
    assert kernel.flagged
    assert "grew 8.6 %" in kernel.why
    assert "beyond what ada accepted, 3.00 to 3.30 ms" in kernel.why
    base, head = Machine(6).pairs(6, kernel_time=3.6, latency=4.6)
    (final,) = decide.settle([verdict], {WORKLOAD: Fresh(base=base, head=head)}, rules={}, priors=PRIORS)
    assert final.reason is Reason.REGRESSED
    level = "base, moved as far, is taken as 33.29 \u00b5s"
    told = f"Kernel mean time goes beyond what ada accepted, 30.0 to 33.0 us: {level}."
    assert cause.sentences(final)[-1] == told
    base, head = Machine(6).pairs(6, kernel_time=3.3, latency=4.3)
    (final,) = decide.settle([verdict], {WORKLOAD: Fresh(base=base, head=head)}, rules={}, priors=PRIORS)
    assert final.reason is Reason.ACCEPTED


def test_a_change_taken_back_passes_and_one_of_another_metric_does_not():
    assert verdict_of(SLOWER).reason is Reason.PASS
    assert (
        cell(verdict_of(SLOWER, kernel_time=3.15, latency=4.15), "kernel_time_ms").reason is Reason.ACCEPTED
    )
    other = verdict_of([wanted("iteration_ms", 4.0, 4.3)], kernel_time=3.3, latency=4.3)
    assert cell(other, "kernel_time_ms").flagged
    assert not cell(other, "iteration_ms").flagged


def test_a_count_is_accepted_up_to_its_number():
    changes = [wanted("syncs", 1, 2)]
    verdict = verdict_of(changes, structure={"syncs": 2})
    assert (verdict.reason, verdict.flagged) == (Reason.ACCEPTED, False)
    assert (
        verdict.why == "1 more synchronize per iteration (1 -> 2): accepted by ada, 1 to 2 (a larger model)"
    )
    further = verdict_of(changes, structure={"syncs": 3})
    assert further.reason is Reason.REGRESSED
    assert "beyond what ada accepted, 1 to 2" in further.why
    assert cause.sentences(further)[-1] == "Synchronizes go beyond what ada accepted, 1 to 2."


def test_acceptances_are_sorted_one_a_line_and_end_with_their_baseline(tmp_path):
    one = baseline()
    path = store.save(tmp_path, one)
    for change in (wanted("syncs", 1, 2), wanted("gap_ms", 1.0, 1.2), wanted("syncs", 1, 3)):
        file = accepted.add(path, one, [change])
    lines = file.read_text().splitlines()
    assert [json.loads(line.rstrip(","))["metric"] for line in lines if line.startswith('{"m')] == [
        "gap_ms",
        "syncs",
    ]
    assert accepted.load(path, one) == [wanted("gap_ms", 1.0, 1.2), wanted("syncs", 1, 3)]
    assert accepted.load(path, baseline(seed=5)) == []
    accepted.end(path)
    assert accepted.load(path, one) == []


DEEP = '{"a":' * 100_000


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "ai-prof/accepted/9"}', "\xff", DEEP])
def test_acceptances_that_cannot_be_read_say_so(tmp_path, text):
    path = store.save(tmp_path, baseline())
    accepted.path_of(path).write_bytes(text.encode("latin-1"))
    with pytest.raises(BaselineError, match=r"train\.accepted\.json") as caught:
        accepted.load(path, baseline())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("metric", "old"), [("iteration_ms", -1.0), ("kernel_time_ms", 0.0)])
def test_a_time_that_is_none_is_refused(tmp_path, metric, old):
    path = tmp_path / "train.json"
    file = accepted.add(path, baseline(), [wanted(metric, old, 1.0)])
    with pytest.raises(
        BaselineError, match=rf"{metric} from {old:g} to 1 is no change of a time: restore it"
    ):
        accepted.load(path, baseline())
    file.unlink()
    accepted.add(path, baseline(), [wanted("gap_ms", 0.0, 1.0)])
    assert len(accepted.load(path, baseline())) == 1


def test_a_pull_request_brings_what_it_wants_accepted_of_its_targets_baselines(tmp_path, monkeypatch, capsys):
    """The report comes from a runner, whose folders are not here; the acceptance is made in the checkout."""
    monkeypatch.chdir(tmp_path)
    target, own = tmp_path / "target", tmp_path / "baselines"
    one = baseline()
    for folder in (target, own):
        store.save(folder, one)
    verdict = verdict_of([], structure={"syncs": 2})
    verdict.baseline = {"path": f"/runner/target/{KEY}/train.json", "sha256": store.digest(one)}
    build = decide.build([verdict], run_id="r1", started="", finished="", device="cuda", machine_key=KEY)
    page = write_reports(build, tmp_path / "downloaded")
    report = str(page.with_name("report.json"))
    assert main(["accept", WORKLOAD, "syncs", "--reason", "wanted", "--report", report]) == 0
    assert f"baselines/{KEY}/train.accepted.json: commit it with the change" in capsys.readouterr().err
    (found,) = stored.load([target], KEY, [WORKLOAD], own)[WORKLOAD].accepted
    assert (found.metric, found.old, found.new, found.report) == ("syncs", 1, 2, "r1")
    assert stored.load([target], KEY, [WORKLOAD])[WORKLOAD].accepted == []
    # It names the baseline that it is of: another one in the target is not touched by it.
    store.save(target, baseline(seed=5))
    outdated = stored.load([target], KEY, [WORKLOAD], own)[WORKLOAD]
    assert outdated.accepted == []
    assert "syncs was accepted of another baseline and counts no more" in outdated.notes[0]
    store.save(own, baseline(seed=6))
    capsys.readouterr()
    assert main(["accept", WORKLOAD, "syncs", "--reason", "wanted", "--report", report]) == 2
    assert "no baseline here is the one of report r1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"machine_key": "../../elsewhere"}, "names no baseline"),
        ({"machine_key": ""}, "names no baseline"),
        ({"path": "x.json"}, "names no baseline"),
        ({"path": "/a/b\0c/d/train.json"}, "names no baseline"),
        ({"metric": "nope"}, "no metric nope; there are: "),
    ],
)
def test_a_report_made_to_lead_elsewhere_is_refused(tmp_path, monkeypatch, capsys, changes, said):
    monkeypatch.chdir(tmp_path)
    one = baseline()
    store.save(tmp_path / "baselines", one)
    metric = changes.get("metric", "syncs")
    verdict = verdict_of([], structure={"syncs": 2})
    verdict.cells.append(Cell(metric=metric, unit="us", reason=Reason.REGRESSED, baseline=1.0, candidate=2.0))
    path = changes.get("path", f"/runner/baselines/{KEY}/train.json")
    verdict.baseline = {"path": path, "sha256": store.digest(one)}
    key = changes.get("machine_key", KEY)
    build = decide.build([verdict], run_id="r1", started="", finished="", device="cuda", machine_key=key)
    report = str(write_reports(build, tmp_path / "downloaded").with_name("report.json"))
    assert main(["accept", WORKLOAD, metric, "--reason", "wanted", "--report", report]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.accepted.json"))


def test_the_newest_report_is_the_one_whose_build_ended_last_whatever_its_folders_name(
    tmp_path, monkeypatch, capsys
):
    """One of CI lies in a folder of any name."""
    monkeypatch.chdir(tmp_path)
    one = baseline()
    store.save(tmp_path / "baselines", one)
    for name, syncs, day in (("from-ci", 2, 1), ("20260102T000000Z-abc", 3, 2)):
        verdict = verdict_of([], structure={"syncs": syncs})
        verdict.baseline = {"path": f"/x/baselines/{KEY}/train.json", "sha256": store.digest(one)}
        ended = f"2026-01-0{day}T00:00:00+00:00"
        build = decide.build(
            [verdict], run_id=name, started="", finished=ended, device="cuda", machine_key=KEY
        )
        write_reports(build, tmp_path / "reports" / name)
    broken = tmp_path / "reports" / "z" / "report.json"
    broken.parent.mkdir()
    broken.write_text("{")
    assert main(["accept", WORKLOAD, "syncs", "--reason", "wanted"]) == 0
    assert "syncs  accepted by" in (said := capsys.readouterr().out)
    assert "1 to 3" in said


@pytest.mark.parametrize("schema", ["ai-prof/report/2", "ai-prof/shard/1", None])
def test_a_report_of_another_schema_is_refused(tmp_path, monkeypatch, capsys, schema):
    monkeypatch.chdir(tmp_path)
    build = decide.build(
        [verdict_of([])], run_id="r1", started="", finished="", device="cuda", machine_key=KEY
    )
    report = write_reports(build, tmp_path / "reports" / "r1").with_name("report.json")
    text = json.loads(report.read_text())
    text.pop("schema")
    report.write_text(json.dumps(text if schema is None else {**text, "schema": schema}))
    assert main(["accept", WORKLOAD, "syncs", "--reason", "wanted"]) == 2
    assert f"schema {schema or ''!r} is not 'ai-prof/report/1': accept by" in capsys.readouterr().err


needs_library = pytest.mark.skipif(library_path() is None, reason="the native library is not built here")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return enter(tmp_path, monkeypatch)


@needs_library
def test_a_wanted_change_goes_red_then_green_by_accept_without_a_refresh(project, capsys):
    assert project.gate("--record") == 0
    before = next((project.root / ".ai-prof" / "baselines").rglob("work.json")).read_bytes()
    project.set_work(KERNEL_NS=160_000)
    project.commit("a larger model")
    assert project.gate() == 1
    open_metrics = [c["metric"] for c in project.workload()["cells"] if c["reason"] == "regressed"]
    assert "kernel_time_ms" in open_metrics

    assert main(["accept", "work", "syncs", "--reason", "wanted"]) == 2
    assert "syncs of work did not regress in the report" in capsys.readouterr().err
    assert main(["accept", "other", "syncs", "--reason", "wanted"]) == 2
    red = max((project.root / "reports").glob("*/report.md"), key=lambda p: p.stat().st_mtime_ns).read_text()
    command = f'ai-prof accept work {" ".join(open_metrics)} --reason "..."'
    assert command in red.replace("\\_", "_")
    assert main([*shlex.split(command)[1:-1], "a larger model"]) == 0
    said = capsys.readouterr()
    assert "kernel_time_ms  accepted by" in said.out
    assert "written to .ai-prof/baselines/" in said.err
    assert "it stays here, as its baseline does; `ai-prof baseline refresh` makes one to" in said.err

    assert project.gate() == 0
    out = capsys.readouterr().out
    assert "accepted" in out
    assert "a larger model" in out
    assert project.workload()["reason"] == "accepted"
    assert next((project.root / ".ai-prof" / "baselines").rglob("work.json")).read_bytes() == before
    newest = max((project.root / "reports").glob("*/report.json"), key=lambda p: p.stat().st_mtime_ns).parent
    for name in ("index.html", "report.md", "junit.xml", "report.json"):
        text = (newest / name).read_text()
        assert "accepted by" in text, name
        assert "a larger model" in text, name

    project.set_work(KERNEL_NS=250_000)
    assert project.gate() == 1
    assert "beyond what" in project.workload()["why"]


def test_nothing_is_accepted_from_a_known_slowdown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["accept", "work", "syncs", "--reason", "wanted"]) == 2
    assert "run `ai-prof gate` first" in capsys.readouterr().err
    verdict = decide.build(
        [verdict_of([])], run_id="r1", started="", finished="", device="cuda", machine_key=KEY, regress="slow"
    )
    write_reports(verdict, tmp_path / "reports" / "r1")
    for named in ([], ["--report", "reports/r1"], ["--report", "reports/r1/report.json"]):
        assert main(["accept", WORKLOAD, "iteration_ms", "--reason", "wanted", *named]) == 2
        assert "--regress slow" in capsys.readouterr().err
    assert main(["accept", WORKLOAD, "iteration_ms", "--reason", "wanted", "--report", "reports"]) == 2
    assert "reports/report.json: cannot be read (No such file" in capsys.readouterr().err
