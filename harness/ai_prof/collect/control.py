"""The page that an attacher and the agent share: `capture/src/agent/control.h` in Python."""

from __future__ import annotations

import enum
import mmap
import os
import struct
from typing import TYPE_CHECKING

from ai_prof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ai_prof.collect.procfs import Process

NAME = "ai-prof-control"  # of the memfd
STANDBY = "ai-prof-standby"  # of a process that was started to be woken
_MAGIC = b"AIPCTL01"
_BYTES = 4096
_REQUEST, _STATE, _PID, _SETTINGS_BYTES, _GO_AT, _MESSAGE, _SETTINGS = 8, 12, 16, 20, 24, 32, 512
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


class Control:
    """The page of one target."""

    def __init__(self, descriptor: int, *, standby: bool = False) -> None:
        """Map an open memfd of the target; closes the descriptor."""
        self.standby = standby
        try:
            self._page = mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)

    @classmethod
    def create(cls, descriptor: int, settings: Mapping[str, str]) -> Control:
        """Fill an empty memfd of the target, opened by us. Raises UsageError for settings too long."""
        os.ftruncate(descriptor, _BYTES)
        control = cls(descriptor)
        control._write_settings(settings)
        control._page[:8] = _MAGIC
        return control

    def wake(self, settings: Mapping[str, str]) -> None:
        """Ask a process that stands by for a capture; the caller has locked its page."""
        self._write_settings(settings)
        self._page[_MESSAGE] = 0
        self._put(_STATE, State.PREPARED)
        self._put(_REQUEST, _WAKE)

    def _write_settings(self, settings: Mapping[str, str]) -> None:
        text = b"".join(f"{name}={value}\0".encode() for name, value in settings.items())
        if len(text) > _BYTES - _SETTINGS:
            msg = "the settings are too long: shorten --note or --output"
            raise UsageError(msg)
        self._put(_SETTINGS_BYTES, len(text))
        self._page[_SETTINGS : _SETTINGS + len(text)] = text

    def _get(self, offset: int) -> int:
        value: int = struct.unpack_from("<I", self._page, offset)[0]
        return value

    def _put(self, offset: int, value: int) -> None:
        struct.pack_into("<I", self._page, offset, value)

    @property
    def valid(self) -> bool:
        """Written by an attacher of this version."""
        return bool(self._page[:8] == _MAGIC)

    @property
    def state(self) -> State:
        """How far the agent is."""
        return State(self._get(_STATE))

    @property
    def active(self) -> bool:
        """A capture is under way, or about to be."""
        if self.state == State.PREPARED:
            return not self.standby
        return not self.state.over

    @property
    def pid(self) -> int:
        """The target's id in its own namespace; 0 until the agent runs."""
        return self._get(_PID)

    @property
    def message(self) -> str:
        """The last thing that the library had to say."""
        return bytes(self._page[_MESSAGE:_SETTINGS]).partition(b"\0")[0].decode(errors="replace")

    def settings(self) -> dict[str, str]:
        """The AI_PROF_* settings of the capture."""
        text = bytes(self._page[_SETTINGS : _SETTINGS + self._get(_SETTINGS_BYTES)]).decode()
        return dict(item.split("=", 1) for item in text.split("\0") if item)

    def go(self, at_ns: int) -> None:
        """Start at `at_ns` of CLOCK_MONOTONIC."""
        struct.pack_into("<q", self._page, _GO_AT, at_ns)
        self._put(_REQUEST, _GO)

    def stop(self) -> None:
        """End the capture."""
        self._put(_REQUEST, _STOP)


def _pages(process: Process) -> Iterator[tuple[Control, Path]]:
    """The pages that `process` itself serves, and their paths. PermissionError where we may not look."""
    try:
        paths = list((process.path / "fd").iterdir())
        inner = process.inner_pid()
    except FileNotFoundError:
        return
    for path in paths:
        try:
            name = str(path.readlink()).removeprefix("/memfd:").removesuffix(" (deleted)")
            if name not in {NAME, STANDBY}:
                continue
            control = Control(os.open(path, os.O_RDWR | os.O_CLOEXEC), standby=name == STANDBY)
        except (FileNotFoundError, ValueError):  # closed meanwhile, or not filled
            continue
        # A forked child has its parent's page and no agent.
        if control.valid and control.pid == inner:
            yield control, path


def find_control(process: Process) -> Control | None:
    """The page of a capture under way in `process`. Raises PermissionError where we may not look."""
    return next((control for control, _ in _pages(process) if control.active), None)


def find_standby(process: Process) -> tuple[Control, Path] | None:
    """The page of a process that stands by, and where it is found. Raises PermissionError as above."""
    return next(((control, path) for control, path in _pages(process) if control.standby), None)
