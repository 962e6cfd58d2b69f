"""Screen a candidate against a stored baseline: a moderated prediction t over sessions. It only flags.

For c the candidate's session value, b the mean of the baseline's N session values, d the direction,

    t = d (c - b) / (s sqrt(1 + 1/N)),  s^2 = (d0 s0^2 + (N - 1) s_b^2) / (d0 + N - 1),  df = d0 + N - 1

(Smyth 2004, moderated variance; the prediction of one new session from N old ones). The unit is the
session, one value each: runs of one session share its machine state, so they are no independent samples.

Where the candidate's runs are of the baseline's only session, that state is in c and in b and cancels out:
then launches are the samples, and t is Student's of two means with their pooled variance.

"Alpha 0.05 per workload" is the chance that a workload without any change is flagged. So one test, Simes',
asks of all its metrics that may fail a build alone whether any changed; they rise and fall together, and it
adds up what each says. Where it says yes, each metric that is worse at 0.05 by itself is flagged: which of
them it was, fresh runs decide.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from scipy import special

from ai_prof.bounds import Positive
from ai_prof.gate import latency
from ai_prof.gate.comparison import Comparison, Pair, comparison, jointly, simes
from ai_prof.gate.metrics import METRICS, PROVISIONAL_SD, TOTALS, Backend, Metric, Rules
from ai_prof.gate.values import F64, run_values, session_values, within_sessions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ai_prof.gate.model import Run

ALPHA = 0.05
POWER = 0.8
NOT_JUDGED = 0.20  # an MDE beyond this (20 %, 20 points) leaves a provisional total unjudged
MEDIAN_VARIANCE = 1.35  # of a median of three, over that of their mean
UNRESOLVED = 0.01  # of the table's spread: a spread of 0 says "below what was resolved", not "none"
TABLE_DF = 4.0  # what the committed table is worth, in degrees of freedom
SHARED_WORKLOADS = 3  # from so many on the variance over the repository's own workloads replaces the table
SHARED_DF = (1.0, 60.0)  # what it may be worth
NEWTON_STEPS = 5  # four give every digit of it


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session's spread before this workload's own: `sd` on the scale of the test."""

    sd: Positive
    df: Positive


def table_priors(backend: Backend) -> dict[str, Prior]:
    """The committed table, by metric."""
    return {key: Prior(sd=sd, df=TABLE_DF) for key, sd in PROVISIONAL_SD[backend].items()}


def shared_priors(baselines: Mapping[str, Sequence[Run]], backend: Backend) -> dict[str, Prior]:
    """The typical spread over all workloads' baselines, by metric; the table's where they are too young.

    With e = ln s^2 - digamma(d/2) + ln(d/2) and d the degrees of freedom of s: the centre of e gives the
    variance, and its spread beyond trigamma(d/2), which chance alone makes, says by trigamma(d0/2) for how
    many degrees of freedom it counts: the less, the more the workloads differ (Smyth 2004, section 6.2).
    """
    priors = table_priors(backend)
    summarised = [latency.summarised(runs, latency.quantile_of(runs)) for runs in baselines.values()]
    for key, table in list(priors.items()):
        metric = METRICS[key]
        logs, chance = [], []
        for runs in summarised:
            values = session_values(runs, metric, metric.floor)
            if len(values) >= 2:
                half = (len(values) - 1) / 2
                variance = max(float(np.var(values, ddof=1)), (UNRESOLVED * table.sd) ** 2)
                logs.append(math.log(variance) - float(special.digamma(half)) + math.log(half))
                chance.append(float(special.polygamma(1, half)))
        if len(logs) >= SHARED_WORKLOADS:
            beyond = float(np.var(logs, ddof=1) - np.mean(chance))
            df = _degrees(beyond)
            centre = float(np.mean(logs)) + float(special.digamma(df / 2)) - math.log(df / 2)
            priors[key] = Prior(sd=math.exp(centre / 2), df=df)
    return priors


def _degrees(beyond: float) -> float:
    """The d0 for which trigamma(d0 / 2) is `beyond`, within SHARED_DF: Newton's (Smyth 2004, appendix)."""
    least, most = SHARED_DF
    if beyond <= special.polygamma(1, most / 2):
        return most
    if beyond >= special.polygamma(1, least / 2):
        return least
    half = 0.5 + 1 / beyond
    for _ in range(NEWTON_STEPS):
        trigamma = special.polygamma(1, half)
        half += trigamma * (1 - trigamma / beyond) / special.polygamma(2, half)
    return 2 * float(half)


def screen(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    rules: Rules,
    priors: Mapping[str, Prior],
) -> list[Comparison]:
    """Compare every total that both sides have; `p_joint` is no less than Simes' p over all of them."""
    share = latency.quantile_of(baseline, candidate)
    sides = _Sides(latency.summarised(baseline, share), latency.summarised(candidate, share))
    pairs = []
    for metric in TOTALS:
        floor = rules.floor(metric)
        old, new = session_values(sides.baseline, metric, floor), run_values(sides.candidate, metric, floor)
        if rules.policy_of(metric.key) != "ignore" and len(old) and len(new):
            pairs.append(Pair(metric, floor, old, new))
    family = max(1, sum(pair.metric.alone for pair in pairs))
    compared = [_predict(pair, _difference(pair, sides, priors[pair.metric.key]), family) for pair in pairs]
    return jointly(compared, lambda p: [max(one, simes(p)) for one in p])


