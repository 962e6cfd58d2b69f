"""ptrace(2) for one thread of another process. All calls must come from one thread of ours."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

_CONT, _DETACH, _SYSCALL = 7, 17, 24
_GETREGSET, _SETREGSET, _SEIZE, _INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
_GETSIGMASK, _SETSIGMASK, _GET_SYSCALL_INFO = 0x420A, 0x420B, 0x420E
_NR_KCMP, _KCMP_FILES = 312, 2
_TRACESYSGOOD = 1
_EVENT_STOP = 128
_WALL = 0x40000000  # of waitpid: threads too


class ThreadGoneError(Exception):
    """The traced thread is no more; nothing is left to undo."""


class Stop(NamedTuple):
    """Why a thread stopped: `signal`, or a system call's entry or exit, or our interrupt."""

    kind: str  # "syscall", "interrupt", "group" (job control) or "signal"
    signal: int

    @property
    def to_pass_on(self) -> int:
        """The signal that it is to take when it goes on; 0 for none."""
        return self.signal if self.kind == "signal" else 0


class Call(NamedTuple):
    """A stop at a system call. `number` and `stack` at its entry; `result` at its exit."""

    entry: bool
    number: int
    stack: int
    result: int


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _ptrace(request: int, thread: int, address: int = 0, data: object = 0) -> int:
    result: int = _libc.ptrace(request, thread, address, data)
    if result == -1 and (error := ctypes.get_errno()):
        if error == 3:  # ESRCH: gone, or not stopped because it is being killed
            raise ThreadGoneError
        raise OSError(error, os.strerror(error))
    return result


def shares_descriptors(process: int, thread: int) -> bool:
    """Whether `thread` has the descriptors of its `process`; yes where the kernel does not tell (kcmp)."""
    result: int = _libc.syscall(_NR_KCMP, process, thread, _KCMP_FILES, 0, 0)
    return result <= 0


class Tracee:
    """A seized thread. Our death at any moment lets it run on: no PTRACE_O_EXITKILL, no breakpoint."""

    def __init__(self, thread: int) -> None:
        """Seize `thread` without stopping it. Raises OSError when the kernel refuses."""
        self.thread = thread
        _ptrace(_SEIZE, thread, 0, _TRACESYSGOOD)

    def interrupt(self) -> None:
        """Ask it to stop."""
        _ptrace(_INTERRUPT, self.thread)

    def wait(self, seconds: float) -> Stop | None:
        """Its next stop; None when it did not stop in time."""
        deadline = time.monotonic() + seconds
        pause = 0.0
        while True:
            try:
                found, status = os.waitpid(self.thread, os.WNOHANG | _WALL)
            except ChildProcessError as error:
                raise ThreadGoneError from error
            if found:
                return self._stop(status)
            if time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(pause + 2e-5, 2e-3)

    @staticmethod
    def _stop(status: int) -> Stop:
        if not os.WIFSTOPPED(status):
            raise ThreadGoneError
        number = os.WSTOPSIG(status)
        if number == signal.SIGTRAP | 0x80:
            return Stop("syscall", 0)
        if status >> 16 == _EVENT_STOP:
            return Stop("interrupt" if number == signal.SIGTRAP else "group", number)
        return Stop("signal", number)

    def resume(self, signal_number: int = 0, *, watch_calls: bool = True) -> None:
        """Let it run, with a signal that it stopped for."""
        _ptrace(_SYSCALL if watch_calls else _CONT, self.thread, 0, signal_number)

    def detach(self, signal_number: int = 0) -> None:
        """Let it go. It must be stopped."""
        _ptrace(_DETACH, self.thread, 0, signal_number)

    def get(self, registers: int, most: int = 16384) -> bytes:
        """A register set (NT_*) as the kernel lays it out."""
        buffer = ctypes.create_string_buffer(most)
        vector = _IoVec(ctypes.cast(buffer, ctypes.c_void_p), most)
        _ptrace(_GETREGSET, self.thread, registers, ctypes.addressof(vector))
        return buffer.raw[: vector.length]

    def set(self, registers: int, content: bytes) -> None:
        """Replace a register set."""
        buffer = ctypes.create_string_buffer(content, len(content))
        vector = _IoVec(ctypes.cast(buffer, ctypes.c_void_p), len(content))
        _ptrace(_SETREGSET, self.thread, registers, ctypes.addressof(vector))

    def signal_mask(self) -> int:
        """The signals it blocks."""
        mask = ctypes.c_uint64()
        _ptrace(_GETSIGMASK, self.thread, 8, ctypes.addressof(mask))
        return mask.value

    def set_signal_mask(self, blocked: int) -> None:
        """Have it block these signals; SIGKILL and SIGSTOP can't be."""
        mask = ctypes.c_uint64(blocked)
        _ptrace(_SETSIGMASK, self.thread, 8, ctypes.addressof(mask))

    def call(self) -> Call:
        """The system call it stopped at."""
        info = (ctypes.c_uint64 * 16)()
        _ptrace(_GET_SYSCALL_INFO, self.thread, ctypes.sizeof(info), ctypes.addressof(info))
        entry = info[0] & 0xFF == 1
        number = info[3] if entry else -1
        result = ctypes.c_int64(info[3]).value if not entry else 0
        return Call(entry, number, info[2], result)
