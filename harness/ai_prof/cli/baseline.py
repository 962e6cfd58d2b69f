"""`ai-prof baseline refresh|show|log`: store runs as this machine's baseline, and look at what is stored."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from ai_prof.baselines import accepted, store
from ai_prof.baselines.files import one_writer, tidy
from ai_prof.baselines.refresh import Moved, RefreshFacts, busy_host, moved, refreshed, refusals
from ai_prof.cli import add_verb, baseline_show
from ai_prof.cli.console import OutputConsole
from ai_prof.cli.ending import end_in_order
from ai_prof.cli.gate import remember
from ai_prof.cli.gate_options import add_gate_options, make_request
from ai_prof.cli.own_folder import make_folder, make_own_folder
from ai_prof.errors import BaselineError
from ai_prof.gate.model import BuildVerdict, Reason, WorkloadVerdict
from ai_prof.report.format import change, plural, value
from ai_prof.runs import checkout, sessions
from ai_prof.runs.environment import host_cores
from ai_prof.runs.gated import Request, gate
from ai_prof.runs.launch import profiles_of
from ai_prof.runs.stored import LOCAL, origin
from ai_prof.say import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ai_prof.baselines.store import Origin
    from ai_prof.timeline.profile import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="baseline_verb", metavar="VERB", required=True)
    text = "measure and store runs as baselines; refuses what a reviewer should not have to catch"
    refresh = add_verb(verbs, "refresh", text)
    add_gate_options(refresh)
    refresh.add_argument("--reason", required=True, help="why, kept in the baseline's origin")
    text = "print what is stored, and the smallest change that three runs would show against it"
    baseline_show.add_arguments(add_verb(verbs, "show", text))
    text = "print who stored what when and why, and the values that it moved"
    baseline_show.add_arguments(add_verb(verbs, "log", text))


def run(args: argparse.Namespace) -> int:
    """Do what the second word says."""
    verbs = {"refresh": refresh, "show": baseline_show.show, "log": baseline_show.log}
    return verbs[args.baseline_verb](args)


def refresh(args: argparse.Namespace) -> int:
    """Measure, compare with the old baselines, refuse or store. All workloads are stored, or none."""
    end_in_order()
    request, _ = make_request(args, unseen=True)
    tidy(request.baselines)  # what a killed refresh left there makes the tree dirty
    code = checkout.inspect(request.root)
    if code.dirty:
        # What would be refused after minutes of runs is refused before them.
        raise BaselineError(
            "refused: the tree has uncommitted changes or is not in git: commit, so the origin is known"
        )
    make_folder(request.baselines, "name another folder with --baselines")
    make_own_folder(request.root / LOCAL, "run in a checkout of your own")
    with gate(request) as verdict:
        remember(request.root, verdict)
        measured = [w for w in verdict.workloads if w.reason is not Reason.SKIPPED]
        facts = {w.workload: gather(request, verdict, w) for w in measured}
        refused = [f"{name}: {why}" for name, each in facts.items() for why in refusals(each)]
        if refused:
            raise BaselineError("refused, nothing was stored: " + "; ".join(refused))
        keep(request, verdict.machine_key, list(facts.values()), origin(code, args.reason))
    return 0


def keep(request: Request, machine_key: str, measured: Sequence[RefreshFacts], why: Origin) -> None:
    """Store all new runs, on top of what lies there by now; none where one of them is refused."""
    with one_writer(request.baselines / machine_key):
        made = [(facts, *renew(request, facts, why)) for facts in measured]
        for path in store.save_all(request.baselines, [(new, profiles) for _, new, profiles in made]):
            accepted.end(path)
    for facts, new, _ in made:
        show(facts.workload, moved(facts.old.runs if facts.old else [], facts.runs))
        size = f"{plural(len(new.runs), 'run')} of {plural(new.sessions, 'session')}"
        path = store.path_of(request.baselines, machine_key, facts.workload)
        say(f"{path}: {size}")
        if (busy := busy_host(facts.runs, host_cores())) is not None:
            say(f"{facts.workload}: {busy}")


def renew(request: Request, facts: RefreshFacts, why: Origin) -> tuple[store.Baseline, dict[str, Profile]]:
    """The new baseline of one workload, and the profiles of its runs."""
    current = store.load(request.baselines, facts.machine_key, facts.workload)
    profiles = profiles_of(facts.runs)
    if current is not None:
        runs = sessions.joined(facts.runs, current.runs, datetime.now(timezone.utc), sessions.boot_id())
        facts = msgspec.structs.replace(facts, runs=runs)
        path = store.path_of(request.baselines, facts.machine_key, facts.workload)
        profiles |= store.load_profiles(path, current)
    return refreshed(facts, current, why), profiles


def gather(request: Request, verdict: BuildVerdict, workload: WorkloadVerdict) -> RefreshFacts:
    """What the refusals look at."""
    runs = workload.candidate_runs
    environments = [run.environment for run in runs]
    old = store.load(request.baselines, verdict.machine_key, workload.workload)
    return RefreshFacts(
        workload=workload.workload,
        machine_key=verdict.machine_key,
        backend=verdict.device,  # type: ignore[arg-type]
        runs=runs,
        dirty=verdict.dirty,
        foreign=sorted(
            {f"process {pid}" for e in environments for pid in e.get("foreign_gpu_processes", [])}
        ),
        throttling=sorted({why for e in environments for why in e.get("slowdowns", [])}),
        old=old,
        verdict=workload if old else None,
    )


def show(workload: str, rows: list[Moved]) -> None:
    """Print every value, old beside new."""
    table = Table(title=workload, title_justify="left", box=None)
    table.add_column("metric")
    for name in ("old", "new", "change"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.label, value(row.old, row.unit), value(row.new, row.unit), change(row.change, row.unit)
        )
    OutputConsole().print(table)
