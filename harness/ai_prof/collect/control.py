"""The page that an attacher and the agent share: `capture/src/agent/control.h` in Python.

It is the target's, and the target may write into it or shorten it at any time: it is read in one piece, never
mapped, and what was read is not believed before `parse_page` has seen it.
"""

from __future__ import annotations

import enum
import fcntl
import os
import struct
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_prof.errors import AttachRefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ai_prof.collect.procfs import Process

NAME = "ai-prof-control"  # of the memfd
STANDBY = "ai-prof-standby"  # of a process that was started to be woken
_MAGIC = b"AIPCTL01"
_BYTES = 4096
_REQUEST, _STATE, _SETTINGS_BYTES, _GO_AT, _MESSAGE, _SETTINGS = 8, 12, 20, 24, 32, 512
_HEAD = struct.Struct("<8sIIiI")  # magic, request, state, pid, bytes of the settings
_GO, _STOP, _WAKE = 1, 2, 3


class State(enum.IntEnum):
    """How far the agent is."""

    PREPARED = 0
    READY = 1
    AWAITS_CUDA = 2
    RECORDING = 3
    ENDED = 4
    NO_CUDA = 5
    FAILED = 6

    @property
    def over(self) -> bool:
        """Nothing more will come."""
        return self >= State.ENDED


class SpoiledPageError(AttachRefusedError):
    """A page that neither an attacher nor an agent of this version left like that."""

    def __init__(self) -> None:
        """Say it."""
        super().__init__("its control page is damaged, or of another version of ai-prof")


@dataclass(frozen=True)
class Page:
    """What a page said at one moment."""

    state: State
    pid: int  # the target's id in its own namespace; 0 until the agent runs
    message: str  # the last thing that the library had to say
    settings: Mapping[str, str]  # the AI_PROF_* settings of the capture


def parse_page(content: bytes) -> Page:
    """The page in `content`. Raises SpoiledPageError for anything that is not exactly one of ours."""
    if len(content) != _BYTES or content[: len(_MAGIC)] != _MAGIC:
        raise SpoiledPageError
    _, _, state, pid, size = _HEAD.unpack_from(content)
    if size > _BYTES - _SETTINGS:
        raise SpoiledPageError
    message = content[_MESSAGE:_SETTINGS].partition(b"\0")[0].decode(errors="replace")
    try:
        text = content[_SETTINGS : _SETTINGS + size].decode()
        settings = dict(item.split("=", 1) for item in text.split("\0") if item)
        return Page(State(state), pid, message, settings)
    except ValueError as error:
        raise SpoiledPageError from error


def pack_settings(settings: Mapping[str, str]) -> bytes:
    """`settings` as the page holds them. Raises UsageError for what it can't hold."""
    try:
        text = b"".join(f"{name}={value}\0".encode() for name, value in settings.items())
    except UnicodeEncodeError as error:
        msg = "--note and --output must be UTF-8: write them otherwise"
        raise UsageError(msg) from error
    if len(text) > _BYTES - _SETTINGS:
        msg = "the settings are too long: shorten --note or --output"
        raise UsageError(msg)
    return text


