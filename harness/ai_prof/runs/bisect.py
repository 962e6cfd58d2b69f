"""Find the commit that made a workload slower: git bisects, each commit runs fresh against the good one."""

from __future__ import annotations

import math
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from ai_prof.errors import EnvironmentInvalidError, NothingToCompareError, UsageError
from ai_prof.gate import confirm, decide
from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import Reason
from ai_prof.gate.screen import table_priors
from ai_prof.runs import checkout, sessions
from ai_prof.runs.base import SHOWN, BaseError, Side, remove, resolve
from ai_prof.runs.bench import Budget
from ai_prof.runs.checkout import git
from ai_prof.runs.gated import Request, new_run_id, prepare
from ai_prof.runs.host_lock import host_lock
from ai_prof.runs.launch import OWN_FAULTS
from ai_prof.runs.stored import LOCAL
from ai_prof.say import say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ai_prof.gate.model import Run
    from ai_prof.runs.bench import Bench

Mark = Literal["good", "bad", "skip"]
_FIRST_BAD = re.compile(r"^([0-9a-f]{7,64}) is the first '?bad'? commit", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """The end of a bisection: one commit, or those that cannot be told apart; and what was said of each."""

    commits: list[str]
    said: dict[str, str]


def bisect(request: Request, metric: str, good: str, bad: str) -> Found:
    """Bisect one workload's metric between two commits. `request` names the workload alone.

    Raises NothingToCompareError where the bad commit is no worse, EnvironmentInvalidError where one of the
    two cannot be run or the machine was disturbed, UsageError where good does not come before bad.
    """
    root = request.root
    ends = {"good": resolve(root, good), "bad": resolve(root, bad)}
    if ends["good"] == ends["bad"]:
        raise UsageError(f"{good} and {bad} are one commit: name a good one that comes before the bad one")
    if git(root, "merge-base", "--is-ancestor", ends["good"], ends["bad"]) is None:
        raise UsageError(f"{good} does not come before {bad}: name a good commit that {bad} builds on")
    with ExitStack() as held:
        return _between(root, ends, bad, _judge(request, metric, ends["good"], held))


def _between(root: Path, ends: dict[str, str], bad: str, judge: Callable[[str], tuple[Mark, str]]) -> Found:
    """Judge the bad end, which `bad` names, then what git chooses between it and the good one."""
    mark, what = judge(ends["bad"])
    if mark == "skip":
        raise EnvironmentInvalidError(f"{bad} cannot be run: {what}")
    if mark == "good":
        advice = "name a metric that regressed, or try again on a quiet machine"
        raise NothingToCompareError(f"nothing to find: at {bad}, {what}; {advice}")
    said = {ends["bad"]: what}
    tree = (root / LOCAL / "bisect").resolve()
    with host_lock(["bisect"], root / LOCAL):  # two would mark their commits in one and the same worktree
        remove(root, tree)
        if git(root, "worktree", "add", "--detach", "--force", "--force", str(tree), ends["bad"]) is None:
            raise EnvironmentInvalidError(f"git cannot make a worktree in {tree}: see `git worktree list`")
        try:
            return Found(_walk(tree, ends, judge, said), said)
        finally:
            git(tree, "bisect", "reset")
            remove(root, tree)


def _walk(
    tree: Path, ends: dict[str, str], judge: Callable[[str], tuple[Mark, str]], said: dict[str, str]
) -> list[str]:
    """Let git choose the commits; those that may be the first bad one."""
    answer = git(tree, "bisect", "start", ends["bad"], ends["good"])
    while True:
        found = _FIRST_BAD.search(answer or "")
        if found is not None:
            return [found[1]]
        commit = git(tree, "rev-parse", "HEAD") or ""
        if answer is None or commit in said:
            return _suspects(tree)
        mark, said[commit] = judge(commit)
        say(f"{commit[:SHOWN]} is {_WORDS[mark]}: {said[commit]}")
        answer = git(tree, "bisect", mark)


_WORDS = {"good": "good", "bad": "bad", "skip": "left out"}


def _suspects(tree: Path) -> list[str]:
    """The commits that are left where only such remain that cannot be run."""
    good = git(tree, "for-each-ref", "--format=%(objectname)", "refs/bisect/good-*") or ""
    listed = git(tree, "rev-list", "refs/bisect/bad", "--not", *good.split()) or ""
    return listed.split()


def _judge(request: Request, metric: str, good: str, held: ExitStack) -> Callable[[str], tuple[Mark, str]]:
    """What runs a commit against the good one, and says what came of it."""
    started = datetime.now(timezone.utc)
    head = checkout.inspect(request.root)
    scene = prepare(request)
    (workload,) = scene.ready
    bases = scene.bases(request, head, held)
    session = sessions.current([], started, sessions.boot_id())
    bench = scene.bench(request, head, session, new_run_id(started), held)
    base = bases.side(workload, good)

    def judge(commit: str) -> tuple[Mark, str]:
        with ExitStack() as meanwhile:
            try:
                side = replace(bases, held=meanwhile).side(workload, commit)
                return _compare(bench, base, side, metric, request.alpha)
            except BaseError as error:
                return "skip", str(error)

    return judge


def _compare(bench: Bench, base: Side, head: Side, metric: str, alpha: float) -> tuple[Mark, str]:
    """Fresh runs of both, and whether the metric is worse in head; a BaseError where one does not run."""
    name, rules = head.workload.name, head.workload.rules
    of_head = replace(bench, checkout=head.checkout, pythons={name: head.python})
    plan = confirm.plan(1, alpha)
    bisected, priors = decide.unscreened(name, "bisected"), table_priors(head.workload.device)

    def left_open(made: decide.Fresh) -> bool:
        return decide.left_open(bisected, made, 1, rules=rules, priors=priors, alpha=alpha, metric=metric)

    fresh = of_head.against_base(head.workload, base, plan, Budget(math.inf), left_open)
    _check(fresh.head)
    (verdict,) = decide.settle([bisected], {name: fresh}, rules={name: rules}, priors=priors, alpha=alpha)
    if verdict.reason is Reason.INVALID_ENVIRONMENT:
        raise EnvironmentInvalidError(f"{name} was disturbed: {verdict.why}")
    rows = {each.name: each for each in verdict.structure} | {cell.metric: cell for cell in verdict.cells}
    if metric not in rows:
        if METRICS[metric].role == "structure":
            return "good", f"{METRICS[metric].label} per iteration are as many"
        raise BaseError(f"{METRICS[metric].label} could not be compared: {verdict.why}")
    return ("bad" if rows[metric].reason is Reason.REGRESSED else "good"), rows[metric].why


def _check(runs: list[Run]) -> None:
    broken = next((run for run in runs if run.problem in OWN_FAULTS), None)
    if broken is not None:
        raise BaseError(f"it does not run ({broken.detail})")
