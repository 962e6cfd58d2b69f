"""How long the launches take that are still to be made. Pure functions."""

from __future__ import annotations

import itertools
from statistics import fmean, median
from typing import TYPE_CHECKING

from ai_prof.runs.sessions import started

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.model import Run


def usual_seconds(runs: Sequence[Run]) -> float | None:
    """From the start of one stored launch of a workload to that of the next; None where none follows."""
    # By time, since each build of a session numbers its launches from 0.
    pairs = itertools.pairwise(sorted(runs, key=lambda run: (started(run), run.order)))
    steps = [
        (started(after) - started(before)).total_seconds()
        for before, after in pairs
        if before.session == after.session and after.order == before.order + 1
    ]
    return median(steps) if steps else None


def seconds_left(workloads: Sequence[str], known: Mapping[str, float]) -> float | None:
    """What one launch of each of these takes; what is not known of one is as of the others, None of all."""
    if not known:
        return None
    usual = fmean(known.values())
    return sum(known.get(workload, usual) for workload in workloads)
