"""From the events of a Kineto trace to columns: what each category means, and ids and times as int64."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from ai_prof.trace.model import Calls as CallTable
from ai_prof.trace.model import CopyKind, Kernels, Memory, Ranges, SyncKind, Syncs
from ai_prof.trace.readers.call_kinds import call_kind, copy_kind
from ai_prof.trace.readers.decimal_ns import INVALID, nanoseconds
from ai_prof.trace.readers.kineto_stream import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ai_prof.trace.model import I32, I64
    from ai_prof.trace.readers.kineto_stream import Event

T = TypeVar("T")


class Kind(Enum):
    """What an event is a record of; the value names it among the losses."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    SYNC = "sync"
    CALL = "call"
    RANGE = "range"
    OPERATOR = "operator"  # of interest only where it is a ProfilerStep, as until PyTorch 1.10


CATEGORIES = {
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "Memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "Memset": Kind.MEMSET,
    "cuda_sync": Kind.SYNC,
    "cuda_runtime": Kind.CALL,
    "cuda_driver": Kind.CALL,
    "hip_runtime": Kind.CALL,
    "hip_driver": Kind.CALL,
    "xpu_runtime": Kind.CALL,
    "xpu_driver": Kind.CALL,
    "Runtime": Kind.CALL,
    "user_annotation": Kind.RANGE,
    "Operator": Kind.OPERATOR,
}
# The host's own work, arrows between events, and what repeats on the device side what the host said.
UNUSED = frozenset(
    {
        "",
        "Trace",
        "ac2g",
        "async",
        "async_cpu_to_gpu",
        "async_gpu",
        "cpu_instant_event",
        "cpu_op",
        "cuda_event",
        "cuda_profiler_range",
        "external_correlation",
        "forward_backward",
        "fwdbwd",
        "gpu_user_annotation",
        "overhead",
        "python_function",
    }
)
SYNCS = {
    "Event Sync": SyncKind.EVENT_SYNCHRONIZE,
    "Stream Wait Event": SyncKind.STREAM_WAIT_EVENT,
    "Stream Sync": SyncKind.STREAM_SYNCHRONIZE,
    "Context Sync": SyncKind.CONTEXT_SYNCHRONIZE,
}
_NO_ID32 = 0xFFFFFFFF
_NO_GRID = (0, 0, 0)


class Args(msgspec.Struct, gc=False, frozen=True):
    """What is used of an event's args. Writers put all sorts there, so nothing is taken for granted."""

    device: Any = None
    context: Any = -1
    stream: Any = None
    correlation: Any = 0
    bytes: Any = 0
    kind: Any = ""
    sync_kind: Any = msgspec.field(default="", name="cuda_sync_kind")
    grid: Any = _NO_GRID
    block: Any = _NO_GRID
    registers: Any = msgspec.field(default=0, name="registers per thread")
    shared_bytes: Any = msgspec.field(default=0, name="shared memory")
    graph: Any = msgspec.field(default=0, name="graph id")
    graph_node: Any = msgspec.field(default=0, name="graph node id")


