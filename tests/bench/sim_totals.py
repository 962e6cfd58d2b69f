"""The gate's false alarms and power on simulated builds, through its own functions: screen, flag, confirm.

A build gates 8 workloads by 5 correlated metrics against 10 sessions of 3 runs. A value is the sum, on the
scale of the test, of a session's part, a launch's part and the iterations' part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from doc_tables import percent
from scipy import stats

from ai_prof.gate import confirm, decide, screen
from ai_prof.gate.metrics import METRICS, Rules, Scale
from ai_prof.gate.model import Reason, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ai_prof.gate.model import WorkloadVerdict
    from ai_prof.gate.screen import Prior

    Again = Callable[["Drawn", "Flagged"], decide.Fresh]

WORKLOADS, SESSIONS, RUNS = 8, 10, 3
CENTRES = {
    "iteration_ms": 4.0,
    "kernel_time_ms": 2.8,
    "gap_ms": 1.0,
    "gap": 0.25,
    "copy_compute_overlap": 0.8,
}
TIMES = np.array([METRICS[key].scale is Scale.LOG for key in CENTRES])
HOST = np.array([key not in {"kernel_time_ms", "copy_compute_overlap"} for key in CENTRES])
CORRELATION = 0.6
ITERATIONS, ITERATION_SD, AUTOCORRELATION = 60, 0.01, 0.7
TAIL = 6.0  # launch spreads that a slow launch is slower by, on average
COUNTS: dict[str, int | None] = {
    "kernels": 100,
    "copies": 2,
    "copy_bytes": 4096,
    "syncs": 1,
    "graph_launches": 0,
}


@dataclass(frozen=True)
class Setting:
    """How runs vary: `session` and `launch` are standard deviations of a value's logarithm.

    `slow` is the share of launches slowed further, `tails` the degrees of freedom of a launch's t (None: a
    normal one), `correlated` takes medians of autocorrelated iterations, `modes` is the ratio of the two
    speeds that the host has, drawn for every launch anew.
    """

    name: str
    session: float
    launch: float
    slow: float = 0.0
    tails: float | None = None
    correlated: bool = False
    modes: float = 1.0


LEVELS = (("0.5 %", 0.005, 0.003), ("2 %", 0.02, 0.003), ("0.2 %", 0.002, 0.002))
SETTINGS = [
    setting
    for name, session, launch in LEVELS
    for setting in (
        Setting(f"{name}", session, launch),
        Setting(f"{name}, 10 % of launches slow", session, launch, slow=0.1),
        Setting(f"{name}, AR(1) iterations", session, launch, correlated=True),
        Setting(f"{name}, t with 3 df", session, launch, tails=3.0),
    )
] + [
    Setting("12 %", 0.12, 0.01),
    Setting("12 %, every launch anew", 0.005, 0.12),
    Setting("two speeds 1.7x apart", 0.005, 0.01, modes=1.7),
]


class Farm:
    """Draws builds of one setting."""

    def __init__(self, setting: Setting, seed: int | tuple[int, int]) -> None:
        self.setting = setting
        self.rng = np.random.default_rng(seed)
        shared = np.full((len(CENTRES), len(CENTRES)), CORRELATION)
        np.fill_diagonal(shared, 1.0)
        self.mix = np.linalg.cholesky(shared).T

    def session(self, *shape: int) -> np.ndarray:
        """The parts of some sessions, (..., metrics)."""
        parts: np.ndarray = self.rng.normal(0, self.setting.session, (*shape, len(CENTRES))) @ self.mix
        return parts

    def launches(self, *shape: int) -> np.ndarray:
        """The parts of some launches, (..., metrics)."""
        how, rng = self.setting, self.rng
        noise: np.ndarray = rng.normal(0, how.launch, (*shape, len(CENTRES))) @ self.mix
        if how.tails is not None:
            chi = rng.chisquare(how.tails, (*shape, 1)) / how.tails
            noise = noise / np.sqrt(chi) * math.sqrt((how.tails - 2) / how.tails)
        if how.slow:
            slow = rng.random(shape) < how.slow
            noise += (slow * rng.exponential(TAIL * how.launch, shape))[..., None] * HOST
        if how.correlated:
            noise += self.median_of_iterations(shape)[..., None] * HOST
        if how.modes > 1:
            noise += (
                (rng.random(shape) < 0.5)[..., None] * HOST * math.log(how.modes) * np.where(TIMES, 1, 0.2)
            )
        return noise

    def median_of_iterations(self, shape: tuple[int, ...]) -> np.ndarray:
        """The median over iterations that each resemble the one before."""
        steps = self.rng.normal(0, ITERATION_SD, (*shape, ITERATIONS))
        steps[..., 1:] *= math.sqrt(1 - AUTOCORRELATION**2)
        for i in range(1, ITERATIONS):
            steps[..., i] += AUTOCORRELATION * steps[..., i - 1]
        return np.median(steps, axis=-1)


def runs(name: str, parts: np.ndarray, session: str, order: int = 0) -> list[Run]:
    """Runs of one session from their parts (runs, metrics)."""
    centres = np.array(list(CENTRES.values()))
    values = np.where(TIMES, centres * np.exp(parts), centres + parts)
    return [
        Run(
            workload=name,
            session=session,
            order=order + i,
            host="a",
            started="",
            structure=COUNTS,
            metrics=dict(zip(CENTRES, row.tolist(), strict=True)),
        )
        for i, row in enumerate(values)
    ]


@dataclass
class Count:
    """What came of some builds; the moved workload is the first."""

    builds: int = 0
    failed: int = 0
    found: int = 0
    flagged: int = 0

    def alarms(self) -> str:
        """The share of builds that failed, with its upper 95 % bound (Clopper and Pearson)."""
        hits = self.failed
        bound = stats.beta.ppf(0.95, hits + 1, self.builds - hits) if hits < self.builds else 1.0
        return f"{percent(hits, self.builds)} ({100 * bound:.1f} %)"

    def power(self) -> str:
        """The share of builds in which the moved workload failed."""
        return f"{self.found / self.builds:.2f}"


@dataclass
class Flagged:
    """The workload numbered `index`, one of `of` that were flagged."""

    index: int
    of: int
    verdict: WorkloadVerdict
    priors: dict[str, Prior]


def confirmed(build: Drawn, flagged: Flagged) -> decide.Fresh:
    """Fresh launches of base and head in the session of the candidate, more where the first leave it open."""
    first = confirm.plan(flagged.of).launches
    made = _interleaved(build, flagged, first)
    verdict, priors = flagged.verdict, flagged.priors
    if first == confirm.MAX_LAUNCHES or not decide.left_open(
        verdict, made, flagged.of, rules=Rules(), priors=priors
    ):
        return made
    more = _interleaved(build, flagged, confirm.MAX_LAUNCHES - first)
    return decide.Fresh(base=made.base + more.base, head=made.head + more.head, first=first)


def _interleaved(build: Drawn, flagged: Flagged, k: int) -> decide.Fresh:
    """Launches of both sides, `k` each."""
    name, now = flagged.verdict.workload, build.now[flagged.index]
    return decide.Fresh(
        base=runs(name, now + build.farm.launches(k), "now"),
        head=runs(name, now + build.moved[flagged.index] + build.farm.launches(k), "now", k),
    )


def repeated(build: Drawn, flagged: Flagged) -> decide.Fresh:
    """Fresh launches of the candidate alone, where base can't be built."""
    now = build.now[flagged.index] + build.moved[flagged.index]
    return decide.Fresh(head=runs(flagged.verdict.workload, now + build.farm.launches(RUNS), "now", RUNS))


