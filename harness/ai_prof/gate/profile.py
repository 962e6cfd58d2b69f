"""Find the places of an iteration that take longer, whatever the speed of the run's host: flags only.

Each position is tested, and sums of positions: windows of 4 and 16 in a row, and all positions with the same
work before and at them. The critical values are frozen; they were set on simulated hosts, held against
recorded runs, and hold for the largest of all these statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ai_prof.gate.profile_align import Aligned, align
from ai_prof.gate.profile_model import (
    DEVICE,
    HOST,
    HOST_SLOW,
    Noise,
    Threads,
    fit,
    left_over,
    shared_variance,
    variance,
)
from ai_prof.timeline.names import short
from ai_prof.timeline.operations import KERNEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.gate.values import F64, I64
    from ai_prof.timeline.profile import Profile

CRITICAL = ((10, 2.8), (6, 3.5), (3, 5.0))  # from so many baseline runs on
WINDOWS = (4, 16)
POWER = 0.95  # the mean of the lower two of three normal values exceeds its negative in 80 % of cases
LOWEST = 2.0  # how many times the lowest of the runs their statistic may be
UNSETTLED_RATIO = 2.0  # slow iterations that take this many times as long as fast ones are of another kind
UNSETTLED_SHARE = 0.5  # of their excess that a run may find at the place beside
FELT_SHARE = 0.25  # the device waits for at least this share of a delay that it feels
FELT_NEAR = 4  # positions within which it does, where the host is not ahead of it
ALWAYS_IDLE = 0.1  # of the operations have no more idle time before them than the device itself takes

Aspect = Literal["host", "host_slow", "kernel"]
NOISE: dict[Aspect, Noise] = {"host": HOST, "host_slow": HOST_SLOW, "kernel": DEVICE}


@dataclass(frozen=True, slots=True)
class Finding:
    """Positions of the baseline's last profile that together grew by `size_us` an iteration, at `t`.

    `baseline_us` and `candidate_us` are their times at the candidate's own speed taken out. `felt` says
    whether the device idles longer for it; a kernel's own time always counts.
    """

    aspect: Aspect
    positions: tuple[int, ...]
    before: str
    at: str
    t: float
    critical: float
    baseline_us: float
    candidate_us: float
    felt: bool

    @property
    def size_us(self) -> float:
        """What an iteration takes longer."""
        return self.candidate_us - self.baseline_us


@dataclass(frozen=True, slots=True)
class Compared:
    """One aspect: the largest statistic anywhere, and the growth of a single position that would be found.

    `detectable_us` is found with 80 % power at half of the positions, `anywhere_us` at all of them: a long
    kernel varies by more than a short one.
    """

    aspect: Aspect
    t: float
    critical: float
    detectable_us: float
    anywhere_us: float
    finding: Finding | None


def critical_value(runs: int) -> float | None:
    """What the largest statistic must exceed; None where the baseline has too few runs."""
    return next((value for least, value in CRITICAL if runs >= least), None)


def compare(
    baseline: Sequence[Profile], candidate: Sequence[Profile], floors: dict[Aspect, float]
) -> list[Compared]:
    """Every aspect that both sides have; none where the baseline is too small or the work another.

    A finding must exceed its aspect's floor in us per iteration.
    """
    critical = critical_value(len(baseline))
    if critical is None or not candidate:
        return []
    runs = align(baseline[-1], (*baseline, *candidate))
    if runs is None:
        return []
    made = []
    for aspect, floor in floors.items():
        part = _part(runs, aspect)
        if len(part.position):
            made.append(_compare(runs, part, len(baseline), aspect, (critical, floor)))
    return made


def adjusted_us(finding: Finding, reference: Profile, profiles: Sequence[Profile]) -> F64 | None:
    """The time of a finding's positions in each run, us per iteration, its run's speed taken out; (R,).

    All runs make the model together, whichever side they are of, so that their labels stay exchangeable.
    None where a run lacks one of the positions.
    """
    runs = align(reference, profiles)
    if runs is None:
        return None
    part = _part(runs, finding.aspect)
    at = np.isin(part.position, finding.positions)
    if at.sum() < len(finding.positions):
        return None
    x = _times(part, finding.aspect)
    model = fit(x, _threads(part, finding.aspect))
    predicted = model.predicted(model.speed(x))[:, at].sum(axis=1)
    adjusted: F64 = np.exp(x)[:, at].sum(axis=1) / predicted * np.exp(model.b[at]).sum()
    return adjusted


def feels(finding: Finding, reference: Profile, head: Sequence[Profile]) -> bool:
    """Whether the device waits for a finding in head's runs."""
    runs = align(reference, head)
    if finding.aspect == "kernel" or runs is None:
        return True
    return _felt(runs.row("gap_us"), runs.position, np.array(finding.positions), finding.size_us)