@dataclass(slots=True)
class Columns:
    """The rows of one file so far; `device` holds ordinals, `correlation` the file's own numbers.

    `names` may be shared between files.
    """

    names: dict[str, int]
    parts: dict[type, list[dict[str, Any]]] = field(
        default_factory=lambda: {table: [] for table in (Kernels, Memory, Syncs, CallTable, Ranges)}
    )
    captured: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    pids: Counter[int] = field(default_factory=Counter)
    categories: set[str] = field(default_factory=set)
    mended_names: int = 0

    def add(self, events: list[Event]) -> None:
        """Add a batch of events."""
        by_category: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            by_category[event.cat].append(event)
        self.categories |= by_category.keys()
        groups: dict[Kind, list[Event]] = {kind: [] for kind in Kind}
        for category, kind in CATEGORIES.items():
            groups[kind] += by_category.get(category, ())
        steps = groups.pop(Kind.OPERATOR)
        groups[Kind.RANGE] += [event for event in steps if bytes(event.name).startswith(b'"ProfilerStep')]
        for kind, group in groups.items():
            if group:
                table, columns = _ROWS[kind](self, *self._timed(kind, group))
                self.parts[table].append(columns)

    @property
    def unknown_categories(self) -> list[str]:
        """Categories of events that were not read."""
        return sorted(self.categories - UNUSED - CATEGORIES.keys())

    def _timed(self, kind: Kind, events: list[Event]) -> tuple[list[Event], I64, I64]:
        """The events whose times can be, with start and end."""
        start = nanoseconds([event.ts for event in events])
        duration = nanoseconds([event.dur for event in events])
        good = (start > 0) & (duration >= 0) & (duration <= np.iinfo(np.int64).max - start)
        kept = int(good.sum())
        self.captured[kind.value] += kept
        if kept < len(events):
            self.invalid[kind.value] += len(events) - kept
            events = [event for event, ok in zip(events, good.tolist(), strict=True) if ok]
            start, duration = start[good], duration[good]
        return events, start, start + duration

    def texts(self, events: list[Event]) -> list[str]:
        """The events' names."""
        joined = b"[" + b",".join([event.name for event in events]) + b"]"
        try:
            return _STRINGS.decode(joined)
        except UNREADABLE:
            found = [_text(bytes(event.name)) for event in events]
            self.mended_names += sum("�" in name for name in found)
            return found

    def numbers(self, names: list[str]) -> I32:
        """Names as positions in the trace's names."""
        known = self.names
        return np.array([known.setdefault(name, len(known)) for name in names], np.int32)


def _kernels(columns: Columns, events: list[Event], start: I64, end: I64) -> tuple[type, dict[str, Any]]:
    args = _args(events)
    return Kernels, {
        **_device_work(events, args, start, end),
        "name": columns.numbers(columns.texts(events)),
        "grid": _triples([a.grid for a in args]),
        "block": _triples([a.block for a in args]),
        "registers": _ints([a.registers for a in args], 0),
        "shared_bytes": _ints([a.shared_bytes for a in args], 0),
    }


def _copies(columns: Columns, events: list[Event], start: I64, end: I64) -> tuple[type, dict[str, Any]]:
    args = _args(events)
    kinds = [
        copy_kind(name) or copy_kind(str(a.kind)) for name, a in zip(columns.texts(events), args, strict=True)
    ]
    return Memory, {
        **_device_work(events, args, start, end),
        "kind": np.array(kinds, np.int32),
        "bytes": _ints([a.bytes for a in args], 0),
    }


def _memsets(_: Columns, events: list[Event], start: I64, end: I64) -> tuple[type, dict[str, Any]]:
    args = _args(events)
    return Memory, {
        **_device_work(events, args, start, end),
        "kind": int(CopyKind.SET),
        "bytes": _ints([a.bytes for a in args], 0),
    }


def _syncs(columns: Columns, events: list[Event], start: I64, end: I64) -> tuple[type, dict[str, Any]]:
    args = _args(events)
    names = columns.texts(events)
    kinds = [SYNCS.get(a.sync_kind or name, SyncKind.UNKNOWN) for name, a in zip(names, args, strict=True)]
    stream = _ints([a.stream for a in args])
    return Syncs, {
        "start": start,
        "end": end,
        "device": _ints([a.device for a in args]),
        "stream": np.where(stream == _NO_ID32, -1, stream),
        "thread": -1,
        "kind": np.array(kinds, np.int32),
        "correlation": _correlations(args),
    }


def _calls(columns: Columns, events: list[Event], start: I64, end: I64) -> tuple[type, dict[str, Any]]:
    names = columns.texts(events)
    number = columns.numbers(names)
    distinct, inverse = np.unique(number, return_inverse=True)
    first = {int(n): name for n, name in zip(number.tolist(), names, strict=True)}
    kinds = np.array([call_kind(first[n]) for n in distinct.tolist()], np.int32)
    columns.pids.update(_ints(_decoded([event.pid for event in events], _ANYTHING, -1)).tolist())
    return CallTable, {
        "start": start,
        "end": end,
        "thread": _threads(events),
        "name": number,
        "kind": kinds[inverse.reshape(-1)] if len(number) else np.zeros(0, np.int32),
        "correlation": _correlations(_args(events)),
        "result": 0,
    }


