"""From the events of a Kineto trace to columns: what each category means, and ids and times as int64."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ai_prof.json_text import UNREADABLE
from ai_prof.trace.model import Calls, CopyKind, Kernels, Memory, Ranges, SyncKind, Syncs
from ai_prof.trace.readers.call_kinds import copy_kind
from ai_prof.trace.readers.decimal_ns import INVALID, nanoseconds
from ai_prof.trace.readers.kineto_events import CATEGORIES, HOST, SYNCS, TYPES, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ai_prof.trace.model import I32, I64
    from ai_prof.trace.readers.kineto_events import DeviceEvent, Event, HostEvent
    from ai_prof.trace.tables import Names

_NO_ID32 = 0xFFFFFFFF
_NO_GRID = (0, 0, 0)


@dataclass(slots=True)
class Columns:
    """The rows of one file so far; `device` holds ordinals, `correlation` the file's own numbers.

    `names` may be shared between files.
    """

    names: Names
    parts: dict[type, list[dict[str, Any]]] = field(
        default_factory=lambda: {table: [] for table in (Kernels, Memory, Syncs, Calls, Ranges)}
    )
    captured: Counter[str] = field(default_factory=Counter)
    invalid: Counter[str] = field(default_factory=Counter)
    pids: Counter[int] = field(default_factory=Counter)

    def add(self, events: list[Event]) -> None:
        """Add a batch of events."""
        by_type: defaultdict[type[Event], list[Event]] = defaultdict(list)
        for event in events:
            by_type[type(event)].append(event)
        groups: dict[Kind, list[Any]] = {kind: [] for kind in Kind}
        for category, kind in CATEGORIES.items():
            groups[kind] += by_type.get(TYPES[category], ())
        steps = groups.pop(Kind.OPERATOR)
        groups[Kind.RANGE] += [event for event in steps if event.name.startswith("ProfilerStep")]
        for kind, group in groups.items():
            if group:
                kept, start, end = self._timed(kind, group)
                table, columns = _TABLES[kind]
                self.parts[table].append({"start": start, "end": end, **columns(kept, self.names)})
                if kind in HOST:
                    self._count_pids(kept)

    def _timed(self, kind: Kind, events: list[Any]) -> tuple[list[Any], I64, I64]:
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

    def _count_pids(self, events: Sequence[Event]) -> None:
        pid, count = np.unique(_ints([event.pid for event in events]), return_counts=True)
        self.pids.update(dict(zip(pid.tolist(), count.tolist(), strict=True)))


def _kernels(events: list[DeviceEvent], names: Names) -> dict[str, Any]:
    args = [event.args for event in events]
    return {
        **_device_work(events),
        "name": _names(events, names),
        "grid": _triples([a.grid for a in args]),
        "block": _triples([a.block for a in args]),
        "registers": _ints([a.registers for a in args], 0),
        "shared_bytes": _ints([a.shared_bytes for a in args], 0),
    }


def _copies(events: list[DeviceEvent], _: Names) -> dict[str, Any]:
    kinds = [copy_kind(event.name) or copy_kind(str(event.args.kind)) for event in events]
    return {
        **_device_work(events),
        "kind": np.array(kinds, np.int32),
        "bytes": _ints([event.args.bytes for event in events], 0),
        "pageable": np.array(["Pageable" in event.name for event in events], np.int32),
    }


def _memsets(events: list[DeviceEvent], _: Names) -> dict[str, Any]:
    return {
        **_device_work(events),
        "kind": int(CopyKind.SET),
        "bytes": _ints([event.args.bytes for event in events], 0),
        "pageable": 0,
    }


def _syncs(events: list[DeviceEvent], _: Names) -> dict[str, Any]:
    kinds = [SYNCS.get(event.args.sync_kind or event.name, SyncKind.UNKNOWN) for event in events]
    stream = _ints([event.args.stream for event in events])
    return {
        "device": _ints([event.args.device for event in events]),
        "stream": np.where(stream == _NO_ID32, -1, stream),
        "thread": -1,
        "kind": np.array(kinds, np.int32),
        "correlation": _correlations(events),
    }


def _calls(events: list[HostEvent], names: Names) -> dict[str, Any]:
    return {
        "thread": _ints([event.tid for event in events]),
        "name": _names(events, names),
        "correlation": _correlations(events),
        "result": 0,
    }


def _ranges(events: list[HostEvent], names: Names) -> dict[str, Any]:
    return {"thread": _ints([event.tid for event in events]), "name": _names(events, names)}


_TABLES: dict[Kind, tuple[type, Callable[[list[Any], Names], dict[str, Any]]]] = {
    Kind.KERNEL: (Kernels, _kernels),
    Kind.MEMCPY: (Memory, _copies),
    Kind.MEMSET: (Memory, _memsets),
    Kind.SYNC: (Syncs, _syncs),
    Kind.CALL: (Calls, _calls),
    Kind.RANGE: (Ranges, _ranges),
}


def _device_work(events: list[DeviceEvent]) -> dict[str, Any]:
    """Kineto draws a device as a process and a stream as its thread, and repeats both in the args."""
    args = [event.args for event in events]
    device = _ints([a.device for a in args])
    stream = _ints([a.stream for a in args])
    if (device < 0).any():
        device = np.where(device < 0, _ints([event.pid for event in events]), device)
    if (stream < 0).any():
        stream = np.where(stream < 0, _ints([event.tid for event in events]), stream)
    return {
        "device": device,
        "context": _ints([a.context for a in args]),
        "stream": stream,
        "correlation": _correlations(events),
        "graph": _ints([a.graph for a in args], 0),
        "graph_node": _ints([a.graph_node for a in args], 0),
    }


def _names(events: Sequence[Event], names: Names) -> I32:
    """The events' names as positions in the trace's names."""
    texts = [event.name for event in events]
    return np.fromiter(map(names.__getitem__, texts), np.int32, len(texts))


def _correlations(events: Sequence[HostEvent | DeviceEvent]) -> I64:
    values = _ints([event.args.correlation for event in events], 0)
    return np.where((values > 0) & (values < _NO_ID32), values, 0)


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


def _triples(raws: Sequence[msgspec.Raw]) -> I64:
    """Grids and blocks; (n, 3), zeros for what is none."""
    texts = [bytes(raw) for raw in raws]
    number = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    distinct = np.array([_triple(text) for text in number], np.int64)
    found: I64 = distinct[np.fromiter(map(number.__getitem__, texts), np.int64, len(texts))]
    return found


@lru_cache(maxsize=4096)
def _triple(text: bytes) -> tuple[int, int, int]:
    try:
        value = msgspec.json.decode(text)
    except UNREADABLE:
        return _NO_GRID
    if not isinstance(value, list) or len(value) != 3:
        return _NO_GRID
    x, y, z = (_int(number, 0) for number in value)
    return x, y, z
