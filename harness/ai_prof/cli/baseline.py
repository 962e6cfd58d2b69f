"""`ai-prof baseline refresh`: measure the workloads and store the runs as this machine's baseline."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.table import Table

from ai_prof.baselines import accepted, store
from ai_prof.baselines.refresh import Moved, RefreshFacts, moved, refusals, renewed
from ai_prof.cli.console import OutputConsole
from ai_prof.cli.gate_options import add_gate_options, make_request
from ai_prof.cli.own_folder import make_folder, make_own_folder
from ai_prof.errors import BaselineError
from ai_prof.gate.model import BuildVerdict, Reason, WorkloadVerdict
from ai_prof.report.format import change, value
from ai_prof.runs import checkout
from ai_prof.runs.gated import Request, gate
from ai_prof.runs.launch import profiles_of
from ai_prof.runs.stored import LOCAL, origin

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="baseline_verb", metavar="VERB", required=True)
    text = "measure and store; refuses what a reviewer should not have to catch"
    refresh = verbs.add_parser("refresh", help=text, description=text)
    add_gate_options(refresh)
    refresh.add_argument("--reason", required=True, help="why, kept in the baseline's origin")


def run(args: argparse.Namespace) -> int:
    """Measure, compare with the old baselines, refuse or store. All workloads are stored, or none."""
    request, _ = make_request(args, unseen=True)
    code = checkout.inspect(request.root)
    if code.dirty:
        # What would be refused after minutes of runs is refused before them.
        raise BaselineError(
            "refused: the tree has uncommitted changes or is not in git: commit, so the origin is known"
        )
    make_folder(request.baselines, "name another folder with --baselines")
    make_own_folder(request.root / LOCAL, "run in a checkout of your own")
    verdict = gate(request)
    measured = [w for w in verdict.workloads if w.reason is not Reason.SKIPPED]
    facts = {w.workload: gather(request, verdict, w) for w in measured}
    refused = [f"{name}: {why}" for name, each in facts.items() for why in refusals(each)]
    if refused:
        raise BaselineError("refused, nothing was stored: " + "; ".join(refused))
    for each in facts.values():
        runs = renewed(each.old, each.runs, each.verdict)
        old = each.old.runs if each.old else []
        baseline = store.Baseline(
            workload=each.workload,
            machine_key=each.machine_key,
            backend=each.backend,
            origin=origin(code, args.reason),
            anchor=each.old.anchor if each.old else None,
            runs=runs,
        )
        profiles = profiles_of(each.runs)
        if each.old:
            profiles |= store.load_profiles(
                store.path_of(request.baselines, each.machine_key, each.workload), each.old
            )
        path = store.save(request.baselines, baseline, profiles)
        accepted.end(path)
        show(each.workload, moved(old, each.runs))
        sys.stderr.write(f"ai-prof: {path}: {len(runs)} runs of {baseline.sessions} sessions\n")
    return 0


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