@dataclass
class Drawn:
    """The parts of one build.

    `old` (workloads, sessions, runs, metrics) are the stored launches, `now` and `moved` (workloads, metrics)
    the session of the new ones and what changed, `new` (workloads, runs, metrics) those that are screened.
    """

    farm: Farm
    old: np.ndarray
    now: np.ndarray
    moved: np.ndarray
    new: np.ndarray


def drawn(setting: Setting, effect: float, seed: tuple[int, int]) -> Drawn:
    """A build in which the first workload's times grew by `effect`."""
    farm = Farm(setting, seed)
    old = farm.session(WORKLOADS, SESSIONS)[:, :, None] + farm.launches(WORKLOADS, SESSIONS, RUNS)
    now = farm.session(WORKLOADS)
    moved = np.zeros((WORKLOADS, len(CENTRES)))
    moved[0] = math.log1p(effect) * TIMES
    return Drawn(farm, old, now, moved, (now + moved)[:, None] + farm.launches(WORKLOADS, RUNS))


def gate(build: Drawn, again: Again, count: Count) -> None:
    """Screen a build, settle what was flagged by what `again` launches, and count what came of it."""
    names = [f"w{i}" for i in range(WORKLOADS)]
    stored = {
        name: [run for j in range(SESSIONS) for run in runs(name, build.old[i, j], f"s{j}")]
        for i, name in enumerate(names)
    }
    priors = screen.shared_priors(stored, "cuda")
    verdicts = [
        decide.screen_workload(
            name, stored[name], runs(name, build.new[i], "now"), rules=Rules(), priors=priors
        )
        for i, name in enumerate(names)
    ]
    flagged = [i for i, verdict in enumerate(verdicts) if verdict.flagged]
    fresh = {names[i]: again(build, Flagged(i, len(flagged), verdicts[i], priors)) for i in flagged}
    settled = decide.settle(verdicts, fresh, rules={}, priors=priors)
    count.builds += 1
    count.flagged += len(flagged)
    count.failed += any(map(failed, settled))
    count.found += failed(settled[0])


