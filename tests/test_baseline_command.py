"""`ai-prof baseline`: refreshed twice and looked at; a project whose workload needs no device."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from fake_project import Project, enter
from gate_runs import WORKLOAD
from test_baselines_store import KEY, baseline
from test_gate_latency import Farm

from ai_prof.baselines import accepted, calibrated, store
from ai_prof.baselines.files import PARTIAL
from ai_prof.cli import main
from ai_prof.collect.autostart import library_path
from ai_prof.gate import latency, screen
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Acceptance, Anchor, BuildVerdict, LastCalibration
from ai_prof.runs.gated import Request, gate

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_library = pytest.mark.skipif(library_path() is None, reason="the native library is not built here")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return enter(tmp_path, monkeypatch)


def stored(project: Project) -> store.Baseline:
    (path,) = (project.root / "baselines").glob("*/work.json")
    found = store.load(project.root / "baselines", path.parent.name, "work")
    assert found is not None
    return found


def refresh(reason: str) -> int:
    return main(["baseline", "refresh", "--reason", reason])


def overtaken_refresh(monkeypatch: pytest.MonkeyPatch) -> int:
    """A refresh, while which another one begins and ends; its exit code."""

    @contextmanager
    def overtaken(request: Request) -> Iterator[BuildVerdict]:
        with gate(request) as verdict:
            with monkeypatch.context() as undone:
                undone.setattr("ai_prof.cli.baseline.gate", gate)
                assert refresh("overtakes") == 0
            yield verdict

    monkeypatch.setattr("ai_prof.cli.baseline.gate", overtaken)
    return refresh("is overtaken")


@needs_library
def test_refreshes_add_up_are_logged_and_end_what_was_accepted(project, capsys):
    assert refresh("the first") == 0
    first = stored(project)
    assert (first.sessions, len(first.runs), len(first.anchor.runs)) == (1, 3, 3)
    assert {run.captured for run in first.runs} == {""}  # this capture's file does not say
    project.commit("baseline")
    (path,) = (project.root / "baselines").glob("*/work.json")
    wanted = Acceptance(metric="gap_ms", old=1.0, new=1.1, who="ada", why="wanted", when="")
    accepted.add(path, first, [wanted])
    project.commit("accepted")
    assert refresh("the second") == 0
    assert "gap ratio" in capsys.readouterr().out
    second = stored(project)
    assert len(second.runs) == 6
    assert second.anchor == first.anchor
    assert [entry.why for entry in second.log] == ["the first", "the second"]
    assert not accepted.path_of(path).exists()

    assert main(["baseline", "log", "work"]) == 0
    out = capsys.readouterr().out
    assert "the second" in out
    assert second.origin.commit[:12] in out
    project.commit("refreshed")
    project.set_work(KERNEL_NS=160_000)
    project.commit("slower")
    assert refresh("blind") == 2
    said = capsys.readouterr().err
    assert "bury a regression" in said
    assert stored(project) == second
    *_, metrics = re.findall(
        r"run `ai-prof gate work` and accept .* `ai-prof accept work ([\w ]+) --rea", said
    )
    assert project.gate("work") == 1
    assert main(["accept", "work", *metrics.split(), "--reason", "larger"]) == 0
    project.commit("accepted")
    assert refresh("larger") == 0
    assert stored(project).origin.who == "ada"


@needs_library
def test_a_disk_that_fills_while_baselines_are_stored_leaves_all_old_ones(project, monkeypatch, capsys):
    shutil.copytree(project.main.parent, project.main.parents[1] / "other")
    project.commit("two workloads")
    assert refresh("the first") == 0
    project.commit("baselines")
    write, asked = os.fsync, []

    def full(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        asked.extend(each for each in ("work.json", "other.json") if name.startswith(f".{each}."))
        if len(asked) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert refresh("the second") == 2
    assert f"{asked[1]}: cannot be written (No space left on device)" in capsys.readouterr().err
    assert asked[0] != asked[1]
    assert project.git("status", "--porcelain") == ""


@needs_library
def test_what_a_killed_refresh_left_does_not_stop_the_next_one(project):
    assert refresh("the first") == 0
    project.commit("baselines")
    (path,) = (project.root / "baselines").glob("*/work.json")
    left = path.with_name(f".{path.name}.abcdefgh{PARTIAL}")
    left.write_text("{")
    assert refresh("the second") == 0
    assert not left.exists()


@needs_library
def test_committed_baselines_serve_a_fresh_clone_and_no_other_machine(
    project, tmp_path_factory, monkeypatch, capsys
):
    assert refresh("the first") == 0
    project.commit("baselines")
    (path,) = (project.root / "baselines").glob("*/work.json")
    files = project.git("ls-files", "baselines").splitlines()
    assert sorted(files) == sorted(str(f.relative_to(project.root)) for f in path.parent.iterdir())

    clone = tmp_path_factory.mktemp("clone") / "work"
    project.git("clone", "-q", ".", str(clone))
    monkeypatch.chdir(clone)
    capsys.readouterr()
    assert main(["gate", "--json"]) == 0
    (work,) = json.loads(capsys.readouterr().out)["workloads"]
    mine = clone / path.relative_to(project.root)
    assert (work["reason"], work["baseline"]["path"]) == ("pass", str(mine))
    assert work["baseline"]["commit"] == project.git("rev-parse", "HEAD~1")
    status = ["git", "status", "--porcelain"]
    assert subprocess.run(status, check=True, capture_output=True).stdout == b""

    # The same folder on a machine of another kind: nothing of it counts, and nothing is said to be wrong.
    theirs = mine.parent.with_name("cuda-nvidia-h200-x1-140gb-driver580-cuda13")
    mine.parent.rename(theirs)
    (theirs / "work.json").write_text(mine_of(theirs))
    assert main(["gate"]) == 3
    told = capsys.readouterr()
    assert "no baseline for this machine: record one with `ai-prof gate --record`" in told.out
    assert "error" not in (told.out + told.err).lower()


def mine_of(folder: Path) -> str:
    """The baseline in `folder`, as one that was recorded on the machine that the folder names."""
    text = (folder / "work.json").read_text()
    key = json.loads(text)["machine_key"]
    return text.replace(key, folder.name)


def test_show_gives_what_every_cell_could_miss(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one = baseline(sessions=4)
    path = store.save(tmp_path / "baselines", one)
    accepted.add(path, one, [Acceptance(metric="syncs", old=1, new=2, who="ada", why="wanted", when="")])
    assert main(["baseline", "show", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    cells = {cell["metric"]: cell for cell in shown["metrics"]}
    assert 0 < cells["iteration_ms"]["mde"] < 1
    assert cells["iteration_ms"]["mde_in_session"] is None
    assert cells["kernel_time_ms"]["spread"] > 0
    assert (cells["syncs"]["value"], cells["syncs"]["mde"]) == (1, None)
    assert (shown["sessions"], shown["machine_key"]) == (4, KEY)
    assert [each["metric"] for each in shown["accepted"]] == ["syncs"]
    assert main(["baseline", "show", "train"]) == 0
    out = capsys.readouterr().out
    assert "detectable" in out
    assert "12 runs of 4 sessions" in out
    assert "accepted by ada, 1 to 2 (wanted)" in out


def test_show_and_calibrate_judge_by_the_projects_rules_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    store.save(tmp_path / "baselines", baseline(sessions=4))
    (tmp_path / "pyproject.toml").write_text('[tool.ai-prof]\npolicy.gap = "ignore"\n')
    assert main(["baseline", "show", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert {"gap", "gap_ms"} & {cell["metric"] for cell in shown["metrics"]} == {"gap_ms"}
    (tmp_path / "workloads" / "train").mkdir(parents=True)
    (tmp_path / "workloads" / "train" / "workload.toml").write_text("schema = 1")
    for verb in (["baseline", "show"], ["calibrate"]):
        assert main(verb) == 2
        assert "workload.toml: " in capsys.readouterr().err


def test_show_tells_latency_as_the_gate_compares_it(tmp_path, monkeypatch, capsys):
    """By the lower quarter, where that varies less; an anchor has kept the medians alone."""
    monkeypatch.chdir(tmp_path)
    runs = Farm(1).baseline()
    pinned = [msgspec.structs.replace(run, iteration_ms=[]) for run in runs[:3]]
    one = baseline(runs=runs, anchor=Anchor(when="", commit=None, runs=pinned))
    store.save(tmp_path / "baselines", one)
    assert main(["baseline", "show", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    cell = next(cell for cell in shown["metrics"] if cell["metric"] == "iteration_ms")
    assert cell["spread"] == pytest.approx(latency.spread(runs, latency.LOW))
    medians = [np.median([run.metrics["iteration_ms"] for run in runs[i : i + 3]]) for i in range(0, 30, 3)]
    assert cell["drift"] == pytest.approx(np.exp(np.mean(np.log(medians))) / medians[0] - 1, abs=0.002)
    assert main(["baseline", "show"]) == 0
    assert "that of the lower quarter of a run's iterations: between sessions" in capsys.readouterr().out


def test_show_of_one_session_tells_its_own_runs_from_the_ones_to_come(tmp_path, monkeypatch, capsys):
    """Its runs differ by less than 1 %, what sessions differ by is not known yet: as the gate judges both."""
    monkeypatch.chdir(tmp_path)
    one = baseline(sessions=1)
    store.save(tmp_path / "baselines", one)
    assert main(["baseline", "show", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    cell = next(cell for cell in shown["metrics"] if cell["metric"] == "iteration_ms")
    assert cell["mde"] > 1
    priors = screen.shared_priors({WORKLOAD: one.runs}, one.backend)
    (latency,) = (
        each
        for each in screen.screen(one.runs, one.runs[-3:], Rules(), priors)
        if each.metric.key == "iteration_ms"
    )
    assert cell["mde_in_session"] == latency.mde < 0.1
    assert main(["baseline", "show"]) == 0
    out = capsys.readouterr().out
    assert "detectable in its hour" in out
    assert "refresh it on other days" in out


def test_a_pipe_gets_every_row_on_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    when, moved = (
        "2026-01-02T03:04:05.678901+00:00",
        {"iteration_ms": (12.4, 17.1), "kernel_time_ms": (9.8, 9.9)},
    )
    entry = store.Entry(
        when=when,
        who="ada lovelace",
        commit="5f1c2d9a77e0",
        dirty=False,
        runs=3,
        sessions=1,
        why="a longer batch, measured again on a quiet machine",
        moved=moved,
    )
    store.save(tmp_path / "baselines", msgspec.structs.replace(baseline(sessions=1), log=[entry]))
    assert main(["baseline", "log"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if when in line]
    assert "3 of 1 session " in row
    assert entry.why in row
    assert "kernel time per iteration 9.800 ms to 9.900 ms" in row
    assert main(["baseline", "show"]) == 0
    assert f"train, {KEY}: 3 runs of 1 session, provisional\n" in re.sub(
        " +\n", "\n", capsys.readouterr().out
    )


def test_no_name_is_markup_or_steers_a_terminal_or_a_log(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    evil = "[/INST] [bold]\x1b[2J :smile: ##[error]"
    entry = store.Entry(who=evil, why=evil, when="2026-01-01T00:00:00Z", sessions=1, runs=3)
    one = baseline(workload="[red]a :smile:", log=[entry])
    path = store.save(tmp_path / "baselines", one)
    accepted.add(path, one, [Acceptance(metric="gap_ms", old=1.0, new=1.1, who=evil, why=evil, when="")])
    for verb in ("log", "show"):
        assert main(["baseline", verb]) == 0
        out = capsys.readouterr().out
        assert out.startswith("[red]a :smile:")
        assert "[/INST] [bold]\ufffd[2J :smile: # #[error]" in out


def test_values_that_nothing_measures_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one = baseline(sessions=1)
    wild = msgspec.structs.replace(one.runs[0], metrics={**one.runs[0].metrics, "kernel_mean_us": 1e-320})
    store.save(tmp_path / "baselines", msgspec.structs.replace(one, runs=[wild, *one.runs[1:]]))
    assert main(["baseline", "show"]) == 0
    assert "1,000 % and more" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["show", "log"])
def test_nothing_stored_is_said(tmp_path, monkeypatch, capsys, verb):
    monkeypatch.chdir(tmp_path)
    assert main(["baseline", verb]) == 3
    assert "`ai-prof baseline refresh` makes one" in capsys.readouterr().err


@needs_library
def test_of_two_refreshes_at_once_only_one_takes_in_what_was_accepted(project, monkeypatch, capsys):
    """The second one's verdict is of the baseline that the first replaced: what was wanted counts once."""
    assert refresh("the first") == 0
    project.set_work(KERNEL_NS=110_000)
    project.settings('build = "true"')
    project.commit("slower")
    assert project.gate() == 1
    assert main(["accept", "work", "iteration_ms", "kernel_time_ms", "--reason", "wanted"]) == 0
    project.commit("accepted")

    assert overtaken_refresh(monkeypatch) == 2
    assert "was replaced while this one was measured: refresh again" in capsys.readouterr().err
    found = stored(project)
    assert [entry.why for entry in found.log] == ["the first", "overtakes"]
    assert sorted(each.metric for each in found.anchor.accepted) == ["iteration_ms", "kernel_time_ms"]


