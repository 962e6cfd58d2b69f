"""Writes a folder of CSV files, one a table, with a header line each."""

from __future__ import annotations

import csv
import io
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ai_prof.trace.writers.atomic import atomic_folder
from ai_prof.trace.writers.columns import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from ai_prof.trace.model import Trace
    from ai_prof.trace.writers.columns import Column, Table
    from ai_prof.trace.writers.track import Track

_BATCH = 65536  # rows turned into Python values at a time


def write_csv(trace: Trace, folder: Path, tracks: Sequence[Track] = ()) -> None:
    """Write TABLE.csv for each table; a missing value is an empty field.

    Raises:
        UsageError: the folder cannot be written, or holds something already.

    """
    with atomic_folder(folder) as staging:
        for name, table in tables(trace, tracks).items():
            with (staging / f"{name}.csv").open("wb") as file:
                _write(table, file)


def _write(table: Table, file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    columns = [(column, _texts(column)) for column in table.values()]
    for begin in range(0, len(columns[0][0].values), _BATCH):
        rows = slice(begin, begin + _BATCH)
        writer.writerows(zip(*(_values(*column, rows) for column in columns), strict=True))
    text.detach()


def _texts(column: Column) -> npt.NDArray[np.object_] | None:
    """The labels; the last one, which -1 finds, stands for what is missing."""
    return None if column.labels is None else np.array([*column.labels, ""], object)


def _values(column: Column, texts: npt.NDArray[np.object_] | None, rows: slice) -> list[Any]:
    values, missing = column.values[rows], column.missing[rows]
    if texts is not None:
        return list(texts[np.where(missing, -1, values)])
    if missing.any():
        return list(np.where(missing, "", values.astype(object)))
    return list(values.tolist())
