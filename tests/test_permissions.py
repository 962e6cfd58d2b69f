"""Files and folders that are others': each verb says which, and passes none over."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ai_prof.errors import EXIT_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOML = """schema = "ai-prof/workload/1"
command = ["python", "main.py"]
device = "opencl"
gpus = 0
"""
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
prctl = ctypes.CDLL(None).prctl


def bound_by_permissions() -> None:
    """In the child: root, too, gets only what the permissions of a file give."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def refused(root: Path, *arguments: str) -> str:
    """What the command says of what it may not see; it says nothing else."""
    done = subprocess.run(
        [sys.executable, "-m", "ai_prof", *arguments],
        cwd=root, preexec_fn=bound_by_permissions, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (EXIT_ENVIRONMENT, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody may look into, in a project with a workload."""
    (tmp_path / "workloads" / "work").mkdir(parents=True)
    (tmp_path / "workloads" / "work" / "workload.toml").write_text(TOML)
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    yield folder
    folder.chmod(0o700)


@pytest.mark.parametrize(
    "arguments",
    [
        ("gate", "--report", "closed/reports"),
        ("gate", "--baselines", "closed/baselines"),
        ("report", "merge", "closed/shards"),
        ("accept", "work", "gap_ms", "--reason", "wanted", "--report", "closed/report.json"),
        ("history", "--history", "closed/history.sqlite"),
        ("baseline", "show", "--baselines", "closed/baselines"),
        ("calibrate", "--baselines", "closed/baselines"),
        ("run", "--output", "closed/out", "--", "true"),
    ],
    ids=" ".join,
)
def test_a_folder_that_may_not_be_looked_into_is_named(closed, arguments):
    named = next(each for each in arguments if each.startswith("closed/"))
    line = refused(closed.parent, *arguments)
    assert line.startswith("ai-prof: ")
    assert line.endswith(f"{named}: Permission denied")


def test_a_workload_that_may_not_be_seen_is_not_passed_over(closed):
    closed.rename(closed.parent / "workloads" / "closed")
    try:
        assert "closed/workload.toml: Permission denied" in refused(closed.parent, "gate")
    finally:
        (closed.parent / "workloads" / "closed").rename(closed)


def test_baselines_that_may_not_be_seen_are_not_passed_over(closed):
    (closed.parent / "baselines").mkdir()
    closed.rename(closed.parent / "baselines" / "closed")
    try:
        for verb in (["baseline", "show"], ["baseline", "log"], ["calibrate"]):
            assert "baselines/closed: Permission denied" in refused(closed.parent, *verb)
    finally:
        (closed.parent / "baselines" / "closed").rename(closed)
