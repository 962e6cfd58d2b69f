"""Sessions, the host's lock, interpreters, and what counts as a disturbance."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from ai_prof.errors import EnvironmentInvalidError, UsageError
from ai_prof.gate.model import Run
from ai_prof.runs import interpreter, sessions
from ai_prof.runs.environment import describe, disturbances, machine_facts, observe
from ai_prof.runs.host_lock import host_lock
from ai_prof.runs.nvml import Gpu, slowdowns, visible
from ai_prof.runs.workloads import load

BOOT = "0a1b2c3d-0000-4000-8000-000000000000"
NOW = datetime(2025, 3, 1, 12, 0, tzinfo=timezone.utc)


def run_at(when, session, **environment):
    return Run(
        workload="w", session=session, order=0, host="h", started=when.isoformat(), environment=environment
    )


def test_a_session_is_named_by_time_and_boot():
    assert sessions.current([], NOW, BOOT) == "20250301T120000Z-0a1b2c3d"


@pytest.mark.parametrize(
    ("pause", "session", "same"),
    [
        (timedelta(minutes=59), "20250301T110000Z-0a1b2c3d", True),
        (timedelta(minutes=60), "20250301T110000Z-0a1b2c3d", False),
        (timedelta(minutes=1), "20250301T110000Z-ffffffff", False),
        (timedelta(minutes=-5), "20250301T110000Z-0a1b2c3d", False),  # a clock that was set back
    ],
)
def test_a_boot_or_an_hour_starts_a_session(pause, session, same):
    earlier = [run_at(NOW - timedelta(days=1), "old-0a1b2c3d"), run_at(NOW - pause, session)]
    assert (sessions.current(earlier, NOW, BOOT) == session) is same


def test_what_another_machine_recorded_meanwhile_ends_no_session():
    mine = run_at(NOW - timedelta(minutes=30), "20250301T113000Z-0a1b2c3d")
    theirs = run_at(NOW - timedelta(minutes=5), "20250301T115500Z-ffffffff")
    ahead = run_at(NOW + timedelta(minutes=5), "20250301T120500Z-eeeeeeee")  # its clock is
    assert sessions.current([mine, theirs, ahead], NOW, BOOT) == mine.session


def test_the_lock_is_held_against_other_processes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from ai_prof.runs.host_lock import host_lock\n"
        "with host_lock(['cpu'], Path(sys.argv[1])): print('held')"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with host_lock(["cpu", "gpu-1"], tmp_path):
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "another capture holds cpu" in waiting.stderr.readline()
        assert waiting.poll() is None
    assert waiting.communicate(timeout=120)[0] == "held\n"
    assert subprocess.run(command, check=True, capture_output=True, text=True).stderr == ""


def test_other_users_can_take_the_lock_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        with host_lock(["cpu"], tmp_path):
            pass
    finally:
        os.umask(before)
    (lock,) = tmp_path.iterdir()
    assert lock.stat().st_mode & 0o044 == 0o044


def gpus(*uuids):
    return [Gpu(uuid=uuid, name="g") for uuid in uuids]


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (None, ["GPU-aa", "GPU-ab", "GPU-c"]),
        ("", []),
        ("2,0", ["GPU-c", "GPU-aa"]),
        ("1,-1,0", ["GPU-ab"]),
        ("7", []),
        ("GPU-c", ["GPU-c"]),
        ("GPU-a", []),  # ambiguous
    ],
)
def test_visible_gpus(setting, seen):
    assert [gpu.uuid for gpu in visible(gpus("GPU-aa", "GPU-ab", "GPU-c"), setting)] == seen


def test_power_capping_is_no_slowdown():
    assert slowdowns(0x04 | 0x01) == []
    assert slowdowns(None) == []
    assert slowdowns(0x88) == ["hardware slowdown", "power brake"]


def test_disturbances():
    quiet = {"sm_clock_mhz": 1980, "slowdowns": [], "foreign_gpu_processes": []}
    earlier = [run_at(NOW, "s", sm_clock_mhz=1980), run_at(NOW, "s")]
    assert disturbances(quiet, earlier) == []
    assert disturbances({}, earlier) == []
    assert disturbances({**quiet, "sm_clock_mhz": 1700}, earlier) != []
    assert disturbances({**quiet, "foreign_gpu_processes": [42]}, []) == [
        "other compute processes on the GPU: 42"
    ]
    assert disturbances({**quiet, "slowdowns": ["power brake"]}, []) == ["power brake"]


def test_a_clock_that_a_power_cap_moves_disturbs_nothing():
    """As two equal runs of an H200 have it that multiplies matrices."""
    slow, fast = {"sm_clock_mhz": 1605, "throttle_reasons": 0x04}, {"sm_clock_mhz": 1980}
    assert disturbances(slow, [run_at(NOW, "s", **fast)]) == []
    assert disturbances(fast, [run_at(NOW, "s", **slow)]) == []
    assert disturbances({**slow, "throttle_reasons": 0x01}, [run_at(NOW, "s", **fast)]) == [
        "the GPU ran at 1605 MHz, the runs before it at 1980 MHz"
    ]


def test_what_others_do_to_the_cpu_is_measured():
    before = observe("opencl")
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    seen = describe(before, observe("opencl"), None)
    assert seen["foreign_cores"] >= 0
    assert "gpus" not in seen


def test_the_machine_has_stable_facts():
    pytest.importorskip("pyopencl")
    facts = machine_facts("opencl", sys.executable)
    assert facts == machine_facts("opencl", sys.executable)
    assert facts.backend == "opencl"
    assert facts.count >= 1


def workload(tmp_path, requires):
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "workload.toml").write_text(
        f'schema="ai-prof/workload/1"\ncommand=["python"]\ndevice="opencl"\ngpus=0\nrequires={requires}\n'
    )
    return load(folder / "workload.toml")


def test_requirements_come_with_a_remedy(tmp_path):
    needs = workload(tmp_path, '["json", "no_such_module"]')
    assert interpreter.choose(needs) == sys.executable
    (unmet,) = interpreter.requirements(needs, sys.executable)
    assert "no module no_such_module: pip install" in unmet


def test_a_program_that_is_missing_comes_with_a_remedy(tmp_path):
    workload(tmp_path, "[]")
    file = tmp_path / "w" / "workload.toml"
    file.write_text(file.read_text() + 'programs = ["sh", "no-such-program"]\n')
    (unmet,) = interpreter.requirements(load(file), sys.executable)
    assert "no no-such-program on PATH" in unmet


def test_nothing_unmet(tmp_path):
    assert interpreter.requirements(workload(tmp_path, '["json"]'), sys.executable) == []


def test_a_named_interpreter_must_start(tmp_path):
    needs = workload(tmp_path, "[]")
    assert interpreter.choose(needs, sys.executable) == sys.executable
    with pytest.raises(UsageError, match="--python"):
        interpreter.choose(needs, str(tmp_path / "python"))
    with pytest.raises(UsageError, match="--python"):
        interpreter.choose(needs, "/bin/true")


def test_an_interpreter_that_does_not_answer_is_not_called_one_without_modules(tmp_path, monkeypatch):
    stuck = tmp_path / "python"
    stuck.write_text("#!/bin/sh\nexec sleep 600\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(interpreter, "PROBE_TIMEOUT_S", 0.2)
    with pytest.raises(EnvironmentInvalidError, match=r"did not say within 0\.2 s"):
        interpreter.requirements(workload(tmp_path, '["json"]'), str(stuck))
