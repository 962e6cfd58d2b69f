"""One gated build: measure, screen against stored baselines, settle what was flagged by fresh runs."""

from __future__ import annotations

import secrets
import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ai_prof.baselines import calibrated, store
from ai_prof.baselines.files import one_writer, place
from ai_prof.baselines.machine_key import machine_key
from ai_prof.baselines.refresh import busy_host
from ai_prof.errors import NothingToCompareError
from ai_prof.gate import decide, screen
from ai_prof.gate.fitness import disturbed
from ai_prof.gate.measured import Measured, Shard, conclude
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import BuildVerdict, Reason, WorkloadVerdict
from ai_prof.runs import checkout, sessions
from ai_prof.runs.base import Bases, resolve
from ai_prof.runs.bench import Bench
from ai_prof.runs.environment import host_cores, machine_details, machine_facts
from ai_prof.runs.in_use import in_use, unused
from ai_prof.runs.interpreter import choose, requirements
from ai_prof.runs.launch import profiles_of
from ai_prof.runs.nvml import gpu_count
from ai_prof.runs.settle import Settler
from ai_prof.runs.stored import LOCAL, Stored, folders_of, left_behind, load, origin
from ai_prof.runs.time_left import usual_seconds
from ai_prof.runs.workloads import Workload, check_regress, find, select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ai_prof.gate.decide import Fresh
    from ai_prof.gate.metrics import Backend
    from ai_prof.gate.model import Run
    from ai_prof.runs.checkout import Checkout
    from ai_prof.timeline.profile import Profile

KEPT_BUILDS = 3


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to gate. `baselines` is read; `record` makes missing ones, in the project's `.ai-prof/`.

    With `unseen`, workloads without a baseline are measured too: a refresh needs their runs. `against` names
    the commit that flagged workloads, and those without a baseline, are settled against; `build` is the shell
    command that builds a checkout. `own_baselines` is the checkout's own folder of them: what a change wants
    accepted lies there. With `shard`, only its share of the workloads is measured.
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
    against: str | None = None
    build: str | None = None
    own_baselines: Path | None = None
    shard: Shard | None = None
    rules: Rules = field(default_factory=Rules)  # the project's, where a workload has none of its own


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is run where: the workloads that can run here, those that can't, and the machine.

    `known` names every workload of the project, chosen or not.
    """

    known: frozenset[str]
    device: Backend
    ready: list[Workload]
    skipped: list[WorkloadVerdict]
    pythons: dict[str, str]
    machine_key: str
    machine: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all of them, whether they can run here or not."""
        return tuple(sorted([*(w.name for w in self.ready), *(v.workload for v in self.skipped)]))

    def share(self, shard: Shard | None) -> Scene:
        """What of it `shard` measures; all where it is None."""
        if shard is None:
            return self
        names = shard.share(self.names)
        return replace(
            self,
            ready=[workload for workload in self.ready if workload.name in names],
            skipped=[verdict for verdict in self.skipped if verdict.workload in names],
        )

    def without(self, failed: Sequence[WorkloadVerdict]) -> Scene:
        """What of it is left to run, the workloads that failed aside."""
        names = {verdict.workload for verdict in failed}
        ready = [workload for workload in self.ready if workload.name not in names]
        return replace(self, ready=ready, skipped=[*self.skipped, *failed])

    def bench(self, request: Request, head: Checkout, session: str, run_id: str, held: ExitStack) -> Bench:
        """A bench whose captures lie in a folder of this run, and stay there until `held` is closed."""
        return Bench(
            checkout=head,
            folder=_captures(request.root, run_id, held),
            session=session,
            pythons=self.pythons,
            machine=self.machine,
            regress=request.regress,
        )

    def bases(self, request: Request, head: Checkout, held: ExitStack) -> Bases:
        """What makes the other sides of comparisons with `head`, which stay until `held` is closed."""
        return Bases(
            head=head,
            workloads=request.workloads,
            pythons=self.pythons,
            held=held,
            build=request.build,
            python=request.python,
        )