class _Sides(NamedTuple):
    """The runs compared, their latency summarised."""

    baseline: Sequence[Run]
    candidate: Sequence[Run]

    @property
    def one_session(self) -> bool:
        """Whether all of them were made in one session."""
        return len({run.session for run in (*self.baseline, *self.candidate)}) == 1

    @property
    def new_host(self) -> bool:
        """Whether the candidate ran on a host that the baseline hasn't seen, nor the like of it.

        Where each of its sessions ran on a host of its own, as in pods, sessions differ as hosts do: one more
        is nothing new.
        """
        sessions = {run.session for run in self.baseline}
        seen = [_marks(run for run in self.baseline if run.session == session) for session in sessions]
        known = set().union(*seen)
        of_one_each = len(seen) > 1 and sum(map(len, seen)) == len(known)
        return not of_one_each and any(known.isdisjoint(_marks([run])) for run in self.candidate)


def _marks(runs: Iterable[Run]) -> set[str]:
    """What a host is known by: its name, always a new one in a pod, or its boot, which ends a session's."""
    return {mark for run in runs for mark in (run.host, run.session.rpartition("-")[2])}


class _Difference(NamedTuple):
    """What is tested, on the scale of the test: a difference, its standard error, and that one's df."""

    shift: float
    error: float
    df: float


def _difference(pair: Pair, sides: _Sides, prior: Prior) -> _Difference:
    launches = run_values(sides.baseline, pair.metric, pair.floor)
    if sides.one_session and len(launches) + len(pair.candidate) > 2:
        return _within_session(launches, pair.candidate, prior)
    within = within_sessions(sides.baseline, pair.metric, pair.floor)
    return _between_sessions(pair, prior, len(sides.baseline), within, new_host=sides.new_host)


def _between_sessions(pair: Pair, prior: Prior, runs: int, within: float, *, new_host: bool) -> _Difference:
    sessions = len(pair.baseline)
    df = prior.df + sessions - 1
    own = float(np.var(pair.baseline, ddof=1)) if sessions > 1 else 0.0
    variance = (prior.df * prior.sd**2 + (sessions - 1) * own) / df
    # Hosts are taken to differ by as much again as sessions do.
    between = variance * (1 + 1 / sessions + (1 if new_host else 0))
    # Two medians of runs of one and the same session already differ by this much.
    least = MEDIAN_VARIANCE * within * (1 / len(pair.candidate) + 1 / runs)
    old, new = _centres(pair)
    return _Difference(new - old, math.sqrt(max(between, least)), df)


def _within_session(old: F64, new: F64, prior: Prior) -> _Difference:
    """Student's t of launches. Of means: between two speeds of a host, medians jump."""
    df = len(old) + len(new) - 2
    squares = ((old - old.mean()) ** 2).sum() + ((new - new.mean()) ** 2).sum()
    variance = max(float(squares) / df, (UNRESOLVED * prior.sd) ** 2)
    return _Difference(
        float(new.mean() - old.mean()), math.sqrt(variance * (1 / len(old) + 1 / len(new))), df
    )


def _predict(pair: Pair, tested: _Difference, family: int) -> Comparison:
    metric, centres = pair.metric, _centres(pair)
    alpha = ALPHA / family if metric.alone else ALPHA
    tail = alpha if metric.direction else alpha / 2
    detectable = tested.error * (_quantile(1 - tail, tested.df) + _quantile(POWER, tested.df))
    result = comparison(
        pair,
        centres,
        half_width=tested.error * _quantile(0.975, tested.df),
        detectable=detectable,
        p=_p(metric, tested.shift / tested.error, tested.df),
    )
    blind = len(pair.baseline) < 2 and result.mde is not None and result.mde > NOT_JUDGED
    return replace(result, judged=not blind or abs(tested.shift) > detectable)


def _centres(pair: Pair) -> tuple[float, float]:
    """The mean of the baseline's sessions, and the candidate's value."""
    return float(np.mean(pair.baseline)), float(np.median(pair.candidate))


def _p(metric: Metric, t: float, df: float) -> tuple[float, float]:
    """P towards worse and towards better; without a direction, two-sided, and nothing is better."""
    if metric.direction == 0:
        return float(2 * special.stdtr(df, -abs(t))), 1.0
    worse = metric.direction * t
    return float(special.stdtr(df, -worse)), float(special.stdtr(df, worse))


def _quantile(share: float, df: float) -> float:
    """The value below which a t of `df` degrees of freedom lies with probability `share`."""
    return float(special.stdtrit(df, share))
