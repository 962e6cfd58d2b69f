"""Which row of a timeline each operation of a device lies in.

A stream has a row. What begins there before all that came before it has ended (programmatic dependent
launch lets a kernel do so, and two processes may use a stream of one number) lies in a further row, since
spans of one row may nest but not overlap: Perfetto drops those that do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ai_prof.trace.model import I64, Trace

_FURTHER_TID = 1 << 29  # further rows are numbered from here: no stream's number reaches it


@dataclass(frozen=True, slots=True)
class StreamRows:
    """The row of each kernel and of each copy or memset, (n,); and all rows as device, row, title."""

    kernels: I64
    memory: I64
    titles: list[tuple[int, int, str]]


def stream_rows(trace: Trace) -> StreamRows:
    """Rows in the order of devices and streams, a stream's further ones below it."""
    tables = (trace.kernels, trace.memory)
    device, stream, start, end = (
        np.concatenate([getattr(table, field) for table in tables]).astype(np.int64)
        for field in ("device", "stream", "start", "end")
    )
    streams, place = np.unique(stream, return_inverse=True)
    lane = _lanes(start, end, device * len(streams) + place)
    lanes = int(lane.max(initial=0)) + 1
    keys, of = np.unique((device * len(streams) + place) * lanes + lane, return_inverse=True)
    tids, titles = np.empty(len(keys), np.int64), []
    for i, key in enumerate(keys.tolist()):
        row, number = divmod(key, lanes)
        on, column = divmod(row, len(streams))
        name = int(streams[column])
        tids[i] = _FURTHER_TID + i if number else max(name, 0)  # the format has no negative rows
        titles.append((on, int(tids[i]), f"stream {name} ({number + 1})" if number else f"stream {name}"))
    found = tids[of]
    return StreamRows(found[: len(trace.kernels.start)], found[len(trace.kernels.start) :], titles)


def _lanes(start: I64, end: I64, row: I64) -> I64:
    """For each span 0, or by how many of its row it has to step aside; (n,)."""
    lanes = np.zeros(len(start), np.int64)
    order = np.lexsort((end, start, row))
    bounds = np.flatnonzero(np.diff(row[order])) + 1
    for members in np.split(order, bounds):
        latest = np.maximum.accumulate(end[members])
        if (start[members][1:] < latest[:-1]).any():
            lanes[members] = _first_free(start[members].tolist(), end[members].tolist())
    return lanes


def _first_free(starts: list[int], ends: list[int]) -> list[int]:
    """The first lane that each span finds free, in the order of starts."""
    free: list[int] = []  # since when each lane is
    found = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((i for i, since in enumerate(free) if since <= start), len(free))
        free[lane : lane + 1] = [end]
        found.append(lane)
    return found
