"""How often the gate would fail builds without a change: stored runs, some of them called a candidate.

All stored runs are of code that was accepted, so whatever is flagged or fails here is a false alarm. A draw
takes the runs of one session as the candidate of every workload, and the other sessions as its baseline;
where there are fewer than three sessions, three runs at random. What is flagged is settled like any flag, by
launches from all of the workload's runs, called base and head at random.

Draws share their baselines, and there are only as many candidates as sessions: the bound counts the draws
that have no run in common, not all of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from scipy import special

from ai_prof.errors import NothingToCompareError
from ai_prof.gate import confirm, decide, profile, screen
from ai_prof.gate.flag import NO_PROFILES
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Reason
from ai_prof.gate.values import run_profiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.metrics import Backend
    from ai_prof.gate.model import Run
    from ai_prof.gate.screen import Prior
    from ai_prof.timeline.profile import Profile

CANDIDATE = 3
TOO_FEW = (
    f"no baseline has {2 * CANDIDATE} runs to call some of them a candidate: "
    "add some with `ai-prof baseline refresh`"
)
SESSIONS = 3  # from so many on, a candidate is a whole session
NO_RULES: Mapping[str, Rules] = {}


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """One workload: `flagged` and `failed` of `draws`, and how near the rest came.

    `worst_total` is the largest statistic of the screen over its critical value, both as normal deviates of
    their p; `worst_profile` the largest T over its critical value, None without profiles. Above 1 is a flag,
    unless the floor kept it from being one.
    """

    workload: str
    runs: int
    sessions: int
    draws: int
    flagged: int
    failed: int
    worst_total: float | None
    worst_profile: float | None


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """False alarms of whole builds: `failed` of `draws`, of which `independent` have no run in common.

    `bound` is the upper 95 % bound of their rate, from the independent ones (Clopper and Pearson).
    """

    draws: int
    independent: int
    failed: int
    bound: float
    workloads: list[Calibrated]


def enough(baselines: Mapping[str, Sequence[Run]]) -> dict[str, list[Run]]:
    """The runs of those workloads that have twice as many as a candidate."""
    stored = {name: [run for run in runs if run.problem is None] for name, runs in baselines.items()}
    return {name: runs for name, runs in stored.items() if len(runs) >= 2 * CANDIDATE}


def calibrate(  # noqa: PLR0913 - all that a comparison rests on
    baselines: Mapping[str, Sequence[Run]],
    backend: Backend,
    *,
    rules: Mapping[str, Rules] = NO_RULES,
    profiles: Mapping[str, Profile] = NO_PROFILES,
    draws: int = 200,
    seed: int = 0,
) -> Calibration:
    """Gate `draws` builds made of the stored runs, all workloads at once.

    Raises NothingToCompareError where no workload has twice as many runs as a candidate.
    """
    stored = enough(baselines)
    if not stored:
        raise NothingToCompareError(TOO_FEW)
    rng = np.random.default_rng(seed)
    seen: dict[str, list[_Draw]] = {name: [] for name in stored}
    failed = 0
    for _ in range(draws):
        build = _build(stored, backend, rules, profiles, rng)
        failed += any(draw.failed for draw in build.values())
        for name, draw in build.items():
            seen[name].append(draw)
    independent = min(draws, *(_candidates(runs) for runs in stored.values()))
    rows = [_row(name, stored[name], mine) for name, mine in seen.items()]
    bound = _bound(failed / draws, independent)
    return Calibration(draws=draws, independent=independent, failed=failed, bound=bound, workloads=rows)


class _Draw(msgspec.Struct, frozen=True):
    """One workload in one build."""

    flagged: bool
    failed: bool
    total: float | None
    profile: float | None


def _build(
    stored: Mapping[str, Sequence[Run]],
    backend: Backend,
    rules: Mapping[str, Rules],
    profiles: Mapping[str, Profile],
    rng: np.random.Generator,
) -> dict[str, _Draw]:
    """Screen and settle one build."""
    parts = {name: _split(runs, rng) for name, runs in stored.items()}
    priors = screen.shared_priors({name: old for name, (old, _) in parts.items()}, backend)
    verdicts = [
        decide.screen_workload(
            name, old, new, rules=rules.get(name, Rules()), priors=priors, profiles=profiles
        )
        for name, (old, new) in parts.items()
    ]
    flagged = {verdict.workload for verdict in verdicts if verdict.flagged}
    fresh = {name: _fresh(stored[name], len(flagged), rng) for name in flagged}
    settled = decide.settle(verdicts, fresh, rules=rules, priors=priors, profiles=profiles)
    return {
        verdict.workload: _Draw(
            verdict.workload in flagged,
            verdict.reason is Reason.REGRESSED,
            _worst_total(*parts[verdict.workload], rules.get(verdict.workload, Rules()), priors),
            _worst_profile(*parts[verdict.workload], profiles),
        )
        for verdict in settled
    }


def _split(runs: Sequence[Run], rng: np.random.Generator) -> tuple[list[Run], list[Run]]:
    """A baseline and a candidate."""
    sessions = list(dict.fromkeys(run.session for run in runs))
    if len(sessions) >= SESSIONS:
        chosen = sessions[int(rng.integers(len(sessions)))]
        taken = np.array([run.session == chosen for run in runs])
    else:
        taken = np.zeros(len(runs), bool)
        taken[rng.choice(len(runs), CANDIDATE, replace=False)] = True
    old = [run for run, new in zip(runs, taken, strict=True) if not new]
    return old, [run for run, new in zip(runs, taken, strict=True) if new]


def _fresh(runs: Sequence[Run], flagged: int, rng: np.random.Generator) -> decide.Fresh:
    """Launches of base and head by the plan, as far as there are runs; each at most once."""
    k = min(confirm.plan(flagged).launches, len(runs) // 2)
    order = rng.permutation(len(runs))[: 2 * k].tolist()
    return decide.Fresh(base=[runs[i] for i in order[:k]], head=[runs[i] for i in order[k:]])


def _worst_total(
    old: Sequence[Run], new: Sequence[Run], rules: Rules, priors: Mapping[str, Prior]
) -> float | None:
    """The screen's smallest p of a metric that may fail alone, as a deviate, over that of its alpha."""
    p = [item.p_joint for item in screen.screen(old, new, rules, priors) if item.metric.alone]
    return float(-special.ndtri(min(p)) / -special.ndtri(screen.ALPHA)) if p else None


