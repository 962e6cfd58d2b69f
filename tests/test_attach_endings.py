"""However an attach ends, by whatever of it, no capture goes on and nothing of ours stays in the target."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

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

from ai_prof.collect import inject as injecting
from ai_prof.collect import ptrace
from ai_prof.collect.attach import attach, stop
from ai_prof.collect.borrow import Borrowed
from ai_prof.collect.control import Control, State, find_control
from ai_prof.collect.procfs import Process
from ai_prof.collect.ptrace import ThreadGoneError, Tracee
from ai_prof.collect.target import has_library
from ai_prof.errors import AttachRefusedError, UsageError
from ai_prof.timeline.capture_findings import incomplete
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXECS = """
import ctypes, os, signal, sys, threading, time
ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
signal.signal(signal.SIGUSR1, lambda *_: os.execvp("sleep", ["sleep", "600"]))
threading.Thread(target=threading.Event().wait, daemon=True).start()  # as CUDA's own threads do
print("up", flush=True)
while True:
    time.sleep(0.05)
"""

# Runs a program whose system call NUMBER is answered with EPERM: FILTER NUMBER PROGRAM ARGUMENTS
FILTER = """
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN, REFUSED, ALLOWED = 0x20, 0x15, 6, 0x50001, 0x7FFF0000
steps = (LOAD, 0, 0, 0), (EQUAL, 0, 1, int(sys.argv[1])), (RETURN, 0, 0, REFUSED), (RETURN, 0, 0, ALLOWED)
code = b"".join(struct.pack("HBBI", *step) for step in steps)
held = ctypes.create_string_buffer(code, len(code))
program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(held))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, program, 0, 0) == 0  # PR_SET_SECCOMP
os.execvp(sys.argv[2], sys.argv[2:])
"""


pytestmark = pytest.mark.usefixtures("attachable")


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Process]:
    """A program that runs another one at SIGUSR1."""
    cupti = shutil.copy(mocks() / "libcupti_mock.so", tmp_path / "libcupti.so.13")
    driver = shutil.copy(mocks() / "libcuda_mock.so", tmp_path / "libcuda.so.1")
    program = subprocess.Popen([sys.executable, "-c", EXECS, driver, cupti], stdout=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stdout.readline() == b"up\n"
    yield Process(program.pid)
    program.kill()
    program.communicate()


def record(pid: int, output: Path, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """An attacher without a duration, when the capture is under way."""
    attacher = subprocess.Popen(
        command("attach", "--pid", pid, "--output", output), env=environment(),
        stdout=subprocess.DEVNULL, stderr=stderr, text=True,
    )  # fmt: skip
    assert until(lambda: is_recorded(Process(pid)))
    return attacher


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("errors", ["full", "closed", "read"])
def test_no_capture_outlives_its_attacher(number: int, errors: str, target: Target, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    if errors == "closed":
        os.close(reader)
    with Path("/dev/full").open("wb") as full:
        attacher = record(target.pid, tmp_path / "out", full.fileno() if errors == "full" else writer)
    os.close(writer)
    target.launch()
    attacher.send_signal(number)
    assert attacher.wait(300) == 0
    if errors != "closed":
        os.close(reader)
    assert until(lambda: target.count("subscribed") == 0)
    assert until(lambda: find_control(target.process) is None)
    target.assert_goes_on()


def test_a_fault_ends_the_capture(target: Target, tmp_path: Path) -> None:
    fault = (
        "import sys\nfrom ai_prof import cli\nfrom ai_prof.cli import attach\n"
        "def follow(*_):\n    raise ValueError\n"
        "attach.follow = follow\nsys.exit(cli.main(sys.argv[1:]))\n"
    )
    words = [sys.executable, "-c", fault, "attach", "--pid", str(target.pid), "--output", tmp_path / "out"]
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert done.returncode == 70
    assert until(lambda: find_control(target.process) is None)


@pytest.mark.parametrize("standby", [False, True])
def test_a_capture_without_a_deadline_ends_with_its_attacher(
    standby: bool, start: Callable[..., Target], tmp_path: Path
) -> None:
    target = start(standby=standby)
    attacher = record(target.pid, tmp_path / "out")
    attacher.kill()
    attacher.communicate()
    assert until(lambda: find_control(target.process) is None, 30)
    assert until(lambda: target.count("subscribed") == 0)
    (file,) = (tmp_path / "out").glob("*.aiprof")
    assert len(open_trace(file).kernels.start) > 0
    stop(attach([target.pid], tmp_path / "again", {}))
    target.assert_goes_on()
    assert target.end() == 7


def test_a_stop_that_comes_before_the_go_is_heeded(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, stoppers = Control.go, []

    def comes_after_it(self: Control, at_ns: int) -> None:
        page = Path(f"/proc/self/fd/{self._descriptor}")
        before = page.read_bytes()[8:12]
        stoppers.append(subprocess.Popen(command("stop", "--pid", target.pid), env=environment()))
        assert until(lambda: page.read_bytes()[8:12] != before)
        original(self, at_ns)

    monkeypatch.setattr(Control, "go", comes_after_it)
    sessions = attach([target.pid], tmp_path / "out", {})
    assert stoppers[0].wait(30) in {0, 3}  # something was recorded, or nothing
    assert sessions[0].over
    target.assert_goes_on()


def test_a_job_that_is_stopped_holds_no_command_and_keeps_its_capture(target: Target, tmp_path: Path) -> None:
    words = command("attach", "--pid", target.pid, "--duration", "1", "--output", tmp_path / "out")
    attacher = subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True)
    assert until(lambda: is_recorded(target.process))
    target.launch()
    target.program.send_signal(signal.SIGSTOP)
    stopper = ai_prof("stop", "--pid", target.pid)
    _, errors = attacher.communicate(timeout=40)
    assert (stopper.returncode, attacher.returncode) == (4, 4)
    for told in (stopper.stderr, errors):
        assert "it is stopped: continue it first (`kill -CONT`)" in told
    target.program.send_signal(signal.SIGCONT)
    assert until(lambda: find_control(target.process) is None)
    (file,) = (tmp_path / "out").glob("*.aiprof")
    trace = open_trace(file)
    assert len(trace.kernels.start) > 0
    assert not incomplete(trace)
    target.assert_goes_on()


def test_a_stop_tells_of_a_capture_of_nothing(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(cuda=False, cupti="none", launches=0)
    sessions = attach([target.pid], tmp_path / "out", {})
    stopper = ai_prof("stop", "--pid", target.pid)
    assert stopper.returncode == 3
    assert "used no CUDA in that time" in stopper.stderr
    assert sessions[0].over
    target.assert_goes_on()


def test_an_attacher_killed_before_its_go_is_noticed(target: Target, tmp_path: Path) -> None:
    before = target.descriptors()
    child = os.fork()
    if child == 0:
        Control.go = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, misc]
        try:
            attach([target.pid], tmp_path / "out", {})
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert until(lambda: find_control(target.process) is None, 30)
    assert until(lambda: target.descriptors() == before)


def die_at(step: int, pid: int, folder: Path) -> int:
    """Attach in a child that SIGKILLs itself before its ptrace call number `step`; its wait status."""
    child = os.fork()
    if child == 0:
        original, calls = ptrace._ptrace, 0

        def counted(request: int, thread: int, address: int = 0, data: object = 0) -> int:
            nonlocal calls
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(request, thread, address, data)

        ptrace._ptrace = counted
        try:
            attach([pid], folder, {})
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize(("wait", "stride"), [("poll", 3), ("epoll", 11), ("sleep", 13), ("condition", 11)])
def test_an_attacher_killed_at_any_step_harms_nothing(
    wait: str, stride: int, start: Callable[..., Target], tmp_path: Path
) -> None:
    step = 1
    while True:
        target = start(wait=wait)
        status = die_at(step, target.pid, tmp_path / f"out-{step}")
        target.assert_goes_on()
        assert target.count("interrupted") <= 1
        assert until(lambda t=target: t.blocked_signals() == 0)
        control = find_control(target.process)
        if control is not None:
            control.stop()
            assert until(lambda c=control: c.state.over)
        if step % 2 == 0:  # what was half done is no obstacle
            stop(attach([target.pid], tmp_path / f"after-{step}", {}))
        assert target.end() == 7
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        step += stride
    assert step > 50


def test_an_attacher_killed_while_the_library_loads_leaves_no_descriptor(
    target: Target, tmp_path: Path
) -> None:
    before = target.descriptors()
    child = os.fork()
    if child == 0:
        resume = Tracee.resume

        def last(self: Tracee, *words: int) -> None:
            resume(self, *words)
            os.kill(os.getpid(), signal.SIGKILL)

        def load(self: Borrowed, *words: int) -> None:
            Tracee.resume = last  # type: ignore[assignment, method-assign]
            function(self, *words)

        function, Borrowed.function = Borrowed.function, load  # type: ignore[method-assign]
        try:
            attach([target.pid], tmp_path / "out", {})
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert until(lambda: has_library(target.process))
    assert until(lambda: target.descriptors() == before)
    stop(attach([target.pid], tmp_path / "after", {}))
    target.assert_goes_on()


@pytest.mark.parametrize("verb", [("attach", "--duration", "0.3"), ("stop",)])
def test_a_thread_is_not_attached_to(verb: tuple[str, ...], target: Target, tmp_path: Path) -> None:
    before = target.descriptors()
    thread = next(each for each in target.process.threads() if each != target.pid)
    also = ("--pid", target.pid, "--output", tmp_path / "out") if verb[0] == "attach" else ()
    done = ai_prof(*verb, *also, "--pid", thread)
    assert done.returncode == 2
    assert f"{thread} is a thread of process {target.pid}" in done.stderr
    assert target.descriptors() == before


def test_a_zombie_is_refused(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    assert until(lambda: not Process(gone.pid).alive())
    done = ai_prof("attach", "--pid", gone.pid, "--output", tmp_path / "out")
    gone.wait()
    assert done.returncode == 4
    assert "is a zombie, or is a thread of the kernel" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_target_that_runs_another_program_is_told(changing: Process, tmp_path: Path) -> None:
    attacher = record(changing.pid, tmp_path / "out")
    os.kill(changing.pid, signal.SIGUSR1)
    _, errors = attacher.communicate(timeout=300)
    assert attacher.returncode == 4
    file = next((tmp_path / "out").glob("*.aiprof"), None)
    left = f"what was recorded until then is in {file}" if file else "nothing was recorded until then"
    told = f"process {changing.pid} ran another program meanwhile, or closed what it did not open: {left}"
    assert told in errors


@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGUSR1, "it ran another program"), (signal.SIGKILL, "ended while it was being attached to")],
)
def test_a_target_that_changes_before_it_is_borrowed_from_is_told(
    number: int, told: str, changing: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = injecting.borrow

    def late(*words: object) -> object:
        if changing.has_memory() and changing.thread_name(changing.pid) != "sleep":
            os.kill(changing.pid, number)
        assert until(lambda: not changing.has_memory() or changing.thread_name(changing.pid) == "sleep")
        return original(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(injecting, "borrow", late)
    began = time.monotonic()
    with pytest.raises(UsageError, match=told):
        attach([changing.pid], tmp_path / "out", {})
    assert time.monotonic() - began < 2


def test_a_target_that_ends_while_it_is_examined_has_ended(
    changing: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = injecting.examine

    def late(*words: object) -> object:
        os.kill(changing.pid, signal.SIGKILL)
        assert until(lambda: not changing.has_memory())
        return original(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(injecting, "examine", late)
    with pytest.raises(UsageError, match="ended while it was being attached to"):
        attach([changing.pid], tmp_path / "out", {})


@pytest.mark.parametrize("what", ["file", "folder"])
def test_an_output_that_is_removed_is_told(what: str, target: Target, tmp_path: Path) -> None:
    attacher = record(target.pid, tmp_path / "out")
    if what == "folder":
        shutil.rmtree(tmp_path / "out")
    else:
        next((tmp_path / "out").glob("*.aiprof")).unlink()
    attacher.send_signal(signal.SIGINT)
    _, errors = attacher.communicate(timeout=300)
    assert attacher.returncode == 4
    assert "was removed while it was recorded" in errors
    target.assert_goes_on()


def test_a_borrowed_thread_that_ends_is_replaced(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, passes = target.descriptors(), []
    original = injecting._pass_descriptors

    def ends_once(*words: object) -> object:
        passes.append(None)
        if len(passes) == 1:
            raise ThreadGoneError
        return original(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(injecting, "_pass_descriptors", ends_once)
    sessions = attach([target.pid], tmp_path / "out", {})
    assert until(lambda: sessions[0].control.state == State.RECORDING)
    stop(sessions)
    assert len(passes) == 2
    assert until(lambda: target.descriptors() == before)
    target.assert_goes_on()


def test_what_fails_half_way_leaves_no_descriptor(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = target.descriptors()

    def refuses(_: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuses)
    with pytest.raises(OSError, match="Too many open files"):
        attach([target.pid], tmp_path / "out", {})
    assert target.descriptors() == before
    target.assert_goes_on()


@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        (319, 4, "it can't make a memfd: Operation not permitted (a seccomp filter"),
        (53, 4, "it can't make a socket: Operation not permitted (a seccomp filter"),
        (89, 0, "attached to"),  # readlink: the library can't see what it was loaded from
    ],
)
def test_a_filter_of_the_target_leaves_no_descriptor(
    call: int, code: int, told: str, start: Callable[..., Target], tmp_path: Path
) -> None:
    target = start(under=(sys.executable, "-c", FILTER, str(call)))
    before = target.descriptors()
    done = ai_prof("attach", "--pid", target.pid, "--duration", "0.3", "--output", tmp_path / "out")
    assert done.returncode == code
    assert told in done.stderr
    assert until(lambda: target.descriptors() == before)
    target.assert_goes_on()
    assert target.end() == 7


def spare_descriptors(process: Process) -> tuple[int, int]:
    return resource.RLIMIT_NOFILE, max(int(path.name) for path in (process.path / "fd").iterdir()) + 2


def spare_space(process: Process) -> tuple[int, int]:
    return resource.RLIMIT_AS, (int(process.status()["VmSize"].split()[0]) << 10) + (5 << 20)


@pytest.mark.parametrize(("limit", "told"), [(spare_descriptors, "ulimit -n"), (spare_space, "ulimit -v")])
def test_a_limit_of_the_target_is_named(
    limit: Callable[[Process], tuple[int, int]], told: str, target: Target, tmp_path: Path
) -> None:
    kind, most = limit(target.process)
    resource.prlimit(target.pid, kind, (most, most))
    before = target.descriptors()
    with pytest.raises(AttachRefusedError, match=told):
        attach([target.pid], tmp_path / "out", {})
    assert target.descriptors() == before
    target.assert_goes_on()


def test_a_limit_that_leaves_the_buffers_no_room_is_named(target: Target, tmp_path: Path) -> None:
    most = (int(target.process.status()["VmSize"].split()[0]) << 10) + (150 << 20)
    resource.prlimit(target.pid, resource.RLIMIT_AS, (most, most))
    words = ("attach", "--pid", target.pid, "--duration", "0.5", "--output")
    done = ai_prof(*words, tmp_path / "out")
    assert done.returncode == 4
    assert "lower AI_PROF_BUFFER_MB" in done.stderr
    done = ai_prof(*words, tmp_path / "again", AI_PROF_BUFFER_MB="8")
    assert done.returncode == 0, done.stderr
    target.assert_goes_on()
