"""Runs the programs of this folder, under capture, under torch.profiler, or alone."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.runs.workloads import Workload
    from ai_prof.trace.model import Trace

PROGRAMS = Path(__file__).parent / "programs"


def start(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; `variables` are added to an environment without any AI_PROF_*."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AI_PROF_")} | variables
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def captured(
    folder: Path, program: str, *arguments: str, level: str = "api", code: int = 0, **variables: str
) -> tuple[Trace, subprocess.CompletedProcess[str]]:
    """The program's capture and how it ended; it must end with `code`."""
    done = start(
        program,
        *arguments,
        AI_PROF_ENABLE="1",
        AI_PROF_OUTPUT=str(folder),
        AI_PROF_LEVEL=level,
        **variables,
    )
    assert done.returncode == code, done.stderr
    return open_trace(folder), done


def profiled(folder: Path, program: str, *arguments: str) -> dict[str, list[tuple[str, float]]]:
    """(name, us) of every kernel, gpu_memcpy and gpu_memset that torch.profiler saw in a run of its own."""
    trace = folder / "profiler.json"
    done = start("profiled.py", str(trace), str(PROGRAMS / program), *arguments)
    assert done.returncode == 0, done.stderr
    seen: dict[str, list[tuple[str, float]]] = {"kernel": [], "gpu_memcpy": [], "gpu_memset": []}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("cat") in seen:
            seen[event["cat"]].append((event["name"], float(event["dur"])))
    return seen


def run_workload(
    workload: Workload, arguments: Sequence[str], capture: Path | None
) -> subprocess.CompletedProcess[str]:
    """Run a workload to its end, into the folder `capture` at level `api` where one is given."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AI_PROF_")} | workload.env
    if capture is not None:
        environment |= {
            "AI_PROF_ENABLE": "1",
            "AI_PROF_OUTPUT": str(capture),
            "AI_PROF_LEVEL": "api",
            "AI_PROF_CAPTURE_ID": secrets.token_hex(8),
        }
    return subprocess.run(
        [sys.executable, *workload.command[1:], *arguments],
        cwd=workload.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=workload.timeout_s,
        check=False,
    )
