"""`ai-prof init`: what it writes works, and nothing that was there is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from ai_prof.cli import init, main, settings
from ai_prof.runs.workloads import find

ROOT = Path(__file__).parents[1]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty git repository, entered."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    return tmp_path


def written(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in files}


@pytest.mark.parametrize("device", ["cuda", "opencl"])
def test_it_writes_a_whole_project(repository: Path, device: str) -> None:
    assert main(["init", "--device", device]) == 0
    (workload,) = find(repository / "workloads")
    assert (workload.name, workload.device) == ("example", device)
    program = (workload.folder / "main.py").read_text()
    compile(program, "main.py", "exec")
    for fault in workload.faults:
        assert f'"{fault}"' in program
    assert "ai_prof" not in program
    assert {".github/workflows/profile.yml", "noxfile.py", "pyproject.toml"} <= written(repository).keys()
    assert settings.load(repository).build == "true"  # so that a flag is settled by runs of base, too


def test_a_nox_that_is_ended_ends_the_gate(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nox")
    assert main(["init", "--device", "opencl"]) == 0
    gate, gating = repository / "ai-prof", repository / "gating"
    gate.write_text(f"#!/bin/sh\necho $$ > {gating}.new; mv {gating}.new {gating}; exec sleep 600\n")
    gate.chmod(0o755)
    monkeypatch.setenv("PATH", str(repository), prepend=os.pathsep)
    nox = subprocess.Popen([sys.executable, "-m", "nox", "--no-venv", "--no-install", "-s", "profile"])
    while not gating.exists():
        assert nox.poll() is None
        time.sleep(0.05)
    nox.terminate()
    assert nox.wait() == 128 + signal.SIGINT
    with suppress(psutil.NoSuchProcess):  # killed, and perhaps not yet reaped by who adopted it
        psutil.Process(int(gating.read_text())).wait(timeout=10)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(repository: Path) -> None:
    os.mkfifo(repository / "pyproject.toml")
    assert main(["init", "--device", "opencl"]) == 0
    assert (repository / "noxfile.py").is_file()


def test_nothing_that_is_there_is_written_over(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "noxfile.py").write_text("mine")
    (repository / "pyproject.toml").symlink_to("elsewhere")
    assert main(["init", "--device", "opencl"]) == 0
    said = capsys.readouterr()
    assert "kept noxfile.py" in said.err
    assert "kept pyproject.toml" in said.err
    assert "[tool.ai-prof]" in said.out
    assert (repository / "noxfile.py").read_text() == "mine"
    assert not (repository / "elsewhere").exists()
    before = written(repository)
    (repository / "noxfile.py").write_text("# mine, with ai-prof in it")
    assert main(["init", "--device", "opencl"]) == 0
    assert "# add this to noxfile.py" not in capsys.readouterr().out
    assert written(repository) == {**before, "noxfile.py": "# mine, with ai-prof in it"}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ('{"url": "file:///src/ai-prof", "dir_info": {"editable": true}}', " @ file:///src/ai-prof"),
        (
            '{"url": "https://h/r.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "d"}',
            " @ git+https://h/r.git@abc#subdirectory=d",
        ),
        ('{"url": "https://h/ai_prof.whl", "archive_info": {}}', " @ https://h/ai_prof.whl"),
        (None, f"=={version('ai-prof')}"),
    ],
)
def test_the_noxfile_installs_from_where_this_came(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record: str | None,
    expected: str,
) -> None:
    class Found:
        version = version("ai-prof")

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return record

    monkeypatch.setattr(init, "distribution", lambda _: Found())
    assert main(["init", "--device", "cuda"]) == 0
    noxfile = (repository / "noxfile.py").read_text()
    line = f'AI_PROF = "ai-prof{expected}"'
    assert line in noxfile
    told = f"noxfile.py, line {noxfile.splitlines().index(line) + 1}: AI_PROF names a path of this machine"
    said = capsys.readouterr().err
    assert (told in said) == ("file://" in expected)
    assert ("git+https://" in said) == ("file://" in expected)
    assert main(["init", "--device", "opencl"]) == 0
    assert "AI_PROF names" not in capsys.readouterr().err  # of a noxfile that was kept
    assert init.requirement("opencl") == f"ai-prof[opencl]{expected}"


def test_a_folder_without_git_is_told_to_begin_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for begin in ("git init && ", ""):
        assert main(["init", "--device", "cuda"]) == 0
        named = "workloads pyproject.toml noxfile.py .github"
        assert f"next: {begin}git add {named} && git commit" in capsys.readouterr().out
        subprocess.run(["git", "init", "-q"], check=True)


def test_its_workflows_and_helper_are_our_own() -> None:
    ours = {f".github/workflows/{name}" for name in init.WORKFLOWS} | {"workloads/example/pocl_cpu.py"}
    contents = init.contents("opencl", "ai-prof")
    assert ours <= contents.keys()
    for name in ours:
        assert contents[name] == (ROOT / name.replace("workloads/example", "workloads")).read_text(), name


def nox(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("AI_PROF_") and k != "CI"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    command = [sys.executable, "-m", "nox", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def judged(done: subprocess.CompletedProcess[str], folder: Path) -> dict[str, Any]:
    """What the newest report says of the example."""
    newest = max(
        (path for path in (folder / "reports").iterdir() if path.is_dir()), key=lambda path: path.name
    )
    workload: dict[str, Any]
    (workload,) = json.loads((newest / "report.json").read_text())["workloads"]
    assert workload["workload"] == "example", done.stderr
    return workload


def commit(folder: Path) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    subprocess.run(["git", *author, "commit", "-qm", "Gate this repository"], cwd=folder, check=True)


def green_then_red(folder: Path, *options: str) -> None:
    """The first run records and passes; one with a fault fails, in the counts that it changes."""
    commit(folder)
    first = nox(folder, *options, "-s", "profile")
    assert first.returncode == 0, first.stdout + first.stderr
    assert judged(first, folder)["reason"] in {"pass", "improved"}
    faulty = nox(folder, *options, "-s", "profile", "--", "--regress", "tiny")
    assert faulty.returncode == 1, faulty.stdout + faulty.stderr
    workload = judged(faulty, folder)
    assert workload["reason"] == "regressed"
    assert any(change["name"] == "kernels" for change in workload["structure"])


def test_a_new_repository_is_green_and_with_a_fault_red(repository: Path) -> None:
    pytest.importorskip("pyopencl")
    pytest.importorskip("nox")
    assert main(["init", "--device", "opencl"]) == 0
    green_then_red(repository, "--no-venv", "--no-install")


@pytest.mark.long
def test_a_new_repository_installs_all_by_itself(repository: Path) -> None:
    assert main(["init", "--device", "opencl"]) == 0
    green_then_red(repository)
    installed = repository / ".nox" / "profile" / "bin" / "ai-prof"  # from a wheel: it brings its files along
    again = repository / "another"
    again.mkdir()
    subprocess.run([installed, "init", "--device", "cuda"], cwd=again, check=True)
    assert len(find(again / "workloads")) == 1
