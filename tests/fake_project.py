"""A project whose workload needs no device: a program that writes the capture of a simulated one.

Its code is its speed: `set_work` changes a constant in it, as a commit would.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ai_prof.cli import main
from ai_prof.runs import measure
from ai_prof.runs.host_lock import host_lock

TESTS = Path(__file__).parent
TOML = """schema = "ai-prof/workload/1"
command = ["python", "main.py"]
device = "opencl"
gpus = 0
timeout_s = 300
faults = ["slow"]
"""
PROGRAM = f"""
import os, pathlib, random, sys
sys.path.append({str(TESTS)!r})
from aiprof_file import Program
KERNEL_NS = int(os.environ.get("SLOWED_TO_NS", 100_000))
KERNELS = 10
slow = "--regress" in sys.argv
jitter = 1 + random.SystemRandom().gauss(0, 0.001)
p = Program(pid=os.getpid())
for _ in range(40):
    p.iteration()
    for i in range(KERNELS):
        p.launch(f"k{{i}}", int(KERNEL_NS * jitter * (1.5 if slow else 1)))
    p.synchronize()
    p.work(20_000)
p.write(pathlib.Path(os.environ["AI_PROF_OUTPUT"]), f"h-{{os.getpid()}}-0.aiprof")
"""


def enter(root: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project in `root`, entered. Its simulated device is none of the host's, so it waits for nobody."""
    pytest.importorskip("pyopencl", reason="the machine's key is PoCL's")
    monkeypatch.chdir(root)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setattr("psutil.cpu_count", lambda: 1000)  # no host of the tests is busy
    (root / "locks").mkdir()
    monkeypatch.setattr(measure, "host_lock", functools.partial(host_lock, folder=root / "locks"))
    return Project(root)


class Project:
    """A git repository with one workload, entered by the test that makes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.main = root / "workloads" / "work" / "main.py"
        self.main.parent.mkdir(parents=True)
        self.main.write_text(PROGRAM)
        (self.main.parent / "workload.toml").write_text(TOML)
        (root / ".gitignore").write_text("reports/\n.ai-prof/\nlocks/\n__pycache__/\n")
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.email", "ada@example.org")
        self.git("config", "user.name", "ada")
        self.commit("first")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def set_work(self, **constants: int) -> None:
        """Change constants of the program."""
        text = self.main.read_text()
        for name, value in constants.items():
            old = next(line for line in text.splitlines() if line.startswith(f"{name} = "))
            text = text.replace(old, f"{name} = {value:_}")
        self.main.write_text(text)

    def settings(self, text: str) -> None:
        (self.root / "pyproject.toml").write_text(f"[tool.ai-prof]\n{text}\n")

    def gate(self, *arguments: str) -> int:
        return main(["gate", *arguments])

    def report(self) -> dict[str, Any]:
        """The newest report."""
        path = max((self.root / "reports").glob("*/report.json"), key=lambda p: p.stat().st_mtime_ns)
        report: dict[str, Any] = json.loads(path.read_text())
        return report

    def workload(self) -> dict[str, Any]:
        workload: dict[str, Any]
        (workload,) = self.report()["workloads"]
        return workload