def _part(runs: Aligned, aspect: Aspect) -> Aligned:
    """The positions that have this aspect in every run."""
    if aspect == "kernel":
        positive = np.all(runs.row("device_us") > 0, axis=0)
        return runs.only(np.logical_and(positive, runs.reference.kind[runs.position] == KERNEL))
    return runs.only(np.all(np.isfinite(runs.row("host_p25")), axis=0))


def _times(runs: Aligned, aspect: Aspect) -> F64:
    """Ln us, (R, P). The fast iterations of a run tell of its host's work with the least noise."""
    if aspect == "kernel":
        return np.log(runs.row("device_us"))
    if aspect == "host_slow":
        return runs.row("host_p75")
    return (runs.row("host_p10") + runs.row("host_p25")) / 2


def _threads(runs: Aligned, aspect: Aspect) -> Threads:
    if aspect == "kernel":
        one = np.zeros(len(runs.position), np.int64)
        return Threads(one, one)
    thread = np.maximum(runs.reference.thread, 0).astype(np.int64)
    return Threads(thread[runs.position], np.roll(thread, 1)[runs.position])


class _Sums:
    """The sums that are tested: each position, windows of neighbours, and positions of one role."""

    def __init__(self, runs: Aligned) -> None:
        names = runs.reference.names
        pairs = [(names[i - 1], names[i]) for i in runs.position.tolist()]
        numbers = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        self.role = np.array([numbers[pair] for pair in pairs], np.int64)
        self.size = len(pairs)

    def of(self, values: F64) -> F64:
        """All sums of `values` (R, P); (R, sums)."""
        total = np.concatenate((np.zeros((len(values), 1)), np.cumsum(values, axis=1)), axis=1)
        windows = [total[:, width:] - total[:, :-width] for width in WINDOWS if width < self.size]
        roles = np.stack([np.bincount(self.role, row) for row in values])
        return np.concatenate((values, *windows, roles), axis=1)

    def positions(self, index: int) -> I64:
        """Which positions the sum `index` adds up."""
        if index < self.size:
            return np.array([index])
        index -= self.size
        for width in WINDOWS:
            if width < self.size:
                if index <= self.size - width:
                    return np.arange(index, index + width)
                index -= self.size - width + 1
        return np.flatnonzero(self.role == index)


@dataclass(frozen=True, slots=True)
class _Test:
    """What one aspect's test saw, in us but for z.

    Per position `predicted` and `taken` by the candidate's runs, (C, P); per sum the statistic `z` and the
    median growth `grown`, (sums,), and `error`, (C, sums).
    """

    sums: _Sums
    predicted: F64
    taken: F64
    z: F64
    grown: F64
    error: F64


def _test(part: Aligned, count: int, aspect: Aspect) -> _Test:
    """Test all sums of one aspect; the first `count` runs are the baseline's."""
    sums, noise, x, threads = _Sums(part), NOISE[aspect], _times(part, aspect), _threads(part, aspect)
    model = fit(x[:count], threads)
    speed = model.speed(x[count:])
    predicted, taken = model.predicted(speed), np.exp(x[count:])
    seen, expected = left_over(x[:count], threads)
    # A device that other work disturbs is disturbed at any kernel; a host's places differ by what they do.
    known = shared_variance(seen, expected, noise) if aspect == "kernel" else noise.spread**2
    spread = variance(sums.of(seen), sums.of(expected), known)
    least = noise.least_us**2 * sums.of(np.ones((1, sums.size)))
    doubt = sums.of(model.doubt(speed))
    wander = sums.of(_unsettled(part, count)[None, :]) if aspect == "host_slow" else np.zeros(1)
    error = np.sqrt(least + spread * sums.of(predicted) ** 2 + doubt**2 + wander**2)
    residual = sums.of(taken - predicted)
    return _Test(sums, predicted, taken, _lower(residual / error), np.median(residual, axis=0), error)


