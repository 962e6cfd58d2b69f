"""Capture processes that already run: start them together, wait, stop."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.collect.autostart import CUPTI_WHEELS
from ai_prof.collect.control import (
    Control,
    Page,
    State,
    active_pages,
    find_control,
    find_pages,
    find_standby,
    pack_settings,
)
from ai_prof.collect.environment import native_library
from ai_prof.collect.inject import inject
from ai_prof.collect.procfs import PROC, Process
from ai_prof.collect.refusal import ended_meanwhile, limit_reached, why_not
from ai_prof.collect.target import why_halted
from ai_prof.errors import AttachRefusedError, EnvironmentInvalidError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_READY_SECONDS = 10.0
_TOGETHER_NS = 200_000_000  # every agent has looked at its page by then
_STOP_SECONDS = 70.0  # the agent's own patience, and some
_HALTED_SECONDS = 2.0  # nothing runs in it: no patience helps
_TURN_SECONDS = 0.05


@dataclass
class Session:
    """One process under capture."""

    process: Process
    control: Control
    path: Path | None  # of the file that we opened; a process that stood by opens its own
    pause_s: float  # how long a thread of it stood

    def file(self, folder: Path) -> Path | None:
        """The capture in `folder`; None where there is none, as without CUDA."""
        if self.path is not None:
            return self.path if size_of(self.path) else None
        return newest_file(folder, self.control.read().pid)

    @property
    def over(self) -> bool:
        """The capture has ended, or the process has, or runs another program now."""
        return self.control.state.over or not self.process.alive() or self.cut

    @property
    def cut(self) -> bool:
        """The process runs another program now, without our agent."""
        if self.control.served(self.process) or not self.process.has_memory():
            return False
        return not self.control.state.over  # in this order: the agent says so before it lets go of the page


def size_of(path: Path) -> int | None:
    """Bytes of the file; None where there is none any more."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def newest_file(folder: Path, pid: int) -> Path | None:
    """The latest capture in `folder` of the process that calls itself `pid`; None where there is none."""
    found = folder.glob(f"*-{pid}-*.aiprof")
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def find_cupti(environ: Mapping[str, str]) -> Path | None:
    """A libcupti to offer to targets that have none: AI_PROF_CUPTI, else the one of this Python."""
    if named := environ.get("AI_PROF_CUPTI"):
        if not Path(named).is_file():
            msg = f"AI_PROF_CUPTI names {named}, which is no file"
            raise UsageError(msg)
        return Path(named)
    found = (Path(folder) / wheel for wheel in CUPTI_WHEELS for folder in sys.path if folder)
    return next((path for path in found if path.is_file()), None)


def new_file(folder: Path, pid: int) -> tuple[int, Path]:
    """Create HOST-PID-N.aiprof with the first free N; an open descriptor and the path."""
    stem = f"{socket.gethostname().replace('/', '_')}-{pid}"
    number = 0
    while True:
        path = folder / f"{stem}-{number}.aiprof"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), path
        except FileExistsError:
            number += 1
        except FileNotFoundError as error:
            msg = f"{folder} was removed meanwhile: name another folder with --output"
            raise UsageError(msg) from error


def _seen(pid: int, verb: str) -> Process:
    """The process `pid`. Raises UsageError for none and a thread, AttachRefusedError where it is hidden."""
    process = Process(pid)
    try:
        process.refuse_thread()
    except PermissionError as error:
        raise why_not(process, verb) from error
    return process


def _attach_one(process: Process, library: Path, settings: Mapping[str, str], cupti: int | None) -> Session:
    try:
        if find_control(process) is not None:
            remedy = f"end that with `ai-prof stop --pid {process.pid}`"
            msg = f"process {process.pid} is attached to already: {remedy}"
            raise AttachRefusedError(msg)
        found = find_standby(process)
    except PermissionError as error:
        raise why_not(process) from error
    if found is not None:
        return _wake(process, found, settings)
    output, path = new_file(Path(settings["AI_PROF_OUTPUT"]), process.pid)
    try:
        injected = inject(process, library, settings, output, cupti)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(output)
    session = Session(process, injected.control, path, injected.pause_s)
    try:
        _await_ready(session)
    except BaseException:
        session.control.let_go()
        path.unlink(missing_ok=True)
        raise
    return session


def _wake(process: Process, control: Control, settings: Mapping[str, str]) -> Session:
    """Let a process that stands by record into a file of its own: no ptrace, no thread of it stands."""
    folder = Path(settings["AI_PROF_OUTPUT"])
    inside = process.path / "root" / folder.relative_to("/")
    if not inside.exists() or not inside.samefile(folder):
        msg = (
            f"process {process.pid} stands by, and does not see {folder}, which it would record into: "
            "name a folder that both see with --output"
        )
        raise AttachRefusedError(msg)
    try:
        control.hold()
    except BlockingIOError as error:
        msg = f"process {process.pid} is being attached to by another: try again later"
        raise AttachRefusedError(msg) from error
    session = Session(process, control, None, 0.0)
    try:
        control.wake(settings)
        _await_ready(session)
    except BaseException:
        control.stop()
        control.let_go()
        raise
    return session


