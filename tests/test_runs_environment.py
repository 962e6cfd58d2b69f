"""What disturbs a run, seen through an NVML that the test plays."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pynvml
import pytest
from aiprof_file import Program

from ai_prof.runs import environment, nvml
from ai_prof.runs.environment import describe, disturbances, observe
from ai_prof.trace.open import open_trace


class FakeNvml:
    """One GPU. What is None here the card does not support."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(self, **facts: object) -> None:
        self.facts = {
            "Count": 1,
            "HandleByIndex": "gpu",
            "UUID": "GPU-a",
            "Name": "Fake",
            "ClockInfo": 1980,
            "Temperature": 40,
            "CurrentClocksThrottleReasons": 0,
            "ComputeRunningProcesses": [],
            "EccMode": (1, 1),
            "TotalEccErrors": 0,
            **facts,
        }

    def __getattr__(self, name: str):
        if name in {"nvmlInit", "nvmlShutdown"}:
            return lambda: None
        value = self.facts.get(name.removeprefix("nvmlDeviceGet"))

        def ask(*_: object) -> object:
            if value is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return value

        return ask


@pytest.fixture
def play(monkeypatch):
    """Let NVML say these things from now on; of profilers only one of ours is seen."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(environment, "PROFILERS", {"fake-profiler"})
    return lambda **facts: monkeypatch.setattr(nvml, "pynvml", FakeNvml(**facts))


def environment_of(play, trace=None, *, before=None, after=None):
    play(**(before or {}))
    start = observe("cuda")
    play(**(after or {}))
    return describe(start, observe("cuda"), trace)


def test_a_quiet_gpu_disturbs_nothing(play):
    seen = environment_of(play)
    assert disturbances(seen) == []
    assert seen["gpus"][0]["ecc"] is True


def test_what_a_card_does_not_support_is_absent_not_zero(play):
    nothing = {
        "EccMode": None,
        "TotalEccErrors": None,
        "Temperature": None,
        "CurrentClocksThrottleReasons": None,
    }
    seen = environment_of(play, before=nothing, after=nothing)
    assert set(seen["gpus"][0]).isdisjoint({"ecc", "ecc_errors", "temperature_c", "throttle_reasons"})
    assert disturbances(seen) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            {"ComputeRunningProcesses": [SimpleNamespace(pid=42)]},
            {},
            "other compute processes on the GPU: 42",
        ),
        (
            {},
            {"ComputeRunningProcesses": [SimpleNamespace(pid=42)]},
            "other compute processes on the GPU: 42",
        ),
        ({}, {"CurrentClocksThrottleReasons": 0x40}, "hardware thermal slowdown"),
        ({"CurrentClocksThrottleReasons": 0x80}, {}, "power brake"),
        ({"TotalEccErrors": 3}, {"TotalEccErrors": 5}, "2 memory errors that could not be corrected"),
    ],
)
def test_each_disturbance_is_named(play, before, after, said):
    assert disturbances(environment_of(play, before=before, after=after)) == [said]


def test_power_capping_and_old_memory_errors_are_recorded_and_disturb_nothing(play):
    old = {"CurrentClocksThrottleReasons": 0x04, "TotalEccErrors": 3}
    seen = environment_of(play, before=old, after=old)
    assert seen["throttle_reasons"] == 0x04
    assert disturbances(seen) == []


def capture(tmp_path, others, *, pid=1):
    program = Program(pid=pid)
    for i in range(12):
        program.iteration()
        program.launch("k", 10_000)
        program.sample(program.now, 90, others=others[i % len(others)])
    program.write(tmp_path, f"h-{pid}-0.aiprof")


def test_a_process_that_came_and_went_during_the_run_disturbs_it(play, tmp_path):
    capture(tmp_path, [0, 0, 2])
    seen = environment_of(play, open_trace(tmp_path))
    assert disturbances(seen) == ["2 other compute processes came to the GPU"]


def test_processes_of_the_capture_itself_are_no_others(play, tmp_path):
    capture(tmp_path, [1], pid=1)
    capture(tmp_path, [1], pid=2)
    assert disturbances(environment_of(play, open_trace(tmp_path))) == []


def test_a_profiler_at_work_is_named(play, tmp_path):
    fake = tmp_path / "fake-profiler"
    fake.write_text("#!/bin/sh\nread line\n")
    fake.chmod(0o755)
    with subprocess.Popen([fake], stdin=subprocess.PIPE) as profiler:
        seen = environment_of(play)
        profiler.communicate()
    assert disturbances(seen) == ["a profiler is at work: fake-profiler"]


def test_a_host_without_clocks_has_none(play, monkeypatch):
    def unknown():
        raise FileNotFoundError

    monkeypatch.setattr(environment.psutil, "cpu_freq", unknown)
    assert "cpu_mhz" not in environment_of(play)
