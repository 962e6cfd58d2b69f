"""How far the clock of sampled stacks is off, as the host calls of the same threads tell.

A thread stands in a call that waits, or in none, by what its program does: at the right shift stacks and
calls tell the most of each other. That is their mutual information; times the number of stretches seen it is
the logarithm of a likelihood, and shifts that are less likely by `_LESS_LIKELY` are ruled out (by Wilks'
theorem 1.9 would leave 95 %).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ai_prof.trace.model import I32, I64, Calls, Stacks, Syncs, Trace

_POINTS = 10_000
_SHIFTS = 200
_FINEST_NS = 50_000
_LESS_LIKELY = 3.0


class Correction(NamedTuple):
    """What to add to the stacks' times, and how far these may be off then, ns."""

    shift: int
    error: int


class _Host(NamedTuple):
    """What threads were seen in, (n,), sorted by start; `label` is a small number."""

    start: I64
    end: I64
    thread: I64
    label: I64

    def of(self, thread: int) -> _Host:
        mine = np.flatnonzero((self.thread == thread) & (self.end > self.start))
        return _Host(*(column[mine] for column in self))


def correction(stacks: Stacks, trace: Trace, process: int, error: int) -> Correction:
    """The correction of the stacks of `process` that may be off by `error` ns; none where no calls tell.

    Linear in the stacks and calls, and of bounded cost for all else.
    """
    shifts = np.arange(-error, error + 1, max(_FINEST_NS, 2 * error // _SHIFTS))
    score = np.zeros(len(shifts))
    seen, host = _sampled(stacks), _host(trace, process)
    for thread in np.unique(stacks.thread).tolist():
        mine, theirs = seen.of(thread), host.of(thread)
        if not len(mine.start) or not len(theirs.start):
            continue
        times, stack = _points(mine)
        for i, shift in enumerate(shifts.tolist()):
            score[i] += len(mine.start) * _information(stack, _label_at(theirs, times + shift))
    likely = np.flatnonzero(score >= score.max() - _LESS_LIKELY)
    if len(likely) == len(shifts):
        return Correction(0, error)
    low, high = shifts[max(likely[0] - 1, 0)], shifts[min(likely[-1] + 1, len(shifts) - 1)]
    return Correction(int(low + high) // 2, int(high - low) // 2)


def _sampled(stacks: Stacks) -> _Host:
    return _Host(stacks.start, stacks.end, stacks.thread, stacks.stack.astype(np.int64))


def _host(trace: Trace, process: int) -> _Host:
    """The calls of a process, and its waits, which some captures hold alone."""
    tables: list[tuple[Calls | Syncs, I32]] = [
        (trace.calls, trace.calls.name),
        (trace.syncs, -1 - trace.syncs.kind),
    ]
    parts = []
    for table, name in tables:
        mine = table.process == process
        parts.append((table.start[mine], table.end[mine], table.thread[mine], name[mine].astype(np.int64)))
    start, end, thread, names = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    label = np.unique(names, return_inverse=True)[1] + 1
    return _Host(*(column[order] for column in (start, end, thread, label)))


def _label_at(host: _Host, times: I64) -> I64:
    """What a thread was in at some times; 0 for nothing."""
    at = np.searchsorted(host.start, times, side="right") - 1
    return np.where((at >= 0) & (host.end[at] > times), host.label[at], 0)


def _points(seen: _Host) -> tuple[I64, I64]:
    """Times spread at random over what was seen, always the same for the same, and the label at each."""
    reach = np.cumsum(seen.end - seen.start, dtype=np.int64)
    along = np.sort(np.random.default_rng(0).integers(0, reach[-1], _POINTS))
    row = np.searchsorted(reach, along, side="right")
    return seen.end[row] - (reach[row] - along), seen.label[row]


def _information(a: I64, b: I64) -> float:
    """The mutual information of two columns of small numbers, nats."""
    width = int(b.max()) + 1
    joint = np.bincount(a * width + b, minlength=(int(a.max()) + 1) * width).reshape(-1, width) / len(a)
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    seen = joint > 0
    return float((joint[seen] * np.log(joint[seen] / apart[seen])).sum())