def _await_ready(session: Session) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while session.control.state == State.PREPARED and time.monotonic() < deadline:
        if not session.process.alive():
            raise ended_meanwhile(session.process)
        if session.cut:
            msg = f"process {session.process.pid} ran another program while it was attached to: try again"
            raise UsageError(msg)
        time.sleep(0.002)
    if session.control.state != State.READY:
        why = session.control.message or limit_reached(session.process) or _no_thread(session.process)
        msg = f"cannot attach to process {session.process.pid}: {why}"
        raise AttachRefusedError(msg)


def _no_thread(process: Process) -> str:
    if process.state() in "tT":
        return "it was stopped meanwhile: continue it first (`kill -CONT`)"
    return "its agent could not start a thread (ulimit -u, -v or -l, or pids.max of its cgroup)"


def attach(pids: Sequence[int], output: Path, options: Mapping[str, str]) -> list[Session]:
    """Start a capture of the processes `pids` into the folder `output`, at one moment.

    `options` are AI_PROF_* settings (level, duration, note). All processes are captured, or none: raises
    UsageError for one that does not exist, AttachRefusedError for one that can't be attached to.
    """
    library = Path(native_library())
    settings = {
        "AI_PROF_ENABLE": "1",
        "AI_PROF_OUTPUT": str(output.resolve()),
        "AI_PROF_CAPTURE_ID": secrets.token_hex(8),
        **options,
    }
    pack_settings(settings)  # what it refuses is refused before any target is touched
    processes = [_seen(pid, "attach") for pid in pids]
    output.mkdir(parents=True, exist_ok=True)
    offered = find_cupti(os.environ)
    cupti = os.open(offered, os.O_RDONLY | os.O_CLOEXEC) if offered else None
    sessions: list[Session] = []
    try:
        for process in processes:
            sessions.append(_attach_one(process, library, settings, cupti))  # noqa: PERF401 - undone below
        at = time.monotonic_ns() + _TOGETHER_NS - Process(os.getpid()).clock_ahead_ns()
        for session in sessions:
            session.control.go(at + session.process.clock_ahead_ns())
    except BaseException:
        for session in sessions:
            session.control.stop()
            session.control.let_go()
            if session.path is not None:
                session.path.unlink(missing_ok=True)
        raise
    finally:
        if cupti is not None:
            os.close(cupti)
    return sessions


def watch(sessions: Sequence[Session]) -> Iterator[list[Session]]:
    """Yield the sessions that go on, twenty times a second, until none does."""
    while going := [session for session in sessions if not session.over]:
        yield going
        time.sleep(_TURN_SECONDS)


def stop(sessions: Sequence[Session]) -> None:
    """End the captures and wait for their files. Raises EnvironmentInvalidError where one does not end."""
    for session in sessions:
        session.control.stop()
    began = time.monotonic()
    for going in watch(sessions):
        for session in going:
            session.control.stop()  # anew: its attacher's go may have come after it
        waited = time.monotonic() - began
        if waited > _HALTED_SECONDS and (why := _why_halted(going)):
            raise EnvironmentInvalidError(why)
        if waited > _STOP_SECONDS:
            pids = ", ".join(str(session.process.pid) for session in going)
            msg = f"the driver does not let the capture of {pids} end: its last records may be missing"
            raise EnvironmentInvalidError(msg)
    for session in sessions:
        session.control.let_go()


def _why_halted(going: Sequence[Session]) -> str | None:
    """Why none of these captures can end now; None where one can."""
    told = []
    for session in going:
        try:
            why = why_halted(session.process)
        except UsageError:  # it has ended
            return None
        if why is None:
            return None
        told.append(f"cannot end the capture of process {session.process.pid}: {why}, and it ends by itself")
    return "; ".join(told)


def stop_process(pid: int) -> Page:
    """End the capture of `pid`, whoever started it; the page that tells how it ended, and of what.

    Raises UsageError when the process does not exist or is not attached to.
    """
    process = _seen(pid, "stop")
    try:
        found = next(active_pages(process), None)
    except PermissionError as error:
        raise why_not(process, "stop") from error
    if found is None:
        msg = f"process {pid} is not attached to"
        raise UsageError(msg)
    control, _ = found
    stop([Session(process, control, None, 0.0)])
    return control.read()


def attached() -> tuple[list[tuple[int, Page]], int]:
    """The processes that we may look into and that are attached to; how many pages are not ours."""
    found, strange = [], 0
    for path in PROC.iterdir():
        if not path.name.isdigit():
            continue
        try:
            pages = list(find_pages(Process(int(path.name))))
        except (UsageError, OSError):  # it ended, or we may not look
            continue
        found += [(int(path.name), page) for control, page in pages if page and control.is_active(page)]
        strange += sum(page is None for _, page in pages)
    return found, strange
