"""Run a program to its end or to its timeout, and leave nothing of it behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

GRACE_S = 2.0
KILL_S = 10.0
TICK_S = 1.0
KEPT_BYTES = 16 << 20
_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. `code` is negative for a signal, None where it was stopped at its timeout.

    `left` is how many processes it left running when it ended by itself; they were stopped.
    """

    code: int | None
    seconds: float
    left: int


def run(
    command: Sequence[str], *, folder: Path, env: Mapping[str, str], output: Path, timeout_s: float
) -> Ended:
    """Run `command` in a session of its own, the end of its stdout and stderr kept as files in `output`.

    All that it starts ends with it, also what changed its group, cleared its environment or lost its parent.
    Raises OSError where `command` cannot be started.
    """
    start = time.monotonic()
    code = None
    left: list[psutil.Process] = []
    with (
        _adopting(),
        _survivor() as survivor,
        (output / "stdout.txt").open("w+b") as stdout,
        (output / "stderr.txt").open("w+b") as stderr,
    ):
        others = set(psutil.Process().children())
        program = _start(command, folder, env, (stdout, stderr), survivor)
        try:
            while code is None and (rest := start + timeout_s - time.monotonic()) > 0:
                with suppress(subprocess.TimeoutExpired):
                    code = program.wait(min(rest, TICK_S))
                for printed in (stdout, stderr):
                    _free_start(printed)
            left = [] if code is None else _left(others)
        finally:
            _end(program, others)
        for printed in (stdout, stderr):
            _keep_end(printed)
    return Ended(code, time.monotonic() - start, len(left))


def _start(
    command: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    output: tuple[BinaryIO, BinaryIO],
    survivor: int,
) -> subprocess.Popen[bytes]:
    """Start `command`, which tells its group to the survivor itself: we may be killed before we could."""
    with warnings.catch_warnings():
        # Of threads beside a fork: what the child does before its command takes no lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            command,
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output[0],
            stderr=output[1],
            start_new_session=True,
            preexec_fn=lambda: os.write(survivor, b"%d\n" % os.getpid()),  # noqa: PLW1509 - see above
        )


def _left(others: set[psutil.Process]) -> list[psutil.Process]:
    """The family that goes on once it has had its time: children may still be writing what they recorded."""
    deadline = time.monotonic() + GRACE_S
    # Again, for what those that ended have started: a daemon's parents end one after another.
    while (family := _family(others)) and (rest := deadline - time.monotonic()) > 0:
        psutil.wait_procs(family, timeout=rest)
    return family


def _end(program: subprocess.Popen[bytes], others: set[psutil.Process]) -> None:
    """Kill the program, its group and its whole family; again, for what was just being forked."""
    deadline = time.monotonic() + KILL_S
    while time.monotonic() < deadline:
        alive = _family(others)
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        if program.poll() is not None and not alive:
            return
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=0.2)


def _family(others: set[psutil.Process]) -> list[psutil.Process]:
    """What was started since `others` were our children, in sessions that are not ours."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if child not in others and os.getsid(child.pid) != os.getsid(0):
                found += [child, *child.children(recursive=True)]
    return found


def _free_start(file: BinaryIO) -> None:
    """Give back the disk space of what `_keep_end` will cut, which a flood would fill meanwhile.

    Where the file system has no holes the space stays taken until then.
    """
    size = os.fstat(file.fileno()).st_size
    if size > KEPT_BYTES:
        hole = ctypes.c_int64(0), ctypes.c_int64(size - KEPT_BYTES)
        mode = _FALLOC_FL_KEEP_SIZE | _FALLOC_FL_PUNCH_HOLE
        ctypes.CDLL(None).fallocate(file.fileno(), mode, *hole)


def _keep_end(file: BinaryIO) -> None:
    """Cut a file to its last KEPT_BYTES, which say what was wrong: a disk holds those of many launches."""
    size = file.seek(0, os.SEEK_END)
    if size <= KEPT_BYTES:
        return
    file.seek(size - KEPT_BYTES)
    end = file.read()
    file.seek(0)
    file.write(b"[ai-prof: %d bytes were printed before this and are not kept]\n" % (size - KEPT_BYTES))
    file.write(end)
    file.truncate()


@contextmanager
def _survivor() -> Iterator[int]:
    """A pipe to a process that kills the group whose id is written to it, should the block not end well.

    We may be killed, or interrupted where what was started has no name yet.
    """
    reader, writer = os.pipe()
    shell = ["/bin/sh", "-c", "read -r group && ! read -r _ && kill -9 -$group"]
    process = subprocess.Popen(shell, stdin=reader, stderr=subprocess.DEVNULL, start_new_session=True)
    os.close(reader)
    try:
        yield writer
    except BaseException:
        os.close(writer)
        process.wait()
        raise
    process.kill()  # before its pipe closes
    process.wait()
    os.close(writer)


@contextmanager
def _adopting() -> Iterator[None]:
    """Have what loses its parent become our child, not init's: prctl(2), PR_SET_CHILD_SUBREAPER."""
    libc = ctypes.CDLL(None)
    before = ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, before)
