"""Which kernels two captures have, how often, and how long they take; matched by normalised name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from ai_prof.bounds import Amount, Number, Positive
from ai_prof.timeline.names import normalise

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.trace.model import I32, Trace

    F64 = npt.NDArray[np.float64]

_LONGER = (0.05, 0.5)  # a mean must differ by this share and by so many us to be named
_OFTENER = 0.5  # executions per iteration


class KernelUse(msgspec.Struct, frozen=True):
    """Executions and ms per iteration (or window), and the mean of one execution.

    `threads` is how many one is launched with, in the mean; 0 where the trace does not say. `example` is the
    name as it was, of those that are one when normalised the one with most time.
    """

    count: Positive
    mean_us: Amount
    ms: Amount
    threads: Amount = 0.0
    example: str = ""


class KernelChange(msgspec.Struct, frozen=True):
    """`changes`: added, removed, slower, faster, more often, less often; none for what stayed."""

    name: str
    changes: list[str]
    before: KernelUse | None
    after: KernelUse | None
    change_ms: Number


def compare_kernels(
    a: tuple[Trace, Sequence[DeviceTimeline]],
    b: tuple[Trace, Sequence[DeviceTimeline]],
    *,
    by_iteration: bool,
) -> list[KernelChange]:
    """Every kernel of either, the largest change of time first; `more often` is judged by iterations only."""
    before, after = (kernel_uses(*side, by_iteration=by_iteration) for side in (a, b))
    found = []
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        change = (new.ms if new else 0.0) - (old.ms if old else 0.0)
        found.append(KernelChange(name, changes(old, new, by_iteration=by_iteration), old, new, change))
    return sorted(found, key=lambda kernel: (-abs(kernel.change_ms), kernel.name))


def share_in_common(kernels: Sequence[KernelChange]) -> float:
    """How much of the kernel time is of kernels that both have: the larger share of the two sides."""
    shared = _both_ms([kernel for kernel in kernels if kernel.before and kernel.after])
    shares = (some / whole for some, whole in zip(shared, _both_ms(kernels), strict=True) if whole)
    return max(shares, default=0.0)


def _both_ms(kernels: Sequence[KernelChange]) -> tuple[float, float]:
    """The kernel time of either side."""
    before = sum(kernel.before.ms for kernel in kernels if kernel.before)
    return before, sum(kernel.after.ms for kernel in kernels if kernel.after)


def changes(
    old: KernelUse | None,
    new: KernelUse | None,
    *,
    by_iteration: bool,
    floor: tuple[float, float] = _LONGER,
) -> list[str]:
    """Name how one kernel changed; `more often` only where counts are per iteration.

    `floor` is what its mean must differ by to be slower or faster: a share of it, and us.
    """
    if old is None or new is None:
        return ["added" if old is None else "removed"]
    found = []
    longer = new.mean_us - old.mean_us
    if abs(longer) > max(floor[0] * old.mean_us, floor[1]):
        found.append("slower" if longer > 0 else "faster")
    if by_iteration and abs(new.count - old.count) >= _OFTENER:
        found.append("more often" if new.count > old.count else "less often")
    return found


def kernel_uses(
    trace: Trace, timelines: Sequence[DeviceTimeline], *, by_iteration: bool
) -> dict[str, KernelUse]:
    """Kernels by normalised name, of all devices together, over those that start in their windows."""
    found: dict[str, list[_Part]] = {}
    for timeline in timelines:
        operations, busy = timeline.operations, timeline.busy
        inside = operations.is_kernel & operations.begin_in(busy.low, busy.high)
        ids, of, times = np.unique(operations.name[inside], return_inverse=True, return_counts=True)
        durations = np.zeros(len(ids), np.int64)
        np.add.at(durations, of.reshape(-1), (operations.end - operations.start)[inside])
        launched = _threads(trace, timeline, ids)
        per = timeline.iterations_in_window if by_iteration else 1
        columns = (durations.tolist(), times.tolist(), launched.tolist())
        for i, ns, executions, threads in zip(ids.tolist(), *columns, strict=True):
            example = trace.names[i] if i >= 0 else "unknown kernel"
            found.setdefault(normalise(example), []).append(_Part(ns, executions, threads, per, example))
    return {name: _use(parts) for name, parts in found.items()}


class _Part(NamedTuple):
    """One name of a kernel on one device: ns, executions and threads of all, in `per` iterations."""

    ns: int
    executions: int
    threads: float
    per: float
    example: str


def _use(parts: Sequence[_Part]) -> KernelUse:
    executions = sum(part.executions for part in parts)
    return KernelUse(
        count=sum(part.executions / part.per for part in parts),
        mean_us=sum(part.ns for part in parts) / executions / 1000,
        ms=sum(part.ns / part.per for part in parts) / 1e6,
        threads=sum(part.threads for part in parts) / executions,
        example=max((part.ns, part.example) for part in parts)[1],
    )


def _threads(trace: Trace, timeline: DeviceTimeline, names: I32) -> F64:
    """The threads that all launches of each of some names ask for together; (n,), names rising."""
    kernels, busy = trace.kernels, timeline.busy
    inside = (kernels.device == timeline.device) & (kernels.start >= busy.low) & (kernels.start < busy.high)
    inside &= np.isin(kernels.name, names)
    each = np.prod(kernels.grid[inside], axis=1, dtype=np.float64)
    each *= np.prod(kernels.block[inside], axis=1, dtype=np.float64)
    return np.bincount(np.searchsorted(names, kernels.name[inside]), each, len(names)).astype(np.float64)
