"""Reads Chrome traces of Kineto (`torch.profiler`), JSON or gzip, of one rank each, into a Trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ai_prof.errors import UsageError
from ai_prof.trace.model import CallKind, Calls, Device, Kernels, Memory, Process, Syncs
from ai_prof.trace.readers.call_kinds import call_kind, sync_kind
from ai_prof.trace.readers.job import Job
from ai_prof.trace.readers.kineto_columns import Columns
from ai_prof.trace.readers.kineto_stream import EventStream
from ai_prof.trace.tables import renumbered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ai_prof.trace.model import I32, I64, Trace

_RANK_IN_NAME = re.compile(r"rank[-_]?([0-9]+)", re.IGNORECASE)
_SINCE_1970_NS = 10**18  # times beyond 2001 can only count from 1970
_KERNEL_GRAPH = 1  # stands for a graph whose id was not recorded


def read(paths: Sequence[Path]) -> Trace:
    """The Trace of one job: a file for each of its ranks, whose GPUs are taken for different ones.

    What is damaged or cut is left out; `Source.complete` is then False and a warning says so. The times of
    several ranks are put on the first one's clock by the epoch that each file states.

    Raises:
        TraceError: a file is no Chrome trace.
        UsageError: two files are of the same rank.

    """
    job = _Ranks()
    for path in sorted(paths):
        job.add(path)
    return job.trace()


class _Ranks(Job):
    """The files of a job's ranks."""

    def __init__(self) -> None:
        super().__init__("kineto")
        self.ranks: dict[int | None, Path] = {}
        self.correlations = 0

    def add(self, path: Path) -> None:
        stream, columns = EventStream(path), Columns(self.names)
        for batch in stream:
            columns.add(batch)
        self.begin(path, _epoch(stream.metadata, columns))
        self._count(stream, columns)
        pid = columns.pids.most_common(1)[0][0] if columns.pids else 0
        rank = self._rank(path, stream.metadata)
        self.processes.append(Process(pid, host="", rank=rank, header=_header(stream.metadata)))
        names = list(self.names)
        _tell_calls(columns, names)
        _mark_graphs(columns)
        _add_call_syncs(columns, names)
        self._adopt(columns, stream.metadata, self.shift())
        self.end(worked=bool(columns.parts[Kernels] or columns.parts[Memory]))

    def _count(self, stream: EventStream, columns: Columns) -> None:
        self.complete &= stream.complete
        self.warnings += stream.warnings
        invalid = sum(columns.invalid.values())
        if invalid:
            self.warn(f"{invalid} records have times that cannot be and were left out")
        odd = stream.oddities
        if odd.mended_names:
            self.warn(f"{odd.mended_names} names are not UTF-8 and were mended")
        if odd.categories:
            self.warn(f"events of unknown categories were not read: {', '.join(sorted(odd.categories))}")
        for kind in sorted(columns.captured.keys() | columns.invalid.keys()):
            self.count(kind, columns.captured[kind], columns.invalid[kind])

    def _rank(self, path: Path, metadata: dict[str, Any]) -> int | None:
        """Who the file is of; refuses a second file of the same rank."""
        info = metadata.get("distributedInfo")
        stated = info.get("rank") if isinstance(info, dict) else None
        named = _RANK_IN_NAME.search(path.name)
        rank = stated if isinstance(stated, int) else int(named[1]) if named else None
        if rank in self.ranks:
            who = "of no stated rank" if rank is None else f"of rank {rank}"
            raise UsageError(
                f"{self.ranks[rank]} and {path.name} are both {who}: "
                "give one file, or a folder with one trace of each rank"
            )
        self.ranks[rank] = path
        return rank

    def _adopt(self, columns: Columns, metadata: dict[str, Any], shift: int) -> None:
        """Take a file's rows, with ids and times mapped."""
        process = len(self.processes) - 1
        base, numbers = self.correlations, {-1: -1}
        for table, parts in columns.parts.items():
            for part in parts:
                part["process"] = process
                part["start"], part["end"] = part["start"] + shift, part["end"] + shift
                if "correlation" in part:
                    found = part["correlation"]
                    self.correlations = max(self.correlations, base + int(found.max(initial=0)))
                    part["correlation"] = np.where(found > 0, found + base, 0)
                if "device" in part:
                    part["device"] = self._device_numbers(part["device"], numbers, metadata)
            self.parts[table] += parts

    def _device_numbers(self, ordinals: I64, numbers: dict[int, int], metadata: dict[str, Any]) -> I32:
        """A file's device ordinals as positions in the trace's devices."""

        def number(ordinal: int) -> int:
            if ordinal not in numbers:
                numbers[ordinal] = len(self.devices)
                self.devices.append(_device(ordinal, metadata))
            return numbers[ordinal]

        return renumbered(ordinals, number)


