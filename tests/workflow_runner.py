"""GitHub's workflows, and a folder that stands for a runner's: steps are run there as they are written."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
FLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
AUTHOR = {
    **{f"GIT_{who}_NAME": "a" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "a@b.c" for who in ("AUTHOR", "COMMITTER")},
}
GH = """#!{python}
import json, os, sys
asked = json.loads(open(os.environ["GH_ANSWERS"]).read())
body = sys.stdin.read() if "--input" in sys.argv else None
if "--body-file" in sys.argv:
    body = open(sys.argv[sys.argv.index("--body-file") + 1]).read()
with open(os.environ["GH_LOG"], "a") as log:
    log.write(json.dumps([sys.argv[1:], body]) + "\\n")
print(json.dumps(asked.get(sys.argv[2] if len(sys.argv) > 2 else "", {{}})))
"""


def steps() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Every step with a script, by workflow, job and name; the script is the name of one without."""
    jobs = {(name, job): body["steps"] for name, flow in FLOWS.items() for job, body in flow["jobs"].items()}
    jobs["action", "composite"] = ACTION["runs"]["steps"]
    return {(*key, s.get("name", s["run"])): s for key, found in jobs.items() for s in found if "run" in s}


def step(flow: str, job: str, name: str) -> dict[str, Any]:
    return steps()[flow, job, name]


class Runner:
    """A folder that stands for a runner's, with a `gh` that writes down what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "temp").mkdir()
        (folder / "bin").mkdir()
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.python = str(Path(sys.executable).parent)  # where the steps' `python` and `ai-prof` are
        self.summary, self.log, self.answers = (folder / name for name in ("summary", "log", "answers"))
        self.answers.write_text("{}")
        self.program("gh", GH.format(python=sys.executable))

    def program(self, name: str, text: str) -> None:
        """Put a program on the steps' PATH."""
        place = self.folder / "bin" / name
        place.write_text(text)
        place.chmod(place.stat().st_mode | stat.S_IXUSR)

    def run(self, step: dict[str, Any], **variables: str) -> subprocess.CompletedProcess[str]:
        script = self.folder / "script"
        script.write_text(step["run"])
        shells = {
            "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"],
            "python3 {0}": [sys.executable],
        }
        command = shells[step["shell"]] if "shell" in step else ["bash", "-e"]
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "AI_PROF_"))},
            **AUTHOR,
            "PATH": os.pathsep.join([str(self.folder / "bin"), self.python, os.environ["PATH"]]),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GH_LOG": str(self.log),
            "GH_ANSWERS": str(self.answers),
            **variables,
        }
        return subprocess.run(
            [*command, script], cwd=self.workspace, env=env, capture_output=True, text=True, check=False
        )

    def asked(self) -> list[tuple[list[str], str | None]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(arguments, body) for arguments, body in map(json.loads, lines)]

    def git(self, *arguments: str, folder: Path | None = None) -> str:
        command = ["git", *arguments]
        env = {**os.environ, **AUTHOR}
        where = folder or self.workspace
        return subprocess.run(command, cwd=where, env=env, check=True, capture_output=True, text=True).stdout