class Control:
    """The page of one target."""

    def __init__(self, descriptor: int, path: Path, *, standby: bool = False) -> None:
        """Take over an open memfd that was found as `path`, a descriptor of the target."""
        self.standby = standby
        self.path = path
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def create(cls, descriptor: int, path: Path, settings: Mapping[str, str]) -> Control:
        """Fill an empty memfd of the target, opened by us. Raises UsageError as `pack_settings`."""
        control = cls(descriptor, path)
        control.hold()
        os.ftruncate(descriptor, _BYTES)
        control._write_settings(settings)
        control._write(0, _MAGIC)
        return control

    def hold(self) -> None:
        """Take the lock by which the agent sees that its attacher lives. BlockingIOError: another has it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def let_go(self) -> None:
        """Leave the agent to itself: it goes away before its go, and where it has no deadline."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def wake(self, settings: Mapping[str, str]) -> None:
        """Ask a process that stands by for a capture; the caller holds its page."""
        self._write_settings(settings)
        self._write(_MESSAGE, b"\0")
        self._put(_STATE, State.PREPARED)
        self._put(_REQUEST, _WAKE)

    def _write_settings(self, settings: Mapping[str, str]) -> None:
        text = pack_settings(settings)
        self._put(_SETTINGS_BYTES, len(text))
        self._write(_SETTINGS, text)

    def _write(self, offset: int, content: bytes) -> None:
        os.pwrite(self._descriptor, content, offset)

    def _put(self, offset: int, value: int) -> None:
        self._write(offset, struct.pack("<I", value))

    def read(self) -> Page:
        """The page as it is now. Raises SpoiledPageError."""
        return parse_page(os.pread(self._descriptor, _BYTES, 0))

    @property
    def state(self) -> State:
        """How far the agent is. Raises SpoiledPageError."""
        return self.read().state

    @property
    def message(self) -> str:
        """The last thing that the library had to say. Raises SpoiledPageError."""
        return self.read().message

    def is_active(self, page: Page) -> bool:
        """A capture is under way, or about to be."""
        if page.state == State.PREPARED:
            return not self.standby
        return not page.state.over

    def go(self, at_ns: int) -> None:
        """Start at `at_ns` of CLOCK_MONOTONIC."""
        self._write(_GO_AT, struct.pack("<q", at_ns))
        self._put(_REQUEST, _GO)

    def stop(self) -> None:
        """End the capture."""
        self._put(_REQUEST, _STOP)

    def served(self, process: Process) -> bool:
        """Whether `process` holds the page still; it does until its agent ends or it runs another program."""
        if self._is_at(self.path):
            return True
        try:
            found = next((path for path, _ in _memfds(process) if self._is_at(path)), None)
        except (FileNotFoundError, PermissionError):
            return False
        self.path = found or self.path  # the agent moves it away from the standard streams
        return found is not None

    def _is_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def belongs_to(self, process: Process) -> bool:
        """Whether the memfd was made by the user that `process` runs as."""
        return os.fstat(self._descriptor).st_uid in process.users()


def _memfds(process: Process) -> Iterator[tuple[Path, str]]:
    """Descriptors of `process` with our names, and the name. PermissionError where we may not look."""
    for path in (process.path / "fd").iterdir():
        try:
            name = str(path.readlink()).removeprefix("/memfd:").removesuffix(" (deleted)")
        except FileNotFoundError:  # closed meanwhile
            continue
        if name in {NAME, STANDBY}:
            yield path, name


def find_pages(process: Process) -> Iterator[tuple[Control, Page | None]]:
    """The pages that `process` itself serves, None for one that is not ours. PermissionError as `_memfds`."""
    try:
        inner = process.inner_pid()
        for path, name in _memfds(process):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                continue
            control = Control(descriptor, path, standby=name == STANDBY)
            if os.fstat(descriptor).st_size == 0:  # not filled
                continue
            page = _read_own(control, process)
            # A forked child has its parent's page and no agent.
            if page is None or page.pid == inner:
                yield control, page
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return


def _read_own(control: Control, process: Process) -> Page | None:
    try:
        page = control.read()
    except (SpoiledPageError, OSError):
        return None
    told = "AI_PROF_OUTPUT" in page.settings or not control.is_active(page)
    return page if told and control.belongs_to(process) else None


def active_pages(process: Process) -> Iterator[tuple[Control, Page]]:
    """The pages of captures under way in `process`. Raises PermissionError where we may not look."""
    for control, page in find_pages(process):
        if page is not None and control.is_active(page):
            yield control, page


def find_control(process: Process) -> Control | None:
    """The first of `active_pages`; None where there is none."""
    return next((control for control, _ in active_pages(process)), None)


def find_standby(process: Process) -> Control | None:
    """The page of a process that stands by. Raises PermissionError where we may not look."""
    return next((control for control, page in find_pages(process) if page and control.standby), None)