@needs_library
def test_two_refreshes_at_once_are_one_session(project, monkeypatch):
    assert refresh("the first") == 0
    of_another_boot = [
        msgspec.structs.replace(run, session="20260101T0000Z-0") for run in stored(project).runs
    ]
    store.save(project.root / "baselines", msgspec.structs.replace(stored(project), runs=of_another_boot))
    project.commit("baseline")
    assert overtaken_refresh(monkeypatch) == 0
    assert (stored(project).sessions, len(stored(project).runs)) == (2, 9)


@needs_library
def test_a_workload_recorded_by_itself_ends_no_session_of_another(project):
    assert project.gate("--record") == 0
    shutil.copytree(project.main.parent, project.main.parents[1] / "another")
    project.commit("another")
    assert project.gate("--record", "another") == 0
    assert project.gate() == 0
    workloads = project.report()["workloads"]
    assert {each["workload"] for each in workloads} == {"another", "work"}
    for each in workloads:
        assert len({run["session"] for run in (*each["baseline_runs"], *each["candidate_runs"])}) == 1


@needs_library
def test_where_one_workload_is_refused_at_the_end_nothing_is_stored(project, monkeypatch):
    shutil.copytree(project.main.parent, project.main.parents[1] / "another")
    project.commit("another")
    assert refresh("the first") == 0
    project.commit("baselines")

    @contextmanager
    def replaced(request: Request) -> Iterator[BuildVerdict]:
        with gate(request) as verdict:
            other = [msgspec.structs.replace(run, session="of another") for run in stored(project).runs]
            store.save(project.root / "baselines", msgspec.structs.replace(stored(project), runs=other))
            yield verdict

    monkeypatch.setattr("ai_prof.cli.baseline.gate", replaced)
    assert refresh("the second") == 2
    assert "another" not in project.git("status", "--porcelain", "baselines")
    assert {run.session for run in stored(project).runs} == {"of another"}


