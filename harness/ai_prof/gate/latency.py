"""Which iteration stands for a run: the median, or the one at the lower quarter where that varies less.

A host that is now and then slow moves the median of a run's iterations with it, and the fast ones stay. What
a change costs every iteration shows in both. The baseline alone chooses, before any candidate is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.gate.metrics import METRICS
from ai_prof.gate.values import session_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.gate.model import Run

KEY = "iteration_ms"
MEDIAN, LOW = 0.5, 0.25
GAIN = 0.5  # the lower quarter varies between sessions by at most this share of what the median does
WORTH = 0.01  # of ln latency: where the median varies less, nothing is to be gained
SESSIONS = 6  # below so many, variances say too little to choose by
ITERATIONS = 20  # a run with fewer has no lower quarter to speak of


def quantile_of(baseline: Sequence[Run], others: Sequence[Run] = ()) -> float:
    """The quantile of the iterations that stands for a run of this workload: MEDIAN or LOW.

    `others` are the runs to compare; where one of them has too few iterations, all have their median.
    """
    if any(len(run.iteration_ms) < ITERATIONS for run in (*baseline, *others)):
        return MEDIAN
    middle, low = (spread(baseline, share) for share in (MEDIAN, LOW))
    if middle is None or low is None or len({run.session for run in baseline}) < SESSIONS:
        return MEDIAN
    return LOW if middle > WORTH and low <= GAIN * middle else MEDIAN


def spread(runs: Sequence[Run], share: float) -> float | None:
    """The standard deviation between sessions of ln latency at a quantile; None below two sessions."""
    metric = METRICS[KEY]
    values = session_values(summarised(runs, share), metric, metric.floor)
    return float(np.std(values, ddof=1)) if len(values) >= 2 else None


def summarised(runs: Sequence[Run], share: float) -> list[Run]:
    """The runs with the latency at that quantile of their iterations; as they are for the median."""
    if share == MEDIAN:
        return list(runs)
    return [_at(run, share) for run in runs]


def quantile_note(baseline: Sequence[Run], share: float) -> list[str]:
    """What a report says where it is not the median."""
    if share == MEDIAN:
        return []
    before, after = (100 * (spread(baseline, each) or 0.0) for each in (MEDIAN, share))
    spreads = f"between sessions it varies by {after:.2g} %, the median by {before:.2g} %"
    unseen = "what less than three quarters of the iterations have can stay unseen in it"
    return [f"iteration latency is that of the lower quarter of a run's iterations: {spreads}; {unseen}"]


def _at(run: Run, share: float) -> Run:
    value = run.metrics.get(KEY)
    if value is None or len(run.iteration_ms) < ITERATIONS:
        return run
    low, middle = np.quantile(np.array(run.iteration_ms), (share, MEDIAN))
    # A ratio: an accepted change may have moved the run's own value.
    return msgspec.structs.replace(run, metrics={**run.metrics, KEY: value * float(low / middle)})
