"""`ai-prof bisect`: find the commit that made a workload slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.cli.ending import end_in_order
from ai_prof.cli.gate_options import PYTHON, make_request
from ai_prof.cli.own_folder import make_own_folder
from ai_prof.errors import EXIT_UNSETTLED
from ai_prof.gate.metrics import COUNTS, TOTALS
from ai_prof.runs.bisect import bisect
from ai_prof.runs.checkout import git
from ai_prof.runs.stored import LOCAL
from ai_prof.say import logged, say, shown

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_METRICS = [metric.key for metric in (*TOTALS, *COUNTS)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Find the commit between GOOD and BAD at which METRIC of WORKLOAD became worse. git chooses the "
        "commits; each is checked out in a worktree, built by `build` of [tool.ai-prof], and run fresh and "
        "interleaved with GOOD. Commits that cannot be built or run are left out. Your own checkout stays as "
        "it is."
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="its folder's name")
    parser.add_argument("metric", metavar="METRIC", choices=_METRICS, help=", ".join(_METRICS))
    parser.add_argument("good", metavar="GOOD", help="a commit that is fast")
    parser.add_argument("bad", metavar="BAD", help="a later commit that is slow")
    parser.add_argument("--python", metavar="PATH", help=PYTHON)


def run(args: argparse.Namespace) -> int:
    """Bisect; 0 where one commit was found, 5 where several can't be told apart."""
    end_in_order()
    args.workload, args.runs, args.baselines, args.device = [args.workload], None, None, "auto"
    request, _ = make_request(args)
    make_own_folder(request.root / LOCAL, "run in a checkout of your own")
    if request.build is None:
        say(
            "`build` in [tool.ai-prof] is not set: commits are run unbuilt, and what their workloads import "
            "from an installed package is this tree's"
        )
    found = bisect(request, args.metric, args.good, args.bad)
    if len(found.commits) == 1:
        (commit,) = found.commits
        print(_described(request.root, commit))
        print(_plain(found.said.get(commit, "")))
        return 0
    say("these can't be told apart, since some of them can't be run:")
    for commit in found.commits:
        print(f"{_described(request.root, commit)}  {_plain(found.said.get(commit, ''))}".rstrip())
    return EXIT_UNSETTLED


def _described(root: Path, commit: str) -> str:
    return _plain(git(root, "show", "-s", "--format=%h %an: %s", commit) or commit)


def _plain(text: str) -> str:
    """What authors and programs say, as nothing that a terminal or a log obeys."""
    return logged(shown(text))
