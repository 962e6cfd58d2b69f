"""Builds the tables of a Trace from unsorted columns, and numbers its names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ai_prof.trace.model import Calls, Kernels, Memory, Ranges, Samples, Syncs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Table = TypeVar("Table", Kernels, Memory, Syncs, Calls, Ranges, Samples)

_NARROW = {"device", "process", "name", "kind", "result", "grid", "block", "registers", "shared_bytes"}


class Names(dict[str, int]):
    """Numbers names from 0, in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


def make_table(table: type[Table], parts: Sequence[Mapping[str, Any]]) -> Table:
    """One table of all parts' rows, sorted by start (Samples: by time).

    Each part maps every field of the table to an array of that part's rows, or to one scalar for all.
    """
    fields = list(table.__dataclass_fields__)
    first = fields[0]
    sizes = [len(part[first]) for part in parts]
    columns: dict[str, Any] = {}
    for name in fields:
        dtype = np.int32 if name in _NARROW else np.int64
        shape: tuple[int, ...] = (3,) if name in {"grid", "block"} else ()
        pieces: list[Any] = [
            np.broadcast_to(np.asarray(part[name]).astype(dtype), (size, *shape))
            for part, size in zip(parts, sizes, strict=True)
        ]
        columns[name] = np.concatenate([np.zeros((0, *shape), dtype), *pieces])
    order = np.argsort(columns[first], kind="stable")
    return table(**{name: column[order] for name, column in columns.items()})
