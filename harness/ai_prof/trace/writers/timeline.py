"""Writes a Trace as Chrome's Trace Event JSON, which Perfetto and chrome://tracing open.

Each device and each process is a row group ("process" in the format), each stream and each thread a row
(`stream_rows` says when a stream has more).
Iterations and gaps lie above a device's streams, and what NVML said of it runs below as counters. Categories,
args and `deviceProperties` are those of Kineto, so that what reads `torch.profiler` traces reads these too.
`ts` and `dur` are microseconds with three decimals, exact to the ns, counted from just before the trace's
first event (`baseTimeNanoseconds` is that moment since 1970): a viewer reads them as doubles.
Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import gzip
import itertools
import json
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from ai_prof.trace.model import CallKind, CopyKind, SyncKind
from ai_prof.trace.readers.kineto_events import SYNCS
from ai_prof.trace.writers.atomic import atomic_file
from ai_prof.trace.writers.stream_rows import stream_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ai_prof.trace.model import I32, I64, Calls, Kernels, Memory, Ranges, Samples, Syncs, Trace
    from ai_prof.trace.writers.stream_rows import StreamRows
    from ai_prof.trace.writers.track import Track

_BATCH = 4096  # events joined into one write
_DEVICE_PID = 1 << 30  # groups of devices are numbered from here: no process id reaches it
_TRACK_TID = 1 << 30  # rows of tracks, by their place: no stream's number reaches it
_COUNTERS = {
    "utilization, %": {"gpu": ("gpu_utilization", 1), "memory": ("memory_utilization", 1)},
    "clocks, MHz": {"sm": ("sm_clock_mhz", 1), "memory": ("memory_clock_mhz", 1)},
    "memory used, MiB": {"used": ("memory_used", 1 << 20)},
    "power, W": {"power": ("power_mw", 1000)},
    "temperature, C": {"temperature": ("temperature_c", 1)},
    "other processes": {"count": ("other_processes", 1)},
}
"""Title of each counter, its series, and for each the column of the samples and its divisor."""


_COPIES = {
    CopyKind.UNKNOWN: "Memcpy",
    CopyKind.HOST_TO_DEVICE: "Memcpy HtoD",
    CopyKind.DEVICE_TO_HOST: "Memcpy DtoH",
    CopyKind.DEVICE_TO_DEVICE: "Memcpy DtoD",
    CopyKind.PEER_TO_PEER: "Memcpy PtoP",
    CopyKind.HOST_TO_HOST: "Memcpy HtoH",
    CopyKind.SET: "Memset",
}
_PAGEABLE = {
    CopyKind.HOST_TO_DEVICE: " (Pageable -> Device)",
    CopyKind.DEVICE_TO_HOST: " (Device -> Pageable)",
}
_WORK = ("device", "stream", "context", "correlation", "graph", "graph_node")
_WORK_ARGS = '{"device":%d,"stream":%d,"context":%d,"correlation":%d,"graph id":%d,"graph node id":%d,'
_SYNCS = {kind: name for name, kind in SYNCS.items()}


def write_timeline(trace: Trace, path: Path, tracks: Sequence[Track] = ()) -> None:
    """Write `path`, gzip-compressed if it ends in .gz; events stream, so memory stays bounded.

    Raises:
        UsageError: the file cannot be written.

    """
    with atomic_file(path) as raw:
        if path.suffix != ".gz":
            _write(trace, tracks, raw)
            return
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=5, mtime=0) as packed:
            _write(trace, tracks, cast("IO[bytes]", packed))


def _write(trace: Trace, tracks: Sequence[Track], file: IO[bytes]) -> None:
    base = _first_time(trace) - 1  # readers take an event at 0 for one without a time
    file.write(json.dumps(_header(trace, base))[:-1].encode() + b', "traceEvents": [\n')
    rows = stream_rows(trace)
    events = itertools.chain(
        _metadata(trace, rows),
        _tracks(tracks, base),
        _kernels(trace, rows, base),
        _memory(trace, rows, base),
        _host(trace, base),
        _flows(trace, rows, base),
        _counters(trace.samples, base),
    )
    first = True
    while batch := list(itertools.islice(events, _BATCH)):
        file.write(("" if first else ",\n").encode() + ",\n".join(batch).encode())
        first = False
    file.write(b"\n]}\n")


def _header(trace: Trace, base: int) -> dict[str, Any]:
    ranks = [process.rank for process in trace.processes if process.rank is not None]
    return {
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": base + (trace.realtime_offset_ns or 0),
        **({"distributedInfo": {"rank": ranks[0]}} if len(ranks) == len(trace.processes) == 1 else {}),
        "deviceProperties": [
            {
                "id": i,
                "name": device.name,
                "totalGlobalMem": device.memory_bytes,
                "numSms": device.units,
                "kind": device.kind,  # Kineto has none: it is for what we read back
            }
            for i, device in enumerate(trace.devices)
        ],
    }


def _first_time(trace: Trace) -> int:
    tables = (trace.kernels, trace.memory, trace.syncs, trace.calls, trace.ranges)
    times = (*(table.start for table in tables), trace.samples.time)
    return min((int(time[0]) for time in times if len(time)), default=0)


def _us(ns: int) -> str:
    """Microseconds, exact: JSON numbers are decimal text."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _rows(
    table: Kernels | Memory | Syncs | Calls | Ranges | Samples, *fields: str
) -> Iterator[tuple[Any, ...]]:
    """Rows of plain Python values."""
    return _zipped(_columns(table, fields))


