"""Python stacks of a running program while it is captured, sampled by py-spy.

py-spy only reads the program's memory here: nothing in it is stopped (`--nonblocking`), so a sample may now
and then be torn and is then missing. Its times count from its own start. That lies between two moments that
we see: before it is started, and its first word. The last of its times is taken when it ends, which lies
between our asking for it and its end, and bounds the start once more. `error_ns` is half of what is left.
The reader finds the start more closely by the calls that the program made meanwhile.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ai_prof.collect.procfs import Process
from ai_prof.errors import EnvironmentInvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SUFFIX = ".stacks.jsonl"
SCHEMA = "ai-prof/stacks/1"
RATE_HZ = 200
_PERIOD_NS = (
    1_000_000_000 // RATE_HZ
)  # py-spy lets a sample stand until the next: it stands for the time around it
_MOST_ERRORS = 0.05  # share of the samples; more is said
_READY_SECONDS = 30.0
_END_SECONDS = 30.0
_TRY_AGAIN_SECONDS = 0.1
_POLL_SECONDS = 0.0005  # when it spoke or ended is known no better
_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61
_libc = ctypes.CDLL(None)
_THREAD = re.compile(r"thread \((0x[0-9A-Fa-f]+|\d+)\)(?:: (.*))?")


def find_py_spy() -> str:
    """The program py-spy of this installation. Raises EnvironmentInvalidError where there is none."""
    own = Path(sysconfig.get_path("scripts")) / "py-spy"
    found = str(own) if own.is_file() else shutil.which("py-spy")
    if found is None:
        msg = "--stacks needs py-spy: pip install 'ai-prof[stacks]'"
        raise EnvironmentInvalidError(msg)
    return found


def may_be_sampled_by(pid: int) -> Callable[[], None]:
    """What a program calls in its own process, before it begins, so that `pid` and its children may read it.

    Yama's `ptrace_scope=1` forbids that to all but a process's own ancestors; py-spy is its sibling.
    """
    return lambda: _libc.prctl(_PR_SET_PTRACER, pid, 0, 0, 0)  # refused where there is no Yama


class Stack(msgspec.Struct, frozen=True):
    """A line that names a stack once; `frames` has the outermost first, each "function (file)"."""

    stack: int
    frames: tuple[str, ...]


class StackInterval(msgspec.Struct, frozen=True):
    """A line: a thread stood in a stack named before, from one sample to the next that differs."""

    start: int  # ns, CLOCK_MONOTONIC
    end: int
    thread: int  # as the kernel numbers it in the program's PID namespace
    stack: int


class StackHeader(msgspec.Struct, frozen=True):
    """The first line of a file."""

    schema: str
    tool: str
    pid: int  # in the program's own PID namespace
    boot_id: str | None
    rate_hz: int
    start_ns: int  # CLOCK_MONOTONIC of the sampler's zero
    error_ns: int  # the zero may be wrong by that
    samples: int
    sample_errors: int


def _die_with_us() -> None:
    """In the child: whatever ends us ends it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Sampler:
    """py-spy at work on one process."""

    pid: int
    began_ns: int = field(init=False)
    spoke_ns: int = field(init=False)
    asked_ns: int = field(init=False)

    def __post_init__(self) -> None:
        """Start it. `await_ready` before the capture begins."""
        self._inner = Process(self.pid).inner_pid()  # while it runs
        self._folder = tempfile.TemporaryDirectory(prefix="ai-prof-stacks-")
        self._trace = Path(self._folder.name) / "trace.json"
        words = [
            *(find_py_spy(), "record", "--pid", str(self.pid), "--output", str(self._trace)),
            *("--format", "chrometrace", "--rate", str(RATE_HZ)),
            *("--nonblocking", "--idle", "--threads", "--full-filenames", "--function"),
        ]
        self._log = Path(self._folder.name) / "log"
        with self._log.open("wb") as log:
            self.began_ns = time.monotonic_ns()
            self._program = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=_die_with_us,  # noqa: PLW1509 - we have one thread
            )  # fmt: skip

    def said(self) -> str:
        """What py-spy has said so far; nothing where its folder was removed."""
        try:
            return self._log.read_text(errors="replace").strip()
        except OSError:
            return ""

    def await_ready(self) -> str | None:
        """Wait for its first word, None; the reason, when it can't sample the process."""
        deadline = time.monotonic() + _READY_SECONDS
        while "Sampling process" not in self.said():
            if self._program.poll() is not None or time.monotonic() > deadline:
                return self._give_up()
            time.sleep(_POLL_SECONDS)
        self.spoke_ns = time.monotonic_ns()
        return None

    def _give_up(self) -> str:
        self._program.kill()
        self._program.wait()
        lines = [line for line in self.said().splitlines() if line.strip()]
        self._folder.cleanup()
        return lines[0].removeprefix("Error: ") if lines else "py-spy did not start"

    def end(self, path: Path | None) -> str | None:
        """End it and write what it saw to `path`, or drop it; the reason when not all could be kept."""
        self.asked_ns = time.monotonic_ns()
        self._program.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _END_SECONDS
        while self._program.poll() is None:  # wait() with a limit looks every 50 ms
            if time.monotonic() > deadline:
                return self._give_up()
            time.sleep(_POLL_SECONDS)
        ended_ns = time.monotonic_ns()
        said = self.said()
        try:
            if path is None:
                return None
            events = msgspec.json.decode(self._trace.read_bytes(), type=list[_Event])
        except (OSError, msgspec.DecodeError):
            told = [line for line in said.splitlines() if not line.startswith("py-spy>")]  # its progress
            return told[-1] if told else f"py-spy ended with {self._program.returncode}, and left nothing"
        finally:
            self._folder.cleanup()
        return self._write(path, events, said, ended_ns)

    def _write(self, path: Path, events: list[_Event], said: str, ended_ns: int) -> str | None:
        last_ns = max((event.ts for event in events), default=0) * 1000
        asked = self.asked_ns if "because Control-C" in said else None
        start, error = zero_of(self.began_ns, self.spoke_ns, asked, ended_ns, last_ns)
        counts = re.search(r"Samples: (\d+) Errors: (\d+)", said)
        samples, errors = (int(counts[1]), int(counts[2])) if counts else (0, 0)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        header = StackHeader(SCHEMA, "py-spy", self._inner, boot, RATE_HZ, start, error, samples, errors)
        lines = [header, *stack_lines(events, start - _PERIOD_NS // 2)]
        temporary = path.with_name(path.name + ".partial")
        try:
            temporary.write_bytes(msgspec.json.Encoder().encode_lines(lines))
            temporary.replace(path)
        except OSError as why:
            temporary.unlink(missing_ok=True)
            return f"they can't be kept: {why.strerror}; record into another folder"
        torn = f"{errors} of {samples + errors} samples could not be read and are missing"
        return torn if errors > _MOST_ERRORS * (samples + errors) else None


class Samplers:
    """Samplers of several processes; what they can't do goes to `say`, for a capture is worth it without.

    A program that has just been started is no Python yet: it is tried again for `patience_s`.
    """

    def __init__(self, pids: Iterable[int], say: Callable[[str], None], patience_s: float = 0.0) -> None:
        self._pids = list(pids)
        self._say = say
        self._patience_s = patience_s
        self._running: dict[int, Sampler] = {}

    def __enter__(self) -> Samplers:  # noqa: PYI034 - Self is newer than Python 3.10
        """Start them; each samples when this returns."""
        try:
            begun = [pid for pid in self._pids if self._begin(pid)]
        except BaseException:
            self.keep({})
            raise
        for pid in begun:
            self._await_ready(pid)
        return self

    def _begin(self, pid: int) -> bool:
        """Start a sampler; False, which is said, where this machine has no room for what it writes."""
        try:
            self._running[pid] = Sampler(pid)
        except OSError as error:
            self._say(f"no stacks of process {pid}: {error.strerror}: make room there, or set TMPDIR")
            return False
        return True

    def _await_ready(self, pid: int) -> None:
        last = time.monotonic() + self._patience_s
        while (why := self._running[pid].await_ready()) is not None:
            del self._running[pid]
            if time.monotonic() >= last or not Process(pid).alive():
                return self._say(f"no stacks of process {pid}: {why}")
            time.sleep(_TRY_AGAIN_SECONDS)
            if not self._begin(pid):
                return None
        return None

    def keep(self, files: Mapping[int, Path | None]) -> None:
        """End them and write what they saw beside the captures `files`, by process."""
        while self._running:
            pid, sampler = self._running.popitem()
            capture = files.get(pid)
            why = sampler.end(capture.with_suffix(SUFFIX) if capture is not None else None)
            if capture is None and pid in files:
                why = (
                    "it recorded nothing that they could stand beside; "
                    "for the workers of a launcher: ai-prof attach --tree --stacks"
                )
            if why is not None:
                self._say(f"stacks of process {pid}: {why}")

    def __exit__(self, *_: object) -> None:
        """End those that still run, and drop what they saw."""
        self.keep({})


def zero_of(began: int, spoke: int, asked: int | None, ended: int, last: int) -> tuple[int, int]:
    """The sampler's zero and its error, ns, from what bounds it.

    It was after `began` and before `spoke`; and its time `last` was before `ended`, and after `asked` where
    it ended because we asked.
    """
    low = began if asked is None else max(began, asked - last)
    high = min(spoke, ended - last)
    return (low + high) // 2, (high - low + 1) // 2


class _Event(msgspec.Struct):
    name: str
    ph: str
    tid: int
    ts: int  # us
    args: dict[str, Any] = {}


def _frame(event: _Event) -> str:
    return f"{event.name} ({event.args.get('filename', '')})"


def stack_lines(events: Iterable[_Event], zero: int) -> Iterator[Stack | StackInterval]:
    """py-spy's begins and ends of frames as stretches of one stack each; `zero` is added to their times."""
    now_in: dict[int, list[str]] = {}
    since: dict[int, int] = {}
    threads: dict[int, int] = {}
    known: dict[tuple[str, ...], int] = {}
    for event in events:
        now = zero + event.ts * 1000
        frames = now_in.setdefault(event.tid, [])
        if frames and now > since[event.tid] and event.tid in threads:
            stack = tuple(frames)
            if stack not in known:
                known[stack] = len(known)
                yield Stack(known[stack], stack)
            yield StackInterval(since[event.tid], now, threads[event.tid], known[stack])
        since[event.tid] = now
        found = _THREAD.match(event.name)
        if found is not None:
            threads[event.tid] = int(found[1], 0)
        elif event.ph == "B":
            frames.append(_frame(event))
        elif event.ph == "E" and frames:
            frames.pop()
