"""When a baseline may be replaced, by what, and what a replacement moves. Pure functions."""

from __future__ import annotations

import shlex
import statistics
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.baselines.store import Baseline, Entry, Origin, identity
from ai_prof.errors import BaselineError
from ai_prof.gate import drift
from ai_prof.gate.acceptance import acceptable
from ai_prof.gate.metrics import METRICS, PROVISIONAL_SD, Backend, Metric
from ai_prof.gate.model import Acceptance, Anchor, Reason, Run, WorkloadVerdict
from ai_prof.gate.values import beyond_floor, constant_count, effect_of, run_values, session_values

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_RUNS = 3
SPREAD_LIMIT = 5.0  # kernel time's range over a session, in the table's standard deviations
BUSY_SHARE = 0.5  # of the host's cores
BUSY_CORES = 0.5  # of other programs, from which on a spread may be theirs

_SETTLED = frozenset({Reason.PASS, Reason.IMPROVED, Reason.STRUCTURE_CHANGED, Reason.ACCEPTED})


class RefreshFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh is judged by; the caller gathers it.

    `runs` are the new ones. `foreign` are other compute processes on the device, `throttling` the reasons
    seen during the runs, `old` what lay there after them, `verdict` the gate's on the new runs against its
    own `baseline_runs`, which lay there before; None where there is no `old`.
    """

    workload: str
    machine_key: str
    backend: Backend
    runs: list[Run]
    dirty: bool
    foreign: list[str] = []
    throttling: list[str] = []
    old: Baseline | None = None
    verdict: WorkloadVerdict | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One value before and after a refresh; None where it did not or does not exist."""

    metric: str
    label: str
    unit: str
    old: float | None
    new: float | None
    change: float | None  # relative for times, a difference for ratios and counts


def refusals(facts: RefreshFacts) -> list[str]:
    """Every reason not to refresh, each saying what to do; empty where a refresh may go ahead."""
    return [*_unfit_machine(facts), *_unfit_runs(facts), *_unfit_change(facts)]


def busy_host(runs: Sequence[Run], cores: int) -> str | None:
    """Say what other programs took of a host of `cores` during most of a baseline's runs, if much; else None.

    No refusal: some hosts are shared for good.
    """
    took = _taken(runs)
    if took < BUSY_SHARE * cores:
        return None
    return (
        f"other programs kept {took:.1f} of {cores} cores busy; such a baseline hides what comes after it: "
        "record it again on a quiet machine"
    )


def _taken(runs: Sequence[Run]) -> float:
    """How many of the host's cores other programs kept busy in most runs."""
    took: list[float] = [run.environment.get("foreign_cores", 0.0) for run in runs]
    return statistics.median(took or [0.0])


def renewed(old: Baseline | None, runs: Sequence[Run], verdict: WorkloadVerdict | None) -> list[Run]:
    """The runs of the new baseline: the new join the old where nothing moved, else they replace them."""
    joins = old is not None and verdict is not None and _as_before(old.runs, runs, verdict)
    return [*old.runs, *runs] if old is not None and joins else list(runs)


def _as_before(old: Sequence[Run], runs: Sequence[Run], verdict: WorkloadVerdict) -> bool:
    """Whether nothing moved, a warning aside that takes no count from those that were one number."""
    if verdict.reason is Reason.STRUCTURE_CHANGED and not verdict.structure:
        return all(row.new is not None for row in moved(old, [*old, *runs]) if row.old is not None)
    return verdict.reason is Reason.PASS


def refreshed(facts: RefreshFacts, current: Baseline | None, origin: Origin) -> Baseline:
    """The new baseline, over `current`: the one that lies there by now.

    Raises BaselineError where another refresh replaced the one that the new runs were compared with.
    """
    if not _still_there(facts, current):
        raise BaselineError(
            f"{facts.workload}: its baseline was replaced while this one was measured: refresh again"
        )
    runs = renewed(current, facts.runs, facts.verdict)
    entry = Entry(
        **msgspec.structs.asdict(origin),
        sessions=len({run.session for run in runs}),
        runs=len(runs),
        moved={row.metric: (row.old, row.new) for row in moved(current.runs, runs) if _matters(row)}
        if current
        else {},
    )
    return Baseline(
        workload=facts.workload,
        machine_key=facts.machine_key,
        backend=facts.backend,
        origin=origin,
        log=[*(current.log if current else []), entry],
        anchor=_anchor(facts, current, origin),
        runs=runs,
    )


def _still_there(facts: RefreshFacts, current: Baseline | None) -> bool:
    """Whether nothing but more runs came to the baseline since the verdict compared with it."""
    if facts.old is None or current is None:
        return facts.old is current
    known = {identity(run) for run in current.runs}
    compared = facts.verdict.baseline_runs if facts.verdict is not None else facts.old.runs
    return all(identity(run) in known for run in compared)


def _anchor(facts: RefreshFacts, current: Baseline | None, origin: Origin) -> Anchor:
    """The pinned runs, those of the first session, and what people wanted since."""
    anchor = current.anchor if current else None
    if anchor is None:
        first, of = (current.runs, current.origin) if current else (facts.runs, origin)
        session = first[0].session
        slim = [_slim(run) for run in first if run.session == session and run.problem is None]
        anchor = Anchor(when=of.when, commit=of.commit, runs=slim)
    return msgspec.structs.replace(anchor, accepted=[*anchor.accepted, *_wanted(facts, origin)])