def _ranges(columns: Columns, events: list[Event], start: I64, end: I64) -> tuple[type, dict[str, Any]]:
    columns.pids.update(_ints(_decoded([event.pid for event in events], _ANYTHING, -1)).tolist())
    return Ranges, {
        "start": start,
        "end": end,
        "thread": _threads(events),
        "name": columns.numbers(columns.texts(events)),
    }


_ROWS: dict[Kind, Callable[[Columns, list[Event], I64, I64], tuple[type, dict[str, Any]]]] = {
    Kind.KERNEL: _kernels,
    Kind.MEMCPY: _copies,
    Kind.MEMSET: _memsets,
    Kind.SYNC: _syncs,
    Kind.CALL: _calls,
    Kind.RANGE: _ranges,
}
_ARGS = msgspec.json.Decoder(list[Args])
_STRINGS = msgspec.json.Decoder(list[str])
_ANYTHING = msgspec.json.Decoder(list[Any])


def _device_work(events: list[Event], args: list[Args], start: I64, end: I64) -> dict[str, Any]:
    """Kineto draws a device as a process and a stream as its thread, and repeats both in the args."""
    device = _ints([a.device for a in args])
    stream = _ints([a.stream for a in args])
    if (device < 0).any():
        pid = _ints(_decoded([event.pid for event in events], _ANYTHING, -1))
        device = np.where(device < 0, pid, device)
    if (stream < 0).any():
        stream = np.where(stream < 0, _threads(events), stream)
    return {
        "start": start,
        "end": end,
        "device": device,
        "context": _ints([a.context for a in args]),
        "stream": stream,
        "correlation": _correlations(args),
        "graph": _ints([a.graph for a in args], 0),
        "graph_node": _ints([a.graph_node for a in args], 0),
    }


def _threads(events: list[Event]) -> I64:
    return _ints(_decoded([event.tid for event in events], _ANYTHING, -1))


def _correlations(args: list[Args]) -> I64:
    values = _ints([a.correlation for a in args], 0)
    return np.where((values > 0) & (values < _NO_ID32), values, 0)


def _args(events: list[Event]) -> list[Args]:
    return _decoded([event.args for event in events], _ARGS, Args())


def _decoded(raws: Sequence[msgspec.Raw], decoder: msgspec.json.Decoder[list[T]], default: T) -> list[T]:
    """Values decoded together; where one can't be, each on its own, with `default` for it."""
    try:
        return decoder.decode(b"[" + b",".join(raws) + b"]")
    except UNREADABLE:
        return [_decoded_alone(raw, decoder, default) for raw in raws]


def _decoded_alone(raw: msgspec.Raw, decoder: msgspec.json.Decoder[list[T]], default: T) -> T:
    try:
        return decoder.decode(b"[" + bytes(raw) + b"]")[0]
    except UNREADABLE:
        return default


def _text(raw: bytes) -> str:
    """A name that is not UTF-8, or no string at all."""
    try:
        return str(msgspec.json.decode(raw.decode("utf-8", "replace")))
    except UNREADABLE:
        return "�"


def _ints(values: Sequence[Any], default: int = -1) -> I64:
    """Ids as int64; `default` for what is no number."""
    try:
        found = np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros((0, 0), np.int64)
    if found.shape == (len(values),):
        return found
    return np.array([_int(value, default) for value in values], np.int64)


def _int(value: Any, default: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if abs(number) <= -(INVALID + 1) else default


def _triples(values: Sequence[Any]) -> I64:
    """Grids and blocks; (n, 3), zeros for what is none."""
    try:
        found = np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros((0,), np.int64)
    if found.shape == (len(values), 3):
        return found
    return np.array([_triple(value) for value in values], np.int64).reshape(-1, 3)


def _triple(value: Any) -> tuple[int, int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        return _NO_GRID
    x, y, z = (_int(number, 0) for number in value)
    return x, y, z