def _device(ordinal: int, metadata: dict[str, Any]) -> Device:
    """What the file says of a device. Its list may leave out the one that was used."""
    listed = metadata.get("deviceProperties")
    known = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    own = next((entry for entry in known if entry.get("id") == ordinal), None)
    alike = {str(entry.get("name") or "") for entry in known}
    name = str((own or {}).get("name") or "") or (alike.pop() if len(alike) == 1 else "")
    properties = own or {}
    memory, units, kind = properties.get("totalGlobalMem"), properties.get("numSms"), properties.get("kind")
    return Device(
        ordinal,
        name or f"device {ordinal}",
        memory_bytes=memory if isinstance(memory, int) else 0,
        kind=kind if isinstance(kind, str) else _platform(metadata),
        units=units if isinstance(units, int) else 0,
    )


def _platform(metadata: dict[str, Any]) -> str:
    return "hip" if "hip_runtime_version" in metadata or "roctracer_version" in metadata else "cuda"


def _header(metadata: dict[str, Any]) -> dict[str, Any]:
    """What the file says of the run in single values."""
    return {key: value for key, value in metadata.items() if isinstance(value, (str, int, float))}


def _epoch(metadata: dict[str, Any], columns: Columns) -> int | None:
    """Times count from `baseTimeNanoseconds` since PyTorch 2.4, and before from 1970."""
    base = metadata.get("baseTimeNanoseconds")
    if isinstance(base, int) and base > 0:
        return base
    starts = [
        int(part["start"][0]) for parts in columns.parts.values() for part in parts if len(part["start"])
    ]
    return 0 if starts and max(starts) > _SINCE_1970_NS else None


def _tell_calls(columns: Columns, names: list[str]) -> None:
    """Add the kind of each call, told from its name."""
    for part in columns.parts[Calls]:
        part["kind"] = renumbered(part["name"], lambda name: call_kind(names[name]))


def _mark_graphs(columns: Columns) -> None:
    """Work that a graph launch asked for belongs to a graph, also where no graph id was recorded."""
    calls = columns.parts[Calls]
    launches = [part["correlation"][part["kind"] == CallKind.GRAPH_LAUNCH] for part in calls]
    launched = np.unique(np.concatenate([np.zeros(0, np.int64), *launches]))
    launched = launched[launched > 0]
    for part in (*columns.parts[Kernels], *columns.parts[Memory]):
        of_graph = np.isin(part["correlation"], launched)
        part["graph"] = np.where(of_graph & (part["graph"] <= 0), _KERNEL_GRAPH, np.maximum(part["graph"], 0))


def _add_call_syncs(columns: Columns, names: list[str]) -> None:
    """A synchronizing call is a synchronize, also where the trace has no record of its own for it."""
    recorded = np.concatenate([np.zeros(0, np.int64), *(p["correlation"] for p in columns.parts[Syncs])])
    for part in columns.parts[Calls]:
        rows = (part["kind"] == CallKind.SYNC) & ~(
            np.isin(part["correlation"], recorded) & (part["correlation"] > 0)
        )
        if not rows.any():
            continue
        kinds = renumbered(part["name"][rows], lambda name: sync_kind(names[name]))
        columns.parts[Syncs].append(
            {
                "start": part["start"][rows],
                "end": part["end"][rows],
                "device": np.full(len(kinds), -1, np.int64),
                "stream": -1,
                "thread": part["thread"][rows],
                "kind": kinds,
                "correlation": part["correlation"][rows],
            }
        )
