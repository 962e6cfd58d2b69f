"""The Python stacks that were sampled beside a capture: FILE.stacks.jsonl next to FILE.aiprof."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.trace.model import Stacks
from ai_prof.trace.readers.stack_clock import correction

if TYPE_CHECKING:
    from ai_prof.trace.model import I64, Trace

SCHEMA = "ai-prof/stacks/1"


class _Header(msgspec.Struct):
    schema: str
    pid: int
    boot_id: str | None
    error_ns: int


class _Line(msgspec.Struct):
    stack: int
    frames: tuple[str, ...] | None = None
    start: int = 0
    end: int = 0
    thread: int = 0


class _Found:
    """What the files of one capture hold together."""

    def __init__(self) -> None:
        self.rows = array("q")  # start, end, process, thread, stack
        self.stacks: list[tuple[str, ...]] = []
        self.errors: dict[int, int] = {}  # ns, by process
        self.warnings: list[str] = []

    def add(self, path: Path, trace: Trace) -> None:
        """The intervals of a file; what can't be read is left out and said."""
        lines = path.read_bytes().splitlines()
        try:
            header = msgspec.json.decode(lines[0], type=_Header) if lines else None
        except msgspec.DecodeError:
            header = None
        if header is None or header.schema != SCHEMA:
            self.warnings.append(f"{path.name} holds no stacks that can be read: it was left out")
            return
        process = next((i for i, p in enumerate(trace.processes) if p.pid == header.pid), None)
        boots = {p.header.get("boot_id") for p in trace.processes}
        if process is None or (len(boots) > 1 and header.boot_id != trace.processes[0].header.get("boot_id")):
            self.warnings.append(f"{path.name} is of another process or machine: it was left out")
            return
        self.errors[process] = max(self.errors.get(process, 0), header.error_ns)
        self._add_lines(path, lines[1:], process)

    def _add_lines(self, path: Path, lines: list[bytes], process: int) -> None:
        here: dict[int, int] = {}
        try:
            for line in map(msgspec.json.Decoder(_Line).decode, lines):
                if line.frames is not None:
                    here[line.stack] = len(self.stacks)
                    self.stacks.append(line.frames)
                else:
                    self.rows.extend((line.start, line.end, process, line.thread, here[line.stack]))
        except (msgspec.DecodeError, KeyError):
            self.warnings.append(f"{path.name}: it is damaged or cut, and was read up to there")

    def table(self, trace: Trace) -> Stacks:
        """All of it, each process's by the clock that its calls tell."""
        rows = np.array(self.rows, np.int64).reshape(-1, 5)
        errors = []
        for process, error in self.errors.items():
            mine = rows[:, 2] == process
            found = correction(_stacks(rows[mine], self.stacks), trace, process, error)
            rows[mine, :2] += found.shift
            errors.append(found.error)
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return replace(_stacks(rows, self.stacks), error_ns=max(errors))


def _stacks(rows: I64, frames: list[tuple[str, ...]]) -> Stacks:
    return Stacks(
        start=rows[:, 0],
        end=rows[:, 1],
        process=rows[:, 2].astype(np.int32),
        thread=rows[:, 3],
        stack=rows[:, 4].astype(np.int32),
        frames=tuple(frames),
        error_ns=0,
    )


def with_stacks(trace: Trace) -> Trace:
    """`trace` with the stacks that lie beside its files; itself where there are none."""
    beside = [Path(file).with_suffix(".stacks.jsonl") for file in trace.source.files]
    paths = [path for path in beside if path.is_file()]
    if not paths:
        return trace
    found = _Found()
    for path in paths:
        found.add(path, trace)
    source = replace(trace.source, warnings=(*trace.source.warnings, *found.warnings))
    return replace(trace, source=source, stacks=found.table(trace) if found.rows else None)