def prepare(request: Request) -> Scene:
    """Find the workloads and the machine. Raises NothingToCompareError where no workload can run here."""
    known = [
        msgspec.structs.replace(workload, rules=workload.rules.over(request.rules))
        for workload in find(request.workloads)
    ]
    chosen = select(known, request.names)
    check_regress(known, request.regress)
    device = _device(request, chosen)
    pythons = {w.name: choose(w, request.python) for w in chosen if w.device == device}
    ready, skipped = _ready([w for w in chosen if w.device == device], pythons)
    if not ready:
        raise NothingToCompareError(_nothing_to_run(request, skipped, device))
    python = pythons[ready[0].name]
    return Scene(
        known=frozenset(workload.name for workload in known),
        device=device,
        ready=ready,
        skipped=skipped,
        pythons=pythons,
        machine_key=machine_key(machine_facts(device, python)),
        machine=machine_details(device, python),
    )


def new_run_id(started: datetime) -> str:
    """The name of a build, unique and sorted by time."""
    return f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


@contextmanager
def gate(request: Request) -> Iterator[BuildVerdict]:
    """Run the whole gate; its captures stay until the context ends, since reports are made of them.

    Raises NothingToCompareError where no workload can run here.
    """
    with ExitStack() as held:
        measured, profiles = _collect(request, held)
        yield conclude([measured], profiles)


def collect(request: Request) -> tuple[Measured, dict[str, Profile]]:
    """All that the verdict rests on, measured, and the aligned profiles by digest; raises as `gate` does."""
    with ExitStack() as held:
        return _collect(request, held)


def _collect(request: Request, held: ExitStack) -> tuple[Measured, dict[str, Profile]]:
    started = datetime.now(timezone.utc)
    whole = prepare(request)
    scene = whole.share(request.shard)
    head = checkout.inspect(request.root)
    against = resolve(request.root, request.against) if request.against is not None else None
    key, ready = scene.machine_key, scene.ready
    names = [workload.name for workload in whole.ready]  # of all shards, as the priors are
    folders = folders_of(request.root, request.baselines)
    stored = load(folders, key, names, request.own_baselines)
    run_id, boot = new_run_id(started), sessions.boot_id()
    bench = scene.bench(request, head, sessions.current([], started, boot), run_id, held)
    for name, each in stored.items():  # each its own: one may have been recorded since, by itself
        bench.sessions[name] = sessions.current(each.baseline.runs, started, boot)
    usual = {name: usual_seconds(each.baseline.runs) for name, each in stored.items()}
    bench.seconds |= {name: seconds for name, seconds in usual.items() if seconds is not None}
    skipped = {verdict.workload for verdict in scene.skipped}
    notes = left_behind(folders, key, whole.known, skipped)
    notes += [note for each in stored.values() for note in each.notes]
    recorded: dict[str, Stored] = {}
    if request.record:
        missing = [w for w in ready if w.name not in stored]
        recorded, failed = _record(request, bench, key, scene.device, missing)
        stored |= recorded
        scene = scene.without(failed)
        notes += _of_recorded(recorded) if recorded else []
    settler = Settler(
        bench=bench,
        bases=scene.bases(request, head, held),
        workloads={workload.name: workload for workload in scene.ready},
        stored=stored,
        against=against,
        runs=request.runs,
        alpha=request.alpha,
        minutes=request.budget_minutes,
        recorded=frozenset(recorded),
        family=None if request.shard is None else len(whole.ready),
        own_baselines=request.own_baselines,
    )
    build = BuildVerdict(
        run_id=run_id,
        started=started.isoformat(timespec="seconds"),
        finished="",
        exit_code=0,
        summary="",
        device=scene.device,
        machine_key=key,
        machine=scene.machine,
        commit=head.commit,
        dirty=head.dirty,
        base=against,
        regress=request.regress,
        alpha=request.alpha,
        calibration=calibrated.latest({each.path.parent for each in stored.values()}),
        version=version("ai-prof"),
    )
    measured, profiles = _measure(request, scene, build, stored, settler)
    measured.names = whole.names
    build.workloads += scene.skipped
    build.notes = [*notes, *settler.notes]
    build.finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return measured, profiles


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
    return f"no workload can run here: {skipped[0].workload}: {skipped[0].why}"


def _record(
    request: Request, bench: Bench, key: str, device: Backend, workloads: Sequence[Workload]
) -> tuple[dict[str, Stored], list[WorkloadVerdict]]:
    """Measure and store what has no baseline yet; of a workload that fails, the verdict that says why."""
    failed, folders = [], folders_of(request.root, request.baselines)
    for name, runs in bench.baselines(workloads, request.runs).items():
        if (unrecorded := _unrecorded(name, runs)) is not None:
            failed.append(unrecorded)
            continue
        why = origin(bench.checkout, "recorded by `ai-prof gate --record`")
        baseline = store.Baseline(
            workload=name,
            machine_key=key,
            backend=device,
            origin=why,
            log=[store.Entry(**msgspec.structs.asdict(why), sessions=1, runs=len(runs))],
            runs=runs,
        )
        _, folder = folders
        with one_writer(store.path_of(folder, key, name).parent):
            store.save(folder, baseline, profiles_of(runs))
    return load(folders, key, [workload.name for workload in workloads]), failed


