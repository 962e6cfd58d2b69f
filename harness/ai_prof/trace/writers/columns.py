"""A trace as flat tables, for formats made of columns.

`start_ns`, `end_ns` and `time_ns` are on the trace's clock, `device` and `process` are rows of the tables of
those names. What is unknown is missing, not -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ai_prof.trace.model import CallKind, CopyKind, SyncKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import IntEnum

    from ai_prof.trace.model import Trace
    from ai_prof.trace.writers.track import Track

_UNITS = {
    "start": "start_ns",
    "end": "end_ns",
    "time": "time_ns",
    "gpu_utilization": "gpu_utilization_percent",
    "memory_utilization": "memory_utilization_percent",
    "memory_used": "memory_used_bytes",
    "memory_total": "memory_total_bytes",
}
_SIGNED = {"start", "end", "time", "result"}  # columns in which -1 is a value
_KINDS: dict[str, type[IntEnum]] = {"memory": CopyKind, "syncs": SyncKind, "calls": CallKind}


@dataclass(frozen=True, slots=True)
class Column:
    """(n,) values: numbers, or positions in `labels`; `missing` are (n,) flags."""

    values: npt.NDArray[np.generic]
    missing: npt.NDArray[np.bool_]
    labels: tuple[str, ...] | None = None


Table = dict[str, Column]


def tables(trace: Trace, tracks: Sequence[Track] = ()) -> dict[str, Table]:
    """Every table by name, those of the tracks by title; empty ones too."""
    found = {"capture": _capture(trace), "devices": _devices(trace), "processes": _processes(trace)}
    for name in ("kernels", "memory", "syncs", "calls", "ranges", "samples"):
        found[name] = _records(trace, name)
    for title in dict.fromkeys(track.title for track in tracks):
        found[title] = _joined([track for track in tracks if track.title == title])
    return found


def _records(trace: Trace, table: str) -> Table:
    rows, columns = getattr(trace, table), {}
    for name in rows.__dataclass_fields__:
        values = getattr(rows, name)
        if values.ndim == 2:
            for axis, letter in enumerate("xyz"):
                columns[f"{name}_{letter}"] = _plain(values[:, axis])
            continue
        missing = np.zeros(len(values), bool) if name in _SIGNED else values < 0
        if name == "name":
            column = Column(values, missing, trace.names)
        elif name == "kind":
            kinds = _KINDS[table]  # they count up from 0
            column = Column(values, missing, tuple(kind.name.lower() for kind in sorted(kinds)))
        else:
            column = Column(values, missing)
        columns[_UNITS.get(name, name)] = column
    return columns


def _joined(tracks: Sequence[Track]) -> Table:
    """The rows of tracks of one title, device by device."""
    sizes = [len(track.start) for track in tracks]
    offsets = np.cumsum([0, *(len(track.names) for track in tracks[:-1])])
    names = [track.name + offset for track, offset in zip(tracks, offsets.tolist(), strict=True)]
    labels = tuple(name for track in tracks for name in track.names)
    columns = {
        "start_ns": _plain(np.concatenate([track.start for track in tracks])),
        "end_ns": _plain(np.concatenate([track.end for track in tracks])),
        "device": _plain(np.repeat([track.device for track in tracks], sizes)),
        "name": Column(np.concatenate(names), np.zeros(sum(sizes), bool), labels),
    }
    for value in tracks[0].values:
        columns[value] = _plain(np.concatenate([track.values[value] for track in tracks]))
    return columns


def _capture(trace: Trace) -> Table:
    source = trace.source
    return {
        "format": _listed([source.format]),
        "files": _listed([" ".join(source.shown_files)]),
        "complete": _listed([int(source.complete)]),
        "realtime_offset_ns": _listed([trace.realtime_offset_ns]),
    }


def _devices(trace: Trace) -> Table:
    fields = ("ordinal", "name", "uuid", "kind", "memory_bytes", "units")
    columns = {name: _listed([getattr(device, name) for device in trace.devices]) for name in fields}
    return {"device": _listed(list(range(len(trace.devices)))), **columns}


def _processes(trace: Trace) -> Table:
    processes = trace.processes
    return {
        "process": _listed(list(range(len(processes)))),
        "pid": _listed([process.pid for process in processes]),
        "host": _listed([process.host for process in processes]),
        "rank": _listed([process.rank for process in processes]),
        "command_line": _listed([" ".join(process.command_line) for process in processes]),
    }


def _plain(values: npt.NDArray[Any]) -> Column:
    return Column(values, np.zeros(len(values), bool))


def _listed(values: Sequence[str | int | None]) -> Column:
    """A short column of Python values."""
    missing = np.array([value is None for value in values], bool)
    if any(isinstance(value, str) for value in values):
        labels = tuple(str(value) for value in values)
        return Column(np.arange(len(labels), dtype=np.int32), missing, labels)
    return Column(np.array([value or 0 for value in values], np.int64), missing)
