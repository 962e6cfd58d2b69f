"""Where a host waits for a device: in which call, and after which operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.timeline.gaps import distinct_names
from ai_prof.timeline.operations import call_row
from ai_prof.timeline.syncs import host_syncs
from ai_prof.trace.model import SyncKind

if TYPE_CHECKING:
    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.trace.model import I64, Trace


class SyncUse(msgspec.Struct, frozen=True):
    """The waits of a host in one call (or of one kind) after one operation, and us that they last in all.

    `after` is the normalised name of the last operation that began before the wait ended, empty without one;
    `count` and `us` are per iteration.
    """

    call: str
    after: str
    count: float
    us: float


def sync_sites(trace: Trace, timeline: DeviceTimeline) -> list[SyncUse]:
    """The synchronizes that begin in a device's window, those that last longest first."""
    operations, busy, syncs = timeline.operations, timeline.busy, trace.syncs
    rows = host_syncs(trace, timeline.device, operations)
    rows = rows[(syncs.start[rows] >= busy.low) & (syncs.start[rows] < busy.high)]
    call, calls = _calls(trace, rows)
    last = np.searchsorted(operations.start, syncs.end[rows]) - 1
    names, after = distinct_names(trace, operations, last)
    keys, which, count = np.unique(call * len(names) + after, return_inverse=True, return_counts=True)
    us = np.bincount(which.reshape(-1), (syncs.end - syncs.start)[rows] / 1e3, len(keys))
    per = timeline.iterations_in_window
    found = [
        SyncUse(calls[key // len(names)], names[key % len(names)], number / per, time / per)
        for key, number, time in zip(keys.tolist(), count.tolist(), us.tolist(), strict=True)
    ]
    return sorted(found, key=lambda each: (-each.us, each.call, each.after))


def _calls(trace: Trace, rows: I64) -> tuple[I64, list[str]]:
    """Which of some names the call of each of some syncs has, (n,); its kind where no call is known."""
    label = -1 - trace.syncs.kind[rows].astype(np.int64)
    row = call_row(trace, trace.syncs.correlation[rows])
    named = row >= 0
    label[named] = trace.calls.name[row[named]]
    labels, which = np.unique(label, return_inverse=True)
    return which.reshape(-1), [
        trace.names[each] if each >= 0 else SyncKind(-1 - each).words for each in labels.tolist()
    ]
