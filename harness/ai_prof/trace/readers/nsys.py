"""Reads SQLite exports of Nsight Systems (`nsys export --type sqlite`) into a Trace.

Tables and columns came and went between versions, so each is used where it is there:
https://docs.nvidia.com/nsight-systems/UserGuide/index.html (SQLite schema).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ai_prof.errors import TraceError
from ai_prof.trace.model import (
    Calls,
    Device,
    Kernels,
    Loss,
    Memory,
    Process,
    Ranges,
    Source,
    Syncs,
    Trace,
)
from ai_prof.trace.readers.nsys_tables import (
    Database,
    Rows,
    call_rows,
    connect,
    graph_rows,
    kernel_rows,
    memcpy_rows,
    memset_rows,
    problems,
    range_rows,
    sync_rows,
)
from ai_prof.trace.tables import Names, make_tables, renumbered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    Flags = npt.NDArray[np.bool_]

_TABLES: tuple[tuple[str, type, Callable[[Database, Names], Rows | None]], ...] = (
    ("kernel", Kernels, kernel_rows),
    ("kernel", Kernels, graph_rows),
    ("memcpy", Memory, memcpy_rows),
    ("memset", Memory, memset_rows),
    ("sync", Syncs, sync_rows),
    ("call", Calls, call_rows),
    ("range", Ranges, range_rows),
)


def read(paths: Sequence[Path]) -> Trace:
    """The Trace of one export, or of several of one job, each with its own processes and devices.

    Raises:
        TraceError: a file is no SQLite database, or none of Nsight Systems.

    """
    merge = _Merge()
    for path in sorted(paths):
        _add(merge, path)
    return merge.trace()


def _add(merge: _Merge, path: Path) -> None:
    try:
        with closing(connect(path)) as connection:
            merge.add(Database(path, connection))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes a damaged schema in its messages
        told = " ".join(str(error).split())
        raise TraceError(f"{path} is damaged ({told}): export it again") from None


class _Merge:
    """Adds export after export; global process ids and device ids become positions in the tables."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.names = Names()
        self.devices: list[Device] = []
        self.processes: list[Process] = []
        self.losses: dict[str, Loss] = {}
        self.warnings: list[str] = []
        self.without_work: list[str] = []
        self.complete = True
        self.epochs: list[int | None] = []
        self.parts: dict[type, list[Rows]] = {t: [] for t in (Kernels, Memory, Syncs, Calls, Ranges)}

    def add(self, database: Database) -> None:
        name = database.path.name
        self.files.append(str(database.path))
        self.epochs.append(_epoch(database))
        export = _Export(self, database)
        for kind, table, query in _TABLES:
            rows = query(database, self.names)
            if rows is not None:
                self.parts[table].append(export.mapped(rows, self._valid(name, kind, rows)))
        if not export.worked:
            self.without_work.append(name)
        lost = problems(database.records("DIAGNOSTIC_EVENT"))
        self.complete &= not lost
        self.warnings += [f"{name}: {text}" for text in lost]

    def shift(self, name: str) -> int:
        """Ns to add to the last export's times to have them on the first one's clock."""
        first, last = self.epochs[0], self.epochs[-1]
        if first is None or last is None:
            if len(self.epochs) > 1:
                self.warnings.append(f"{name}: it states no epoch: its clock may differ from others")
            return 0
        return last - first

    def trace(self) -> Trace:
        if len(self.without_work) < len(self.files):
            self.warnings += [f"{name}: it holds no device work, unlike others" for name in self.without_work]
        source = Source("nsys", tuple(self.files), self.complete, self.losses, tuple(self.warnings))
        return Trace(
            source=source,
            names=tuple(self.names),
            devices=tuple(self.devices),
            processes=tuple(self.processes),
            **make_tables(self.parts),
            realtime_offset_ns=self.epochs[0] if self.epochs else None,
        )

    def _valid(self, file: str, kind: str, rows: Rows) -> Flags:
        """Which rows have times that can be; counts the others."""
        valid: Flags = (rows["start"] > 0) & (rows["end"] >= rows["start"])
        invalid = len(valid) - int(valid.sum())
        if invalid:
            self.warnings.append(f"{file}: {invalid} {kind} records have times that cannot be: left out")
        past = self.losses.get(kind, Loss())
        self.losses[kind] = Loss(
            captured=past.captured + len(valid) - invalid, invalid_time=past.invalid_time + invalid
        )
        return valid


