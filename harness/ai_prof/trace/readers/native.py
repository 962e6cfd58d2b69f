"""Reads the `.aiprof` files of one capture into a Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ai_prof.errors import TraceError
from ai_prof.trace.model import (
    CallKind,
    Calls,
    CopyKind,
    Device,
    Kernels,
    Loss,
    Memory,
    Process,
    Ranges,
    Samples,
    Source,
    SyncKind,
    Syncs,
    Trace,
)
from ai_prof.trace.readers.clocks import clock_map, device_clock_map, realtime_offset
from ai_prof.trace.readers.native_file import DEVICE_WORK, NativeFile, read_file, read_header
from ai_prof.trace.readers.native_format import (
    END_ERROR,
    HOST_CLOCK,
    NONE32,
    NONE64,
    PAGEABLE,
    RECORDS,
    BlockType,
    DeviceKind,
)
from ai_prof.trace.readers.native_records import Records
from ai_prof.trace.tables import Names, make_tables, renumbered

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import IntEnum
    from pathlib import Path

    import numpy.typing as npt

    from ai_prof.trace.model import I32, I64

    Ids = npt.NDArray[np.unsignedinteger[Any]]

# The kinds of record whose losses are counted.
LOSSES = {
    BlockType.KERNEL: "kernel",
    BlockType.MEMCPY: "memcpy",
    BlockType.MEMSET: "memset",
    BlockType.SYNC: "sync",
    BlockType.CALL: "call",
    BlockType.OVERHEAD: "overhead",
    BlockType.RANGE: "range",
    BlockType.SAMPLE: "sample",
}
_LOST = ("cupti_dropped", "invalid_time", "budget_dropped", "unfinished")
_TIMED = frozenset(LOSSES) - {BlockType.SAMPLE, BlockType.OVERHEAD}


def read(paths: Sequence[Path]) -> Trace:
    """The Trace of all files of one capture, one or more for each process.

    A file that is cut, damaged or was not closed is read as far as it is whole; `Source.complete` is then
    False and a warning says what is missing.

    Raises:
        TraceError: a file is no capture, is of another major version, or its header is damaged.

    """
    if not paths:
        raise TraceError("no capture file was given")
    merge = _Merge()
    for original, *copies in _by_origin(sorted(paths)):
        merge.add(read_file(original))
        merge.warnings += [f"{copy.name} is a copy of {original.name}: counted once" for copy in copies]
    return merge.trace()


def _by_origin(paths: Sequence[Path]) -> list[list[Path]]:
    """Files of one making together, the longest first: no process makes two at the same nanosecond."""
    made = ("capture_id", "host", "boot_id", "pid", "source", "started_monotonic_ns")
    groups: dict[Any, list[Path]] = {}
    for path in paths:
        header = read_header(path)
        known = header.get(made[-1]) is not None
        groups.setdefault(tuple(str(header.get(key)) for key in made) if known else path, []).append(path)
    return [sorted(group, key=lambda path: -path.stat().st_size) for group in groups.values()]


class _Merge:
    """Adds file after file; ids of a file become positions in the tables of the whole."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.names = Names()
        self.devices: dict[tuple[Any, ...], tuple[int, Device]] = {}
        self.processes: dict[tuple[Any, ...], tuple[int, Process]] = {}
        self.losses: dict[str, Loss] = {}
        self.warnings: list[str] = []
        self.complete = True
        self.read = self.size = 0  # bytes
        self.boots: dict[Any, list[int]] = {}  # CLOCK_REALTIME minus CLOCK_MONOTONIC, by boot
        self.parts: dict[type, list[dict[str, Any]]] = {
            table: [] for table in (Kernels, Memory, Syncs, Calls, Ranges, Samples)
        }

    def add(self, file: NativeFile) -> None:
        self.files.append(str(file.path))
        self.read, self.size = self.read + file.read, self.size + file.size
        if file.fault:
            self.complete = False
            self.warnings.append(f"{file.path.name}: {file.fault}")
        if not file.header:
            return
        if _failed(file):
            self.complete = False
        noted = [*(file.header.get("errors") or ()), *(file.header.get("warnings") or ())]
        self.warnings += [f"{file.path.name}: {text}" for text in noted]
        records = {kind: file.records.get(kind, Records(RECORDS[kind])) for kind in RECORDS}
        records = self._without_invalid(file, records)
        offset = realtime_offset(records[BlockType.CLOCK].rows())
        if offset is None:
            self.warnings.append(f"{file.path.name}: no clock was calibrated: times are the source's own")
        else:
            self.boots.setdefault(file.header.get("boot_id"), []).append(offset)
        _FileRows(self, file, records).add()

    def shift(self, file: NativeFile) -> int:
        """From a file's CLOCK_MONOTONIC to that of the first machine: CLOCK_REALTIME is the same on all."""
        own = self.boots.get(file.header.get("boot_id"))
        return own[0] - self._first_boot()[0] if own else 0

    def _first_boot(self) -> list[int]:
        return next(iter(self.boots.values()), [])

    def trace(self) -> Trace:
        offsets = sorted(self._first_boot())
        read = self.read / self.size if self.size else 0.0
        source = Source("native", tuple(self.files), self.complete, self.losses, tuple(self.warnings), read)
        return Trace(
            source=source,
            names=tuple(self.names),
            devices=tuple(device for _, device in self.devices.values()),
            processes=tuple(process for _, process in self.processes.values()),
            **make_tables(self.parts),
            realtime_offset_ns=offsets[len(offsets) // 2] if offsets else None,
        )

    def _without_invalid(
        self, file: NativeFile, records: dict[BlockType, Records]
    ) -> dict[BlockType, Records]:
        """Drop rows whose times cannot be, and add up the losses that the file and this reader counted."""
        stated = {int(row["type"]): row for row in records[BlockType.LOSS].rows()}
        kept = dict(records)
        for kind, name in LOSSES.items():
            rows, loss = records[kind], stated.get(kind)
            if kind in _TIMED:
                start = rows["start"]
                kept[kind] = rows.only((start > 0) & (rows["end"] >= start))
            if loss is None and not len(rows):
                continue
            if loss is not None and not file.fault and loss["captured"] != len(rows):
                self.complete = False
                self.warnings.append(
                    f"{file.path.name}: wrote {loss['captured']} {name} records, {len(rows)} are there"
                )
            found = Loss(len(kept[kind]), invalid_time=len(rows) - len(kept[kind]))
            self.losses[name] = self.losses.get(name, Loss()) + found + _stated(loss)
        return kept


def _failed(file: NativeFile) -> bool:
    """Whether the capture ended for an error, which META tells: it lacks what it was to hold."""
    ends = file.records.get(BlockType.END)
    return ends is not None and bool((ends.rows()["reason"] == END_ERROR).any())


def _stated(loss: np.void | None) -> Loss:
    """What a file's LossRecord says was lost."""
    if loss is None:
        return Loss()
    return Loss(**{name: int(loss[name]) for name in _LOST})


class _FileRows:
    """The rows of one file, with its ids and clocks mapped."""

    def __init__(self, merge: _Merge, file: NativeFile, records: dict[BlockType, Records]) -> None:
        self.merge = merge
        self.file = file
        self.records = records
        self.host = str(file.header.get("host", ""))
        self.device_ids: dict[int, int] = {}
        for row in records[BlockType.DEVICE].rows():
            self._device(row)
        # Each file counts its correlations from 1.
        self.correlation_base = (len(merge.files) - 1) << 32
        self.clocks = records[BlockType.CLOCK].rows()
        self.to_monotonic = clock_map(self.clocks, HOST_CLOCK)
        self.shift = merge.shift(file)
        self.process = self._process()

    def add(self) -> None:
        parts = self.merge.parts
        parts[Kernels].append(self._kernels())
        parts[Memory].append(self._memory(BlockType.MEMCPY))
        parts[Memory].append(self._memory(BlockType.MEMSET))
        parts[Syncs].append(self._syncs())
        parts[Calls].append(self._calls())
        parts[Ranges].append(self._ranges())
        parts[Samples].append(self._samples())

    def _process(self) -> int:
        header = self.file.header
        key = (self.host, header.get("boot_id"), header.get("container_id"), header.get("pid"))
        known = self.merge.processes.get(key)
        number = known[0] if known else len(self.merge.processes)
        merged = {**known[1].header, **header} if known else header
        command = tuple(str(word) for word in merged.get("command_line") or ())
        until = (self._known_until(), known[1].known_until if known else None)
        first = min((time for time in until if time is not None), default=None)
        process = Process(int(merged.get("pid") or 0), self.host, command, merged.get("rank"), merged, first)
        self.merge.processes[key] = (number, process)
        return number

    def _known_until(self) -> int | None:
        """When the last device work of a faulty file begins that was written with all other kinds."""
        if not self.file.fault:
            return None
        flushed = [rows for rows in map(self.file.flushed.get, DEVICE_WORK) if rows]
        return max((int(self._device_times(rows)[0].max()) for rows in flushed), default=None)

    def _device(self, row: np.void) -> None:
        uuid = bytes(row["uuid"]).hex() if row["uuid"].any() else None
        kind = DeviceKind(int(row["kind"])).name.lower() if int(row["kind"]) in set(DeviceKind) else "unknown"
        ordinal = int(row["device"])
        name = self.file.strings.get(int(row["name"]), "")
        key: tuple[Any, ...] = (uuid,) if uuid else (self.host, kind, ordinal, name)
        device = Device(ordinal, name, uuid, int(row["memory_bytes"]), kind, int(row["units"]))
        number, _ = self.merge.devices.setdefault(key, (len(self.merge.devices), device))
        self.device_ids[ordinal] = number

    def _kernels(self) -> dict[str, Any]:
        rows = self.records[BlockType.KERNEL]
        return {
            **self._device_work(rows),
            "name": self._names(rows["name"]),
            "grid": rows["grid"],
            "block": rows["block"],
            "registers": rows["registers"],
            "shared_bytes": rows["shared_bytes"],
        }

    def _memory(self, kind: BlockType) -> dict[str, Any]:
        rows = self.records[kind]
        return {
            **self._device_work(rows),
            "kind": _kinds(rows["kind"], CopyKind),
            "bytes": rows["bytes"],
            "pageable": (rows["flags"] & PAGEABLE) // PAGEABLE,
        }

    def _device_work(self, rows: Records) -> dict[str, Any]:
        start, end = self._device_times(rows)
        return {
            "start": start,
            "end": end,
            "device": self._devices(rows["device"]),
            "process": self.process,
            "context": _ids(rows["context"]),
            "stream": _ids(rows["stream"]),
            "correlation": self._correlations(rows["correlation"]),
            "graph": rows["graph"],
            "graph_node": rows["graph_node"],
        }

    def _syncs(self) -> dict[str, Any]:
        rows = self.records[BlockType.SYNC]
        devices = self._devices(rows["device"])
        return {
            **self._host_times(rows),
            "device": np.where(devices < 0, self._only_device(), devices),
            "process": self.process,
            "stream": _ids(rows["stream"]),
            "thread": _ids(rows["thread"]),
            "kind": _kinds(rows["kind"], SyncKind),
            "correlation": self._correlations(rows["correlation"]),
        }

    def _only_device(self) -> int:
        """The device of all work in the file, which a wait is then for; -1 where there are several."""
        columns = [self.records[kind]["device"] for kind in DEVICE_WORK]
        used = {int(end) for column in columns if len(column) for end in (column.min(), column.max())}
        return self._device_number(used.pop()) if len(used) == 1 else -1

    def _calls(self) -> dict[str, Any]:
        rows = self.records[BlockType.CALL]
        return {
            **self._host_times(rows),
            "process": self.process,
            "thread": _ids(rows["thread"]),
            "name": self._names(rows["name"]),
            "kind": _kinds(rows["kind"], CallKind),
            "correlation": self._correlations(rows["correlation"]),
            "result": rows["result"],
        }

    def _ranges(self) -> dict[str, Any]:
        rows = self.records[BlockType.RANGE]
        return {
            **self._host_times(rows),
            "process": self.process,
            "thread": _ids(rows["thread"]),
            "name": self._names(rows["name"]),
        }

    def _samples(self) -> dict[str, Any]:
        rows = self.records[BlockType.SAMPLE]
        return {
            "time": rows["time"].astype(np.int64) + self.shift,
            "device": self._devices(rows["device"]),
            "process": self.process,
            "gpu_utilization": _ids(rows["gpu_utilization"]),
            "memory_utilization": _ids(rows["memory_utilization"]),
            "sm_clock_mhz": _ids(rows["sm_clock"]),
            "memory_clock_mhz": _ids(rows["memory_clock"]),
            "temperature_c": _ids(rows["temperature"]),
            "power_mw": _ids(rows["power"]),
            "other_processes": _ids(rows["other_processes"]),
            "throttle_reasons": _ids(rows["throttle_reasons"]),
            "memory_used": _ids(rows["memory_used"]),
            "memory_total": _ids(rows["memory_total"]),
        }

    def _host_times(self, rows: Records) -> dict[str, I64]:
        convert = self.to_monotonic
        start, end = rows["start"], rows["end"]
        if convert:
            start, end = convert(start), convert(end)
        return {"start": start + self.shift, "end": end + self.shift}

    def _device_times(self, rows: Records) -> tuple[I64, I64]:
        start, end, devices = rows["start"], rows["end"], rows["device"]
        distinct = np.unique(devices).tolist()
        for device in distinct:
            convert = device_clock_map(self.clocks, device)
            if convert:
                mine = devices == device if len(distinct) > 1 else slice(None)
                start[mine], end[mine] = convert(start[mine]), convert(end[mine])
        return start + self.shift, end + self.shift

    def _names(self, ids: Ids) -> I32:
        """A file's string ids as positions in the trace's names."""
        strings, names = self.file.strings, self.merge.names
        return renumbered(ids, lambda key: names[strings[key]] if key in strings else -1)

    def _devices(self, ids: Ids) -> I32:
        """A file's device ids as positions in the trace's devices."""
        return renumbered(ids, lambda key: -1 if key == NONE32 else self._device_number(key))

    def _device_number(self, ordinal: int) -> int:
        """Work of a device whose own record was lost still belongs to some device."""
        if ordinal not in self.device_ids:
            devices = self.merge.devices
            key = (self.host, "unknown", ordinal, "")
            self.device_ids[ordinal], _ = devices.setdefault(
                key, (len(devices), Device(ordinal, f"device {ordinal}", kind="unknown"))
            )
        return self.device_ids[ordinal]

    def _correlations(self, column: Ids) -> I64:
        values = column.astype(np.int64)
        values[values > 0] += self.correlation_base
        return values


def _kinds(kind: Ids, known: type[IntEnum]) -> I32:
    """Kinds as they are in the model; those of a later minor version are unknown, 0."""
    return renumbered(kind, lambda key: key if key in set(known) else 0)


def _ids(column: Ids) -> I64:
    """An unsigned column with its "none" as -1."""
    none = NONE64 if column.dtype.itemsize == 8 else NONE32
    return np.where(column == none, -1, column.astype(np.int64))
