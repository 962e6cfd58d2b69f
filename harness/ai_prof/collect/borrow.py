"""A waiting thread of another process, borrowed to make calls in it.

The attacher may be killed at any moment. Until `begin` the kernel lets the thread wait on; after it, the
thread always runs into a frame that was written before, and waits on from there.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

from ai_prof.collect import x86_64 as cpu
from ai_prof.collect.ptrace import ThreadGoneError, Tracee, shares_descriptors
from ai_prof.errors import AttachRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ai_prof.collect.memory import Memory
    from ai_prof.collect.procfs import Process
    from ai_prof.collect.target import Target

FIND_SECONDS = 5.0
_STOP_SECONDS = 10.0
_CALL_SECONDS = 3.0
_STACK_ROOM = 96 << 10  # for dlopen and the library's initializers
_SCAN_BYTES = 64 << 10
_NEAR_WORDS = 512


class Borrowed:
    """A thread that stands at the entry of its way back. Use `borrow` to get one, and `give_back` always."""

    def __init__(self, target: Target, tracee: Tracee, memory: Memory, registers: cpu.Registers) -> None:
        self._target = target
        self._tracee = tracee
        self._memory = memory
        self._registers = registers
        self._extended = tracee.get(cpu.EXTENDED)
        self._frame = cpu.build_frame(registers, self._extended, tracee.signal_mask(), target.restorer)
        self._handler_ran = False
        self._held = True
        memory.write(self._frame.address, self._frame.content)

    def begin(self) -> None:
        """Leave the wait."""
        place = cpu.to_return(self._registers, self._frame, self._target.restorer)
        self._tracee.set(cpu.GENERAL, cpu.pack(place))
        self._run(-1)

    def system_call(self, number: int, *arguments: int) -> int:
        """Make a system call; its result, -errno on failure."""
        place = cpu.to_call(self._registers, self._frame, self._target.restorer, number, arguments)
        self._tracee.set(cpu.GENERAL, cpu.pack(place))
        result = self._run(number)
        return -1 if result is None else result

    def function(self, address: int, *arguments: int) -> None:
        """Call a C function."""
        place = cpu.to_function(self._registers, self._frame, address, arguments)
        self._tracee.set(cpu.GENERAL, cpu.pack(place))
        self._run(-1)

    def scratch(self, content: bytes) -> int:
        """Put up to 256 bytes where calls find them; their address."""
        self._memory.write(self._frame.scratch, content)
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
        self._held = False
        if self._handler_ran:
            # It would have woken the program from its wait. The frame brings that about.
            offset, content = cpu.interrupted_result(self._registers)
            self._memory.write(self._frame.address + offset, content)
        elif cpu.keeps_time(self._registers):
            self._tracee.set(cpu.EXTENDED, self._extended)
            self._tracee.set(cpu.GENERAL, cpu.pack(cpu.to_wait(self._registers)))
        # Else the frame makes it issue its call anew.
        self._tracee.detach()

    def _run(self, number: int) -> int | None:
        """Run to the entry of rt_sigreturn. The result of the system call `number` that it began with."""
        result: int | None = None
        passed_on = 0
        first = True
        while True:
            self._tracee.resume(passed_on)
            stop = self._tracee.wait(_CALL_SECONDS)
            passed_on = 0
            if stop is None:
                self._abandon()
            elif stop.kind == "signal":
                passed_on = stop.signal
                self._handler_ran = True
            elif stop.kind == "syscall":
                call = self._tracee.call()
                if call.entry and call.number == cpu.NR_RETURN and call.stack == self._frame.address + 8:
                    return result
                if first and not call.entry and number >= 0:
                    result = call.result
                first = False

    def _abandon(self) -> None:
        """The call blocks. Take the thread out of the loader's lock; from elsewhere it ends by itself."""
        self._held = False
        self._tracee.interrupt()
        stop = self._tracee.wait(_STOP_SECONDS)
        if stop is not None and self._waits_for_loader():
            self._tracee.set(cpu.EXTENDED, self._extended)
            self._tracee.set(cpu.GENERAL, cpu.pack(cpu.again(self._registers)))
        if stop is not None:
            self._tracee.detach(stop.signal if stop.kind == "signal" else 0)
        msg = (
            f"process {self._target.process.pid} holds its loader's lock (it is loading a library): "
            "try again when it has started up"
        )
        raise AttachRefusedError(msg)

    def _waits_for_loader(self) -> bool:
        registers = cpu.unpack(self._tracee.get(cpu.GENERAL))
        start, size = self._target.loader_state
        return cpu.waits_for_lock(registers) and start <= registers["rdi"] < start + size


def _has_room(target: Target, stack: int) -> bool:
    for mapping in target.maps:
        if mapping.start <= stack < mapping.end:
            return mapping.path == "[stack]" or stack - mapping.start >= _STACK_ROOM
    return False


def _is_safe(target: Target, memory: Memory, stack: int) -> bool:
    """No signal handler below, and no allocator or loader near the top of the stack."""
    try:
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


def _signal_waits(process: Process, thread: int) -> bool:
    """A signal that `thread` would take is on its way."""
    text = (process.path / "task" / str(thread) / "status").read_text()
    sets = {
        key: int(value, 16)
        for key, _, value in (line.partition(":") for line in text.splitlines())
        if key in {"SigPnd", "ShdPnd", "SigBlk"}
    }
    return bool((sets["SigPnd"] | sets["ShdPnd"]) & ~sets["SigBlk"])


def _try_borrow(target: Target, memory: Memory, thread: int) -> Borrowed | None:
    tracee = Tracee(thread)
    tracee.interrupt()
    stop = tracee.wait(_STOP_SECONDS)
    if stop is None:
        # It would be left stopped if we went on; our end lets it go.
        msg = f"thread {thread} of process {target.process.pid} did not stop: the machine may be overloaded"
        raise AttachRefusedError(msg)
    if stop.kind != "interrupt" or _signal_waits(target.process, thread):
        tracee.detach(stop.signal if stop.kind == "signal" else 0)
        return None
    registers = cpu.unpack(tracee.get(cpu.GENERAL))
    if cpu.waits(registers):
        stack = registers["rsp"]
        if _has_room(target, stack) and _is_safe(target, memory, stack):
            try:
                return Borrowed(target, tracee, memory, registers)
            except OSError:  # the stack can't be written
                pass
        tracee.set(cpu.GENERAL, cpu.pack(cpu.again(registers)))
    tracee.detach()
    return None


def borrow(target: Target, memory: Memory) -> tuple[Borrowed, float]:
    """Stop a thread that may be borrowed; it and the time at which it stopped (time.perf_counter).

    Raises AttachRefusedError when there was none in 5 s, OSError when the kernel refuses ptrace.
    """
    deadline = time.monotonic() + FIND_SECONDS
    while True:
        for thread in _candidates(target.process):
            began = time.perf_counter()
            try:
                borrowed = _try_borrow(target, memory, thread)
                if borrowed is not None:
                    borrowed.begin()
                    return borrowed, began
            except (ThreadGoneError, FileNotFoundError, ProcessLookupError):
                continue
        if time.monotonic() > deadline:
            msg = (
                f"process {target.process.pid} had no thread to borrow within {FIND_SECONDS:.0f} s (one that "
                "waits in poll, epoll, select, sleep or on a condition variable): try again later"
            )
            raise AttachRefusedError(msg)
        time.sleep(0.02)
