"""The tables of a Nsight Systems export as columns, each column used where the schema has it."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from ai_prof.errors import TraceError
from ai_prof.trace.model import CopyKind
from ai_prof.trace.readers.call_kinds import call_kind
from ai_prof.trace.tables import renumbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ai_prof.trace.model import I32, I64
    from ai_prof.trace.tables import Names

Rows = dict[str, Any]
"""Columns by the names of a table's fields; `name` holds positions in the Names that were given."""

_CUPTI = "CUPTI_ACTIVITY_KIND_"
_BATCH = 1 << 16
_RANGE_TYPES = (59, 60, 70, 71)  # push-pop and start-end, of NVTX and of imported text
# ENUM_CUDA_MEMCPY_OPER: 11 to 13 are unified memory's own migrations.
_COPIES = {
    1: CopyKind.HOST_TO_DEVICE,
    2: CopyKind.DEVICE_TO_HOST,
    3: CopyKind.HOST_TO_DEVICE,
    4: CopyKind.DEVICE_TO_HOST,
    5: CopyKind.DEVICE_TO_DEVICE,
    6: CopyKind.DEVICE_TO_DEVICE,
    7: CopyKind.DEVICE_TO_DEVICE,
    8: CopyKind.DEVICE_TO_DEVICE,
    9: CopyKind.HOST_TO_HOST,
    10: CopyKind.PEER_TO_PEER,
    11: CopyKind.HOST_TO_DEVICE,
    12: CopyKind.DEVICE_TO_HOST,
    13: CopyKind.DEVICE_TO_DEVICE,
}
_PAGEABLE = 0  # ENUM_CUDA_MEM_KIND
_VERSION = re.compile(r"(?:_v[0-9]+|_ptsz|_ptds)+$")
_WORK = {
    "start": "start",
    "end": "end",
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation": "correlationId",
    "process": "globalPid",
}


def connect(path: Path) -> sqlite3.Connection:
    """A connection that can't write, not even a journal beside the file."""
    return sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)


