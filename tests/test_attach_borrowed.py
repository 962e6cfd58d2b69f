"""What the program must not notice of its borrowed thread: signals, cancellation, descriptors of its own."""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from attach_targets import Target, until

from ai_prof.collect import borrow
from ai_prof.collect import inject as injecting
from ai_prof.collect import x86_64 as cpu
from ai_prof.collect.attach import attach, stop
from ai_prof.collect.borrow import Borrowed
from ai_prof.collect.procfs import Process
from ai_prof.collect.ptrace import Call, Tracee
from ai_prof.errors import AttachRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IGNORED = signal.SIGWINCH
# Waits with no more than some KB left of its stack.
DEEP = r"""
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static unsigned long lowest;

static int deep(void) {
  volatile char block[1024];
  block[0] = 0;
  if ((unsigned long)block > lowest + 12288) return deep() + block[0];
  puts("up"), fflush(stdout);
  return poll(NULL, 0, -1) + block[0];
}

int main(void) {
  char line[4096];
  unsigned long end = 0;
  struct rlimit limit;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) if (strstr(line, "[stack]")) sscanf(line, "%*x-%lx", &end);
  getrlimit(RLIMIT_STACK, &limit);
  lowest = end - limit.rlim_cur;
  return deep();
}
"""
# Waits on a small stack of a coroutine, amid data whose sum it tells at every line that it reads.
COROUTINE = r"""
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

enum { STACK = 16384 };
static ucontext_t outside, inside;
static struct { char data[1 << 20]; char stack[STACK]; } all __attribute__((aligned(16)));

static void work(void) {
  struct pollfd input = {0, POLLIN, 0};
  char line[64];
  puts("up"), fflush(stdout);
  while (poll(&input, 1, -1) == 1 && fgets(line, sizeof line, stdin)) {
    unsigned long sum = 0;
    for (size_t i = 0; i < sizeof all.data; ++i) sum += all.data[i];
    printf("%lu\n", sum), fflush(stdout);
  }
}

int main(void) {
  memset(all.data, 1, sizeof all.data);
  getcontext(&inside);
  inside.uc_stack.ss_sp = all.stack;
  inside.uc_stack.ss_size = STACK;
  inside.uc_link = &outside;
  makecontext(&inside, work, 0);
  return swapcontext(&outside, &inside);
}
"""
# Starts its one thread to borrow, as CUDA's own wait, at a line.
STARTS_LATE = """
import sys, threading
sys.stdin.readline()
threading.Thread(target=threading.Event().wait, daemon=True).start()
while True:
    pass
"""


pytestmark = pytest.mark.usefixtures("attachable")


def send(target: Target, thread: int, number: int) -> None:
    """To that thread, as pthread_kill does."""
    assert ctypes.CDLL(None).tgkill(target.pid, thread, number) == 0


