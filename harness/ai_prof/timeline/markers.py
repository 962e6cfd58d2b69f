"""Iterations that the program or its framework marks itself: ProfilerStep and NVTX ranges."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

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
    process = operations.process[sequence.operation.max()]
    of_process = ranges.process == process
    names = np.array([_NUMBER.sub("#", name) for name in trace.names] + [""])[ranges.name]
    steps = of_process & np.array([bool(_PROFILER_STEP.match(name)) for name in names])
    if steps.any():
        rows = _first_rows(operations, sequence, ranges.start[steps], ranges.end[steps])
        return ("profiler_step", rows) if len(rows) else None
    for name in sorted({name for name in names[of_process].tolist() if _ITERATION.search(name)}):
        mine = of_process & (names == name)
        start, end = ranges.start[mine], ranges.end[mine]
        if len(start) >= _MIN_RANGES and len(set(ranges.thread[mine])) == 1 and (start[1:] >= end[:-1]).all():
            rows = _first_rows(operations, sequence, start, end)
            if len(rows) >= _MIN_RANGES:
                return "nvtx", rows
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
