"""Host synchronizations: how many, of which kind, and the time a host spent in them. Never GPU work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.intervals import clip, length, union
from ai_prof.timeline.operations import call_row
from ai_prof.trace.model import SyncKind

if TYPE_CHECKING:
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I32, I64, Trace


@dataclass(frozen=True, slots=True)
class SyncFigures:
    """`by_kind` adds up to `count`; `blocked_ns` is summed over threads."""

    count: int
    blocked_ns: int
    by_kind: dict[str, int]


def host_syncs(trace: Trace, device: int, operations: Operations) -> I64:
    """Rows of `trace.syncs` in which a host waited for the device; (n,).

    A wait whose device is unknown may be for any device of its process. STREAM_WAIT_EVENT holds no host.
    """
    syncs = trace.syncs
    users = np.unique(operations.process)
    ours = (syncs.device == device) | ((syncs.device < 0) & np.isin(syncs.process, users))
    return np.flatnonzero(ours & (syncs.kind != SyncKind.STREAM_WAIT_EVENT)).astype(np.int64)


def sync_threads(trace: Trace, rows: I64) -> I64:
    """The thread that waited in each sync: its own, or that of the call of the same correlation; (n,)."""
    thread = trace.syncs.thread[rows]
    row = call_row(trace, trace.syncs.correlation[rows])
    if not len(trace.calls.thread):
        return thread
    return np.where((thread < 0) & (row >= 0), trace.calls.thread[row], thread)


def threads_of(processes: I32, threads: I64) -> list[tuple[int, int]]:
    """Each process with each of its threads, once; rows of both columns belong together."""
    return [
        (process, thread)
        for process in np.unique(processes).tolist()
        for thread in np.unique(threads[processes == process]).tolist()
    ]


def sync_figures(trace: Trace, device: int, operations: Operations, low: int, high: int) -> SyncFigures:
    """Over the synchronizations that start in [low, high); blocked time is clipped to it."""
    syncs = trace.syncs
    rows = host_syncs(trace, device, operations)
    threads = sync_threads(trace, rows)
    blocked = 0
    for process, thread in threads_of(syncs.process[rows], threads):
        mine = rows[(syncs.process[rows] == process) & (threads == thread)]
        blocked += length(clip(union(syncs.start[mine], syncs.end[mine]), low, high))
    inside = rows[(syncs.start[rows] >= low) & (syncs.start[rows] < high)]
    kinds, counts = np.unique(syncs.kind[inside], return_counts=True)
    by_kind = {SyncKind(k).name.lower(): n for k, n in zip(kinds.tolist(), counts.tolist(), strict=True)}
    return SyncFigures(len(inside), blocked, by_kind)