def _columns(
    table: Kernels | Memory | Syncs | Calls | Ranges | Samples, fields: Sequence[str]
) -> list[I64 | I32]:
    return [getattr(table, field) for field in fields]


def _zipped(columns: Sequence[I64 | I32]) -> Iterator[tuple[Any, ...]]:
    """Rows of columns, converted column by column in batches."""
    for begin in range(0, len(columns[0]), _BATCH):
        yield from zip(*(column[begin : begin + _BATCH].tolist() for column in columns), strict=True)


def _slice(name: str, kind: str, where: tuple[int, int], when: tuple[int, int], args: str) -> str:
    """A complete ("X") event; `name` and `args` are JSON, `when` is start and end since base."""
    return (
        f'{{"ph":"X","name":{name},"cat":"{kind}","pid":{where[0]},"tid":{where[1]},'
        f'"ts":{_us(when[0])},"dur":{_us(when[1] - when[0])},"args":{args}}}'
    )


def _json_names(trace: Trace) -> list[str]:
    """The names as JSON; the last entry, which -1 finds, is for the unknown one."""
    return [json.dumps(name) for name in (*trace.names, "unknown")]


def _device_pid(device: int) -> int:
    return _DEVICE_PID + device


def _host_pids(trace: Trace) -> list[int]:
    """The process id of each process; its position instead where two hosts share one."""
    pids = [process.pid for process in trace.processes]
    return pids if len(set(pids)) == len(pids) else list(range(1, len(pids) + 1))


def _tid(number: int) -> int:
    """Row of a thread; the format has no negative ones."""
    return max(number, 0)


def _metadata(trace: Trace, rows: StreamRows) -> Iterator[str]:
    for i, device in enumerate(trace.devices):
        yield _name("process_name", _device_pid(i), 0, f"{device.kind} {device.ordinal}: {device.name}")
    for place, (device_number, tid, title) in enumerate(rows.titles):
        where = (_device_pid(device_number), tid)
        yield _name("thread_name", *where, title)
        yield _meta("thread_sort_index", where, {"sort_index": place})
    for process, (pid, info) in enumerate(zip(_host_pids(trace), trace.processes, strict=True)):
        command = " ".join(info.command_line) or "process"
        rank = "" if info.rank is None else f"rank {info.rank}, "
        host = f" on {info.host}" if info.host else ""
        yield _name("process_name", pid, 0, f"{command} ({rank}pid {info.pid}{host})")
        threads = np.concatenate(
            [table.thread[table.process == process] for table in (trace.calls, trace.syncs, trace.ranges)]
        )
        for thread in np.unique(threads).tolist():
            title = "thread unknown" if thread == -1 else f"thread {thread}"
            yield _name("thread_name", pid, _tid(thread), title)


def _name(kind: str, pid: int, tid: int, name: str) -> str:
    return _meta(kind, (pid, tid), {"name": name})


