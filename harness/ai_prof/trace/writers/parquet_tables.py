"""Writes a folder of Parquet files, one a table; names are dictionaries. Needs the extra `parquet`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ai_prof.errors import UsageError
from ai_prof.trace.writers.atomic import atomic_folder
from ai_prof.trace.writers.columns import tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ai_prof.trace.model import Trace
    from ai_prof.trace.writers.columns import Column
    from ai_prof.trace.writers.track import Track


def write_parquet(trace: Trace, folder: Path, tracks: Sequence[Track] = ()) -> None:
    """Write TABLE.parquet for each table; a missing value is null.

    Raises:
        UsageError: pyarrow is not installed, or the folder cannot be written or holds something already.

    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise UsageError("--format parquet needs pyarrow: pip install 'ai-prof[parquet]'") from None
    with atomic_folder(folder) as staging:
        for name, table in tables(trace, tracks).items():
            arrays = {key: _array(pa, column) for key, column in table.items()}
            with (staging / f"{name}.parquet").open("wb") as file:  # pyarrow takes names of UTF-8 alone
                parquet.write_table(pa.table(arrays), file)


def _array(pa: Any, column: Column) -> Any:
    values = pa.array(column.values, mask=column.missing)
    if column.labels is None:
        return values
    labels = [label.encode("utf-8", "backslashreplace").decode() for label in column.labels]
    return pa.DictionaryArray.from_arrays(values, pa.array(labels, pa.string()))
