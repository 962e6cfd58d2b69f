"""The reference workloads' own command line, and that each fault does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ai_prof.runs.workloads import find

WORKLOADS = find(Path(__file__).parents[1] / "workloads")
OPENCL = [w for w in WORKLOADS if w.device == "opencl"]


def start(workload, *arguments):
    return subprocess.run(
        [sys.executable, *workload.command[1:], *arguments],
        cwd=workload.folder,
        env={**os.environ, **workload.env},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def counts(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def by_name(workload):
    return workload.name


def test_all_are_there():
    assert {w.name for w in OPENCL} == {"cl_train", "cl_tiny", "cl_loader", "cl_overlap"}
    assert {w.name for w in WORKLOADS if w.device == "cuda"} == {"torch_train", "torch_decode"}
    assert {"sync", "tiny", "stall", "slow", "serial"} <= {fault for w in WORKLOADS for fault in w.faults}


@pytest.mark.parametrize("workload", WORKLOADS, ids=by_name)
def test_they_know_nothing_of_the_profiler(workload):
    assert "ai_prof" not in (workload.folder / "main.py").read_text()


@pytest.mark.parametrize("workload", OPENCL, ids=by_name)
@pytest.mark.parametrize(
    "wrong", ["--regress=none", "--regress=slow=-1", "--regress=slow=x", "--iterations=0"]
)
def test_a_wrong_argument_is_one_line_and_2(workload, wrong):
    pytest.importorskip("pyopencl")
    done = start(workload, wrong)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    if wrong.endswith("none"):
        assert ", ".join(sorted(workload.faults)) in done.stderr


@pytest.mark.parametrize("workload", OPENCL, ids=by_name)
def test_every_declared_fault_runs(workload):
    pytest.importorskip("pyopencl")
    plain = counts(start(workload, "--iterations", "2"))
    assert plain["iterations"] == 2
    assert plain["launches"] > 0
    for fault in workload.faults:
        launches = counts(start(workload, "--iterations", "2", "--regress", fault))["launches"]
        assert launches > plain["launches"] if fault == "tiny" else launches == plain["launches"]


@pytest.mark.parametrize("workload", OPENCL, ids=by_name)
def test_the_same_seed_computes_the_same(workload):
    pytest.importorskip("pyopencl")
    first, second = (start(workload, "--iterations", "3").stdout for _ in range(2))
    assert untimed(first) == untimed(second)


def untimed(stdout):
    """What a workload printed, without the one figure that no seed fixes."""
    return re.sub(r'"iteration_us": \d+', "", stdout)