class _Export:
    """The ids of one export as positions in the tables of the whole."""

    def __init__(self, merge: _Merge, database: Database) -> None:
        self.merge = merge
        self.shift = merge.shift(database.path.name)
        environment = {
            row.get("name"): row.get("value") for row in database.records("TARGET_INFO_SYSTEM_ENV")
        }
        self.host = str(environment.get("Hostname") or "")
        self.commands = {row.get("globalPid"): row.get("name") for row in database.records("PROCESSES")}
        self.gpus = {row.get("id"): row for row in database.records("TARGET_INFO_GPU")}
        # A process numbers only the GPUs that it may see.
        self.gpu_of = {
            (row.get("pid"), row.get("cudaId")): row.get("gpuId")
            for row in database.records("TARGET_INFO_CUDA_DEVICE")
        }
        self.process_numbers: dict[int, int] = {}
        self.device_numbers: dict[tuple[str, int], int] = {}
        self.worked = False

    def mapped(self, rows: Rows, valid: Flags) -> Rows:
        """The valid rows of one table."""
        part: Rows = {key: column[valid] for key, column in rows.items()}
        self.worked |= "context" in part and len(part["start"]) > 0
        part["start"], part["end"] = part["start"] + self.shift, part["end"] + self.shift
        global_pid = part["process"]
        part["process"] = renumbered(global_pid, self._process)
        if "correlation" in part:
            # Each process counts its correlations from 1.
            own, base = part["correlation"], part["process"].astype(np.int64) << 32
            part["correlation"] = np.where(own > 0, own + base, 0)
        if "device" in part:
            device = np.full(len(global_pid), -1, np.int64)
            for key in np.unique(global_pid).tolist():
                mine = global_pid == key
                device[mine] = renumbered(part["device"][mine], partial(self._device, _pid(key)))
            part["device"] = device
        return part

    def _process(self, global_pid: int) -> int:
        if global_pid not in self.process_numbers:
            self.process_numbers[global_pid] = len(self.merge.processes)
            name = self.commands.get(global_pid)
            command = (str(name),) if name else ()
            self.merge.processes.append(Process(_pid(global_pid), self.host, command))
        return self.process_numbers[global_pid]

    def _device(self, pid: int, ordinal: int) -> int:
        """By the GPU it is, where the export says so; else by its ordinal."""
        if ordinal < 0:
            return -1
        gpu = self.gpu_of.get((pid, ordinal))
        key = ("ordinal", ordinal) if gpu is None else ("gpu", int(gpu))
        if key not in self.device_numbers:
            self.device_numbers[key] = len(self.merge.devices)
            known = self.gpus.get(ordinal if gpu is None else gpu, {})
            self.merge.devices.append(_named(key[1], known))
        return self.device_numbers[key]


def _named(ordinal: int, known: Mapping[str, Any]) -> Device:
    uuid = known.get("uuid")
    return Device(
        ordinal,
        str(known.get("name") or f"device {ordinal}"),
        uuid=str(uuid).removeprefix("GPU-").replace("-", "").lower() if uuid else None,
        memory_bytes=int(known.get("totalMemory") or 0),
        units=int(known.get("smCount") or 0),
    )


def _pid(global_pid: int) -> int:
    return (global_pid >> 24) & 0xFFFFFF if global_pid >= 0 else 0


def _epoch(database: Database) -> int | None:
    """What added to the export's times gives CLOCK_REALTIME."""
    for row in database.records("TARGET_INFO_SESSION_START_TIME"):
        epoch, clock = row.get("utcEpochNs"), row.get("systemClockNs")
        if isinstance(epoch, int):
            return epoch - (clock if isinstance(clock, int) else 0)
    return None