@needs_library
def test_a_program_that_does_every_step_twice_is_told_and_its_baseline_can_follow(project, capsys):
    assert refresh("the first") == 0
    text = project.main.read_text()
    project.main.write_text(text.replace("range(40)", "range(80)"))
    project.commit("twice")
    assert project.gate() == 0
    assert "structure changed" in capsys.readouterr().out
    assert "a run has 80 iterations and takes 2.0 times as long" in project.workload()["why"]
    assert refresh("wanted") == 0
    project.commit("baseline")
    assert project.gate() == 0
    assert project.workload()["reason"] == "pass"


@needs_library
def test_a_workload_that_is_gone_or_cannot_run_here_is_told(project, capsys):
    gone, skipped = (project.main.parents[1] / name for name in ("gone", "skipped"))
    for other in (gone, skipped):
        shutil.copytree(project.main.parent, other)
    project.commit("others")
    assert refresh("three of them") == 0
    shutil.rmtree(gone)
    toml = skipped / "workload.toml"
    toml.write_text(f'{toml.read_text()}requires = ["nonesuch"]\n')
    assert project.gate() == 0
    first, second = project.report()["notes"]
    assert re.match(r"baselines/[^/]+/gone.json is of no workload that is here: ", first)
    assert re.match(
        r"baselines/[^/]+/skipped.json was measured on this machine, where the workload is", second
    )
    assert "Pass: no regression in 1 workload, 1 skipped (exit 0)" in capsys.readouterr().out


