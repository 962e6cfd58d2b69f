"""Iterations that the program or its framework marks itself: ProfilerStep and NVTX ranges."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.trace.tables import Names, renumbered

if TYPE_CHECKING:
    from ai_prof.timeline.operations import Operations
    from ai_prof.timeline.sequence import Sequence
    from ai_prof.trace.model import I64, Trace

_PROFILER_STEP = re.compile(r"^ProfilerStep(#|\*|$)")
_ITERATION = re.compile(r"\b(train(ing)?[ _]?)?(iter(ation)?|step|batch)\b", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+")
_MIN_RANGES = 3


def marked_starts(trace: Trace, operations: Operations, sequence: Sequence) -> tuple[str, I64] | None:
    """The method, and the row of the first operation that was launched in each marked range.

    ProfilerSteps count always; of NVTX ranges, those of one name (numbers aside) that speaks of an
    iteration, comes three times or more, and follow each other on one thread.
    """
    ranges = trace.ranges
    if not len(ranges.start) or not len(sequence):
        return None
    rows = np.flatnonzero(ranges.process == operations.process[sequence.operation.max()])
    kinds = Names()  # few, where a column of names, each as wide as the longest of a kernel, is none to make

    def number(key: int) -> int:
        return kinds[_NUMBER.sub("#", trace.names[key]) if key >= 0 else ""]

    kind = renumbered(ranges.name[rows], number)
    steps = rows[np.isin(kind, [number for name, number in kinds.items() if _PROFILER_STEP.match(name)])]
    if len(steps):
        first = _first_rows(operations, sequence, ranges.start[steps], ranges.end[steps])
        return ("profiler_step", first) if len(first) else None
    for name in sorted(filter(_ITERATION.search, kinds)):
        mine = rows[kind == kinds[name]]
        start, end = ranges.start[mine], ranges.end[mine]
        of_one = len(np.unique(ranges.thread[mine])) == 1
        if len(start) >= _MIN_RANGES and of_one and (start[1:] >= end[:-1]).all():
            first = _first_rows(operations, sequence, start, end)
            if len(first) >= _MIN_RANGES:
                return "nvtx", first
    return None


def _first_rows(operations: Operations, sequence: Sequence, start: I64, end: I64) -> I64:
    """For each range, the row of the first operation launched in it; ranges without one are left out.

    Without host calls, the first one that started in it stands for it.
    """
    is_operation = np.flatnonzero(sequence.operation >= 0)
    operation = sequence.operation[is_operation]
    asked = operations.launch[operation]
    asked = np.where(asked >= 0, asked, operations.start[operation])
    order = np.argsort(asked, kind="stable")
    at = np.searchsorted(asked[order], start)
    inside = at < len(order)
    at, end = at[inside], end[inside]
    inside = asked[order[at]] < end
    rows: I64 = np.unique(is_operation[order[at[inside]]])
    return rows