def _worst_profile(old: Sequence[Run], new: Sequence[Run], profiles: Mapping[str, Profile]) -> float | None:
    """The profile's largest T over its critical value."""
    no_floors = dict.fromkeys(profile.NOISE, 0.0)  # they decide what is found, not how large T is
    seen = profile.compare(run_profiles(old, profiles), run_profiles(new, profiles), no_floors)
    return max((result.t / result.critical for result in seen), default=None)


def _candidates(runs: Sequence[Run]) -> int:
    """How many candidates have no run in common."""
    sessions = len({run.session for run in runs})
    return sessions if sessions >= SESSIONS else len(runs) // CANDIDATE


def _bound(rate: float, independent: int) -> float:
    hits = math.ceil(rate * independent - 1e-9)
    return float(special.betaincinv(hits + 1, independent - hits, 0.95)) if hits < independent else 1.0


def _row(name: str, runs: Sequence[Run], draws: Sequence[_Draw]) -> Calibrated:
    return Calibrated(
        workload=name,
        runs=len(runs),
        sessions=len({run.session for run in runs}),
        draws=len(draws),
        flagged=sum(draw.flagged for draw in draws),
        failed=sum(draw.failed for draw in draws),
        worst_total=max((draw.total for draw in draws if draw.total is not None), default=None),
        worst_profile=max((draw.profile for draw in draws if draw.profile is not None), default=None),
    )
