"""`ai-prof gate`: run the workloads, compare with their baselines, report, and fail on a regression."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.baselines import history
from ai_prof.cli.console import OutputConsole
from ai_prof.cli.ending import end_in_order
from ai_prof.cli.gate_options import add_gate_options, make_request
from ai_prof.cli.own_folder import make_own_folder
from ai_prof.errors import EXIT_PASS, BaselineError, UsageError
from ai_prof.gate.measured import Shard
from ai_prof.json_text import for_people
from ai_prof.report import annotations as github
from ai_prof.report import shards, terminal
from ai_prof.report.write import write_reports
from ai_prof.runs.gated import collect, gate
from ai_prof.runs.stored import LOCAL
from ai_prof.runs.workloads import find
from ai_prof.say import say

if TYPE_CHECKING:
    import argparse

    from ai_prof.gate.model import BuildVerdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_gate_options(parser)
    parser.add_argument(
        "--record",
        action="store_true",
        help="make a missing baseline first, in .ai-prof/baselines (never in baselines/); "
        "what lies there already stays: remove it to have it recorded anew",
    )
    parser.add_argument(
        "--against",
        metavar="REF",
        help="settle what is flagged, and what has no baseline, by fresh runs of this commit in a worktree, "
        "built by `build` of [tool.ai-prof] (default: the baseline's commit)",
    )
    parser.add_argument(
        "--regress",
        metavar="FAULT[=STRENGTH]",
        help="switch a slowdown on that workloads know (`faults` of workload.toml), to see the gate fail",
    )
    parser.add_argument(
        "--shard",
        metavar="I/N",
        help="measure the I-th of N shares of the workloads and leave the verdict to `ai-prof report merge`",
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="folder of the reports (default: reports)")
    parser.add_argument(
        "--budget-minutes", type=float, metavar="M", help="bound of settling what was flagged (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="print the whole verdict as JSON")


def run(args: argparse.Namespace) -> int:
    """Gate, write the reports, print the verdict; its exit code."""
    end_in_order()
    shard = Shard.parse(args.shard) if args.shard is not None else None
    if shard is not None and args.record:
        raise UsageError("--shard with --record: a baseline is recorded by the whole gate, before its shards")
    request, settings = make_request(
        args, record=args.record, regress=args.regress, against=args.against, shard=shard
    )
    minutes = request.budget_minutes if args.budget_minutes is None else args.budget_minutes
    if not minutes >= 0:
        raise UsageError(f"--budget-minutes {minutes:g} must be 0 or more")
    if args.baselines is not None and not args.record and not args.baselines.is_dir():
        raise UsageError(f"--baselines {args.baselines} is no folder: name one that holds baselines")
    find(request.workloads)  # in a wrong folder there are none, and nothing is left behind in it
    reports = args.report or request.root / settings.report
    make_own_folder(reports, "name another folder with --report")
    make_own_folder(request.root / LOCAL, "run in a checkout of your own")
    request = replace(request, budget_minutes=minutes)
    if shard is not None:
        measured, profiles = collect(request)
        path = shards.save(reports / measured.build.run_id, shard, measured, profiles)
        say(f"shard {shard} in {path}: judge all with `ai-prof report merge`")
        return EXIT_PASS
    with gate(request) as verdict:
        return deliver(verdict, request.root, reports, as_json=args.json)


def deliver(verdict: BuildVerdict, root: Path, reports: Path, *, as_json: bool) -> int:
    """Add the build to the history, write its reports, print the verdict; its exit code."""
    remember(root, verdict)
    try:
        page = write_reports(verdict, reports / verdict.run_id, recall(root))
    finally:
        show(verdict, as_json=as_json)
    say(f"report in {page}")
    return verdict.exit_code


def remember(root: Path, verdict: BuildVerdict) -> None:
    """Add the build to the history; one that cannot be kept decides nothing, and is said."""
    try:
        history.append(root / LOCAL / history.FILE, history.points(verdict))
    except BaselineError as error:
        say(f"not in the history: {error}")


def recall(root: Path) -> list[history.Point]:
    """Every earlier build that is known; none where the history cannot be read, which `remember` has said."""
    try:
        return history.load(root / LOCAL / history.FILE)
    except BaselineError:
        return []


def show(verdict: BuildVerdict, *, as_json: bool) -> None:
    """Print the verdict."""
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    if as_json:
        print(for_people(verdict))
    else:
        # FORCE_COLOR asks for the table, which begins lines with what it breaks of a name: a command there.
        terminal.render(verdict, OutputConsole(force_terminal=False) if on_github else OutputConsole())
    if on_github:
        print(github.render(verdict), end="")