@needs_library
def test_a_baseline_of_a_busy_host_or_a_dirty_tree_is_told(project, monkeypatch, capsys):
    assert project.gate("--record") == 0
    assert not any("busy" in note for note in project.report()["notes"])
    assert not any("uncommitted" in note for note in project.report()["notes"])
    shutil.rmtree(project.root / ".ai-prof" / "baselines")
    (project.root / "stray.txt").touch()
    monkeypatch.setattr("ai_prof.baselines.refresh.BUSY_SHARE", 0.0)
    assert project.gate("--record") == 0
    told = project.report()["notes"][-1]
    assert "such a baseline hides what comes after it" in told
    assert told.endswith("remove what was recorded first")
    assert "uncommitted changes" in project.report()["notes"][-2]
    (project.root / "stray.txt").unlink()
    assert refresh("nightly") == 0
    assert "of 1000 cores busy" in capsys.readouterr().err


@needs_library
def test_a_gate_knows_the_last_calibration_of_its_baselines(project):
    assert project.gate("--record") == 0
    assert project.report()["calibration"] is None
    folder = Path(project.workload()["baseline"]["path"]).parent
    last = LastCalibration(when="2026-01-02T03:04:05+00:00", draws=200, failed=1, bound=0.02)
    calibrated.save(folder, last)
    assert project.gate() == 0
    assert project.report()["calibration"] == msgspec.to_builtins(last)