def _lower(z: F64) -> F64:
    """The mean over the lower half of the runs, the middle one among it; (R, S) -> (S,).

    A change is in every run, so the lowest bounds it: two runs of three that were disturbed at one place say
    little where the third was not.
    """
    half = (len(z) + 1) // 2
    ordered = np.sort(z, axis=0)[:half]
    bounded: F64 = np.minimum(ordered.mean(axis=0), LOWEST * ordered[0])
    return bounded


def _unsettled(part: Aligned, count: int) -> F64:
    """How far the slow iterations at each place, or beside it, may wander from run to run, us; (P,).

    A thread that loses its core, or waits, in a quarter of the iterations does so at this call in one run and
    at the next in another. The first `count` runs, the baseline's, show where.
    """
    slow, fast = (np.exp(part.row(name)[:count]) for name in ("host_p75", "host_p25"))
    excess = np.median(np.maximum(slow - UNSETTLED_RATIO * fast, 0), axis=0)
    beside = np.maximum(np.roll(excess, 1), np.roll(excess, -1))
    wander: F64 = UNSETTLED_SHARE * np.maximum(excess, beside)
    return wander


def _compare(
    runs: Aligned, part: Aligned, count: int, aspect: Aspect, limits: tuple[float, float]
) -> Compared:
    critical, floor = limits
    test = _test(part, count, aspect)
    errors = np.median(test.error[:, : test.sums.size], axis=0)
    typical, largest = ((critical + POWER) * float(error) for error in (np.median(errors), errors.max()))
    finding = _finding(runs, part, test, count, aspect, limits)
    return Compared(aspect, float(test.z.max()), critical, max(typical, floor), max(largest, floor), finding)


def _finding(  # noqa: PLR0913, PLR0917 - one aspect's whole state
    runs: Aligned, part: Aligned, test: _Test, count: int, aspect: Aspect, limits: tuple[float, float]
) -> Finding | None:
    """What the significant sums say together."""
    critical, floor = limits
    exceeding = np.flatnonzero((test.z >= critical) & (test.grown >= floor))
    if not len(exceeding):
        return None
    places = _places(test, exceeding)
    expected = float(np.median(test.predicted[:, places].sum(axis=1)))
    growth = float(np.median((test.taken - test.predicted)[:, places].sum(axis=1)))
    best = int(part.position[places[np.argmax(test.z[places])]])
    names = runs.reference.names
    return Finding(
        aspect=aspect,
        positions=tuple(part.position[places].tolist()),
        before=short(names[best - 1]),
        at=short(names[best]),
        t=float(test.z[exceeding].max()),
        critical=critical,
        baseline_us=expected,
        candidate_us=expected + growth,
        felt=aspect == "kernel"
        or _felt(runs.row("gap_us")[count:], runs.position, part.position[places], growth),
    )


def _places(test: _Test, exceeding: I64) -> I64:
    """The positions of the significant sums, the strongest first, each sum apart from those before it."""
    taken = np.zeros(test.sums.size, bool)
    for index in exceeding[np.argsort(-test.z[exceeding], kind="stable")].tolist():
        positions = test.sums.positions(index)
        if not taken[positions].any():
            taken[positions] = True
    return np.flatnonzero(taken)


def _felt(gap_us: F64, position: I64, late: I64, growth: float) -> bool:
    """Whether the device waits for a share of the host's delay, of `growth` us at the positions `late`.

    `gap_us` (C, P) are the candidate's idle times at `position` (P,). Where the device idles before an
    operation that comes late, and longer than before most others, it would idle less without the delay: each
    run says so by itself, however fast its host was. Where it does not, it still had work.
    """
    idle = np.median(gap_us, axis=0)
    spared = np.maximum(idle - np.quantile(idle, ALWAYS_IDLE), 0)
    after = position[None, :] - late[:, None]
    near = np.logical_and(after >= 0, after < FELT_NEAR)
    return float(np.minimum(near @ spared, growth / len(late)).sum()) >= FELT_SHARE * growth
