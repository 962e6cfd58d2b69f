"""Gates a workload with one of its faults, in a repository made of this one's workloads.

    python tests/gpu/gate_fault.py PROJECT REPORTS WORKLOAD FAULT

PROJECT is made, with a baseline, where it is not there yet. REPORTS gets the gate's report. Ends with 0 where
the gate has failed the workload for a regression, and else with 1. Needs ai-prof installed, and git; three
minutes on a GPU, one more for the baseline.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GATE = (sys.executable, "-m", "ai_prof", "gate")
WHO = ("-c", "user.name=gate", "-c", "user.email=gate@example.org")


def make(project: Path, workload: str) -> None:
    """A repository with all workloads and one commit, and the workload's baseline, recorded there."""
    shutil.copytree(ROOT / "workloads", project / "workloads", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, project)
    for words in (("init", "-q"), ("add", "-A"), (*WHO, "commit", "-q", "-m", "the workloads")):
        subprocess.run(["git", *words], cwd=project, check=True)
    if subprocess.run([*GATE, workload, "--record"], cwd=project, check=False).returncode:
        shutil.rmtree(project)
        sys.exit(f"{workload}: no baseline that the same code passes")


def main() -> int:
    project, reports = (Path(word).resolve() for word in sys.argv[1:3])
    workload, fault = sys.argv[3:]
    if not project.exists():
        make(project, workload)
    words = [*GATE, workload, "--regress", fault, "--report", str(reports)]
    code = subprocess.run(words, cwd=project, check=False).returncode
    # The code alone says little: a Python that fails to start ends with 1 too.
    reasons = [
        each["reason"]
        for report in reports.glob("*/report.json")
        for each in json.loads(report.read_text())["workloads"]
    ]
    print(f"{fault}: exit {code}, {', '.join(reasons) or 'no report'}")
    return 0 if (code, reasons) == (1, ["regressed"]) else 1


if __name__ == "__main__":
    sys.exit(main())