def _of_recorded(recorded: Mapping[str, Stored]) -> list[str]:
    """Where new baselines lie, and what to do where they are worth little."""
    said = [f"recorded a provisional baseline of {name} in {place(s.path)}" for name, s in recorded.items()]
    if any(stored.commit is None for stored in recorded.values()):
        said.append(
            "recorded with uncommitted changes, or outside of git: no later build can run this base again, "
            "which makes its evidence weaker"
        )
    busy = busy_host([run for each in recorded.values() for run in each.baseline.runs], host_cores())
    return [*said, f"{busy}; remove what was recorded first"] if busy is not None else said


def _unrecorded(name: str, runs: Sequence[Run]) -> WorkloadVerdict | None:
    """What is said of a workload whose runs make no baseline; None where they make one."""
    verdict = WorkloadVerdict(workload=name, reason=Reason.PASS, baseline_runs=list(runs))
    broken = disturbed(verdict, runs)
    if broken is not None:
        broken.why = f"no baseline was recorded: {broken.why}"
    return broken


def _measure(
    request: Request, scene: Scene, build: BuildVerdict, stored: Mapping[str, Stored], settler: Settler
) -> tuple[Measured, dict[str, Profile]]:
    """Candidate runs, screen, fresh runs for the flagged. The screen's verdicts go into `build`."""
    ready = scene.ready
    able = [w for w in ready if w.name in stored or request.unseen or request.record]
    runs = settler.bench.candidates(able, request.runs)
    rules = {workload.name: workload.rules for workload in ready}
    history = {name: each.baseline.runs for name, each in stored.items()}
    profiles = profiles_of(run for each in runs.values() for run in each)
    profiles |= {digest: one for each in stored.values() for digest, one in each.profiles.items()}
    priors = screen.shared_priors(history, scene.device)
    for workload in ready:
        name = workload.name
        if name not in stored and name not in runs:
            build.workloads.append(_without_baseline(request, name))
            continue
        verdict = decide.screen_workload(
            name,
            history.get(name, []),
            runs.get(name, []),
            rules=rules[name],
            priors=priors,
            profiles=profiles,
            accepted=stored[name].accepted if name in stored else (),
            anchor=stored[name].baseline.anchor if name in stored else None,
        )
        if verdict.flagged and settler.of_same_code(verdict):
            verdict = decide.of_same_code(verdict)
        verdict.baseline = stored[name].provenance() if name in stored else {}
        build.workloads.append(verdict)
    flagged = decide.by_strength(build.workloads)

    def left_open(verdict: WorkloadVerdict, made: Fresh) -> bool:
        return decide.left_open(
            verdict,
            made,
            settler.family or len(flagged),
            rules=rules[verdict.workload],
            priors=priors,
            alpha=request.alpha,
            profiles=profiles | profiles_of((*made.base, *made.head)),
        )

    fresh = settler.fresh(flagged, left_open) if flagged else {}
    profiles |= profiles_of(run for each in fresh.values() for run in (*each.base, *each.head))
    measured = Measured(build=build, fresh=fresh, rules=rules, priors=priors, fail_on=request.fail_on)
    return measured, profiles


def _without_baseline(request: Request, name: str) -> WorkloadVerdict:
    if request.against is not None:
        return decide.unscreened(name, f"no stored baseline; to be settled against {request.against}")
    why = "no baseline for this machine: record one with `ai-prof gate --record`"
    return WorkloadVerdict(workload=name, reason=Reason.NO_BASELINE, why=why)


def _captures(root: Path, run_id: str, held: ExitStack) -> Path:
    """The folder of a build's captures. Of older builds that have ended those of the last few stay."""
    folder = root / LOCAL / "captures"
    with one_writer(folder):
        builds = sorted(path for path in folder.glob("*") if path.is_dir())
        for old in builds[: 1 - KEPT_BUILDS]:
            if unused(old):
                shutil.rmtree(old, ignore_errors=True)
        own = folder / run_id
        own.mkdir()
        held.enter_context(in_use(own))
    return own
