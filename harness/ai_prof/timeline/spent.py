"""What an iteration's time goes to in the mean: each kernel, and the gaps between each two operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.bounds import Amount, Positive
from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.diff_kernels import KernelUse, kernel_uses
from ai_prof.timeline.gaps import distinct_names, last_to_end
from ai_prof.timeline.sync_sites import SyncUse, sync_sites

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.trace.model import Trace

    F64 = npt.NDArray[np.float64]

LEAST_US = 1.0  # an iteration: shorter gaps between two operations are left out


class GapUse(msgspec.Struct, frozen=True):
    """The gaps between two operations (normalised names): how many an iteration has, and us by cause.

    Of these us, `shadow_us` lie in the shadow of synchronizes.
    """

    before: str
    after: str
    count: Positive
    us: dict[str, Amount]
    shadow_us: Amount = 0.0


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
    return Spent(kernels, _gaps(trace, timeline), sync_sites(trace, timeline))


def _gaps(trace: Trace, timeline: DeviceTimeline) -> list[GapUse]:
    operations, causes = timeline.operations, timeline.causes
    around = np.concatenate((last_to_end(operations, timeline.busy.gaps.start), causes.next_operation))
    names, of = distinct_names(trace, operations, around)
    before, after = np.split(of, 2)
    keys, pair, count = np.unique(before * len(names) + after, return_inverse=True, return_counts=True)
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


def _by_cause(us: F64) -> dict[str, float]:
    return {cause: time for cause, time in zip(CAUSES, us.tolist(), strict=True) if time}
