"""The plugin's documented doors: the fixture, its marker and options, and workloads as tests."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_project import enter
from gate_runs import counts_alone

from ai_prof.cli import main
from ai_prof.errors import EnvironmentInvalidError, NothingToCompareError, UsageError
from ai_prof.pytest_gate import verdict_of

pytest.importorskip("pyopencl")
POCL = {"PYOPENCL_CTX": "portable", "POCL_MAX_PTHREAD_COUNT": "1"}


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program that `ai-prof init` writes."""
    for name in [name for name in os.environ if name.startswith("AI_PROF_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("CI", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["init", "--device", "opencl"]) == 0
    return folder / "workloads" / "example" / "main.py"


@pytest.mark.gpu_profile(device="opencl")
def test_a_command_and_what_it_did(gpu_profile, example):
    profile = gpu_profile("python", example, "--iterations", "40", env=POCL)
    assert profile.stdout.endswith('{"iterations": 40, "launches": 480}\n')
    assert profile.structure["kernels"] == 12
    assert 30 <= profile.iterations <= 40
    assert profile.iteration_ms > 0
    assert 0 < profile.kernel_busy <= 1
    assert profile.gap == pytest.approx(sum(profile.gap_causes.values()))
    assert profile.kernel_busy + profile.device.copy_only + profile.gap == pytest.approx(1)
    assert profile.tag == profile.summary.tag
    assert len(profile.findings) == len(profile.summary.findings)
    assert repr(profile).startswith("<GPU profile: busy ")
    assert len(repr(profile)) <= 240  # what pytest shows of it
    assert "each kernels 12, copies 2" in repr(profile)
    assert gpu_profile("python", example, "--iterations", "5", env=POCL).capture != profile.capture


STEPS = """
import sys

def step(count):
    import main
    sys.argv = ["main.py", "--iterations", str(count)]
    main.main()
"""


@pytest.mark.gpu_profile(device="opencl")
def test_a_function_by_itself(gpu_profile, example):
    module = example.with_name("steps.py")
    module.write_text(STEPS)
    spec = importlib.util.spec_from_file_location("steps", module)
    steps = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(steps)
    assert gpu_profile(steps.step, 30, env=POCL).structure["kernels"] == 12
    with pytest.raises(UsageError, match="top of a module"):
        gpu_profile(lambda: None)
    with pytest.raises(UsageError, match="no JSON"):
        gpu_profile(steps.step, object())


@pytest.mark.gpu_profile(device="opencl", timeout=1)
@pytest.mark.usefixtures("example")
def test_a_hang_is_no_profile(gpu_profile):
    with pytest.raises(EnvironmentInvalidError, match="the program was still running after 1 s"):
        gpu_profile("sleep", "600")


@pytest.mark.gpu_profile(device="opencl")
@pytest.mark.usefixtures("example")
def test_what_is_no_profile(gpu_profile):
    with pytest.raises(EnvironmentInvalidError, match=r"(?s)ended with 1.*ZeroDivisionError"):
        gpu_profile("python", "-c", "1 / 0")
    with pytest.raises(NothingToCompareError, match="no GPU work"):
        gpu_profile("true")
    with pytest.raises(UsageError, match="cannot start"):
        gpu_profile("no-such-program")


TESTS = """
import pytest

def test_gap(gpu_profile):
    profile = gpu_profile("python", "workloads/example/main.py", "--iterations", "30", env={env!r})
    assert profile.gap < 0

def test_start(gpu_profile):
    gpu_profile("nosuchprogram")

@pytest.mark.gpu_profile(device="cuda")
def test_cuda(gpu_profile):
    raise AssertionError("there is no GPU")

@pytest.mark.gpu_profile(devise="cuda")
def test_misspelt(gpu_profile):
    pass
"""


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "200", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("example")
def test_a_failed_assertion_says_what_the_gpu_did():
    Path("test_gpu.py").write_text(TESTS.format(env=POCL))
    done = run_pytest("--strict-markers", "--ai-prof-output", "kept", "test_gpu.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "where" in done.stdout
    (shown,) = re.findall("where .* = (<GPU profile: busy .*>).gap", done.stdout)
    assert re.search(r"; \d+ iterations of .* ms, each kernels 12, copies 2", shown)
    assert re.search("-- Captured GPU profile call --+\nDevice 0 .* is idle .* of the time", done.stdout)
    assert "\ncapture in kept/test_gpu.py--test_gap/capture-1\n" in done.stdout
    assert "cannot start nosuchprogram: No such file" in done.stdout
    assert "def __call__" not in done.stdout  # the test's line is shown, not ours
    assert "SKIPPED" in done.stdout
    assert "no NVIDIA GPU here" in done.stdout
    assert "the marker is gpu_profile(device='auto'" in done.stdout
    assert list(Path("kept").glob("test_gpu.py--test_gap/capture-1/*.aiprof"))
    assert "gpu_profile(device='auto'" in run_pytest("--markers").stdout


@pytest.mark.usefixtures("example")
def test_workloads_are_tests_where_that_is_asked_for():
    assert run_pytest("workloads").returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    done = run_pytest("--ai-prof-gate", "workloads")
    assert done.returncode == 1
    assert "FAILED workloads/example/workload.toml::example" in done.stdout
    assert "example: no-baseline: no baseline for this machine: record one" in done.stdout
    assert "Traceback" not in done.stdout
    assert "reports/" in done.stdout
    done = run_pytest("--ai-prof-gate", "-n", "2", "workloads")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "use no -n of pytest-xdist" in done.stderr


def test_a_gated_workload_passes_or_fails_as_its_verdict(example):
    counts_alone(example.parent)
    assert main(["gate", "--record"]) == 0
    done = run_pytest("--ai-prof-gate", "workloads")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED workloads/example/workload.toml::example" in done.stdout
    example.write_text(example.read_text().replace("256, 12", "256, 14"))
    done = run_pytest("--ai-prof-gate", "workloads")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "example: regressed: " in done.stdout
    assert "kernels: 12 -> 14" in done.stdout


def test_a_gate_that_fails_is_made_once_and_by_the_projects_settings(tmp_path, monkeypatch):
    project = enter(tmp_path, monkeypatch)
    project.settings("budget-minutes = 7")
    made = []

    def failing(request):
        made.append(request.budget_minutes)
        raise EnvironmentInvalidError("no room")

    monkeypatch.setattr("ai_prof.pytest_gate.gate", failing)
    session = SimpleNamespace(stash=pytest.Stash(), items=[])
    for _ in range(2):
        with pytest.raises(EnvironmentInvalidError, match="no room"):
            verdict_of(session)
    assert made == [7]
