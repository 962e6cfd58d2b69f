"""A waiting thread of another process, borrowed to make calls in it.

The attacher may be killed at any moment. Until `begin` the kernel lets the thread wait on; after it, the
thread always runs into a frame that was written before, and waits on from there.
"""

from __future__ import annotations

import contextlib
import signal
import time
from array import array
from typing import TYPE_CHECKING, NoReturn

from ai_prof.collect import x86_64 as cpu
from ai_prof.collect.ptrace import Stop, ThreadGoneError, Tracee, shares_descriptors
from ai_prof.collect.refusal import traced
from ai_prof.collect.signals import held_off
from ai_prof.errors import AttachRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ai_prof.collect.memory import Memory
    from ai_prof.collect.procfs import Mapping, Process
    from ai_prof.collect.target import Target

FIND_SECONDS = 5.0
_STOP_SECONDS = 10.0
_CALL_SECONDS = 3.0  # between two system calls
_HOLD_SECONDS = 10.0  # for all that is done on the thread
_STACK_ROOM = 96 << 10  # for dlopen and the library's initializers
_SCAN_BYTES = 64 << 10
_NEAR_WORDS = 512
_OWNED = array("I", (1, 1))  # one user, and PTHREAD_MUTEX_RECURSIVE_NP
_SIGSETXID = 33  # glibc's, of setuid(): its caller holds locks until every thread has answered
_NOT_HELD = (  # nor those that a fault raises: the kernel kills where they are blocked
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, _SIGSETXID,
)  # fmt: skip
_HELD = (2**64 - 1) & ~sum(1 << number - 1 for number in _NOT_HELD)


