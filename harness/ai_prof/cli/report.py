"""`ai-prof report merge DIR...`: one verdict and one report of what the shards of a build measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.cli import add_verb
from ai_prof.cli.gate import deliver
from ai_prof.cli.own_folder import make_own_folder
from ai_prof.cli.settings import load
from ai_prof.gate.measured import conclude
from ai_prof.report import shards
from ai_prof.runs.stored import LOCAL

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="report_verb", metavar="VERB", required=True)
    text = "judge what `gate --shard` measured: the whole build's verdict, report and exit code"
    merge = add_verb(verbs, "merge", text)
    merge.add_argument("folder", nargs="+", type=Path, metavar="DIR", help="where the shards' evidence lies")
    merge.add_argument("--report", type=Path, metavar="DIR", help="folder of the reports (default: reports)")
    merge.add_argument("--json", action="store_true", help="print the whole verdict as JSON")


def run(args: argparse.Namespace) -> int:
    """Merge, write the reports, print the verdict; its exit code."""
    root = Path.cwd()
    verdict = conclude(*shards.load(args.folder))
    reports = args.report or root / load(root).report
    make_own_folder(reports, "name another folder with --report")
    make_own_folder(root / LOCAL, "run in a checkout of your own")
    return deliver(verdict, root, reports, as_json=args.json)
