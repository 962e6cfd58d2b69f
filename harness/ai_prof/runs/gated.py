"""One gated build: measure, screen against stored baselines, settle what was flagged by fresh runs."""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from ai_prof.baselines import store
from ai_prof.baselines.machine_key import machine_key
from ai_prof.errors import NothingToCompareError
from ai_prof.gate import confirm, decide, screen
from ai_prof.gate.model import BuildVerdict, Reason, WorkloadVerdict
from ai_prof.runs import checkout, sessions
from ai_prof.runs.bench import Bench
from ai_prof.runs.environment import machine_details, machine_facts
from ai_prof.runs.interpreter import choose, requirements
from ai_prof.runs.launch import profiles_of
from ai_prof.runs.nvml import gpu_count
from ai_prof.runs.workloads import Workload, check_regress, find, select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.metrics import Backend, Rules
    from ai_prof.gate.screen import Prior
    from ai_prof.timeline.profile import Profile

LOCAL = Path(".ai-prof")
KEPT_BUILDS = 3


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to gate. `baselines` is read; `record` makes missing ones, in the project's `.ai-prof/`.

    With `unseen`, workloads without a baseline are measured too: a refresh needs their runs.
    """

    root: Path
    workloads: Path
    baselines: Path
    names: tuple[str, ...] = ()
    device: Literal["auto", "cuda", "opencl"] = "auto"
    runs: int = 3
    record: bool = False
    unseen: bool = False
    regress: str | None = None
    python: str | None = None
    alpha: float = decide.ALPHA
    fail_on: tuple[int, ...] = decide.FAIL_ON
    budget_minutes: float = 20


@dataclass(frozen=True)
class Stored:
    """A baseline, the file it lies in, and its runs' aligned profiles by digest."""

    baseline: store.Baseline
    path: Path
    profiles: Mapping[str, Profile]


def gate(request: Request) -> BuildVerdict:
    """Run the whole gate. Raises NothingToCompareError where no workload can run here."""
    started = datetime.now(timezone.utc)
    known = find(request.workloads)
    chosen = select(known, request.names)
    check_regress(known, request.regress)
    device = _device(request, chosen)
    pythons = {w.name: choose(w, request.python) for w in chosen if w.device == device}
    ready, skipped = _ready([w for w in chosen if w.device == device], pythons)
    if not ready:
        raise NothingToCompareError(_nothing_to_run(request, skipped, device))
    key = machine_key(machine_facts(device, pythons[ready[0].name]))
    machine = machine_details(device, pythons[ready[0].name])
    stored = _load(request, key, ready)
    run_id = f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    kept = [run for each in stored.values() for run in each.baseline.runs]
    bench = Bench(
        checkout=checkout.inspect(request.root),
        folder=_captures(request.root) / run_id,
        session=sessions.current(kept, started, sessions.boot_id()),
        pythons=pythons,
        machine=machine,
        regress=request.regress,
    )
    notes = []
    if request.record:
        recorded = _record(request, bench, key, device, [w for w in ready if w.name not in stored])
        stored |= recorded
        notes = [f"recorded a provisional baseline of {name} in {s.path}" for name, s in recorded.items()]
    verdicts = _judge(request, bench, ready, stored, device)
    return decide.build(
        [*verdicts, *skipped],
        fail_on=request.fail_on,
        run_id=run_id,
        started=started.isoformat(timespec="seconds"),
        finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        device=device,
        machine_key=key,
        machine=machine,
        commit=bench.checkout.commit,
        dirty=bench.checkout.dirty,
        regress=request.regress,
        alpha=request.alpha,
        notes=notes,
        version=version("ai-prof"),
    )


def _device(request: Request, chosen: Sequence[Workload]) -> Backend:
    """The device to gate: the named one, the only one that the chosen workloads use, else CUDA first."""
    if request.device != "auto":
        return request.device
    devices = {workload.device for workload in chosen}
    if len(devices) == 1:
        return devices.pop()
    return "cuda" if gpu_count() else "opencl"


def _ready(
    workloads: Sequence[Workload], pythons: Mapping[str, str]
) -> tuple[list[Workload], list[WorkloadVerdict]]:
    """Those that can run here, and a verdict for each that can't."""
    ready, skipped = [], []
    for workload in workloads:
        unmet = requirements(workload, pythons[workload.name])
        if unmet:
            why = "; ".join(unmet)
            skipped.append(WorkloadVerdict(workload=workload.name, reason=Reason.SKIPPED, why=why))
        else:
            ready.append(workload)
    return ready, skipped


def _nothing_to_run(request: Request, skipped: Sequence[WorkloadVerdict], device: Backend) -> str:
    if not skipped:
        return f"no workload in {request.workloads} uses {device}: choose another --device"
    return f"no usable device for {skipped[0].workload}: {skipped[0].why}"


def _load(request: Request, key: str, workloads: Sequence[Workload]) -> dict[str, Stored]:
    """The reviewed baseline of each workload, else the one recorded on this machine."""
    stored = {}
    for workload in workloads:
        for folder in (request.baselines, request.root / LOCAL / "baselines"):
            baseline = store.load(folder, key, workload.name)
            if baseline is not None:
                path = store.path_of(folder, key, workload.name)
                stored[workload.name] = Stored(baseline, path, store.load_profiles(path, baseline))
                break
    return stored


