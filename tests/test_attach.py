"""`ai-prof attach`, `stop` and `status` on programs that know nothing of it, with a mock of CUDA."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from attach_targets import (
    Target,
    ai_prof,
    command,
    environment,
    is_recorded,
    mocks,
    until,
)

from ai_prof.collect import attach as attaching
from ai_prof.collect import borrow, ptrace
from ai_prof.collect.attach import attach, stop
from ai_prof.collect.control import State, find_control
from ai_prof.errors import AttachRefusedError
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ai_prof.trace.model import Trace

WAITS = ("poll", "epoll", "sleep", "condition", "forever")


pytestmark = pytest.mark.usefixtures("attachable")


def kernels(folder: Path) -> int:
    return len(open_trace(folder).kernels.start)


def assert_launches_are_seen(trace: Trace) -> None:
    """Every kernel has its launch, but for one that the target was in when the window began or ended."""
    launched = trace.kernels.correlation
    unseen = np.setdiff1d(launched, trace.calls.correlation)
    assert np.isin(unseen, [launched.min(), launched.max()]).all()


@pytest.mark.parametrize("wait", WAITS)
def test_a_running_program_is_captured_and_left_as_it_was(
    wait: str, start: Callable[..., Target], tmp_path: Path
) -> None:
    target = start(wait=wait)
    before = target.descriptors()
    done = ai_prof("attach", "--pid", target.pid, "--duration", "0.5", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "threads stood for" in done.stderr
    trace = open_trace(tmp_path / "out")
    assert len(trace.kernels.start) > 0
    # The context was there before: every launch is seen all the same.
    assert_launches_are_seen(trace)
    target.assert_goes_on()
    assert until(lambda: target.descriptors() == before)
    assert until(lambda: not any(name.startswith("ai-prof") for name in target.threads()))
    assert until(lambda: target.count("subscribed") == 0)
    assert target.count("finalized") == 0
    assert target.count("interrupted") == 0
    if wait == "forever":
        target.program.send_signal(signal.SIGUSR1)
        assert until(lambda: target.count("interrupted") == 1)
        target.kill()
    else:
        assert target.end() == 7


def test_a_libcupti_is_brought_to_a_program_without_one(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(cupti="late")
    words = ("attach", "--pid", target.pid, "--duration", "0.5", "--output")
    for times in (1, 2):
        out = tmp_path / f"out-{times}"
        done = ai_prof(*words, out, AI_PROF_CUPTI=str(target.libcupti))
        assert done.returncode == 0, done.stderr
        assert kernels(out) > 0
        assert until(lambda: target.count("subscribed") == 0)
    assert target.count("finalized") == 0
    target.assert_goes_on()
    assert target.end() == 7


def test_a_process_is_attached_again_and_again_without_growing(
    start: Callable[..., Target], tmp_path: Path
) -> None:
    target = start(wait="condition", allocators=2, launches=60)
    grown = []
    for number in range(20):
        sessions = attach([target.pid], tmp_path / f"out-{number}", {})
        assert until(lambda s=sessions: s[0].control.state == State.RECORDING)
        target.launch()
        stop(sessions)
        assert sessions[0].control.state == State.ENDED
        grown.append(target.resident_mb())
    assert kernels(tmp_path / "out-19") > 0
    assert grown[-1] - grown[3] < 16 * 0.1, grown
    assert sum("ai-prof-library" in m.path and m.offset == 0 for m in target.process.maps()) == 1
    assert until(lambda: not any("ai-prof-control" in m.path for m in target.process.maps()))
    target.assert_goes_on()
    assert target.end() == 7


def test_attaches_that_come_to_nothing_leave_nothing(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(variables={"MOCK_CUPTI_IS_HELD": "1"})
    grown = []
    for number in range(10):
        sessions = attach([target.pid], tmp_path / f"out-{number}", {})
        assert until(lambda s=sessions: s[0].control.state.over)
        stop(sessions)
        assert sessions[0].control.state == State.FAILED
        grown.append(target.resident_mb())
    assert grown[-1] - grown[3] < 6 * 0.3, grown
    target.assert_goes_on()
    assert target.end() == 7


def test_the_memory_of_the_buffers_is_given_back(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(launches=60)
    before = target.resident_mb()
    sessions = attach([target.pid], tmp_path / "out", {})
    assert until(lambda: sessions[0].control.state == State.RECORDING)
    assert until(lambda: target.resident_mb() > before + 6)
    stop(sessions)
    assert target.resident_mb() < before + 4
    assert target.end() == 7


def test_a_hundred_attaches_beside_allocator_load(
    start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "_TOGETHER_NS", 0)
    target = start(wait="condition", allocators=2)
    for number in range(100):
        sessions = attach([target.pid], tmp_path / f"out-{number}", {})
        stop(sessions)
        assert sessions[0].control.state in {State.ENDED, State.NO_CUDA}, sessions[0].control.message
    assert sum("ai-prof-library" in m.path and m.offset == 0 for m in target.process.maps()) == 1
    target.assert_goes_on()
    assert target.end() == 7


def test_one_thread_waits_beside_sixteen_that_allocate(
    start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_CALL_SECONDS", "_HOLD_SECONDS"):  # so many leave it little of a busy machine
        monkeypatch.setattr(borrow, name, 100.0)
    target = start(wait="condition", allocators=16, launches=0)
    sessions = attach([target.pid], tmp_path / "out", {})
    assert until(lambda: sessions[0].control.state == State.RECORDING)
    stop(sessions)
    target.assert_goes_on()
    assert target.end() == 7


def test_eight_processes_are_captured_together(start: Callable[..., Target], tmp_path: Path) -> None:
    targets = [start(wait=WAITS[i % 4], allocators=i % 3) for i in range(8)]
    pids = [word for target in targets for word in ("--pid", target.pid)]
    done = ai_prof("attach", *pids, "--duration", "0.5", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").iterdir())) == 8
    for target in targets:
        target.assert_goes_on()
        assert target.end() == 7


def test_the_workers_of_a_launcher_are_found(start: Callable[..., Target], tmp_path: Path) -> None:
    launcher = start(under=("sh", "-c", '"$@" & "$@" & wait', "sh"))
    done = ai_prof(
        "attach", "--pid", launcher.pid, "--tree", "--duration", "0.5", "--output", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    trace = open_trace(tmp_path / "out")
    assert len(trace.processes) == 2
    assert launcher.pid not in {process.header["pid"] for process in trace.processes}
    launcher.assert_goes_on()


def no_ptrace(*_: object) -> None:
    msg = "ptrace was used"
    raise AssertionError(msg)


def test_a_process_that_stands_by_is_woken_without_ptrace(
    start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(wait="none", standby=True)  # and has no thread to borrow
    before = target.descriptors()
    assert until(lambda: target.count("subscribed") == 0)
    assert find_control(target.process) is None
    monkeypatch.setattr(ptrace, "_ptrace", no_ptrace)
    for number in (1, 2):
        out = tmp_path / f"out-{number}"
        sessions = attach([target.pid], out, {"AI_PROF_LEVEL": "api"})
        assert until(lambda s=sessions: s[0].control.state == State.RECORDING)
        with pytest.raises(AttachRefusedError, match="attached to already"):
            attach([target.pid], tmp_path / "other", {})
        target.launch()
        stop(sessions)
        assert sessions[0].control.state == State.ENDED
        trace = open_trace(out)
        assert len(trace.kernels.start) > 0
        assert_launches_are_seen(trace)
        assert until(lambda: target.count("subscribed") == 0)
    assert until(lambda: target.descriptors() == before)
    target.assert_goes_on()
    assert target.end() == 7


def test_what_a_process_that_stands_by_could_not_do_is_told(
    start: Callable[..., Target], tmp_path: Path
) -> None:
    target = start(standby=True)
    folder = tmp_path / "out"
    folder.mkdir()
    sessions = attach([target.pid], folder, {"AI_PROF_CUPTI": "/nowhere/libcupti.so"})
    assert until(lambda: sessions[0].control.state.over)
    assert "no usable libcupti" in sessions[0].control.message
    stop(sessions)
    done = ai_prof("attach", "--pid", target.pid, "--duration", "0.3", "--output", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    assert "no thread stood" in done.stderr
    target.assert_goes_on()


def test_status_lists_and_stop_ends(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start()
    attacher = subprocess.Popen(
        command("attach", "--pid", target.pid, "--output", tmp_path / "out"), env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    recording = lambda: f"{target.pid}  recording  {tmp_path / 'out'}" in ai_prof("status").stdout  # noqa: E731
    assert until(recording)
    told = {"pid": target.pid, "state": "recording", "output": str(tmp_path / "out")}
    assert told in json.loads(ai_prof("status", "--json").stdout)
    again = ai_prof("attach", "--pid", target.pid, "--output", tmp_path / "other")
    assert again.returncode == 4
    assert f"ai-prof stop --pid {target.pid}" in again.stderr
    target.launch()
    assert ai_prof("stop", "--pid", target.pid).returncode == 0
    _, errors = attacher.communicate(timeout=300)
    assert attacher.returncode == 0, errors
    assert target.pid not in {each["pid"] for each in json.loads(ai_prof("status", "--json").stdout)}
    assert ai_prof("stop", "--pid", target.pid).returncode == 2
    target.assert_goes_on()


def test_the_agent_keeps_the_deadline_when_the_attacher_is_gone(
    start: Callable[..., Target], tmp_path: Path
) -> None:
    target = start()
    sessions = attach([target.pid], tmp_path / "out", {"AI_PROF_DURATION": "0.5"})
    assert until(lambda: sessions[0].control.state == State.ENDED)  # nobody asked it to
    assert kernels(tmp_path / "out") > 0


def test_ctrl_c_ends_the_capture_in_order(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start()
    attacher = subprocess.Popen(
        command("attach", "--pid", target.pid, "--output", tmp_path / "out"),
        env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert attacher.stderr is not None
    assert "attached to" in (told := attacher.stderr.readline())
    assert "Ctrl-C or `ai-prof stop` ends it" in told
    assert until(lambda: is_recorded(target.process))
    target.launch()
    attacher.send_signal(signal.SIGINT)
    _, errors = attacher.communicate(timeout=300)
    assert attacher.returncode == 0, errors
    assert kernels(tmp_path / "out") > 0
    target.assert_goes_on()


def test_a_target_that_exits_leaves_a_whole_capture(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start()
    sessions = attach([target.pid], tmp_path / "out", {})
    assert until(lambda: is_recorded(target.process))
    target.launch()
    assert target.end() == 7
    assert sessions[0].over
    assert kernels(tmp_path / "out") > 0


def test_no_cuda_in_the_time_is_nothing_to_show(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(cuda=False, cupti="none", launches=0)
    done = ai_prof("attach", "--pid", target.pid, "--duration", "0.2", "--output", tmp_path / "out")
    assert done.returncode == 3
    assert "no process used CUDA" in done.stderr
    assert not (tmp_path / "out").exists()
    target.assert_goes_on()
    assert target.end() == 7


def test_a_python_program_is_captured(tmp_path: Path) -> None:
    built = mocks()
    cupti = shutil.copy(built / "libcupti_mock.so", tmp_path / "libcupti.so.13")
    script = (
        f"import ctypes, time\nctypes.CDLL({str(built / 'libcuda_mock.so')!r})\nctypes.CDLL({str(cupti)!r})\n"
        "print('up', flush=True)\nwhile True:\n    began = time.monotonic()\n    time.sleep(0.05)\n"
        "    assert time.monotonic() - began >= 0.05\n    print('step', flush=True)\n"
    )
    program = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"
        done = ai_prof("attach", "--pid", program.pid, "--duration", "0.3", "--output", tmp_path / "out")
        assert done.returncode == 3, done.stderr  # it launches nothing
        assert len(list((tmp_path / "out").glob("*.aiprof"))) == 1
        for _ in range(20):
            assert program.stdout.readline() == "step\n"
        assert program.poll() is None
    finally:
        program.kill()
        program.communicate()


def test_signals_reach_the_target_during_an_attach(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(wait="epoll", allocators=2)
    storm = "import os, sys, time\nwhile True:\n    os.kill(int(sys.argv[1]), 10)\n    time.sleep(0.0005)\n"
    sender = subprocess.Popen([sys.executable, "-c", storm, str(target.pid)])
    try:
        for number in range(5):
            handled = target.count("signals")
            sessions = attach([target.pid], tmp_path / f"out-{number}", {})
            assert until(lambda h=handled: target.count("signals") > h)
            stop(sessions)
    finally:
        sender.kill()
        sender.wait()
    assert until(lambda: target.count("wrong") == 0)
    target.assert_goes_on()
    assert target.end() == 7


def test_a_slow_driver_takes_nothing_from_the_duration(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(variables={"MOCK_CUPTI_SUBSCRIBES_IN_MS": "1500"})
    done = ai_prof("attach", "--pid", target.pid, "--duration", "0.5", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert kernels(tmp_path / "out") > 0
    target.assert_goes_on()
    assert target.end() == 7


def test_a_flush_that_does_not_return_holds_no_attach(start: Callable[..., Target], tmp_path: Path) -> None:
    stuck = tmp_path / "stuck"
    target = start(variables={"MOCK_CUPTI_FLUSH_IS_STUCK_WHILE": str(stuck)})
    stuck.touch()
    words = ("attach", "--pid", target.pid, "--duration", "0.5", "--output")
    done = ai_prof(*words, tmp_path / "out")
    assert done.returncode == 4, done.stderr
    assert "CUPTI's flush has not returned for" in done.stderr
    assert "The capture is incomplete" in done.stdout
    assert kernels(tmp_path / "out") > 0
    again = ai_prof(*words, tmp_path / "again")
    assert again.returncode == 4
    assert "has not let go of CUPTI" in again.stderr
    stuck.unlink()
    assert until(lambda: target.count("subscribed") == 0)
    done = ai_prof(*words, tmp_path / "third")
    assert done.returncode == 0, done.stderr
    assert kernels(tmp_path / "third") > 0
    assert target.count("finalized") == 0
    target.assert_goes_on()
    assert target.end() == 7


def test_a_full_disk_makes_a_capture_incomplete(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(launches=60, under=("sh", "-c", 'trap "" XFSZ; exec "$@"', "sh"))
    resource.prlimit(target.pid, resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
    done = ai_prof("attach", "--pid", target.pid, "--duration", "0.5", "--output", tmp_path / "out")
    assert done.returncode == 4, done.stderr
    assert "can't write the capture's file: File too large" in done.stderr
    assert "ai-prof: the capture is incomplete: " in done.stderr
    assert "records lost. The disk refused what was written: free some space" in done.stderr
    assert kernels(tmp_path / "out") > 0
    target.assert_goes_on()
    assert target.end() == 7
