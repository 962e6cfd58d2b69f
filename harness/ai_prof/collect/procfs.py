"""What /proc says of a process; every path goes through `Process.path`, so that a test can fake it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ai_prof.errors import UsageError

PROC = Path("/proc")


class Mapping(NamedTuple):
    """A line of /proc/PID/maps; `path` is empty for anonymous memory."""

    start: int
    end: int
    permissions: str
    offset: int
    path: str


class Blocked(NamedTuple):
    """A thread inside a system call: its number, arguments, stack and instruction pointer."""

    number: int
    arguments: tuple[int, ...]
    stack: int
    instruction: int


def parse_maps(text: str) -> list[Mapping]:
    """The mappings in the text of /proc/PID/maps, by address."""
    mappings = []
    for line in text.splitlines():
        words = line.split(None, 5)
        start, end = (int(word, 16) for word in words[0].split("-"))
        mappings.append(Mapping(start, end, words[1], int(words[2], 16), words[5] if len(words) > 5 else ""))
    return mappings


def parse_blocked(text: str) -> Blocked | None:
    """The text of /proc/PID/task/TID/syscall; None for a thread that runs or waits outside a call."""
    words = text.split()
    if len(words) != 9:
        return None
    values = [int(word, 16) for word in words[1:]]
    return Blocked(int(words[0]), tuple(values[:6]), values[6], values[7])


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in pairs}


def is_of_our_namespace(proc: Path = PROC) -> bool:
    """Whether a thread's id in `proc` is the one that we call the kernel with."""
    try:
        return str((proc / "self").readlink()) == str(os.getpid())
    except FileNotFoundError:  # it does not have us
        return False


@dataclass(frozen=True)
class Process:
    """A process, alive or not. Reading a file of one that is gone raises UsageError."""

    pid: int
    proc: Path = PROC

    @cached_property
    def path(self) -> Path:
        """/proc/PID."""
        return self.proc / str(self.pid)

    def read(self, name: str) -> str:
        """The text of /proc/PID/`name`. Raises PermissionError where the kernel refuses it."""
        try:
            return (self.path / name).read_text(errors="surrogateescape")
        except (FileNotFoundError, ProcessLookupError) as error:
            msg = f"there is no process {self.pid}"
            raise UsageError(msg) from error

    def status(self) -> dict[str, str]:
        """The fields of /proc/PID/status."""
        return _fields(self.read("status"))

    def state(self) -> str:
        """The letter of its state; Z where it tells none."""
        return self.status().get("State", "Z")[0]

    def waits_within(self) -> str:
        """The function of the kernel that its first thread waits in; empty where the kernel does not tell."""
        try:
            return (self.path / "wchan").read_text()
        except OSError:
            return ""

    def maps(self) -> list[Mapping]:
        """Its mappings."""
        return parse_maps(self.read("maps"))

    def threads(self) -> list[int]:
        """Ids of its threads."""
        try:
            return sorted(int(path.name) for path in (self.path / "task").iterdir())
        except FileNotFoundError as error:
            msg = f"there is no process {self.pid}"
            raise UsageError(msg) from error

    def blocked(self, thread: int) -> Blocked | None:
        """The call that `thread` waits in; None where it runs or is gone."""
        try:
            return parse_blocked((self.path / "task" / str(thread) / "syscall").read_text())
        except (FileNotFoundError, ProcessLookupError):
            return None

    def thread_status(self, thread: int) -> dict[str, str]:
        """The fields of /proc/PID/task/TID/status; none when it is gone."""
        try:
            text = (self.path / "task" / str(thread) / "status").read_text(errors="surrogateescape")
        except (FileNotFoundError, ProcessLookupError):
            return {}
        return _fields(text)

    def tracers(self) -> set[int]:
        """The threads of others that trace a thread of it, as far as our PID namespace has them."""
        own = {0, threading.get_native_id()}
        return {int(self.thread_status(each).get("TracerPid", "0")) for each in self.threads()} - own

    def thread_name(self, thread: int) -> str:
        """The name of `thread`, which may be cut within a character; empty when it is gone."""
        try:
            return (self.path / "task" / str(thread) / "comm").read_text(errors="surrogateescape").strip()
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def alive(self) -> bool:
        """False when it is gone or a zombie; a first thread that has ended does not end the others."""
        try:
            if self.state() not in "ZX":
                return True
            return len(self.threads()) > 1
        except UsageError:
            return False

    def has_memory(self) -> bool:
        """False when it is about to end, a zombie or a thread of the kernel."""
        try:
            return bool(self.maps() or self.maps())  # what was opened just before an exec is empty
        except UsageError:
            return False
        except PermissionError:  # the kernel refuses only what is there
            return True

    def clock_ahead_ns(self) -> int:
        """How far its CLOCK_MONOTONIC is ahead of its host's: the offset of its time namespace."""
        try:
            lines = self.read("timens_offsets").splitlines()
        except UsageError:  # a kernel without them, or it has ended
            return 0
        words = next((line.split() for line in lines if line.startswith("monotonic")), ["", "0", "0"])
        return int(words[1]) * 10**9 + int(words[2])

    def limits(self) -> dict[str, int]:
        """Its soft limits by the names that /proc/PID/limits has; not those that are unlimited."""
        lines = (line[:26].strip() + "\t" + line[26:] for line in self.read("limits").splitlines()[1:])
        words = (line.partition("\t")[::2] for line in lines)
        return {name: int(rest.split()[0]) for name, rest in words if rest.split()[0].isdigit()}

    def users(self) -> set[int]:
        """The ids of the users that it runs as."""
        return {int(word) for word in self.status().get("Uid", "").split()}

    def refuse_thread(self) -> None:
        """Raises UsageError when its id is that of a thread, or of no process."""
        leader = self.status().get("Tgid", str(self.pid))
        if leader != str(self.pid):
            msg = f"{self.pid} is a thread of process {leader}: name that, with --pid {leader}"
            raise UsageError(msg)

    def inner_thread(self, thread: int) -> int:
        """The id of `thread` in the process's own PID namespace."""
        return int(self.thread_status(thread).get("NSpid", "0").split()[-1])

    def inner_pid(self) -> int:
        """Its id in its own PID namespace."""
        status = self.status()
        return int(status.get("NSpid", str(self.pid)).split()[-1])