class Borrowed:
    """A thread that stands at the entry of its way back. Use `borrow` to get one, and `give_back` always.

    Signals wait while it is ours: no handler, and no pthread_cancel, leaves our calls half done. Those that
    came meet the program in its wait.
    """

    def __init__(self, target: Target, tracee: Tracee, memory: Memory, registers: cpu.Registers) -> None:
        self._target = target
        self._tracee = tracee
        self._memory = memory
        self._registers = registers
        self._extended = tracee.get(cpu.EXTENDED)
        self._mask = tracee.signal_mask()
        self._frame = cpu.build_frame(registers, self._extended, self._mask, target.restorer)
        self._deadline = time.monotonic() + _HOLD_SECONDS
        self._held = True
        self._at_home = False  # at the entry of its way back, in no call
        memory.write(self._frame.address, self._frame.content)

    def begin(self) -> None:
        """Leave the wait."""
        place = cpu.to_return(self._registers, self._frame, self._target.restorer)
        self._tracee.set(cpu.GENERAL, cpu.pack(place))
        # Only now: the frame, which brings the thread's own mask back, is ahead of it.
        self._tracee.set_signal_mask(self._mask | _HELD)
        self._run(-1)
        self._at_home = True

    def system_call(self, number: int, *arguments: int) -> int:
        """Make a system call; its result, -errno on failure."""
        place = cpu.to_call(self._registers, self._frame, self._target.restorer, number, arguments)
        result = self._call(place, number)
        return -1 if result is None else result

    def function(self, address: int, *arguments: int) -> None:
        """Call a C function."""
        self._call(cpu.to_function(self._registers, self._frame, address, arguments), -1)

    def _call(self, place: cpu.Registers, number: int) -> int | None:
        if not self._at_home:  # whatever locks the call has taken would stay so
            raise ThreadGoneError
        self._at_home = False
        self._tracee.set(cpu.GENERAL, cpu.pack(place))
        result = self._run(number)
        self._at_home = True
        return result

    def scratch(self, content: bytes) -> int:
        """Put up to 256 bytes where calls find them; their address."""
        try:
            self._memory.write(self._frame.scratch, content)
        except OSError as error:  # the stack that the frame was written to is gone
            raise ThreadGoneError from error
        return self._frame.scratch

    @property
    def descriptors(self) -> Path:
        """The folder of the thread's own descriptors, which may not be the process's."""
        return self._target.process.path / "task" / str(self._tracee.thread) / "fd"

    def read(self, address: int, size: int) -> bytes:
        """Memory of the target."""
        return self._memory.read(address, size)

    def give_back(self) -> None:
        """Let the thread wait on, as if nothing had been; nothing when it is out of our hands."""
        if not self._held:
            return
        if not self._at_home:  # a fault of ours in the middle of a call
            with contextlib.suppress(ThreadGoneError):  # it runs
                self._tracee.resume(watch_calls=False)
            self._leave(None)
            return
        self._held = False
        place = cpu.to_call(self._registers, self._frame, self._target.restorer, cpu.NR_GETPID, ())
        self._tracee.set(cpu.GENERAL, cpu.pack(place))
        self._run_to_trap(Stop("syscall", 0))
        self._go_on_waiting()

    def _run(self, number: int) -> int | None:
        """Run to the entry of rt_sigreturn. The result of the system call `number` that it began with."""
        result: int | None = None
        passed_on = 0
        first = True
        while True:
            self._tracee.resume(passed_on)
            stop = self._tracee.wait(min(_CALL_SECONDS, self._deadline - time.monotonic()))
            if stop is None or time.monotonic() > self._deadline:
                self._abandon(stop)
            passed_on = stop.to_pass_on
            if stop.kind == "syscall":
                call = self._tracee.call()
                if call.entry and call.number == cpu.NR_RETURN and call.stack == self._frame.address + 8:
                    return result
                if first and not call.entry and number >= 0:
                    result = call.result
                first = False

    def _run_to_trap(self, stop: Stop | None) -> None:
        """From `stop`, None where it runs, to where the kernel looks for signals and restarts calls."""
        while stop is None or stop.kind not in {"interrupt", "group"}:
            self._tracee.interrupt()  # anew after each: any other stop takes its place
            if stop is not None:
                self._tracee.resume(stop.to_pass_on, watch_calls=False)
            stop = self._tracee.wait(_STOP_SECONDS)
            if stop is None:
                raise _does_not_stop(self._target, self._tracee)

    def _go_on_waiting(self) -> None:
        self._tracee.set(cpu.EXTENDED, self._extended)
        # First the mask: until the registers are set, the frame is ahead, which brings that back too.
        self._tracee.set_signal_mask(self._mask)
        self._tracee.set(cpu.GENERAL, cpu.pack(cpu.again(self._registers)))
        self._tracee.detach()

    def _abandon(self, stop: Stop | None) -> NoReturn:
        """A call blocks, or runs on."""
        if self._leave(stop):
            msg = (
                f"process {self._target.process.pid} holds its loader's lock (it is loading a library): "
                "try again when it has started up"
            )
            raise AttachRefusedError(msg)
        msg = (
            f"loading the library into process {self._target.process.pid} took too long, and was given up: "
            "try again when its machine is less busy"
        )
        raise AttachRefusedError(msg)

    def _leave(self, stop: Stop | None) -> bool:
        """Let the thread end its call by itself; whether we took it out of the loader's lock instead."""
        self._held = False
        self._run_to_trap(stop)
        if self._waits_for_loader():
            self._go_on_waiting()
            return True
        self._tracee.set_signal_mask(self._mask)  # another thread may wait for its answer to a signal
        _let_go(self._tracee)
        return False

    def _waits_for_loader(self) -> bool:
        registers = cpu.unpack(self._tracee.get(cpu.GENERAL))
        start, size = self._target.loader_state
        return cpu.waits_for_lock(registers) and start <= registers["rdi"] < start + size


def _has_room(process: Process, maps: list[Mapping], registers: cpu.Registers) -> bool:
    """Whether the thread stands on a stack of its own, and far enough up.

    A coroutine's stack may be some KiB in the middle of other data, whatever is mapped below it.
    """
    stack, thread = registers["rsp"], registers["fs_base"]  # glibc keeps what is the thread's above its stack
    for mapping in maps:
        if mapping.start <= stack < mapping.end:
            is_own = mapping.path == "[stack]" or stack < thread < mapping.end
            return is_own and stack - _lowest(process, mapping) >= _STACK_ROOM
    return False


def _lowest(process: Process, stack: Mapping) -> int:
    """How far down a stack goes: the first thread's grows, up to the limit that it has now."""
    if stack.path != "[stack]":
        return stack.start
    return min(stack.start, stack.end - process.limits().get("Max stack size", stack.end))


