"""What an iteration's time goes to in the mean: each kernel, and the gaps between each two operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.diff_kernels import KernelUse, kernel_uses
from ai_prof.timeline.gaps import last_to_end, normalised_name
from ai_prof.timeline.operations import KERNEL, call_row
from ai_prof.timeline.syncs import host_syncs
from ai_prof.trace.model import SyncKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.operations import Operations
    from ai_prof.trace.model import I64, Trace

    F64 = npt.NDArray[np.float64]

LEAST_US = 1.0  # an iteration: shorter gaps between two operations are left out


class GapUse(msgspec.Struct, frozen=True):
    """The gaps between two operations (normalised names): how many an iteration has, and us by cause.

    Of these us, `shadow_us` lie in the shadow of synchronizes.
    """

    before: str
    after: str
    count: float
    us: dict[str, float]
    shadow_us: float = 0.0


class SyncUse(msgspec.Struct, frozen=True):
    """The waits of a host in one call (or of one kind), after one operation (normalised name) has ended.

    How many an iteration has, and us that they last in all.
    """

    call: str
    after: str
    count: float
    us: float


class Spent(msgspec.Struct, frozen=True):
    """Means over the iterations of one device's window: sums, so that all of them add up to the whole.

    `kernels` is by normalised name; `gaps` has those between each two operations that come to LEAST_US;
    `syncs` is None where it was not stored.
    """

    kernels: dict[str, KernelUse]
    gaps: list[GapUse]
    syncs: list[SyncUse] | None = None


def spent(trace: Trace, timeline: DeviceTimeline) -> Spent:
    """The kernels and gaps of a device's window, per iteration."""
    kernels = kernel_uses(trace, [timeline], by_iteration=True)
    names, of = _named(trace, timeline.operations)
    return Spent(kernels, _gaps(timeline, names, of), _syncs(trace, timeline, names, of))


def _gaps(timeline: DeviceTimeline, names: list[str], of: I64) -> list[GapUse]:
    operations, causes = timeline.operations, timeline.causes
    before, after = last_to_end(operations, timeline.busy.gaps.start), causes.next_operation
    keys, pair, count = np.unique(
        of[before] * len(names) + of[after], return_inverse=True, return_counts=True
    )
    us = np.zeros((len(keys), len(CAUSES)))
    for column, (gaps, ns) in enumerate(causes.parts):
        us[:, column] = np.bincount(pair.reshape(-1)[gaps], weights=ns / 1e3, minlength=len(keys))
    gaps, ns = causes.shadow
    shadow = np.bincount(pair.reshape(-1)[gaps], weights=ns / 1e3, minlength=len(keys))
    per = timeline.iterations_in_window
    return [
        GapUse(
            names[key // len(names)], names[key % len(names)], number / per, _by_cause(each / per), dark / per
        )
        for key, number, each, dark in zip(keys.tolist(), count.tolist(), us, shadow.tolist(), strict=True)
        if each.sum() >= LEAST_US * per
    ]


def _syncs(trace: Trace, timeline: DeviceTimeline, names: list[str], of: I64) -> list[SyncUse]:
    operations, busy, syncs = timeline.operations, timeline.busy, trace.syncs
    rows = host_syncs(trace, timeline.device, operations)
    rows = rows[(syncs.start[rows] >= busy.low) & (syncs.start[rows] < busy.high)]
    if not len(rows):
        return []
    last = last_to_end(operations, syncs.end[rows])
    after = np.where(last >= 0, of[last], len(names))
    call, calls = _calls(trace, rows)
    keys, which, count = np.unique(call * (len(names) + 1) + after, return_inverse=True, return_counts=True)
    us = np.bincount(which.reshape(-1), (syncs.end - syncs.start)[rows] / 1e3)
    per = timeline.iterations_in_window
    titles = [*names, ""]
    return [
        SyncUse(calls[key // len(titles)], titles[key % len(titles)], number / per, time / per)
        for key, number, time in zip(keys.tolist(), count.tolist(), us.tolist(), strict=True)
    ]


def _calls(trace: Trace, rows: I64) -> tuple[I64, list[str]]:
    """Which of some names the call of each of some syncs has, (n,); its kind where no call is known."""
    label = -1 - trace.syncs.kind[rows].astype(np.int64)
    row = call_row(trace, trace.syncs.correlation[rows])
    named = row >= 0
    label[named] = trace.calls.name[row[named]]
    labels, which = np.unique(label, return_inverse=True)
    return which.reshape(-1), [
        trace.names[each] if each >= 0 else SyncKind(-1 - each).name.lower().replace("_", " ")
        for each in labels.tolist()
    ]


def _by_cause(us: F64) -> dict[str, float]:
    return {cause: time for cause, time in zip(CAUSES, us.tolist(), strict=True) if time}


def _named(trace: Trace, operations: Operations) -> tuple[list[str], I64]:
    """The normalised names of the operations, each once, and which of them each operation has; (n,)."""
    label = np.where(operations.is_kernel, operations.name, KERNEL - 1 - operations.kind)
    _, first, which = np.unique(label, return_index=True, return_inverse=True)
    each = [normalised_name(trace, operations, row) for row in first.tolist()]
    number = {name: i for i, name in enumerate(dict.fromkeys(each))}
    return list(number), np.array([number[name] for name in each], np.int64)[which.reshape(-1)]
