"""Base and head: another commit in a worktree, built once, run fresh against this tree."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from fake_project import Project, enter

from ai_prof.cli import main
from ai_prof.collect.autostart import library_path
from ai_prof.errors import UsageError
from ai_prof.runs.base import BaseError, resolve, worktree
from ai_prof.runs.checkout import Checkout, inspect
from ai_prof.runs.gated import Request, gate, prepare

needs_library = pytest.mark.skipif(library_path() is None, reason="the native library is not built here")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return enter(tmp_path, monkeypatch)


def made(root: Path, commit: str, build: str | None = None, timeout_s: float = 60) -> Checkout:
    """A worktree that is used no more."""
    with ExitStack() as held:
        return worktree(root, commit, build, timeout_s, held)


def test_a_commit_is_checked_out_and_built_once(project, capsys):
    first = project.git("rev-parse", "HEAD")
    project.set_work(KERNELS=12)
    project.commit("second")
    build = "echo built >> built.txt"
    base = made(project.root, first, build)
    assert (base.commit, base.dirty) == (first, False)
    assert "KERNELS = 10" in (base.root / "workloads" / "work" / "main.py").read_text()
    assert made(project.root, first, build).root == base.root
    assert (base.root / "built.txt").read_text() == "built\n"
    assert capsys.readouterr().err == f"ai-prof: building {first[:12]} by `{build}`\n"
    made(project.root, first, "echo another > built.txt")
    assert (base.root / "built.txt").read_text() == "another\n"
    assert project.git("status", "--porcelain") == ""


def test_a_build_that_fails_says_why_and_is_not_kept(project):
    commit = project.git("rev-parse", "HEAD")
    with pytest.raises(BaseError, match=r"ended with 3 at [0-9a-f]{12}: no compiler"):
        made(project.root, commit, "echo no compiler >&2; exit 3")
    with pytest.raises(BaseError, match="still ran after 1 s"):
        made(project.root, commit, "sleep 600", timeout_s=1)
    assert made(project.root, commit, "true").commit == commit


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_gate_that_is_ended_ends_its_build(project, how):
    """Else it would go on writing where the next gate builds."""
    building = project.root / "reports" / "building"
    building.parent.mkdir()
    project.settings(f'build = "echo $$ > {building}; sleep 600; true"')
    project.commit("settings")
    project.set_work(KERNELS=12)
    code = "import signal, sys; from ai_prof.cli import main; "
    code += (
        f"signal.signal({how:d}, signal.default_int_handler if {how == signal.SIGINT} else signal.SIG_DFL); "
    )
    gate = subprocess.Popen([sys.executable, "-c", f"{code}sys.exit(main())", "gate", "--against", "HEAD~1"])
    while not (building.exists() and building.read_text().strip()):
        assert gate.poll() is None
        time.sleep(0.05)
    gate.send_signal(how)
    assert gate.wait() == 128 + signal.SIGINT
    with suppress(psutil.NoSuchProcess):  # killed, and perhaps not yet reaped by who adopted it
        psutil.Process(int(building.read_text())).wait(timeout=10)


def test_a_gate_that_is_killed_ends_its_build_and_the_next_one_builds_anew(project):
    building = project.root / "locks" / "building"
    first = project.git("rev-parse", "HEAD")
    wait = f"sh -c 'echo $$ > {building}; sleep 600; true'"
    build = f"echo built >> built.txt; [ -e {building} ] || {wait}"
    code = (
        "import pathlib, sys; from contextlib import ExitStack; from ai_prof.runs.base import worktree; "
        "worktree(pathlib.Path.cwd(), *sys.argv[1:], 600, ExitStack())"
    )
    gate = subprocess.Popen([sys.executable, "-c", code, first, build])
    while not (building.exists() and building.read_text().strip()):
        assert gate.poll() is None
        time.sleep(0.05)
    gate.kill()
    gate.wait()
    deadline = time.monotonic() + 60
    while psutil.pid_exists(int(building.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (made(project.root, first, build).root / "built.txt").read_text() == "built\n"


def test_a_worktree_that_was_removed_by_hand_is_made_again(project):
    commit = project.git("rev-parse", "HEAD")
    base = made(project.root, commit)
    for path in sorted(base.root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    base.root.rmdir()
    assert (made(project.root, commit).root / "workloads").exists()


def test_only_the_last_worktrees_are_kept(project):
    commits = [project.commit(f"change {i}") for i in range(6)]
    failed, killed, *commits = commits
    with pytest.raises(BaseError, match="ended with 1"):
        made(project.root, failed, "false")
    tree = project.root / ".ai-prof" / "base" / killed[:12]
    project.git("worktree", "add", "--detach", str(tree), killed)
    for commit in commits:
        made(project.root, commit, "true")
    kept = {path.name for path in (project.root / ".ai-prof" / "base").iterdir()}
    ends = ("", ".json", ".build")  # the checkout, its mark, and what its build printed
    assert kept == {f"{commit[:12]}{end}" for commit in commits[-3:] for end in ends}
    assert project.git("worktree", "list").count("\n") == 3


def test_a_worktree_in_use_is_kept_whatever_other_gates_make(project):
    used = project.git("rev-parse", "HEAD")
    with ExitStack() as held:
        tree = worktree(project.root, used, None, 60, held).root
        for i in range(4):
            made(project.root, project.commit(f"change {i}"))
        assert (tree / "workloads").exists()
        with pytest.raises(BaseError, match=r"as another build command made it: wait for its end"):
            made(project.root, used, "true")
        assert made(project.root, used).root == tree
    for i in range(3):
        made(project.root, project.commit(f"later {i}"))
    assert not tree.exists()


def test_captures_in_use_are_kept_however_many_gates_begin(project):
    request, head = (
        Request(root=project.root, workloads=project.root / "workloads", baselines=project.root),
        inspect(project.root),
    )
    scene = prepare(request)

    def begin(number: int, held: ExitStack) -> Path:
        return scene.bench(request, head, "session", f"run-{number}", held).folder

    with ExitStack() as held:
        first = begin(0, held)
        for number in range(1, 6):
            with ExitStack() as another:
                begin(number, another)
        assert sorted(path.name for path in first.parent.iterdir()) == ["run-0", "run-3", "run-4", "run-5"]
    begin(6, ExitStack())
    assert not first.exists()


@needs_library
def test_captures_stay_for_the_report_however_many_gates_begin_meanwhile(project):
    request = Request(
        root=project.root, workloads=project.root / "workloads", baselines=project.root, record=True
    )
    with gate(request) as verdict:
        captures = [Path(run.capture) for run in verdict.workloads[0].candidate_runs]
        scene, head = prepare(request), inspect(project.root)
        for number in range(4):
            with ExitStack() as another:
                scene.bench(request, head, "session", f"9-{number}", another)
        assert captures
        assert all(capture.exists() for capture in captures)


def test_a_checkout_that_was_killed_is_made_again(project):
    """Git leaves its worktree half filled, and locked."""
    commit = project.git("rev-parse", "HEAD")
    tree = made(project.root, commit).root
    project.git("worktree", "lock", "--reason", "initializing", str(tree))
    (tree / "workloads" / "work" / "main.py").unlink()
    tree.with_suffix(".json").unlink()
    assert (made(project.root, commit).root / "workloads" / "work" / "main.py").exists()


def test_a_project_in_a_folder_of_its_repository(project):
    (project.root / "sub").mkdir()
    (project.root / "sub" / "file").write_text("here")
    commit = project.commit("sub")
    assert (made(project.root / "sub", commit).root / "file").read_text() == "here"


@pytest.mark.parametrize("ref", ["nowhere", "--help", "0" * 40])
def test_a_ref_that_names_nothing(project, ref):
    with pytest.raises(UsageError, match="names no commit"):
        resolve(project.root, ref)


def test_outside_of_git_no_ref_is_to_be_fetched(tmp_path):
    with pytest.raises(UsageError, match="is not in git: there is no 'HEAD' to run"):
        resolve(tmp_path, "HEAD")


def test_a_shallow_clone_says_how_to_get_what_it_lacks(project):
    first = project.git("rev-parse", "HEAD")
    project.commit("second")
    clone = project.root / "locks" / "clone"
    project.git("clone", "-q", "--depth", "1", project.root.as_uri(), str(clone))
    with pytest.raises(
        UsageError, match=r"'HEAD~1' names no commit of .*shallow clone \(`fetch-depth: 0` in CI"
    ):
        resolve(clone, "HEAD~1")
    with pytest.raises(BaseError, match=rf"{first[:12]} is no commit of this clone: get the history"):
        made(clone, first)


def test_git_is_asked_about_this_repository_also_within_a_hook_of_another(project, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nonexistent/index")
    commit = resolve(project.root, "HEAD")
    tree = made(project.root, commit, "git rev-parse --show-toplevel > top").root
    assert Path((tree / "top").read_text().strip()) == tree


def test_a_checkout_of_another_user_is_told_with_gits_own_remedy(project, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    with pytest.raises(UsageError, match=r"run `git config --global --add safe.directory /\S+`$"):
        resolve(project.root, "HEAD")


@pytest.mark.parametrize("setting", ["status.showUntrackedFiles=no", "core.quotePath=false"])
def test_an_untracked_file_makes_a_tree_dirty_whatever_git_is_set_to(project, setting):
    project.git("config", *setting.split("="))
    assert not inspect(project.root).dirty
    Path(os.fsdecode(bytes(project.root) + b"/helper \xff.py")).write_text("KERNELS = 20")
    assert inspect(project.root).dirty


def test_a_project_in_a_folder_with_any_name(project):
    inner = Path(os.fsdecode(bytes(project.root) + b"/ \xff inner"))
    inner.mkdir()
    (inner / "file").write_text("1")
    commit = project.commit("inner")
    assert (made(inner, commit).root / "file").read_text() == "1"


def test_what_git_knows_of_a_worktree_that_is_not_here_now_stays(project, tmp_path):
    project.git("worktree", "add", "-q", str(tmp_path / "disk"))
    (tmp_path / "disk").rename(tmp_path / "taken out")
    made(project.root, project.git("rev-parse", "HEAD"))
    (tmp_path / "taken out").rename(tmp_path / "disk")
    assert inspect(tmp_path / "disk").commit == project.git("rev-parse", "HEAD")


@needs_library
def test_without_a_baseline_a_commit_is_compared_straight(project, capsys):
    base = project.git("rev-parse", "HEAD")
    project.set_work(KERNEL_NS=160_000)
    project.commit("slower")
    assert project.gate("--against", "HEAD~1") == 1
    workload = project.workload()
    assert workload["reason"] == "regressed"
    # Ten where by chance the order seems to matter.
    assert (len(workload["confirm_base"]), len(workload["confirm_head"])) in {(6, 6), (10, 10)}
    assert {run["commit"] for run in workload["confirm_base"]} == {base}
    assert workload["candidate_runs"] == []
    assert any("no aligned profile: without a stored baseline" in note for note in workload["notes"])
    assert project.report()["base"] == base
    (took,) = (note for note in project.report()["notes"] if "of 20 minutes" in note)
    assert "flagged" not in took
    assert any("`build` in [tool.ai-prof] is not set" in note for note in project.report()["notes"])
    assert "1 of 1 workload regressed" in capsys.readouterr().out
    # Against itself, with a fault switched on: base never has the fault.
    assert project.gate("--against", "HEAD", "--regress", "slow") == 1
    assert project.gate("--against", "HEAD") == 0
    assert not any("is not set" in note for note in project.report()["notes"])


@needs_library
def test_what_a_build_recorded_itself_is_its_own_code(project):
    """Also where no commit names it: the machine is slower from the fourth launch on."""
    shutil.rmtree(project.root / ".git")
    usual = next(line for line in project.main.read_text().splitlines() if line.startswith("KERNEL_NS"))
    counting = 'launches = open("launches", "a"); launches.write("."); '
    slower = "KERNEL_NS = 160_000 if launches.tell() > 3 else 100_000"
    project.main.write_text(project.main.read_text().replace(usual, counting + slower))
    assert project.gate("--record") == 0
    assert "this very code" in project.workload()["why"]


@needs_library
def test_the_baselines_own_commit_settles_nothing_of_itself(project, monkeypatch):
    assert project.gate("--record") == 0
    (recorded,) = project.report()["notes"]
    # What its environment makes slower is no change of the code, and needs no fresh runs.
    monkeypatch.setenv("SLOWED_TO_NS", "160000")
    assert project.gate() == 0
    workload = project.workload()
    assert "this very code" in workload["why"]
    assert (workload["confirm_base"], workload["confirm_head"]) == ([], [])
    # Where it was recorded is said, and its removal starts over.
    path = Path(workload["baseline"]["path"])
    assert recorded.endswith(f"work in {path.relative_to(project.root)}")
    path.unlink()
    assert project.gate("--record") == 0
    assert "this very code" not in project.workload()["why"]


@needs_library
def test_the_baselines_own_commit_is_run_again_where_it_can_be_built(project):
    assert project.gate("--record") == 0
    project.settings('build = "true"')
    project.set_work(KERNEL_NS=160_000)
    head = project.commit("slower")
    assert project.gate() == 1
    workload = project.workload()
    cell = next(cell for cell in workload["cells"] if cell["metric"] == "kernel_time_ms")
    assert (cell["reason"], cell["evidence"]) == ("regressed", "confirmed")
    assert {run["commit"] for run in workload["confirm_head"]} == {head}
    assert {run["commit"] for run in workload["confirm_base"]} == {workload["baseline"]["commit"]}


@needs_library
@pytest.mark.parametrize(
    ("settings", "said"),
    [("", "set `build`"), ('build = "exit 9"', "the build command ended with 9")],
)
def test_where_base_cannot_be_built_three_more_runs_settle_it_and_say_so(project, settings, said):
    assert project.gate("--record") == 0
    project.settings(settings)
    project.set_work(KERNEL_NS=160_000)
    project.commit("slower")
    assert project.gate() == 1
    workload = project.workload()
    assert (len(workload["confirm_base"]), len(workload["confirm_head"])) == (0, 3)
    cell = next(cell for cell in workload["cells"] if cell["metric"] == "kernel_time_ms")
    assert (cell["reason"], cell["evidence"]) == ("regressed", "repeated")
    assert any(said in note for note in workload["notes"])
    assert any("weaker evidence" in note for note in workload["notes"])


@needs_library
def test_what_is_accepted_counts_once_also_against_a_base_that_has_it(project):
    """Accepted and merged, it is in base; and a second change is accepted on top of the first."""
    project.settings('build = "true"')
    project.commit("settings")
    assert main(["baseline", "refresh", "--reason", "first"]) == 0
    project.commit("baseline")

    def slower(kernel_ns: int) -> None:
        project.set_work(KERNEL_NS=kernel_ns)
        project.commit("slower")

    def accept() -> None:
        metrics = [cell["metric"] for cell in project.workload()["cells"] if cell["reason"] == "regressed"]
        assert main(["accept", "work", *metrics, "--reason", "wanted"]) == 0
        project.commit("accepted")

    slower(110_000)
    assert project.gate() == 1
    accept()
    assert project.gate() == 0
    slower(120_000)
    assert project.gate("--against", "HEAD~1") == 1
    assert project.gate() == 1
    accept()
    assert project.gate() == 0
    assert project.gate("--against", "HEAD~2") == 0
    (cell,) = (cell for cell in project.workload()["cells"] if cell["metric"] == "kernel_time_ms")
    wanted = {each["metric"]: each for each in project.workload()["accepted"]}
    assert wanted["kernel_time_ms"]["from"] == pytest.approx(1.0, rel=0.01)
    assert wanted["kernel_time_ms"]["to"] == pytest.approx(1.2, rel=0.01)
    assert cell["reason"] != "regressed"
    slower(132_000)
    assert project.gate("--against", "HEAD~1") == 1


@needs_library
@pytest.mark.parametrize("committed_first", [True, False])
def test_what_is_accepted_of_a_local_baseline_counts_once(project, committed_first):
    """No tree holds the acceptance: base has the change by the commit that was measured, or coming later."""
    project.settings('build = "true"')
    project.commit("settings")
    assert project.gate("--record") == 0

    def slower(kernel_ns: int, against: str) -> None:
        project.set_work(KERNEL_NS=kernel_ns)
        if committed_first:
            project.commit("slower")
        assert project.gate("--against", f"{against}~1" if committed_first else against) == 1
        metrics = [cell["metric"] for cell in project.workload()["cells"] if cell["reason"] == "regressed"]
        assert main(["accept", "work", *metrics, "--reason", "wanted"]) == 0
        if not committed_first:
            project.commit("slower")
        assert project.gate("--against", "HEAD~1") == 0

    slower(160_000, against="HEAD")
    slower(220_000, against="HEAD")  # which has the first: this is one more, and it counts once


@needs_library
def test_base_runs_its_own_workload_and_a_base_that_crashes_is_no_regression_of_head(project):
    good = project.main.read_text()
    project.main.write_text("raise RuntimeError('broken at base')")
    project.commit("broken")
    project.main.write_text(good)
    project.commit("mended")
    assert project.gate("--against", "HEAD~1") == 5
    workload = project.workload()
    assert workload["reason"] == "inconclusive"
    assert any("broken at base" in note for note in workload["notes"])


@needs_library
def test_heads_workload_stands_in_where_base_lacks_it(project):
    project.git("mv", "workloads/work", "workloads/other")
    project.commit("renamed")
    project.main = project.root / "workloads" / "other" / "main.py"
    project.set_work(KERNELS=20)
    assert project.gate("--against", "HEAD~1") == 0
    assert project.workload()["workload"] == "other"
    assert any("has no such workload" in note for note in project.report()["notes"])


@needs_library
def test_a_budget_that_is_spent_settles_nothing(project):
    assert project.gate("--record") == 0
    project.set_work(KERNEL_NS=160_000)
    assert project.gate("--budget-minutes", "0") == 5
    workload = project.workload()
    assert workload["reason"] == "inconclusive"
    assert any("the budget of 0 minutes was spent" in note for note in workload["notes"])
