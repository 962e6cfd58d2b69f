"""Take values out of runs: usable numbers, one a session, and the way they are written for people."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ai_prof.gate.metrics import Floor, Metric, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ai_prof.gate.model import Run
    from ai_prof.timeline.profile import Profile

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

NORMAL_DISTANCE = 0.9539  # the median distance of two standard normal values: 0.6745 sqrt(2)


def transformed(run: Run, metric: Metric, floor: Floor) -> float | None:
    """The run's value on the scale of the tests, or None where it has no usable one.

    None, NaN, infinity and a time that is negative (or 0 where no floor gives 0 a place) are unusable.
    """
    value = run.metrics.get(metric.key)
    if value is None or not math.isfinite(value):
        return None
    if metric.scale is Scale.LOG and (value < 0 or value + floor.absolute <= 0):
        return None
    return metric.y(value, floor)


def run_values(runs: Sequence[Run], metric: Metric, floor: Floor) -> F64:
    """The usable values of the runs, shape (n,), on the scale of the tests."""
    values = (transformed(run, metric, floor) for run in runs)
    return np.array([value for value in values if value is not None], dtype=np.float64)


def run_profiles(runs: Sequence[Run], profiles: Mapping[str, Profile]) -> list[Profile]:
    """The aligned profiles of the runs, of those that have one; `profiles` holds them by digest."""
    return [profiles[run.profile] for run in runs if run.profile is not None and run.profile in profiles]


def constant_count(runs: Sequence[Run], metric: Metric) -> int | None:
    """The count per iteration that all runs have alike; None where they differ, or one does not know it."""
    counts = {run.structure.get(metric.key) for run in runs}
    return counts.pop() if len(counts) == 1 else None


def session_values(runs: Sequence[Run], metric: Metric, floor: Floor) -> F64:
    """One value a session, the median of its runs, in the order the sessions first appear, shape (N,)."""
    return np.array([statistics.median(each) for each in _by_session(runs, metric, floor)], dtype=np.float64)


def within_sessions(runs: Sequence[Run], metric: Metric, floor: Floor) -> float:
    """The variance of single runs of one session, on the scale of the tests; 0 where unknown.

    From the median distance of two runs of a session, as a normal one's: a tenth of slow launches widens the
    spread of runs by half and more, and that of the sessions' medians, which this is held against, hardly.
    """
    pairs = (pair for each in _by_session(runs, metric, floor) for pair in itertools.combinations(each, 2))
    distances = [abs(one - other) for one, other in pairs]
    return (statistics.median(distances) / NORMAL_DISTANCE) ** 2 if distances else 0.0


def _by_session(runs: Sequence[Run], metric: Metric, floor: Floor) -> Iterable[list[float]]:
    """The usable values of each session's runs."""
    sessions: dict[str, list[float]] = {}
    for run in runs:
        value = transformed(run, metric, floor)
        if value is not None:
            sessions.setdefault(run.session, []).append(value)
    return sessions.values()


def effect_of(metric: Metric, baseline: float, candidate: float) -> float | None:
    """Relative change of a time (None from a baseline of 0), difference of a ratio."""
    if metric.scale is Scale.RAW:
        return candidate - baseline
    return candidate / baseline - 1 if baseline > 0 else None


def beyond_floor(floor: Floor, baseline: float, candidate: float) -> bool:
    """Whether the change is larger than both floors, in either direction."""
    return abs(candidate - baseline) > max(floor.relative * abs(baseline), floor.absolute)


def number(metric: Metric, value: float | None) -> str:
    """A value with its unit: `3.10 ms`, `74.2 %`."""
    if value is None:
        return "none"
    if metric.scale is Scale.RAW:
        return f"{100 * value:.1f} %"
    return f"{value:.{_decimals(value)}f} {metric.unit}"


def change(metric: Metric, effect: float | None) -> str:
    """The size of a change without its sign: `41 %`, `3.2 points`."""
    if effect is None:
        return "from nothing"
    size = 100 * abs(effect)
    unit = "points" if metric.scale is Scale.RAW else "%"
    return f"{size:.{0 if size >= 10 else 1}f} {unit}"


def floor_text(metric: Metric, floor: Floor) -> str:
    """A floor in words: `1 % and 0.02 ms`, `1 point`."""
    if metric.scale is Scale.RAW:
        points = 100 * floor.absolute
        return f"{points:g} point{'' if points == 1 else 's'}"
    parts = [f"{100 * floor.relative:g} %"] if floor.relative else []
    if floor.absolute:
        parts.append(f"{floor.absolute:g} {metric.unit}")
    return " and ".join(parts) or "none"


def _decimals(value: float) -> int:
    """Digits behind the point that leave three significant ones."""
    return 2 if value == 0 else max(0, 2 - math.floor(math.log10(float(f"{abs(value):.2e}"))))
