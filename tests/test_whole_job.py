"""The whole job on a CPU: workloads captured on PoCL, gated and reported; then the same with a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
WORKLOADS = ("cl_loader", "cl_overlap", "cl_tiny", "cl_train")
ITERATIONS = 40  # of each launch: as many as the workloads are by default would say no more


def gate(folder: Path, *arguments: str, code: int) -> dict[str, Any]:
    """The report of a gate run in `folder`, which must end with `code`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("AI_PROF_")}
    command = [sys.executable, "-m", "ai_prof", "gate", "--device", "opencl", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    newest = max((folder / "reports").iterdir(), key=lambda path: path.name)
    report: dict[str, Any] = json.loads((newest / "report.json").read_text())
    assert report["exit_code"] == code
    assert report["run_id"] == newest.name
    assert report["summary"]
    assert (newest / "index.html").stat().st_size < 2 << 20
    assert ET.parse(newest / "junit.xml").getroot().tag == "testsuites"  # noqa: S314 - our own file
    assert report["run_id"] in (newest / "report.md").read_text()
    return report


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean checkout of HEAD, with shorter workloads: only there can base be run again."""
    folder = tmp_path_factory.mktemp("checkout") / "clone"
    cloned = subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=False, capture_output=True)
    if cloned.returncode:
        pytest.skip("not a git checkout: nothing to clone")
    for path in folder.glob("workloads/cl_*/workload.toml"):
        text = path.read_text()
        assert '"main.py"]' in text
        path.write_text(text.replace('"main.py"]', f'"main.py", "--iterations", "{ITERATIONS}"]'))
    who = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *who, "commit", "-qam", "Shorten the workloads"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def first(checkout: Path) -> dict[str, Any]:
    """The report of the first run, which records what it then compares with."""
    return gate(checkout, "--record", code=0)


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {workload["workload"]: workload for workload in report["workloads"]}


def test_the_first_run_records_and_passes(first: dict[str, Any], checkout: Path) -> None:
    assert set(by_name(first)) == set(WORKLOADS)
    recorded = [note for note in first["notes"] if "other programs kept" not in note]
    assert len(recorded) == len(WORKLOADS)
    assert all(" in .ai-prof/baselines/" in note for note in recorded)
    files = list((checkout / ".ai-prof" / "baselines" / first["machine_key"]).glob("*.json"))
    assert {path.stem for path in files} == set(WORKLOADS)
    assert not first["dirty"]  # what the gate leaves behind is ignored by git


def test_every_capture_holds_what_the_program_counted(first: dict[str, Any]) -> None:
    for workload in first["workloads"]:
        for run in workload["baseline_runs"] + workload["candidate_runs"]:
            own = run["reported"]
            assert own["iterations"] == ITERATIONS
            assert run["structure"]["kernels"] * own["iterations"] == own["launches"]
            # A first or last iteration may lie outside the steady window.
            assert 0.8 * own["iterations"] <= run["iterations"] <= own["iterations"]


def test_a_second_run_compares_with_the_first_and_passes(first: dict[str, Any], checkout: Path) -> None:
    second = gate(checkout, "cl_loader", "cl_overlap", code=0)
    assert second["notes"] == []
    assert set(by_name(second)) == {"cl_loader", "cl_overlap"}
    for name, workload in by_name(second).items():
        stored = by_name(first)[name]["baseline_runs"]
        assert [run["started"] for run in workload["baseline_runs"]] == [run["started"] for run in stored]


@pytest.mark.usefixtures("first")
def test_a_fault_fails_the_build_and_is_named(checkout: Path) -> None:
    report = gate(checkout, "--regress", "tiny", "cl_train", "cl_overlap", code=1)
    guilty, control = by_name(report)["cl_train"], by_name(report)["cl_overlap"]
    assert guilty["reason"] == "regressed"
    assert any(change["name"] == "kernels" for change in guilty["structure"])
    assert guilty["confirm_base"]
    assert control["reason"] != "regressed"
    assert "cl_train" in report["summary"]
