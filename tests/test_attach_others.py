"""Who else is at a target: other attachers and debuggers, its forks, whoever stops or freezes it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attach_targets import Target, ai_prof, environment, mocks, until

from ai_prof.collect import attach as attaching
from ai_prof.collect.attach import attach, stop
from ai_prof.collect.borrow import Borrowed
from ai_prof.collect.control import State, find_control
from ai_prof.collect.ptrace import Tracee
from ai_prof.errors import AiProfError, AttachRefusedError

FORKS = """
import ctypes, os, signal, sys, time
ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])

def fork(*_):
    if child := os.fork():
        print(child, flush=True)

signal.signal(signal.SIGUSR1, fork)
print("up", flush=True)
while True:
    time.sleep(0.05)
"""
LEADER_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
CUDA = ("cuda", "cupti")
# Closes all descriptors, as daemons do, opens its own, and looks at the end whether they are there.
CLOSES = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile int asked;
static void ask(int number) { asked += number == SIGUSR1; }

int main(int count, char** words) {
  struct stat own, found;
  if (count != 4 || !dlopen(words[1], RTLD_NOW) || !dlopen(words[2], RTLD_NOW)) return 2;
  signal(SIGUSR1, ask);
  puts("up"), fflush(stdout);
  while (asked < 1) poll(NULL, 0, 10);
  for (int i = 3; i < 64; ++i) close(i);
  for (int i = 3; i < 20; ++i) if (open(words[3], O_RDWR | O_CREAT, 0600) != i) return 3;
  puts("opened"), fflush(stdout);
  while (asked < 2) poll(NULL, 0, 10);
  stat(words[3], &own);
  for (int i = 3; i < 20; ++i) if (fstat(i, &found) != 0 || found.st_ino != own.st_ino) return 4;
  puts(own.st_size == 0 ? "whole" : "harmed");
  return 0;
}
"""
FREEZERS = [
    (Path("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN", "THAWED"),
    (Path("/sys/fs/cgroup/unified"), "cgroup.freeze", "1", "0"),
    (Path("/sys/fs/cgroup"), "cgroup.freeze", "1", "0"),
]


pytestmark = pytest.mark.usefixtures("attachable")


def start(script: str, *words: str | Path) -> subprocess.Popen[str]:
    """A Python program, once it is up."""
    program = subprocess.Popen([sys.executable, "-c", script, *words], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n"
    return program


def attach_at(moment: float, pid: int, output: Path) -> int:
    """Attach in a child as soon as it is `moment`, and stop; the child, which ends with 1 where refused."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            while time.monotonic() < moment:
                pass
            stop(attach([pid], output, {}))
            code = 0
        except AiProfError:
            code = 1
        finally:
            os._exit(code)
    return child


def libraries(target: Target) -> set[str]:
    """The inodes of our library in it."""
    lines = target.process.read("maps").splitlines()
    return {line.split()[4] for line in lines if "/memfd:ai-prof-library" in line}


def test_of_two_attaches_at_once_one_goes_on_at_most(tmp_path: Path) -> None:
    for number in range(12):
        target = Target(tmp_path / f"target-{number}", wait="sleep")
        before = target.descriptors()
        moment = time.monotonic() + 0.1
        late = 0.001 * number
        first = attach_at(moment, target.pid, tmp_path / f"first-{number}")
        second = attach_at(moment + late, target.pid, tmp_path / f"second-{number}")
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in (first, second)]
        assert set(codes) <= {0, 1}
        assert len(libraries(target)) <= 1
        assert until(lambda t=target, b=before: t.descriptors() == b)
        target.assert_goes_on()
        assert target.end() == 7


def test_whoever_traces_one_thread_is_named(target: Target, tmp_path: Path) -> None:
    thread = next(each for each in target.process.threads() if each != target.pid)
    trace = (
        "import sys\nfrom ai_prof.collect.ptrace import Tracee\n"
        "Tracee(int(sys.argv[1]))\nprint('up', flush=True)\nsys.stdin.read()\n"
    )
    tracer = subprocess.Popen(
        [sys.executable, "-c", trace, str(thread)], env=environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert tracer.stdout is not None
    assert tracer.stdout.readline() == "up\n"
    done = ai_prof("attach", "--pid", target.pid, "--output", tmp_path / "out")
    tracer.communicate()
    assert done.returncode == 4
    assert f"process {tracer.pid} traces it already" in done.stderr
    target.assert_goes_on()


def test_a_library_that_is_still_loading_is_not_called(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(attach([target.pid], tmp_path / "first", {}))
    symbol = "ai_prof.collect.target._LOADED"
    monkeypatch.setattr(symbol, "InitializeInjection")  # of which the first byte is not 1
    with pytest.raises(AttachRefusedError, match="still at the library of an attach before this one"):
        attach([target.pid], tmp_path / "second", {})
    monkeypatch.undo()
    stop(attach([target.pid], tmp_path / "third", {}))
    target.assert_goes_on()


def test_the_second_of_two_captures_is_told_why(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = attach([target.pid], tmp_path / "first", {})
    monkeypatch.setattr(attaching, "find_control", lambda _: None)  # as just before the first
    with pytest.raises(AttachRefusedError, match="another capture of this process is under way"):
        attach([target.pid], tmp_path / "second", {})
    stop(sessions)
    target.assert_goes_on()


def test_a_child_that_was_forked_under_capture_is_captured(tmp_path: Path) -> None:
    cupti = shutil.copy(mocks() / "libcupti_mock.so", tmp_path / "libcupti.so.13")
    program = start(FORKS, shutil.copy(mocks() / "libcuda_mock.so", tmp_path / "libcuda.so.1"), cupti)
    sessions = attach([program.pid], tmp_path / "parent", {})
    assert until(lambda: sessions[0].control.state == State.RECORDING)
    program.send_signal(signal.SIGUSR1)
    assert program.stdout is not None
    child = int(program.stdout.readline())
    try:
        others = attach([child], tmp_path / "child", {})
        assert until(lambda: others[0].control.state == State.RECORDING)
        stop(others)
        stop(sessions)
        assert find_control(sessions[0].process) is None
    finally:
        os.kill(child, signal.SIGKILL)
        program.kill()
        program.communicate()


def test_a_stop_of_the_job_meanwhile_is_told(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, original = target.descriptors(), Borrowed.function

    def function(self: Borrowed, address: int, *arguments: int) -> None:
        os.kill(target.pid, signal.SIGSTOP)
        original(self, address, *arguments)

    monkeypatch.setattr(Borrowed, "function", function)
    monkeypatch.setattr(attaching, "_READY_SECONDS", 0.5)
    with pytest.raises(AttachRefusedError, match="it was stopped meanwhile: continue it first"):
        attach([target.pid], tmp_path / "out", {})
    assert target.process.state() == "T"
    os.kill(target.pid, signal.SIGCONT)
    assert until(lambda: target.descriptors() == before)
    target.assert_goes_on()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTSTP])
def test_ctrl_c_and_ctrl_z_wait_while_a_thread_is_ours(
    number: int, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a thread of ours takes them that does not block them, as numpy's do."""
    before, original = target.descriptors(), Tracee.wait

    class AnsweredError(Exception):
        pass

    def answer(*_: object) -> None:
        assert target.process.tracers() == set()
        assert all(
            "t" not in target.process.thread_status(each)["State"] for each in target.process.threads()
        )
        raise AnsweredError

    def interrupted(self: Tracee, seconds: float) -> object:
        os.kill(os.getpid(), number)
        return original(self, seconds)

    monkeypatch.setattr(Tracee, "wait", interrupted)
    own = signal.signal(number, answer)
    try:
        with pytest.raises(AnsweredError):
            attach([target.pid], tmp_path / "out", {})
    finally:
        signal.signal(number, own)
    assert until(lambda: target.descriptors() == before)
    target.assert_goes_on()
    assert target.end() == 7


def test_a_fault_of_ours_in_the_middle_of_a_call_leaves_the_loader_free(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, faults = Tracee.call, []

    def faulty(self: Tracee) -> object:
        call = original(self)
        if not faults and libraries(target):  # dlopen is at it
            faults.append("a fault")
            raise ValueError(*faults)
        return call

    monkeypatch.setattr(Tracee, "call", faulty)
    with pytest.raises(ValueError, match="a fault"):
        attach([target.pid], tmp_path / "out", {})
    target.assert_goes_on()
    monkeypatch.undo()
    assert until(lambda: target.process.tracers() == set())
    stop(attach([target.pid], tmp_path / "again", {}))
    target.assert_goes_on()
    assert target.end() == 7


@pytest.mark.parametrize("freezer", FREEZERS)
def test_a_frozen_process_is_refused(
    freezer: tuple[Path, str, str, str], target: Target, tmp_path: Path
) -> None:
    root, file, frozen, thawed = freezer
    if not (root / "cgroup.procs").exists():
        pytest.skip(f"{root} is no hierarchy of cgroups")
    group = root / f"ai-prof-test-{target.pid}"
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(target.pid))
        (group / file).write_text(frozen)
    except OSError as error:
        pytest.skip(f"no such freezer here: {error}")
    try:
        time.sleep(0.3)
        done = ai_prof("attach", "--pid", target.pid, "--output", tmp_path / "out")
        assert done.returncode == 4
        assert "it is frozen" in done.stderr
    finally:
        (group / file).write_text(thawed)
        target.assert_goes_on()
        target.kill()
        assert until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_process_whose_first_thread_has_ended(tmp_path: Path) -> None:
    program = start(LEADER_ENDS)
    try:
        assert until(lambda: "Z" in Path(f"/proc/{program.pid}/stat").read_text())
        done = ai_prof("attach", "--pid", program.pid, "--output", tmp_path / "out")
        assert done.returncode == 4
        assert "its first thread has ended" in done.stderr
    finally:
        program.kill()
        program.communicate()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_files_of_the_program_at_the_numbers_of_ours_stay(tmp_path: Path) -> None:
    source, program = tmp_path / "daemon.c", tmp_path / "daemon"
    source.write_text(CLOSES)
    subprocess.run(["cc", source, "-o", program, "-ldl"], check=True)
    words = [shutil.copy(mocks() / f"lib{name}_mock.so", tmp_path / f"lib{name}.so.1") for name in CUDA]
    daemon = subprocess.Popen([program, *words, tmp_path / "own"], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "up\n"
    sessions = attach([daemon.pid], tmp_path / "out", {})
    assert until(lambda: sessions[0].control.state == State.RECORDING)
    daemon.send_signal(signal.SIGUSR1)
    assert daemon.stdout.readline() == "opened\n"
    assert until(lambda: sessions[0].control.state.over)
    stop(sessions)
    daemon.send_signal(signal.SIGUSR1)
    assert daemon.communicate(timeout=60) == ("whole\n", None)
    assert daemon.returncode == 0
