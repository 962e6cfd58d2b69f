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
from ai_prof.trace.model import Calls, Device, Kernels, Memory, Process, Ranges, Syncs
from ai_prof.trace.readers.job import Job
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
from ai_prof.trace.tables import renumbered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from ai_prof.trace.model import Trace
    from ai_prof.trace.tables import Names

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
    job = _Exports("nsys")
    for path in sorted(paths):
        _add(job, path)
    return job.trace()


def _add(job: _Exports, path: Path) -> None:
    try:
        with closing(connect(path)) as connection:
            job.add(Database(path, connection))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes a damaged schema in its messages
        told = " ".join(str(error).split())
        raise TraceError(f"{path} is damaged ({told}): export it again") from None


class _Exports(Job):
    """The exports of a job."""

    def add(self, database: Database) -> None:
        self.begin(database.path, _epoch(database))
        export = _Export(self, database)
        for kind, table, query in _TABLES:
            rows = query(database, self.names)
            if rows is not None:
                self.parts[table].append(export.mapped(rows, self._valid(kind, rows)))
        self.end(worked=export.worked)
        lost = problems(database.records("DIAGNOSTIC_EVENT"))
        self.complete &= not lost
        for text in lost:
            self.warn(text)

    def _valid(self, kind: str, rows: Rows) -> Flags:
        """Which rows have times that can be; counts the others."""
        valid: Flags = (rows["start"] > 0) & (rows["end"] >= rows["start"])
        invalid = len(valid) - int(valid.sum())
        if invalid:
            self.warn(f"{invalid} {kind} records have times that cannot be: left out")
        self.count(kind, len(valid) - invalid, invalid)
        return valid


class _Export:
    """The ids of one export as positions in the tables of the whole."""

    def __init__(self, job: Job, database: Database) -> None:
        self.job = job
        self.shift = job.shift()
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
            self.process_numbers[global_pid] = len(self.job.processes)
            name = self.commands.get(global_pid)
            command = (str(name),) if name else ()
            self.job.processes.append(Process(_pid(global_pid), self.host, command))
        return self.process_numbers[global_pid]

    def _device(self, pid: int, ordinal: int) -> int:
        """By the GPU it is, where the export says so; else by its ordinal."""
        if ordinal < 0:
            return -1
        gpu = self.gpu_of.get((pid, ordinal))
        key = ("ordinal", ordinal) if gpu is None else ("gpu", int(gpu))
        if key not in self.device_numbers:
            self.device_numbers[key] = len(self.job.devices)
            known = self.gpus.get(ordinal if gpu is None else gpu, {})
            self.job.devices.append(_named(key[1], known))
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