class Database:
    """An export, open for reading only.

    Raises:
        TraceError: the file is no export of Nsight Systems.
        sqlite3.Error: it is damaged.

    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {str(name) for (name,) in found}
        if "StringIds" not in self.tables:
            raise TraceError(f"{path} is a database, but no export of Nsight Systems: it has no StringIds")
        self._strings = dict(connection.execute("SELECT id, value FROM StringIds"))

    def string(self, key: int) -> str:
        """The text that other tables name by that id."""
        return str(self._strings.get(key, "?"))

    def columns(self, table: str) -> set[str]:
        """The columns of a table; none where there is no such table."""
        return {str(row[1]) for row in self._connection.execute(f'PRAGMA table_info("{table}")')}

    def numbers(self, table: str, wanted: Mapping[str, str], where: str = "1") -> dict[str, I64] | None:
        """Columns of a table as int64, by our names; -1 for NULL and for columns it has not.

        None where the table is absent, empty, or without start and end.
        """
        there = self.columns(table)
        if not {"start", "end"} <= there:
            return None
        terms = [
            f'CAST(coalesce("{column}", -1) AS INTEGER)' if column in there else "-1"
            for column in wanted.values()
        ]
        cursor = self._connection.execute(f'SELECT {", ".join(terms)} FROM "{table}" WHERE {where}')  # noqa: S608 - names of ours
        parts = []
        while rows := cursor.fetchmany(_BATCH):
            parts.append(np.array(rows, np.int64))
        if not parts:
            return None
        return dict(zip(wanted, np.concatenate(parts).T, strict=True))

    def texts(self, table: str, expression: str, where: str) -> list[str]:
        """One text a row, in the order of `numbers`."""
        found = self._connection.execute(f'SELECT {expression} FROM "{table}" WHERE {where}')  # noqa: S608 - names of ours
        return [str(text) for (text,) in found]

    def records(self, table: str) -> list[dict[str, Any]]:
        """All rows of a small table, which may be absent."""
        if table not in self.tables:
            return []
        cursor = self._connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - names of ours
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def kernel_rows(database: Database, names: Names) -> Rows | None:
    """Kernels."""
    table = f"{_CUPTI}KERNEL"
    wanted = {
        **_WORK,
        "name": "demangledName" if "demangledName" in database.columns(table) else "shortName",
        **{f"grid{axis}": f"grid{axis}" for axis in "XYZ"},
        **{f"block{axis}": f"block{axis}" for axis in "XYZ"},
        "registers": "registersPerThread",
        "static": "staticSharedMemory",
        "dynamic": "dynamicSharedMemory",
        "graph": "graphId",
        "graph_node": "graphNodeId",
    }
    rows = database.numbers(table, wanted)
    if rows is None:
        return None
    result: Rows = _work(rows)
    result["name"] = _named(database, rows["name"], names)
    result["grid"] = np.stack([np.maximum(rows[f"grid{axis}"], 0) for axis in "XYZ"], 1)
    result["block"] = np.stack([np.maximum(rows[f"block{axis}"], 0) for axis in "XYZ"], 1)
    result["registers"] = np.maximum(rows["registers"], 0)
    result["shared_bytes"] = np.maximum(rows["static"], 0) + np.maximum(rows["dynamic"], 0)
    return result


def graph_rows(database: Database, names: Names) -> Rows | None:
    """Graph launches, where graphs were recorded as wholes: each counts as one kernel."""
    rows = database.numbers(f"{_CUPTI}GRAPH_TRACE", {**_WORK, "graph": "graphId"})
    if rows is None:
        return None
    count = len(rows["start"])
    rows["graph_node"] = np.zeros(count, np.int64)
    return {
        **_work(rows),
        "name": np.full(count, names["cudaGraph"]),
        "grid": np.zeros((count, 3), np.int64),
        "block": np.zeros((count, 3), np.int64),
        "registers": np.zeros(count, np.int64),
        "shared_bytes": np.zeros(count, np.int64),
    }


def memcpy_rows(database: Database, _: Names) -> Rows | None:
    """Copies."""
    wanted = {**_WORK, "kind": "copyKind", "bytes": "bytes", "graph": "graphId", "graph_node": "graphNodeId"}
    rows = database.numbers(f"{_CUPTI}MEMCPY", {**wanted, "from": "srcKind", "to": "dstKind"})
    if rows is None:
        return None
    kinds = np.zeros(max(_COPIES) + 2, np.int64)
    kinds[list(_COPIES)] = [int(kind) for kind in _COPIES.values()]
    kind = kinds[np.clip(rows["kind"], 0, len(kinds) - 1)]
    pageable = (rows["from"] == _PAGEABLE) | (rows["to"] == _PAGEABLE)
    sizes = {"bytes": np.maximum(rows["bytes"], 0), "pageable": pageable.astype(np.int32)}
    return {**_work(rows), "kind": kind, **sizes}


def memset_rows(database: Database, _: Names) -> Rows | None:
    """Memsets."""
    wanted = {**_WORK, "bytes": "bytes", "graph": "graphId", "graph_node": "graphNodeId"}
    rows = database.numbers(f"{_CUPTI}MEMSET", wanted)
    if rows is None:
        return None
    kind = np.full(len(rows["start"]), int(CopyKind.SET), np.int64)
    return {
        **_work(rows),
        "kind": kind,
        "bytes": np.maximum(rows["bytes"], 0),
        "pageable": np.zeros_like(kind),
    }


def sync_rows(database: Database, _: Names) -> Rows | None:
    """Synchronizes; the types of CUPTI are those of the Trace."""
    table = f"{_CUPTI}SYNCHRONIZATION"
    kind = "syncType" if "syncType" in database.columns(table) else "type"
    wanted = {name: _WORK[name] for name in ("start", "end", "device", "stream", "correlation", "process")}
    rows = database.numbers(table, {**wanted, "kind": kind})
    if rows is None:
        return None
    rows["kind"] = np.where((rows["kind"] >= 0) & (rows["kind"] <= 4), rows["kind"], 0)
    rows["stream"] = _id32(rows["stream"])
    rows["device"] = _id32(rows["device"])
    return {**rows, "thread": np.full(len(rows["start"]), -1, np.int64)}


def call_rows(database: Database, names: Names) -> Rows | None:
    """Calls of the runtime and of the driver, which newer schemas keep in one table."""
    wanted = {
        "start": "start",
        "end": "end",
        "process": "globalTid",
        "name": "nameId",
        "correlation": "correlationId",
        "result": "returnValue",
    }
    tables = [database.numbers(f"{_CUPTI}{table}", wanted) for table in ("RUNTIME", "DRIVER")]
    found = [rows for rows in tables if rows is not None]
    if not found:
        return None
    rows: Rows = {name: np.concatenate([part[name] for part in found]) for name in wanted}
    rows["kind"] = renumbered(rows["name"], lambda key: call_kind(database.string(key)))
    rows["name"] = renumbered(rows["name"], lambda key: names[_VERSION.sub("", database.string(key))])
    return _split_thread(rows)


def range_rows(database: Database, names: Names) -> Rows | None:
    """NVTX ranges that have an end."""
    table = "NVTX_EVENTS"
    there = database.columns(table)
    where = f"eventType IN {_RANGE_TYPES} AND end IS NOT NULL"
    rows: Rows | None = (
        database.numbers(table, {"start": "start", "end": "end", "process": "globalTid"}, where)
        if "eventType" in there
        else None
    )
    if rows is None:
        return None
    registered = "(SELECT value FROM StringIds WHERE id = textId)"
    terms = [*(["text"] if "text" in there else []), *([registered] if "textId" in there else []), "''"]
    texts = database.texts(table, f"coalesce({', '.join(terms)}, '')", where)
    rows["name"] = np.array([names[text] for text in texts], np.int64)
    return _split_thread(rows)


def _work(rows: Mapping[str, I64]) -> Rows:
    """The columns that all work of a device has; CUPTI has no graph 0."""
    result: Rows = {name: rows[name] for name in _WORK}
    node = np.maximum(rows["graph_node"], 0)
    # Some versions keep only the node, whose upper half is the graph.
    result["graph"] = np.where(rows["graph"] > 0, rows["graph"], node >> 32)
    result["graph_node"] = node
    return result


def _named(database: Database, ids: I64, names: Names) -> I32:
    return renumbered(ids, lambda key: names[database.string(key)])


def _split_thread(rows: Rows) -> Rows:
    """A global thread id holds the global process id and, in its last 24 bits, the thread."""
    thread = rows["process"]
    rows["thread"] = np.where(thread >= 0, thread & 0xFFFFFF, -1)
    rows["process"] = np.where(thread >= 0, thread & ~0xFFFFFF, -1)
    return rows


def _id32(column: I64) -> I64:
    return np.where((column < 0) | (column >= 0xFFFFFFFF), -1, column)


def problems(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What DIAGNOSTIC_EVENT says of events that were lost."""
    lost = re.compile(r"not all|dropped|lost|missing", re.IGNORECASE)
    texts = [str(record.get("text")) for record in records]
    return sorted({text for text in texts if lost.search(text)})
