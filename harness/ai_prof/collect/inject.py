"""Bring the agent into a process: the library, its control page and the descriptors that it records with."""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import os
import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.collect import x86_64 as cpu
from ai_prof.collect.borrow import Borrowed, borrow
from ai_prof.collect.control import NAME, Control
from ai_prof.collect.memory import Memory
from ai_prof.collect.procfs import is_of_our_namespace
from ai_prof.collect.ptrace import ThreadGoneError
from ai_prof.collect.refusal import ended_meanwhile, limit_reached, why_not
from ai_prof.collect.target import LIBRARY, Target, examine, has_library, library_entry
from ai_prof.errors import AttachRefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ai_prof.collect.procfs import Process

_MFD_CLOEXEC = 1
_RTLD_NOW = 2
_UNIX_STREAM_CLOEXEC = (1, 1 | 0o2000000)
_THREADS = 3  # that may end under our hands before we give up

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Injected:
    """An agent that waits for its go."""

    control: Control
    pause_s: float  # how long the borrowed thread stood


@dataclass(frozen=True)
class _Delivery:
    """What is brought into a process, and what stands open there that is still ours to close."""

    target: Target
    memory: Memory
    image: bytes  # of the library
    settings: Mapping[str, str]
    passed: list[int]  # our descriptors that the agent gets
    opened: list[int] = field(default_factory=list)  # the target's own


class _Step(Exception):  # noqa: N818 - never leaves this module
    """A step in the target failed: why."""


def _checked(result: int, what: str) -> int:
    if result >= 0:
        return result
    reason = os.strerror(-result)
    if -result in {errno.EPERM, errno.ENOSYS, errno.EACCES}:
        reason += " (a seccomp filter or security module of the target)"
    if -result == errno.EMFILE:
        reason += " (ulimit -n)"
    raise _Step(f"{what}: {reason}")


def _new_memfd(borrowed: Borrowed, name: str, opened: list[int]) -> tuple[int, int]:
    """Make a memfd in the target: its descriptor of it, which joins `opened`, and ours."""
    at = borrowed.scratch(name.encode() + b"\0")
    number = _checked(borrowed.system_call(cpu.NR_MEMFD_CREATE, at, _MFD_CLOEXEC), "it can't make a memfd")
    own = _open_memfd(borrowed.descriptors / str(number), name)
    opened.append(number)
    return number, own


def _is_memfd(link: Path, name: str) -> bool:
    """Whether the descriptor at `link` is of a memfd of that name; False where there is none."""
    try:
        return str(link.readlink()) == f"/memfd:{name} (deleted)"
    except FileNotFoundError:
        return False


