"""The work of one device: kernels, copies and memsets in one table."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ai_prof.timeline.intervals import Intervals, union
from ai_prof.trace.model import CopyKind
from ai_prof.trace.tables import compact, renumbered

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.trace.model import I32, I64, Trace

    Flags = npt.NDArray[np.bool_]

KERNEL = -1  # in `Operations.kind`, beside the CopyKinds


@dataclass(frozen=True, slots=True)
class Operations:
    """What one device did; (n,) columns sorted by start, then by correlation.

    `kind` is KERNEL or a CopyKind; `name` is -1 for copies; `stream` numbers the streams of all
    processes on the device from 0; `launch` and `thread` are the start of the host call that asked for
    it and that call's thread, `launched` the call's end; -1 where there is no such call.
    """

    start: I64
    end: I64
    kind: I32
    name: I32
    process: I32
    stream: I32
    correlation: I64
    graph: I64
    graph_node: I64
    bytes: I64
    launch: I64
    launched: I64
    thread: I64

    def __len__(self) -> int:
        return len(self.start)

    def rows(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Operations:
        """Only the chosen rows."""
        return Operations(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})

    @property
    def is_kernel(self) -> Flags:
        """Which rows are kernels."""
        return np.asarray(self.kind == KERNEL)

    @property
    def is_memset(self) -> Flags:
        """Which rows are memsets."""
        return np.asarray(self.kind == CopyKind.SET)

    @property
    def is_memcpy(self) -> Flags:
        """Which rows are copies, memsets not among them."""
        return np.asarray((self.kind != KERNEL) & (self.kind != CopyKind.SET))

    def begin_in(self, low: int, high: int) -> Flags:
        """Which rows begin in [low, high)."""
        return np.asarray((self.start >= low) & (self.start < high))

    def union(self, chosen: npt.NDArray[np.bool_] | None = None) -> Intervals:
        """The union of the chosen rows' intervals; of all rows by default."""
        if chosen is None:
            return union(self.start, self.end)
        return union(self.start[chosen], self.end[chosen])


def busy_devices(trace: Trace) -> list[int]:
    """The devices that did any work."""
    found = np.union1d(trace.kernels.device, trace.memory.device)
    return [device for device in found.tolist() if device >= 0]


def device_operations(trace: Trace, device: int) -> Operations:
    """The work of one device, joined to the calls that asked for it.

    Without what a cut file holds of it after other kinds of records end, if that is the lesser part.
    """
    operations = _operations(trace, device)
    until = [process.known_until for process in trace.processes]
    if all(time is None for time in until):
        return operations
    forever = np.iinfo(np.int64).max
    ends = np.array([forever if time is None else time for time in until], np.int64)
    known = operations.start <= ends[operations.process]
    return operations.rows(known) if 2 * known.sum() > len(known) else operations


def _operations(trace: Trace, device: int) -> Operations:
    kernels, memory = trace.kernels, trace.memory
    k, m = _rows_of(kernels.device, device), _rows_of(memory.device, device)

    def both(name: str) -> npt.NDArray[Any]:
        return np.concatenate((getattr(kernels, name)[k], getattr(memory, name)[m]))

    order = np.lexsort((both("correlation"), both("start")))
    whole = ("start", "end", "process", "stream", "correlation", "graph", "graph_node")
    columns = {name: compact(both(name)[order]) for name in whole}
    columns["stream"] = _number(columns["process"], both("context")[order], columns["stream"])
    name, kind = kernels.name[k], memory.kind[m]
    columns["kind"] = np.concatenate((np.full(len(name), KERNEL, np.int32), kind))[order]
    columns["name"] = np.concatenate((name, np.full(len(kind), -1, np.int32)))[order]
    columns["bytes"] = compact(np.concatenate((np.zeros(len(name), np.int64), memory.bytes[m]))[order])
    columns["launch"], columns["launched"], columns["thread"] = _launches(trace, columns["correlation"])
    return Operations(**columns)


def _rows_of(column: I32, device: int) -> npt.NDArray[np.intp] | slice:
    """The rows of one device; where all are, without a list of them."""
    mine = column == device
    return slice(None) if mine.all() else np.flatnonzero(mine)


def call_row(trace: Trace, correlation: I64) -> npt.NDArray[np.intp]:
    """The row in `trace.calls` of each correlation; -1 where there is none."""
    known = np.flatnonzero(trace.calls.correlation > 0)
    if not len(known) or not len(correlation):
        return np.full(len(correlation), -1, np.intp)
    # Nested calls share a correlation: the outermost, which starts first, is the launch.
    keys, first = trace.calls.correlation[known], np.arange(len(known))
    if (keys[1:] <= keys[:-1]).any():
        keys, first = np.unique(keys, return_index=True)
    at = np.minimum(np.searchsorted(keys, correlation), len(keys) - 1)
    rows: npt.NDArray[np.intp] = np.where(keys[at] == correlation, known[first[at]], -1)
    return rows


def _launches(trace: Trace, correlation: I64) -> tuple[I64, I64, I64]:
    row = call_row(trace, correlation)
    found = row >= 0
    columns = (trace.calls.start, trace.calls.end, trace.calls.thread)
    if not found.any():
        none = np.full(len(correlation), -1, np.int64)
        return none, none, none
    launch, launched, thread = (compact(np.where(found, column[row], -1)) for column in columns)
    return launch, launched, thread


def _number(*columns: I64 | I32) -> I32:
    """Numbers the distinct rows of some columns from 0."""
    numbers = np.zeros(len(columns[0]), np.int32)
    for column in columns:
        if (column != column[0]).any():
            values = _ranks(column)
            numbers = _ranks(numbers.astype(np.int64) * (len(numbers) + 1) + values)
    return numbers


def _ranks(column: I64 | I32) -> I32:
    """The distinct values numbered from 0 as they rise; (n,)."""
    count = itertools.count()
    return renumbered(column, lambda _: next(count))
