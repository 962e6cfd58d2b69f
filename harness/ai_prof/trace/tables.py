"""Builds the tables of a Trace from unsorted columns, and turns ids into positions in its lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ai_prof.trace.model import Calls, Kernels, Memory, Ranges, Samples, Syncs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Table = TypeVar("Table", Kernels, Memory, Syncs, Calls, Ranges, Samples)

_NARROW = {
    *("device", "process", "name", "kind", "pageable", "result"),
    *("grid", "block", "registers", "shared_bytes"),
}


class Names(dict[str, int]):
    """Numbers names from 0, in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


_DENSE = 1 << 16  # ids up to here, and a table for them, cost nothing to speak of
_TABLES: dict[str, Any] = {
    "kernels": Kernels,
    "memory": Memory,
    "syncs": Syncs,
    "calls": Calls,
    "ranges": Ranges,
    "samples": Samples,
}


def make_tables(parts: Mapping[type, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """All tables of a Trace by the names of its fields, each of its own parts; see `make_table`."""
    return {name: make_table(table, parts.get(table, ())) for name, table in _TABLES.items()}


def renumbered(ids: npt.NDArray[Any], number: Callable[[int], int]) -> npt.NDArray[np.int32]:
    """Each id, (n,), replaced by its number; each distinct id is asked for once, in rising order."""
    high, low = int(ids.max(initial=0)), int(ids.min(initial=0))
    if low >= 0 and high <= _DENSE + len(ids):  # no sort, where a table does
        distinct = np.flatnonzero(np.bincount(ids))
        at, found = ids, np.zeros(high + 1, np.int32)
        found[distinct] = [number(key) for key in distinct.tolist()]
    else:
        distinct, at = np.unique(ids, return_inverse=True)
        found = np.array([number(key) for key in distinct.tolist()], np.int32)
    numbers: npt.NDArray[np.int32] = found[at.reshape(-1)]
    return numbers


def make_table(table: type[Table], parts: Sequence[dict[str, Any]]) -> Table:
    """One table of all parts' rows, sorted by start (Samples: by time).

    Each part maps every field of the table to an array of that part's rows, or to one scalar for all, and is
    emptied, so that no more than one column is there twice. A column of one value is stored as that value.
    """
    fields = list(table.__dataclass_fields__)
    sizes = [len(part[fields[0]]) for part in parts]
    key = _joined(fields[0], parts, sizes)
    order = None if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")
    columns = {fields[0]: key if order is None else key[order]}
    for name in fields[1:]:
        column = compact(_joined(name, parts, sizes))
        columns[name] = column if order is None or not column.strides[0] else column[order]
    return table(**columns)


def compact(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The column; one of a single value, (n, ...), as that value and no more: it can't be written to."""
    if len(column) < 2 or not (column == column[0]).all():
        return column
    return np.broadcast_to(column[0].copy(), column.shape)


def _joined(name: str, parts: Sequence[dict[str, Any]], sizes: Sequence[int]) -> npt.NDArray[Any]:
    """One column of all parts, taken out of them."""
    dtype = np.int32 if name in _NARROW else np.int64
    shape: tuple[int, ...] = (3,) if name in {"grid", "block"} else ()
    pieces: list[Any] = [
        np.broadcast_to(np.asarray(part.pop(name)).astype(dtype, copy=False), (size, *shape))
        for part, size in zip(parts, sizes, strict=True)
        if size
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros((0, *shape), dtype), *pieces])