def simulate(setting: Setting, builds: int, effect: float, seed: int, again: Again = confirmed) -> Count:
    """Gate `builds` builds, each of its own seed."""
    count = Count()
    for number in range(builds):
        gate(drawn(setting, effect, (seed, number)), again, count)
    return count


def failed(verdict: WorkloadVerdict) -> bool:
    return verdict.reason is Reason.REGRESSED


EFFECTS = (0.01, 0.02, 0.03, 0.05)
VARY = "sd between sessions, and launches"
ALARMS = "false alarms a build (95 % bound)"
HEAD = (VARY, "flagged", ALARMS, *(f"+{100 * effect:.0f} %" for effect in EFFECTS))
EFFECTS_WEAKER = (0.05, 0.10)
HEAD_WEAKER = (VARY, ALARMS, *(f"+{100 * effect:.0f} %" for effect in EFFECTS_WEAKER))


def rows(builds: int) -> Iterator[list[str]]:
    """The table's rows, one a setting: `builds` without a change, half of it for each effect."""
    for number, setting in enumerate(SETTINGS):
        null = simulate(setting, builds, 0.0, 1000 + number)
        moved = [simulate(setting, builds // 2, effect, 2000 + number) for effect in EFFECTS]
        yield [
            setting.name,
            percent(null.flagged, null.builds * WORKLOADS),
            null.alarms(),
            *(count.power() for count in moved),
        ]


def rows_weaker(builds: int) -> Iterator[list[str]]:
    """The same where base can't be built: twice the `builds` without a change, an eighth for each effect."""
    for number, setting in enumerate(SETTINGS):
        null = simulate(setting, 2 * builds, 0.0, 3000 + number, repeated)
        moved = [simulate(setting, builds // 8, e, 4000 + number, repeated) for e in EFFECTS_WEAKER]
        yield [setting.name, null.alarms(), *(count.power() for count in moved)]