def _wanted(facts: RefreshFacts, origin: Origin) -> list[Acceptance]:
    """The totals that this refresh moves on purpose: what was accepted, and what improved."""
    verdict = facts.verdict
    if verdict is None:
        return []
    cells = [
        Acceptance(
            metric=cell.metric,
            old=cell.baseline,
            new=cell.candidate,
            who=origin.who,
            why=origin.why,
            when=origin.when,
            commit=origin.commit,
        )
        for cell in verdict.cells
        if cell.reason in {Reason.ACCEPTED, Reason.IMPROVED}
        and METRICS[cell.metric].role == "total"
        and cell.baseline is not None
        and cell.candidate is not None
    ]
    drifted = [each for each in verdict.accepted if each.place == drift.PLACE]
    return [*cells, *(msgspec.structs.replace(each, place="") for each in drifted)]


def _slim(run: Run) -> Run:
    """What of a run the anchor needs."""
    return Run(
        workload=run.workload,
        session=run.session,
        order=run.order,
        host=run.host,
        started=run.started,
        commit=run.commit,
        metrics=run.metrics,
    )


def _matters(row: Moved) -> bool:
    """Whether a value moved beyond its floor; a count, at all."""
    if row.old is None or row.new is None:
        return row.old is not row.new
    metric = METRICS[row.metric]
    return row.old != row.new if metric.role == "structure" else beyond_floor(metric.floor, row.old, row.new)


def moved(old: Sequence[Run], new: Sequence[Run]) -> list[Moved]:
    """Every metric and count that either side has, old beside new, in the table's order."""
    rows = []
    for metric in METRICS.values():
        before, after = _centre(old, metric), _centre(new, metric)
        if before is None and after is None:
            continue
        known = before is not None and after is not None
        rows.append(
            Moved(
                metric=metric.key,
                label=metric.label,
                unit=metric.unit,
                old=before,
                new=after,
                change=effect_of(metric, before, after) if known else None,  # type: ignore[arg-type]
            )
        )
    return rows


def _unfit_machine(facts: RefreshFacts) -> list[str]:
    said = []
    if facts.dirty:
        said.append("the working tree has uncommitted changes: commit or stash them, so the origin is known")
    if facts.foreign:
        said.append(f"the device is busy with {', '.join(facts.foreign)}: wait for them or stop them")
    if facts.throttling:
        said.append(f"the device throttled ({', '.join(facts.throttling)}): let it cool, then measure again")
    if facts.old is not None and facts.old.machine_key != facts.machine_key:
        said.append(
            f"the baseline is of {facts.old.machine_key}, this machine is {facts.machine_key}: "
            f"refresh it on its own kind of machine"
        )
    return said


def _unfit_runs(facts: RefreshFacts) -> list[str]:
    said = []
    bad = next((run for run in facts.runs if run.problem is not None), None)
    if bad is not None:
        said.append(f"a run was not fit to keep ({bad.detail or bad.problem}): measure again")
    if len(facts.runs) < LEAST_RUNS:
        said.append(f"too few runs, {len(facts.runs)}: measure at least {LEAST_RUNS}")
    limit = SPREAD_LIMIT * PROVISIONAL_SD[facts.backend]["kernel_time_ms"]
    took = _taken(facts.runs)
    beside = f", while other programs kept {took:.1f} cores of the host busy" if took >= BUSY_CORES else ""
    for session in dict.fromkeys(run.session for run in facts.runs):
        metric = METRICS["kernel_time_ms"]
        values = run_values([run for run in facts.runs if run.session == session], metric, metric.floor)
        spread = float(np.expm1(np.ptp(values))) if len(values) else 0.0
        if spread > np.expm1(limit):
            said.append(
                f"kernel time spread by {100 * spread:.1f} % between runs, over the limit of "
                f"{100 * np.expm1(limit):.1f} %{beside}: find what disturbs the device, then measure again"
            )
    return said


def _unfit_change(facts: RefreshFacts) -> list[str]:
    old, verdict = facts.old, facts.verdict
    if old is None:
        return []
    if verdict is None:
        return ["the new runs were not compared with the old baseline: run `ai-prof gate` first"]
    said = []
    if verdict.reason is Reason.REGRESSED:
        gate = shlex.join(["ai-prof", "gate", facts.workload])
        accept = shlex.join(["ai-prof", "accept", facts.workload, *acceptable(verdict, {Reason.REGRESSED})])
        said.append(
            f"it would bury a regression ({verdict.why}): fix it, or run `{gate}` and accept it by its "
            f'report, `{accept} --reason "..."`'
        )
    elif verdict.reason not in _SETTLED:
        said.append(f"the new runs are {verdict.reason.value} ({verdict.why}): settle that first")
    # Values that moved for good, and are wanted, make the old runs worthless. Nothing else does.
    kept = len({run.session for run in renewed(old, facts.runs, verdict)})
    if kept < old.sessions and not _moved_for_good(verdict):
        said.append(
            f"it would lower the baseline's strength from {old.sessions} sessions to {kept}: accept the "
            f"change first, or measure as many sessions; if its code is gone for good, remove it"
        )
    return said


def _moved_for_good(verdict: WorkloadVerdict) -> bool:
    """Whether values moved and are wanted. A count is exact: of no new run will it be the old one again."""
    counted = any(change.name in METRICS for change in verdict.structure)
    changed = verdict.reason is Reason.STRUCTURE_CHANGED and counted
    return changed or verdict.reason in {Reason.IMPROVED, Reason.ACCEPTED}


def _centre(runs: Sequence[Run], metric: Metric) -> float | None:
    """A metric's centre over sessions; a count where it is one number."""
    if metric.role == "structure":
        only = constant_count(runs, metric)
        return None if only is None else float(only)
    values = session_values(runs, metric, metric.floor)
    return metric.value(float(np.mean(values)), metric.floor) if len(values) else None