def _open_memfd(path: Path, name: str) -> int:
    """Open the new memfd at `path`. A file of the target's that has come to stand there is not touched."""
    seen = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        link = Path(f"/proc/self/fd/{seen}")
        state = os.fstat(seen)
        if not _is_memfd(link, name) or state.st_size or state.st_nlink:
            why = "one of its threads closes descriptors that it did not open: try again later"
            raise _Step(why)
        return os.open(link, os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(seen)


def _load_library(borrowed: Borrowed, delivery: _Delivery) -> int:
    """Load our library from memory; the agent's entry. It closes what it was loaded from by itself."""
    target = delivery.target
    descriptor, own = _new_memfd(borrowed, LIBRARY, delivery.opened)
    with os.fdopen(own, "wb") as file:
        file.write(delivery.image)
    at = borrowed.scratch(f"/proc/thread-self/fd/{descriptor}\0".encode())
    delivery.opened.remove(descriptor)
    try:
        borrowed.function(target.dlopen, at, _RTLD_NOW | target.dlopen_flag)
    except BaseException:
        if not has_library(target.process):  # the loader has not come to it
            delivery.opened.append(descriptor)
        raise
    if _is_memfd(borrowed.descriptors / str(descriptor), LIBRARY):
        delivery.opened.append(descriptor)  # the loader refused it, or a filter that we look where it leads
    entry = library_entry(target.process, delivery.memory)
    if entry is None:
        needs = "its loader refused our library, which needs glibc 2.28 or newer and a /proc of its own"
        raise _Step(limit_reached(target.process) or needs)
    _close(borrowed, delivery.opened)
    return entry


def _pass_descriptors(borrowed: Borrowed, delivery: _Delivery) -> int:
    """Queue our descriptors in a socket of the target; the target's end of it.

    Works across namespaces and users: the target makes the pair, and we take a copy of one end.
    """
    at = borrowed.scratch(bytes(8))
    _checked(borrowed.system_call(cpu.NR_SOCKETPAIR, *_UNIX_STREAM_CLOEXEC, 0, at), "it can't make a socket")
    ours, theirs = struct.unpack("<ii", borrowed.read(at, 8))
    delivery.opened.extend((theirs, ours))
    handle = os.pidfd_open(delivery.target.process.pid)
    try:
        copy: int = _libc.syscall(cpu.NR_PIDFD_GETFD, handle, ours, 0)
        reason = os.strerror(ctypes.get_errno())
        why = f"pidfd_getfd: {reason} (it needs Linux 5.6 or newer and no filter against it)"
    finally:
        os.close(handle)
    if copy >= 0 and not os.path.samestat(os.fstat(copy), (borrowed.descriptors / str(ours)).stat()):
        os.close(copy)
        copy, why = -1, "its threads do not share their descriptors: start it with `ai-prof run`"
    if copy < 0:
        raise _Step(why)
    with socket.socket(fileno=copy) as end:
        rights = array.array("i", delivery.passed).tobytes()
        end.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    borrowed.system_call(cpu.NR_CLOSE, ours)
    delivery.opened.remove(ours)
    return int(theirs)


def _start_agent(borrowed: Borrowed, delivery: _Delivery) -> Control:
    process = delivery.target.process
    entry = library_entry(process, delivery.memory)
    if entry is None:
        entry = _load_library(borrowed, delivery)
    page, own = _new_memfd(borrowed, NAME, delivery.opened)
    control = Control.create(own, process.path / "fd" / str(page), delivery.settings)
    theirs = _pass_descriptors(borrowed, delivery)
    delivery.opened.clear()  # the agent takes them over
    borrowed.function(entry, page, theirs)
    return control


def _close(borrowed: Borrowed, opened: list[int]) -> None:
    while opened:
        borrowed.system_call(cpu.NR_CLOSE, opened[-1])
        opened.pop()


@contextlib.contextmanager
def _borrowing(delivery: _Delivery) -> Iterator[tuple[Borrowed, float]]:
    """A thread of the target, given back at the end, and when it stopped.

    What is open there and ours then is closed, as far as the thread is in our hands.
    """
    borrowed, began, signals = borrow(delivery.target, delivery.memory)
    with signals:
        try:
            yield borrowed, began
        finally:
            with contextlib.suppress(ThreadGoneError):
                _close(borrowed, delivery.opened)
            borrowed.give_back()


def _attempt(delivery: _Delivery) -> Injected | None:
    """Start the agent by one thread; None where that ended, and its process did not."""
    control = None
    try:
        with _borrowing(delivery) as (borrowed, began):
            _close(borrowed, delivery.opened)  # of a thread that ended
            control = _start_agent(borrowed, delivery)
        return Injected(control, time.perf_counter() - began)
    except ThreadGoneError:
        if delivery.target.process.has_memory():
            return None
        raise
    except BaseException:
        if control is not None:
            control.let_go()
        raise


def _inject(delivery: _Delivery) -> Injected:
    try:
        for _ in range(_THREADS):
            injected = _attempt(delivery)
            if injected is not None:
                return injected
        raise ThreadGoneError
    finally:
        if delivery.opened:  # the thread was no longer in our hands
            with (
                contextlib.suppress(AttachRefusedError, UsageError, ThreadGoneError, OSError),
                _borrowing(delivery),
            ):
                pass


def inject(
    process: Process, library: Path, settings: Mapping[str, str], output: int, cupti: int | None
) -> Injected:
    """Bring the agent into `process` and let it wait for `Control.go`.

    `output` and `cupti` are open descriptors: the file to record into, and a libcupti for a target that has
    none. Raises UsageError when there is no such process, AttachRefusedError when it can't be done.
    """
    passed = [output] if cupti is None else [output, cupti]
    process.status()
    if not is_of_our_namespace(process.proc):  # ptrace would reach another thread, or none
        why = f"{process.proc} is that of another PID namespace than ours"
        msg = f"cannot attach to process {process.pid}: {why}: `mount -t proc proc {process.proc}` first"
        raise AttachRefusedError(msg)
    if not process.has_memory():
        why = "it has ended and is a zombie, or is a thread of the kernel"
        if len(process.threads()) > 1:
            why = "its first thread has ended, and its memory is shown no more: start it with `ai-prof run`"
        msg = f"cannot attach to process {process.pid}: {why}"
        raise AttachRefusedError(msg)
    try:
        with Memory(process, write=True) as memory:
            target = examine(process, memory)
            return _inject(_Delivery(target, memory, library.read_bytes(), settings, passed))
    except PermissionError as error:
        raise why_not(process) from error
    except (ThreadGoneError, ProcessLookupError, FileNotFoundError, struct.error) as error:
        raise _gone(process) from error
    except (_Step, AttachRefusedError) as error:
        if not process.has_memory():  # whatever was missing then, this is why
            raise ended_meanwhile(process) from error
        if isinstance(error, AttachRefusedError):
            raise
        msg = f"cannot attach to process {process.pid}: {error}"
        raise AttachRefusedError(msg) from error


def _gone(process: Process) -> UsageError:
    """What to say where something of `process` was there before and is not now."""
    if not process.has_memory():
        return ended_meanwhile(process)
    why = "it ran another program, or the threads that were borrowed ended"
    return UsageError(f"process {process.pid} changed while it was being attached to ({why}): try again")