def when_held(patch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Have `act` called with the borrowed thread just before that is made to load the library."""
    original, acted = Borrowed.function, []

    def function(self: Borrowed, address: int, *arguments: int) -> None:
        if not acted:
            acted.append(address)
            act(int(self.descriptors.parent.name))
        original(self, address, *arguments)

    patch.setattr(Borrowed, "function", function)


def assert_wait_ended(target: Target, interrupted: int) -> None:
    """The wait that was borrowed from, and those after it, ended so often with EINTR; else as they should."""
    if target.wait == "semaphore":
        target.ask()
        assert until(lambda: target.count("waits") + target.count("interrupted") > 0)
    assert until(lambda: target.count("interrupted") >= interrupted)
    target.assert_goes_on()
    assert target.count("interrupted") == interrupted


@pytest.mark.parametrize(
    ("wait", "interrupted"),
    [("poll", 1), ("epoll", 1), ("sleep", 1), ("forever", 1), ("condition", 0), ("semaphore", 0)],
)
def test_a_handler_runs_after_our_calls_and_ends_the_wait_as_the_kernel_would_have(
    wait: str, interrupted: int, start: Callable[..., Target], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    target = start(wait=wait, launches=0)

    def come(thread: int) -> None:
        send(target, thread, signal.SIGUSR1)
        assert target.count("signals") == 0

    when_held(monkeypatch, come)
    sessions = attach([target.pid], tmp_path / "out", {})
    assert until(lambda: target.count("signals") == 1)
    assert_wait_ended(target, interrupted)
    stop(sessions)


@pytest.mark.parametrize("wait", ["poll", "epoll", "sleep", "forever", "condition", "semaphore"])
def test_a_signal_that_the_program_ignores_ends_no_wait(
    wait: str, start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(wait=wait, launches=0)
    when_held(monkeypatch, lambda thread: send(target, thread, IGNORED))
    sessions = attach([target.pid], tmp_path / "out", {})
    assert_wait_ended(target, 0)
    stop(sessions)


@pytest.mark.parametrize(
    "case",  # how it waits, the signal, and how often the wait ends with EINTR
    [
        ("poll", IGNORED, 0),
        ("epoll", IGNORED, 0),
        ("semaphore", IGNORED, 0),
        ("epoll", signal.SIGUSR1, 1),
        ("semaphore", signal.SIGUSR1, 0),
    ],
)
def test_a_signal_that_stops_the_thread_before_us_is_passed_on(
    case: tuple[str, int, int], start: Callable[..., Target], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    wait, number, interrupted = case
    target = start(wait=wait, launches=0)
    original, sent = Tracee.interrupt, []

    def interrupt(self: Tracee) -> None:
        if not sent:
            sent.append(number)
            send(target, self.thread, number)
            assert until(lambda: Process(self.thread).status()["State"].startswith("t"))
        original(self)

    monkeypatch.setattr(Tracee, "interrupt", interrupt)
    sessions = attach([target.pid], tmp_path / "out", {})
    assert_wait_ended(target, interrupted)
    assert target.count("signals") == (number == signal.SIGUSR1)
    stop(sessions)


def test_a_thread_that_is_cancelled_leaves_no_lock_behind(
    start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(wait="cancel", launches=0)
    when_held(monkeypatch, lambda _: target.ask())
    sessions = attach([target.pid], tmp_path / "out", {})
    assert until(lambda: target.count("waits") == 1)  # it was joined, and the loader serves
    stop(sessions)
    target.assert_goes_on()


def test_a_handler_that_jumps_out_of_the_wait_jumps_out_of_that_alone(
    start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(wait="jump", launches=0)
    when_held(monkeypatch, lambda thread: send(target, thread, signal.SIGUSR1))
    sessions = attach([target.pid], tmp_path / "out", {})
    assert until(lambda: target.count("waits") == 1)
    stop(sessions)
    target.assert_goes_on()


def test_a_thread_that_does_not_come_back_is_let_go(
    start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(wait="poll", launches=0)
    monkeypatch.setattr(borrow, "_HOLD_SECONDS", 0.3)
    # So it looks when the thread has left our frame behind.
    monkeypatch.setattr(Tracee, "call", lambda _: Call(entry=False, number=-1, stack=0, result=0))
    with pytest.raises(AttachRefusedError, match="took too long, and was given up"):
        attach([target.pid], tmp_path / "out", {})
    target.assert_goes_on()
    assert target.count("interrupted") == 0
    assert target.blocked_signals() == 0
    assert target.end() == 7


def test_a_thread_with_descriptors_of_its_own_is_not_borrowed(
    start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borrow, "FIND_SECONDS", 0.2)
    target = start(wait="apart", launches=0)
    with pytest.raises(AttachRefusedError, match="no thread to borrow"):
        attach([target.pid], tmp_path / "out", {})
    # Where the kernel does not tell: what stands at the same number in the process's table is not touched.
    monkeypatch.setattr(borrow, "shares_descriptors", lambda *_: True)
    before = target.descriptors()
    with pytest.raises(AttachRefusedError, match="do not share their descriptors"):
        attach([target.pid], tmp_path / "out", {})
    assert target.descriptors() == before
    target.assert_goes_on()
    assert target.end() == 7


def test_a_thread_that_starts_while_one_is_looked_for_is_borrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = subprocess.Popen([sys.executable, "-c", STARTS_LATE], stdin=subprocess.PIPE)
    original = injecting.examine

    def examine(*words: object) -> object:
        found = original(*words)  # type: ignore[arg-type]
        assert program.stdin is not None
        program.stdin.write(b"\n")
        program.stdin.flush()
        return found

    monkeypatch.setattr(injecting, "examine", examine)
    try:
        assert until(lambda: "libc.so" in str(Process(program.pid).maps()))
        stop(attach([program.pid], tmp_path / "out", {}))
        assert program.poll() is None
    finally:
        program.kill()
        program.communicate()


def test_a_file_that_came_to_stand_where_our_memfd_was_is_not_touched(
    start: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(wait="poll", launches=0)
    original = Borrowed.system_call
    standard_error = 2  # a file, which the target leaves empty

    def system_call(self: Borrowed, number: int, *arguments: int) -> int:
        result = original(self, number, *arguments)
        return standard_error if number == cpu.NR_MEMFD_CREATE else result

    (target.folder / "stderr").write_text("precious")
    monkeypatch.setattr(Borrowed, "system_call", system_call)
    with pytest.raises(AttachRefusedError, match="closes descriptors that it did not open"):
        attach([target.pid], tmp_path / "out", {})
    assert target.errors == "precious"
    assert target.end() == 7


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_stack_of_a_coroutine_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "coroutine.c").write_text(COROUTINE)
    built = tmp_path / "coroutine"
    subprocess.run(["cc", "-O1", "-w", tmp_path / "coroutine.c", "-o", built], check=True)
    program = subprocess.Popen([built], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"
        monkeypatch.setattr(borrow, "FIND_SECONDS", 0.2)
        with pytest.raises(AttachRefusedError, match="of its own stack"):
            attach([program.pid], tmp_path / "out", {})
        assert program.communicate("sum\n", timeout=60)[0] == f"{1 << 20}\n"
        assert program.returncode == 0
    finally:
        program.kill()
        program.communicate()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_thread_at_the_end_of_its_stack_is_not_borrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep.c").write_text(DEEP)
    subprocess.run(["cc", "-O0", "-w", tmp_path / "deep.c", "-o", tmp_path / "deep"], check=True)
    words = ["sh", "-c", 'ulimit -s 1024 && exec "$0"', tmp_path / "deep"]
    program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"
        monkeypatch.setattr(borrow, "FIND_SECONDS", 0.2)
        with pytest.raises(AttachRefusedError, match="no thread to borrow"):
            attach([program.pid], tmp_path / "out", {})
        assert program.poll() is None
    finally:
        program.kill()
        program.communicate()
