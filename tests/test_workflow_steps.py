"""Every step of the workflows that has a script is run by a test, or says here why none can run it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import fake_project
import pytest
from workflow_runner import ROOT, Runner, step, steps

from ai_prof.cli import init
from ai_prof.collect.autostart import library_path

NEVER = {
    ("ci", "all", "sudo .ci/run"): "it runs these tests",
    ("release", "wheels", "Build"): "it builds in the containers of manylinux, which need Docker",
}
NAMED = [  # they take minutes: `nox -s init` runs them, else only that there is such a session is looked at
    ("ci", "tests", "nox -s tests"),
    ("ci", "oldest", "nox -s oldest"),
    ("ci", "races", "pipx run nox -s native-tsan"),
]
OTHERS = {  # run by test_workflows.py
    ("action", "composite", "Gate"),
    ("baseline-refresh", "propose", "Open a pull request with the values that moved"),
    ("comment", "comment", "Comment"),
    ("release", "source", "The tag names the version"),
}
INSTALL = [
    ("baseline-refresh", "measure", "Install nox"),
    ("profile", "gate", "Install nox"),
    ("profile", "verdict", "Install nox"),
]
PIP = [("ci", job, "python -m pip install nox") for job in ("tests", "oldest")]
MEASURE = ("baseline-refresh", "measure", "Measure")
DOCTOR = ("profile", "gate", "Doctor")
TAKE = ("profile", "gate", "Take baselines from the target branch")
GATE = ("profile", "gate", "Gate")
VERDICT = ("profile", "verdict", "Verdict")
SUMMARIES = [("profile", "verdict", "Summary"), ("ci", "gate", "Summary")]
AGAINST = ("ci", "gate", "Gate")
ACTION = [("action", "composite", "Install"), ("action", "composite", "Doctor")]
SDIST = ("release", "source", "Build")
HERE = {*INSTALL, *PIP, MEASURE, DOCTOR, TAKE, GATE, VERDICT, *SUMMARIES, AGAINST, *ACTION, SDIST}

# A nox told to use what the tests have: `nox -s init` looks at what a session installs.
NOX = '#!/bin/sh\nexec "{nox}" --no-venv --no-install "$@"\n'
PIPX_OF_TESTS = '#!/bin/sh\nshift\nexec "$@"\n'
# As the runner's, it runs a package's program from an environment made for it.
PIPX = """#!/bin/sh -e
[ "$1" = run ] && shift
"{python}" -m venv "$RUNNER_TEMP/pipx" && "$RUNNER_TEMP/pipx/bin/pip" install --quiet "$1"
program="$1" && shift
exec "$RUNNER_TEMP/pipx/bin/python" -m "$program" "$@"
"""


def test_every_step_is_run_by_a_test_or_says_why_not() -> None:
    assert steps().keys() == {*NEVER, *NAMED, *OTHERS, *HERE}


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.fixture
def project(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> fake_project.Project:
    """The runner's checkout: a workload that needs no device, and what `ai-prof init` gives a repository."""
    if library_path() is None:
        pytest.skip("the native library is not built here")
    made = fake_project.enter(runner.workspace, monkeypatch)
    (made.root / "noxfile.py").write_text(init.contents("opencl", "ai-prof")["noxfile.py"])
    made.settings('build = "true"')
    made.commit("gated")
    return made


def succeed(runner: Runner, *names: str, code: int = 0, **variables: str) -> str:
    """What a step, which has to end with `code`, said."""
    done = runner.run(step(*names), CI="true", **variables)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def install_nox(runner: Runner) -> None:
    assert len({step(*each)["run"] for each in INSTALL}) == 1
    succeed(runner, *INSTALL[0])
    programs = runner.folder / "temp" / "nox" / "bin"
    succeed(runner, *PIP[0], PATH=f"{programs}:/usr/bin:/bin")
    itself = (programs / "nox").rename(programs / "nox-itself")
    (programs / "nox").write_text(NOX.format(nox=itself))
    (programs / "nox").chmod(0o755)


def test_baselines_are_measured_and_a_build_is_gated_by_them(
    runner: Runner, project: fake_project.Project
) -> None:
    install_nox(runner)
    assert "capture library" in succeed(runner, *DOCTOR)
    succeed(runner, *MEASURE, REASON="$(touch pwned) new driver")
    assert not (project.root / "pwned").exists()
    assert "iteration latency" in (project.root / "baselines" / "moved.txt").read_text()
    (project.root / "baselines" / "moved.txt").unlink()
    (project.root / "reports" / "zzz").mkdir(parents=True)
    for name in ("report.md", "comment.txt", "shard.json"):
        (project.root / "reports" / "zzz" / name).write_text("by the change itself")
    project.git("add", "-f", "reports")
    base = project.commit("baselines")
    succeed(runner, *TAKE, BASE=base)
    succeed(runner, *GATE, SHARD="1/1")
    (runner.folder / "temp" / "reports").rename(runner.folder / "temp" / "evidence")
    succeed(runner, *VERDICT)
    succeed(runner, *SUMMARIES[0])
    assert "Pass: no regression in 1 workload" in runner.summary.read_text()
    assert "by the change itself" not in runner.summary.read_text()
    assert [path.name for path in (runner.workspace / "reports").iterdir()] == ["zzz"]


def test_a_build_is_gated_against_its_target_branch(runner: Runner, project: fake_project.Project) -> None:
    runner.program("nox", NOX.format(nox=Path(sys.executable).with_name("nox")))
    runner.program("pipx", PIPX_OF_TESTS)
    project.git("remote", "add", "origin", str(project.root))
    project.git("fetch", "-q", "origin")
    project.set_work(KERNELS=12)
    project.commit("more work")
    succeed(runner, *AGAINST, code=1, GITHUB_BASE_REF="main~1")
    assert {step(*each)["run"] for each in SUMMARIES} == {step(*SUMMARIES[0])["run"]}


@pytest.mark.parametrize("name", NAMED, ids=lambda name: name[1])
def test_a_session_that_a_step_names_is_there(runner: Runner, name: tuple[str, str, str]) -> None:
    shutil.copy(ROOT / "noxfile.py", runner.workspace)
    listing = f'#!/bin/sh\nexec "{sys.executable}" -m nox --list "$@"\n'
    runner.program("nox", listing)
    runner.program("pipx", PIPX_OF_TESTS)
    assert f"* {name[2].split()[-1]} " in succeed(runner, *name)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMED, ids=lambda name: name[1])
def test_a_session_that_a_step_names_works(runner: Runner, name: tuple[str, str, str]) -> None:
    """Of the Python tests those of one file: all of them would run themselves."""
    runner.program("pipx", PIPX.format(python=sys.executable))
    subprocess.run(["git", "clone", "-q", ROOT, runner.workspace], check=True)
    assert "was successful" in succeed(runner, *name, PYTEST_ADDOPTS="-k own_folder")


@pytest.mark.long
def test_the_action_installs_what_it_gates_with(runner: Runner) -> None:
    for each in ACTION:
        said = succeed(runner, *each, PYTHON=sys.executable, SOURCE=str(ROOT))
    assert "programs can work here" in said
    assert "no workloads in" in succeed(runner, "action", "composite", "Gate", ARGUMENTS="", code=2)


@pytest.mark.long
def test_a_source_distribution_is_built(runner: Runner) -> None:
    runner.program("pipx", PIPX.format(python=sys.executable))
    subprocess.run(["git", "clone", "-q", ROOT, runner.workspace], check=True)
    succeed(runner, *SDIST)
    (made,) = (runner.workspace / "dist").iterdir()
    assert made.name.endswith(".tar.gz")
