"""What each position should have taken at a run's own speed, and how far off it may be.

Times are compared on a log scale: x = b + lambda F, with b the position's own time, F the run's speed on
the thread that launches, and lambda how much the position follows it. What is left over, in us, is judged
against what the baseline's runs leave over, each predicted from the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ai_prof.gate.values import F64, I64

    Bools = npt.NDArray[np.bool_]

PRIOR_RUNS = 10.0  # what the expected spread counts for, in runs
SPREAD_LIMIT = 0.2  # what one run may tell of the spread by itself
SPEED_PRIOR = 0.2  # runs' squared speeds below which lambda stays near 1
SPEED_ERROR = 0.15  # lambda's own error before any run was seen
LAMBDA = (0.25, 1.5)
TELLING = 3  # positions it takes to tell a host's speed from a change at one of them
ALL = -1  # threads
HOSTS = 0.2  # what hosts differ by, where too few positions tell of their speed
OUTWEIGHING = 0.1  # the same of a position that outweighs others: it does other work than they do


@dataclass(frozen=True, slots=True)
class Noise:
    """`spread` is the relative one expected of a position before its runs are seen, `least_us` its floor."""

    spread: float
    least_us: float


HOST = Noise(spread=0.04, least_us=2.0)
HOST_SLOW = Noise(spread=0.08, least_us=4.0)  # a run's slow iterations are fewer and differ more
DEVICE = Noise(spread=0.02, least_us=0.5)


@dataclass(frozen=True, slots=True)
class Threads:
    """`of` (P,) is the thread that launches each position, `before` the one that launched the last.

    A position where they differ is a hand-over; it says nothing of either thread's speed.
    """

    of: I64
    before: I64


@dataclass(frozen=True, slots=True)
class Model:
    """Positions' own times `b` (P,), ln us, `lam` (P,), and the runs' squared speeds added up, (P,).

    `unlike` (P,) is what a position may differ by between runs that the speed of the others doesn't tell.
    """

    b: F64
    lam: F64
    speeds: F64
    unlike: F64
    threads: Threads

    def speed(self, x: F64) -> F64:
        """F at each position, (R, P), of runs whose times are `x` (R, P), ln us."""
        return _speed(x - self.b, self.b, self.lam, self.threads)

    def predicted(self, speed: F64) -> F64:
        """What runs of this speed should take at each position, us; (R, P)."""
        return np.exp(self.b + self.lam * speed)

    def doubt(self, speed: F64) -> F64:
        """What lambda's error, and what the speed doesn't tell, may move the prediction by, us; (R, P)."""
        tau = SPEED_ERROR / np.sqrt(1 + self.speeds / SPEED_PRIOR)
        return (tau * np.abs(speed) + self.unlike) * self.predicted(speed)


def fit(x: F64, threads: Threads) -> Model:
    """The model of runs whose times are `x` (R, P), ln us."""
    b = np.median(x, axis=0)
    d = x - b
    flat = np.ones_like(b)
    f = _speed(d, b, flat, threads)
    speeds = (f**2).sum(axis=0)
    lam = np.clip(flat + (f * (d - f)).sum(axis=0) / (speeds + SPEED_PRIOR), *LAMBDA)
    return Model(b, lam, speeds, _unlike(b, threads), threads)


def left_over(x: F64, threads: Threads) -> tuple[F64, F64]:
    """Each run's residual and prediction by a model of the other runs, us; both (R, P)."""
    residual, predicted = np.empty_like(x), np.empty_like(x)
    for run in range(len(x)):
        model = fit(np.delete(x, run, axis=0), threads)
        alone = x[run : run + 1]
        predicted[run] = model.predicted(model.speed(alone))[0]
        residual[run] = np.exp(x[run]) - predicted[run]
    return residual, predicted


def variance(residual: F64, predicted: F64, expected: float) -> F64:
    """The relative variance of a position or a sum of some, from residuals and predictions (R, P).

    `expected` is what it would be taken for before its runs were seen.
    """
    seen = _squares(residual, predicted).sum(axis=0)
    own: F64 = (PRIOR_RUNS * expected + seen) / (PRIOR_RUNS + len(residual))
    return own


def shared_variance(residual: F64, predicted: F64, noise: Noise) -> float:
    """The relative variance that positions have on the average, and no less than noise's."""
    return max(noise.spread**2, float(_squares(residual, predicted).mean()))


def _squares(residual: F64, predicted: F64) -> F64:
    """The squares of the relative residuals, (R, P).

    The largest counts for no more than the second, or SPREAD_LIMIT: one wild run tells of no wider spread,
    two do.
    """
    squares = (residual / predicted) ** 2
    second = np.partition(squares, -2, axis=0)[-2]
    bounded: F64 = np.minimum(squares, np.maximum(second, SPREAD_LIMIT**2))
    return bounded


def _speed(d: F64, b: F64, lam: F64, threads: Threads) -> F64:
    """The weighted median of d / lambda on each thread; at a hand-over the mean of both threads'. (R, P)."""
    told = {thread: _told(d / lam, b, at) for thread, at in _tellers(threads).items()}
    count = int(max(threads.of.max(), threads.before.max())) + 1
    by_thread = np.repeat(told.pop(ALL)[:, None], count, axis=1)
    for thread, speed in told.items():
        by_thread[:, thread] = speed
    return (by_thread[:, threads.of] + by_thread[:, threads.before]) / 2


def _tellers(threads: Threads) -> dict[int, Bools]:
    """The positions that tell of each thread's speed; those of ALL, where it has too few of its own."""
    own = threads.of == threads.before
    found = {ALL: own if own.sum() >= TELLING else np.ones_like(own)}
    for thread in np.unique(threads.of[own]).tolist():
        mine = (threads.of == thread) & own
        if mine.sum() >= TELLING:
            found[thread] = mine
    return found


def _told(speed: F64, b: F64, at: Bools) -> F64:
    """What the positions `at` say of each run's speed, (R,): a median that follows no single one of them.

    Each that is lacking says that there is none. So one alone tells nothing, since it may be what changed;
    of two the nearer to none counts, whichever of them changed, and either way.
    """
    lacking = TELLING - int(at.sum())
    if lacking > 0:
        return np.median(np.pad(speed[:, at], ((0, 0), (0, lacking))), axis=1)
    # Root weights: long positions say more of the speed, and one of them that changed says not all.
    weight = np.exp(b[at] / 2)
    if weight.max() > weight.sum() / TELLING:
        weight = np.minimum(weight, np.sort(weight)[::-1][:TELLING][-1])
    return _weighted_median(speed[:, at], weight)


def _unlike(b: F64, threads: Threads) -> F64:
    """By how much more a position may differ between runs than the others' speed tells, relative, (P,)."""
    if len(b) < TELLING:
        return np.full(len(b), HOSTS)
    weight, unlike = np.exp(b / 2), np.zeros(len(b))
    for thread, at in _tellers(threads).items():
        held = at | (thread == ALL)  # a hand-over, which tells of no thread, is held against all that tell
        unlike[held & (weight > weight[at].sum() / TELLING)] = OUTWEIGHING
    return unlike


def _weighted_median(values: F64, weight: F64) -> F64:
    """Of each row of `values` (R, P) by `weight` (P,)."""
    order = np.argsort(values, axis=1, kind="stable")
    reached = np.cumsum(weight[order], axis=1)
    at = (reached >= reached[:, -1:] / 2).argmax(axis=1)
    row = np.arange(len(values))
    median: F64 = values[row, order[row, at]]
    return median