def _record(
    request: Request, bench: Bench, key: str, device: Backend, workloads: Sequence[Workload]
) -> dict[str, Stored]:
    """Measure and store what has no baseline yet. A workload that fails has none; its candidate says why."""
    for name, runs in bench.baselines(workloads, request.runs).items():
        if any(run.problem for run in runs):
            continue
        baseline = store.Baseline(
            workload=name,
            machine_key=key,
            backend=device,
            origin=origin(bench.checkout, "recorded by `ai-prof gate --record`"),
            runs=runs,
        )
        store.save(request.root / LOCAL / "baselines", baseline, profiles_of(runs))
    return _load(request, key, workloads)


def origin(code: checkout.Checkout, why: str) -> store.Origin:
    """Who records what is recorded now."""
    who = psutil.Process().username()
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return store.Origin(who=who, why=why, when=when, commit=code.commit, dirty=code.dirty)


def _judge(
    request: Request,
    bench: Bench,
    workloads: Sequence[Workload],
    stored: Mapping[str, Stored],
    device: Backend,
) -> list[WorkloadVerdict]:
    """Candidate runs, screen, fresh runs for the flagged, verdicts."""
    measured = [w for w in workloads if w.name in stored or request.unseen or request.record]
    runs = bench.candidates(measured, request.runs)
    rules = {workload.name: workload.rules for workload in workloads}
    history = {name: each.baseline.runs for name, each in stored.items()}
    profiles = profiles_of(run for each in runs.values() for run in each)
    profiles |= {digest: one for each in stored.values() for digest, one in each.profiles.items()}
    priors = screen.shared_priors(history, device)
    verdicts = []
    for workload in workloads:
        name = workload.name
        verdict = decide.screen_workload(
            name,
            history.get(name, []),
            runs.get(name, []),
            rules=rules[name],
            priors=priors,
            profiles=profiles,
        )
        verdict.baseline = _provenance(stored[name]) if name in stored else {}
        if name not in stored and name not in runs:
            verdict.reason = Reason.NO_BASELINE
            verdict.why = "no baseline for this machine: record one with `ai-prof gate --record`"
        verdicts.append(verdict)
    return _settle(request, bench, {w.name: w for w in workloads}, verdicts, rules, priors, profiles)


def _settle(  # noqa: PLR0913, PLR0917 - what the gate's own door asks for
    request: Request,
    bench: Bench,
    workloads: Mapping[str, Workload],
    verdicts: Sequence[WorkloadVerdict],
    rules: Mapping[str, Rules],
    priors: Mapping[str, Prior],
    profiles: Mapping[str, Profile],
) -> list[WorkloadVerdict]:
    """Fresh runs for what was flagged, the strongest first, as far as the budget goes."""
    flagged = decide.by_strength(verdicts)
    if not flagged:
        return list(verdicts)
    plan = confirm.plan(len(flagged), request.alpha)
    deadline = time.monotonic() + 60 * request.budget_minutes
    fresh = {}
    for verdict in flagged:
        name = verdict.workload
        rebuilt = bench.checkout.is_exactly(_commit(verdict))
        launches = len(confirm.schedule(plan.launches)) if rebuilt else request.runs
        if time.monotonic() + launches * bench.seconds[name] > deadline:
            verdict.notes.append(f"not settled: the budget of {request.budget_minutes:g} minutes was spent")
            continue
        sys.stderr.write(f"ai-prof: {name} was flagged: {launches} fresh runs settle it\n")
        workload = workloads[name]
        fresh[name] = bench.against_base(workload, plan) if rebuilt else bench.again(workload, request.runs)
    profiles = {**profiles, **profiles_of(run for each in fresh.values() for run in (*each.base, *each.head))}
    return decide.settle(verdicts, fresh, rules=rules, priors=priors, alpha=request.alpha, profiles=profiles)


def _commit(verdict: WorkloadVerdict) -> str | None:
    """The commit whose code the baseline holds; None where it was not exactly one."""
    return None if verdict.baseline.get("dirty") else verdict.baseline.get("commit")


def _provenance(stored: Stored) -> dict[str, object]:
    """What a report says of a baseline."""
    baseline = stored.baseline
    return {
        "commit": baseline.origin.commit,
        "dirty": baseline.origin.dirty,
        "recorded": baseline.origin.when,
        "who": baseline.origin.who,
        "why": baseline.origin.why,
        "sessions": baseline.sessions,
        "runs": len(baseline.runs),
        "path": str(stored.path),
        "sha256": store.digest(baseline),
    }


def _captures(root: Path) -> Path:
    """The folder of the builds' captures; older builds than the last few are removed."""
    folder = root / LOCAL / "captures"
    builds = sorted(path for path in folder.glob("*") if path.is_dir())
    for old in builds[: 1 - KEPT_BUILDS]:
        shutil.rmtree(old, ignore_errors=True)
    return folder