def _meta(kind: str, where: tuple[int, int], args: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": where[0], "tid": where[1], "args": args})


def _kernels(trace: Trace, rows: StreamRows, base: int) -> Iterator[str]:
    names = _json_names(trace)
    fields = ("start", "end", *_WORK, "name", "grid", "block", "registers", "shared_bytes")
    columns = [rows.kernels, *_columns(trace.kernels, fields)]
    for row, start, end, *work, name, grid, block, registers, shared in _zipped(columns):
        args = (
            f'{_WORK_ARGS % tuple(work)}"grid":{grid},"block":{block},'
            f'"registers per thread":{registers},"shared memory":{shared}}}'
        )
        yield _slice(names[name], "kernel", (_device_pid(work[0]), row), (start - base, end - base), args)


def _memory(trace: Trace, rows: StreamRows, base: int) -> Iterator[str]:
    columns = [rows.memory, *_columns(trace.memory, ("start", "end", *_WORK, "kind", "bytes", "pageable"))]
    for row, start, end, *work, kind, size, pageable in _zipped(columns):
        category = "gpu_memset" if kind == CopyKind.SET else "gpu_memcpy"
        args = f'{_WORK_ARGS % tuple(work)}"bytes":{size}}}'
        name = f'"{_COPIES[CopyKind(kind)]}{_PAGEABLE.get(kind, " (Pageable)") if pageable else ""}"'
        yield _slice(name, category, (_device_pid(work[0]), row), (start - base, end - base), args)


def _host(trace: Trace, base: int) -> Iterator[str]:
    """Calls, synchronizes and ranges, each on its thread."""
    pids, names = _host_pids(trace), _json_names(trace)
    fields = ("start", "end", "process", "thread")
    for start, end, process, thread, name, kind, correlation in _rows(
        trace.calls, *fields, "name", "kind", "correlation"
    ):
        args = f'{{"kind":"{CallKind(kind).words}","correlation":{correlation}}}'
        where = (pids[process], _tid(thread))
        yield _slice(names[name], "cuda_runtime", where, (start - base, end - base), args)
    for start, end, process, thread, kind, device, stream, correlation in _rows(
        trace.syncs, *fields, "kind", "device", "stream", "correlation"
    ):
        name = _SYNCS[SyncKind(kind)]
        args = (
            f'{{"cuda_sync_kind":"{name}","device":{device},"stream":{stream},"correlation":{correlation}}}'
        )
        where = (pids[process], _tid(thread))
        yield _slice(f'"{name}"', "cuda_sync", where, (start - base, end - base), args)
    for start, end, process, thread, name in _rows(trace.ranges, *fields, "name"):
        where = (pids[process], _tid(thread))
        yield _slice(names[name], "user_annotation", where, (start - base, end - base), "{}")


def _tracks(tracks: Sequence[Track], base: int) -> Iterator[str]:
    """A row for each track, above the streams of its device."""
    for place, track in enumerate(tracks):
        where = (_device_pid(track.device), _TRACK_TID + place)
        yield _name("thread_name", *where, track.title)
        yield _meta("thread_sort_index", where, {"sort_index": place - len(tracks)})
        names = [json.dumps(name) for name in track.words or track.names]
        keys = [json.dumps(key) for key in track.values]
        columns: list[I64 | I32] = [track.start, track.end, track.name, *track.values.values()]
        for start, end, name, *values in _zipped(columns):
            told = ",".join(f"{key}:{value}" for key, value in zip(keys, values, strict=True) if value)
            yield _slice(names[name], track.title, where, (start - base, end - base), f"{{{told}}}")


def _counters(samples: Samples, base: int) -> Iterator[str]:
    """What NVML said of each device, without what a card does not report."""
    for title, series in _COUNTERS.items():
        fields = [field for field, _ in series.values()]
        for time, device, *values in _rows(samples, "time", "device", *fields):
            told = {
                name: value / divisor if divisor > 1 else value
                for (name, (_, divisor)), value in zip(series.items(), values, strict=True)
                if value >= 0
            }
            if told and device >= 0:
                yield (
                    f'{{"ph":"C","name":"{title}","pid":{_device_pid(device)},"tid":0,'
                    f'"ts":{_us(time - base)},"args":{json.dumps(told)}}}'
                )


def _flows(trace: Trace, rows: StreamRows, base: int) -> Iterator[str]:
    """An arrow from each launching call to what it launched: "s" inside the call, "f" at the work's start."""
    pids, calls = _host_pids(trace), trace.calls
    # Nested calls share a correlation: the outermost starts first.
    keys, row = np.unique(calls.correlation, return_index=True)
    if not len(keys):
        return
    number = 0
    for table, tids in ((trace.kernels, rows.kernels), (trace.memory, rows.memory)):
        at = np.minimum(np.searchsorted(keys, table.correlation), len(keys) - 1)
        work = (table.correlation > 0) & (keys[at] == table.correlation)
        call = row[at[work]]
        launches = (calls.start[call], calls.process[call], calls.thread[call])
        columns = (*launches, table.start[work], table.device[work], tids[work])
        for launch, process, thread, start, device, row_of_work in _zipped(columns):
            number += 1
            yield _arrow("s", number, (pids[process], _tid(thread)), launch - base)
            yield _arrow("f", number, (_device_pid(device), row_of_work), start - base)


def _arrow(phase: str, number: int, where: tuple[int, int], at: int) -> str:
    binding = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}","name":"ac2g","cat":"ac2g","id":{number},"pid":{where[0]},"tid":{where[1]},'
        f'"ts":{_us(at)}{binding}}}'
    )