def _owns_loader(target: Target, memory: Memory, thread: int) -> bool:
    """Whether a lock of the loader's is the thread's, as while it loads a library.

    What a stack holds of the loader's code tells less: much of it is left from the first call of a function.
    The locks lie in the loader's state as pthread_mutex_t: lock, count, owner, users, kind (recursive).
    """
    start, size = target.loader_state
    words = array("I", memory.read(start, size // 4 * 4))
    own = target.process.inner_thread(thread)
    owned = (i for i in range(len(words) - 4) if words[i + 2] == own)
    return any(words[i] in {1, 2} and words[i + 1] > 0 and words[i + 3 : i + 5] == _OWNED for i in owned)


def _is_safe(target: Target, memory: Memory, stack: int, thread: int) -> bool:
    """No signal handler below, no allocator near the top of the stack, and no lock of the loader's."""
    try:
        if _owns_loader(target, memory, thread):
            return False
        content = memory.read(stack, _SCAN_BYTES)
    except OSError:
        return False
    words = array("Q", content[: len(content) // 8 * 8])
    if target.restorer in words:
        return False
    return not any(target.is_delicate(word) for word in words[:_NEAR_WORDS])


def _candidates(process: Process) -> Iterator[int]:
    """Threads that wait in a call that they may be borrowed from; CUDA's own first, then those of I/O."""
    found = []
    for thread in process.threads():
        blocked = process.blocked(thread)
        if blocked is None or not cpu.may_borrow(blocked.number, blocked.arguments):
            continue
        if not shares_descriptors(process.pid, thread):  # ours are looked for among the process's
            continue
        kind = cpu.WAITS[blocked.number]
        found.append((not process.thread_name(thread).startswith("cuda"), kind == "condition", thread))
    return (thread for _, _, thread in sorted(found))


def _let_go(tracee: Tracee, passed_on: int = 0) -> None:
    """From a stop where the kernel looks for signals."""
    registers = cpu.unpack(tracee.get(cpu.GENERAL))
    if cpu.waits(registers):
        tracee.set(cpu.GENERAL, cpu.pack(cpu.again(registers)))
    tracee.detach(passed_on)


def _does_not_stop(target: Target, tracee: Tracee) -> AttachRefusedError:
    # It would be left stopped if we went on; our end lets it go.
    thread, pid = tracee.thread, target.process.pid
    why = "the machine may be overloaded, or the process was frozen meanwhile"
    return AttachRefusedError(f"thread {thread} of process {pid} did not stop: {why}")


def _seize(process: Process, thread: int) -> Tracee:
    try:
        return Tracee(thread)
    except PermissionError as error:
        if process.thread_status(thread).get("State", "Z")[0] in "ZX":  # refused, too
            raise ThreadGoneError from error
        raise


def _try_borrow(target: Target, memory: Memory, maps: list[Mapping], thread: int) -> Borrowed | None:
    tracee = _seize(target.process, thread)
    # In this order, as all do it: of two attaches at once one sees the other at least.
    others = target.process.tracers()
    tracee.interrupt()
    stop = tracee.wait(_STOP_SECONDS)
    if stop is None:
        raise _does_not_stop(target, tracee)
    registers = cpu.unpack(tracee.get(cpu.GENERAL))
    if not others and stop.kind == "interrupt" and cpu.waits(registers):
        has_room = _has_room(target.process, maps, registers)
        if has_room and _is_safe(target, memory, registers["rsp"], thread):
            try:
                return Borrowed(target, tracee, memory, registers)
            except OSError:  # the stack can't be written
                pass
    _let_go(tracee, stop.to_pass_on)
    if others:
        raise traced(target.process, others)
    return None


def borrow(target: Target, memory: Memory) -> tuple[Borrowed, float, contextlib.ExitStack]:
    """Stop a thread that may be borrowed; it and the time at which it stopped (time.perf_counter).

    The third holds signals off, and is for the caller to leave once the thread is given back.
    Raises AttachRefusedError when there was none in 5 s, ThreadGoneError when the process has ended or runs
    another program, OSError when the kernel refuses ptrace.
    """
    deadline = time.monotonic() + FIND_SECONDS
    while True:
        maps = target.process.maps()  # anew: a thread that has started meanwhile has a stack of its own
        for thread in _candidates(target.process):
            with contextlib.ExitStack() as signals:
                signals.enter_context(held_off())
                began = time.perf_counter()
                try:
                    borrowed = _try_borrow(target, memory, maps, thread)
                    if borrowed is not None:
                        borrowed.begin()
                        return borrowed, began, signals.pop_all()
                except (ThreadGoneError, FileNotFoundError, ProcessLookupError):
                    continue
        if not memory.read(target.restorer, 1):  # `memory` is that of the program that was
            raise ThreadGoneError
        if time.monotonic() > deadline:
            msg = (
                f"process {target.process.pid} had no thread to borrow within {FIND_SECONDS:.0f} s (one that "
                "waits in poll, epoll, select, sleep or on a condition variable, and has "
                f"{_STACK_ROOM >> 10} KiB of its own stack left): try again later"
            )
            raise AttachRefusedError(msg)
        time.sleep(0.02)
