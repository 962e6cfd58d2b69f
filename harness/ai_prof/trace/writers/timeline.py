"""Writes a Trace as Chrome's Trace Event JSON, which Perfetto and chrome://tracing open.

Each device and each process is a row group ("process" in the format), each stream and each thread a row.
`ts` and `dur` are microseconds with three decimals, exact to the ns, counted from the trace's first event
(`baseTimeNanoseconds` holds that moment on the trace's clock): a viewer reads them as doubles.
Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import gzip
import itertools
import json
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from ai_prof.trace.model import CallKind, CopyKind, SyncKind
from ai_prof.trace.writers.atomic import atomic_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import IntEnum
    from pathlib import Path

    from ai_prof.trace.model import Calls, Kernels, Memory, Ranges, Syncs, Trace

_BATCH = 4096  # events joined into one write
_DEVICE_PID = 1 << 30  # groups of devices are numbered from here: no process id reaches it


def write_timeline(trace: Trace, path: Path) -> None:
    """Write `path`, gzip-compressed if it ends in .gz; events stream, so memory stays bounded.

    Raises:
        UsageError: the file cannot be written.

    """
    with atomic_file(path) as raw:
        if path.suffix != ".gz":
            _write(trace, raw)
            return
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=5, mtime=0) as packed:
            _write(trace, cast("IO[bytes]", packed))


def _write(trace: Trace, file: IO[bytes]) -> None:
    base = _first_time(trace)
    file.write(b'{"displayTimeUnit":"ns","baseTimeNanoseconds":%d,"traceEvents":[\n' % base)
    events = itertools.chain(
        _metadata(trace), _kernels(trace, base), _memory(trace, base), _host(trace, base), _flows(trace, base)
    )
    first = True
    while batch := list(itertools.islice(events, _BATCH)):
        file.write(("" if first else ",\n").encode() + ",\n".join(batch).encode())
        first = False
    file.write(b"\n]}\n")


def _first_time(trace: Trace) -> int:
    tables = (trace.kernels, trace.memory, trace.syncs, trace.calls, trace.ranges)
    return min((int(table.start[0]) for table in tables if len(table.start)), default=0)


def _us(ns: int) -> str:
    """Microseconds, exact: JSON numbers are decimal text."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _rows(table: Kernels | Memory | Syncs | Calls | Ranges, *fields: str) -> Iterator[tuple[Any, ...]]:
    """Rows of plain Python values, converted column by column in batches."""
    for begin in range(0, len(table.start), _BATCH):
        columns = (getattr(table, field)[begin : begin + _BATCH].tolist() for field in fields)
        yield from zip(*columns, strict=True)


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
    """Row of a stream or thread; the format has no negative ones."""
    return max(number, 0)


def _metadata(trace: Trace) -> Iterator[str]:
    for i, device in enumerate(trace.devices):
        yield _name("process_name", _device_pid(i), 0, f"{device.kind} {device.ordinal}: {device.name}")
        streams = np.concatenate([table.stream[table.device == i] for table in (trace.kernels, trace.memory)])
        for stream in np.unique(streams).tolist():
            yield _name("thread_name", _device_pid(i), _tid(stream), f"stream {stream}")
    for process, (pid, info) in enumerate(zip(_host_pids(trace), trace.processes, strict=True)):
        command = " ".join(info.command_line) or "process"
        rank = "" if info.rank is None else f"rank {info.rank}, "
        yield _name("process_name", pid, 0, f"{command} ({rank}pid {info.pid} on {info.host})")
        threads = np.concatenate(
            [table.thread[table.process == process] for table in (trace.calls, trace.syncs, trace.ranges)]
        )
        for thread in np.unique(threads).tolist():
            yield _name("thread_name", pid, _tid(thread), f"thread {thread}")


def _name(kind: str, pid: int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}})


def _kernels(trace: Trace, base: int) -> Iterator[str]:
    names = _json_names(trace)
    fields = ("start", "end", "device", "stream", "name", "correlation", "graph", "grid", "block")
    more = _rows(trace.kernels, "registers", "shared_bytes")
    for row, (registers, shared) in zip(_rows(trace.kernels, *fields), more, strict=True):
        start, end, device, stream, name, correlation, graph, grid, block = row
        where = (_device_pid(device), _tid(stream))
        args = (
            f'{{"grid":{grid},"block":{block},"registers":{registers},"shared_bytes":{shared},'
            f'"correlation":{correlation},"graph":{graph}}}'
        )
        yield _slice(names[name], "kernel", where, (start - base, end - base), args)


def _memory(trace: Trace, base: int) -> Iterator[str]:
    fields = ("start", "end", "device", "stream", "kind", "bytes", "correlation")
    for start, end, device, stream, kind, size, correlation in _rows(trace.memory, *fields):
        what = "memset" if kind == CopyKind.SET else "memcpy"
        name = what if kind == CopyKind.SET else f"memcpy {_words(CopyKind(kind))}"
        where = (_device_pid(device), _tid(stream))
        args = f'{{"bytes":{size},"correlation":{correlation}}}'
        yield _slice(f'"{name}"', what, where, (start - base, end - base), args)


def _host(trace: Trace, base: int) -> Iterator[str]:
    """Calls, synchronizes and ranges, each on its thread."""
    pids, names = _host_pids(trace), _json_names(trace)
    fields = ("start", "end", "process", "thread")
    for start, end, process, thread, name, kind, correlation in _rows(
        trace.calls, *fields, "name", "kind", "correlation"
    ):
        args = f'{{"kind":"{_words(CallKind(kind))}","correlation":{correlation}}}'
        where = (pids[process], _tid(thread))
        yield _slice(names[name], "call", where, (start - base, end - base), args)
    for start, end, process, thread, kind, stream, correlation in _rows(
        trace.syncs, *fields, "kind", "stream", "correlation"
    ):
        args = f'{{"stream":{stream},"correlation":{correlation}}}'
        where = (pids[process], _tid(thread))
        yield _slice(f'"{_words(SyncKind(kind))}"', "sync", where, (start - base, end - base), args)
    for start, end, process, thread, name in _rows(trace.ranges, *fields, "name"):
        yield _slice(names[name], "range", (pids[process], _tid(thread)), (start - base, end - base), "{}")


def _words(kind: IntEnum) -> str:
    return kind.name.lower().replace("_", " ")


def _flows(trace: Trace, base: int) -> Iterator[str]:
    """An arrow from each launching call to what it launched: "s" inside the call, "f" at the work's start."""
    pids = _host_pids(trace)
    launches: dict[int, tuple[tuple[int, int], int]] = {}
    for start, process, thread, correlation in _rows(
        trace.calls, "start", "process", "thread", "correlation"
    ):
        if correlation > 0:
            launches.setdefault(correlation, ((pids[process], _tid(thread)), start))
    number = 0
    for table in (trace.kernels, trace.memory):
        for start, device, stream, correlation in _rows(table, "start", "device", "stream", "correlation"):
            if correlation not in launches:
                continue
            number += 1
            where, launch = launches[correlation]
            yield _arrow("s", number, where, launch - base)
            yield _arrow("f", number, (_device_pid(device), _tid(stream)), start - base)


def _arrow(phase: str, number: int, where: tuple[int, int], at: int) -> str:
    binding = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}","name":"launch","cat":"launch","id":{number},"pid":{where[0]},"tid":{where[1]},'
        f'"ts":{_us(at)}{binding}}}'
    )
