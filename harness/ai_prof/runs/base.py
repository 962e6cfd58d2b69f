"""The code that a build is compared with: a commit in a worktree of its own, built once and kept."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ai_prof.baselines.files import one_writer, write_file
from ai_prof.errors import EnvironmentInvalidError, UsageError, WorkloadError
from ai_prof.runs import process
from ai_prof.runs.checkout import OF_A_HOOK, Checkout, git
from ai_prof.runs.in_use import in_use, unused
from ai_prof.runs.interpreter import requirements
from ai_prof.runs.printed import complaint
from ai_prof.runs.stored import LOCAL
from ai_prof.runs.workloads import FILE, Workload, load
from ai_prof.say import say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

KEPT = 3  # worktrees
BUILD_TIMEOUT_S = 3600.0
SHOWN = 12  # digits of a commit in names and messages


class BaseError(EnvironmentInvalidError):
    """A commit that cannot be checked out, built or run here, and why."""


@dataclass(frozen=True, slots=True)
class Side:
    """A workload as one side of a comparison runs it."""

    checkout: Checkout
    workload: Workload
    python: str


@dataclass(frozen=True, kw_only=True)
class Bases:
    """Makes base sides. `workloads` is head's folder of them, `python` is what `--python` named.

    The worktrees stay until `held` is closed, whatever others, and other builds, are made meanwhile.
    """

    head: Checkout
    workloads: Path
    pythons: Mapping[str, str]
    held: ExitStack
    build: str | None = None
    python: str | None = None

    def side(self, workload: Workload, commit: str) -> Side:
        """`workload` as `commit` runs it: its own, head's only where it lacks it.

        Raises BaseError where it cannot be run.
        """
        if self.head.is_exactly(commit):
            return Side(self.head, workload, self.pythons[workload.name])
        if not self.workloads.resolve().is_relative_to(self.head.root.resolve()):
            raise BaseError(f"{self.workloads} is no part of the checkout: it has no older state")
        checkout = worktree(self.head.root, commit, self.build, BUILD_TIMEOUT_S, self.held)
        inside = self.workloads.resolve().relative_to(self.head.root.resolve())
        own = checkout.root / inside / workload.name / FILE
        python = self._python(checkout.root, workload)
        try:
            theirs = load(own) if own.exists() else workload
        except WorkloadError as error:
            raise BaseError(str(error)) from error
        if theirs.device != workload.device:
            raise BaseError(f"{workload.name} ran on {theirs.device} at {commit[:SHOWN]}")
        unmet = requirements(theirs, python)
        if unmet:
            raise BaseError("; ".join(unmet))
        return Side(checkout, theirs, python)

    def _python(self, root: Path, workload: Workload) -> str:
        """The interpreter: base's own where head's was named by a path inside the checkout."""
        named = self.python
        if named is not None and os.sep in named and not Path(named).is_absolute():
            own = root / named
            if own.exists():
                return str(own)
        return self.pythons[workload.name]


def resolve(root: Path, ref: str) -> str:
    """The commit that `ref` names. Raises UsageError where it names none."""
    commit = _commit(root, ref)
    if commit is None and git(root, "rev-parse", "--git-dir") is None:
        raise UsageError(f"{root} is not in git: there is no {ref!r} to run")
    if commit is None:
        raise UsageError(f"{ref!r} names no commit of {root}: {_fetched(root)}, or name another")
    return commit


def _commit(root: Path, ref: str) -> str | None:
    return git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")


def _fetched(root: Path) -> str:
    """How to get a commit that is not here."""
    if git(root, "rev-parse", "--is-shallow-repository") == "true":
        return "get the history of this shallow clone (`fetch-depth: 0` in CI, or `git fetch --unshallow`)"
    return "fetch it first"


def worktree(root: Path, commit: str, build: str | None, timeout_s: float, held: ExitStack) -> Checkout:
    """The checkout of `commit`, built by the shell command `build`; that of an earlier call where it stands.

    It stays until `held` is closed. Of those that nobody holds, only the last few stay.
    Raises BaseError where it cannot be checked out, or where `build` fails: then nothing of it is kept.
    """
    folder = (root / LOCAL / "base").resolve()
    prefix = git(root, "rev-parse", "--show-prefix")
    if prefix is None:
        raise BaseError(f"{root} is not in git: there is no {commit[:SHOWN]} to run")
    tree = folder / commit[:SHOWN]
    mark = folder / f"{commit[:SHOWN]}.json"
    wanted = msgspec.json.encode({"commit": commit, "build": build})
    with one_writer(folder):
        if not (tree.exists() and mark.exists() and mark.read_bytes() == wanted):
            if not unused(tree):
                raise BaseError(
                    f"another build runs {commit[:SHOWN]} as another build command made it: wait for its end"
                )
            _make(root, commit, tree)
            try:
                _build(tree / prefix, build, folder / f"{commit[:SHOWN]}.build", timeout_s)
            except BaseException:
                remove(root, tree)
                raise
            write_file(mark, wanted)
        os.utime(mark)
        held.enter_context(in_use(tree))
        marks = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        kept = {path.stem for path in marks[-KEPT:]}
        for old in {folder / path.stem for path in folder.glob("[!.]*") if path.stem not in kept}:
            if unused(old):  # built long ago, or by a build that failed or was killed
                remove(root, old)
                shutil.rmtree(old.with_suffix(".build"), ignore_errors=True)
    return Checkout(tree / prefix, commit, dirty=False)


def _make(root: Path, commit: str, tree: Path) -> None:
    """Check `commit` out in `tree`, whatever stands there. Raises BaseError where git can't."""
    remove(root, tree)
    # Twice: a checkout that was killed leaves its worktree locked.
    if git(root, "worktree", "add", "--detach", "--force", "--force", str(tree), commit) is None:
        remove(root, tree)
        if _commit(root, commit) is None:
            raise BaseError(f"{commit[:SHOWN]} is no commit of this clone: {_fetched(root)}")
        raise BaseError(f"git cannot check out {commit[:SHOWN]}: `git worktree add {tree} {commit}` says why")


def remove(root: Path, tree: Path) -> None:
    """Remove a worktree, what git knows of it, and what says that it is built."""
    tree.with_suffix(".json").unlink(missing_ok=True)
    if tree.exists():
        git(root, "worktree", "remove", "--force", "--force", str(tree))
        shutil.rmtree(tree, ignore_errors=True)


def _build(root: Path, command: str | None, output: Path, timeout_s: float) -> None:
    """Run the project's own build command in `root`; what it prints is kept in `output`."""
    if command is None:
        return
    output.mkdir(exist_ok=True)
    say(f"building {output.stem} by `{command}`")
    env = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("AI_PROF_") and name not in OF_A_HOOK
    }
    ended = process.run(
        ["/bin/sh", "-c", command],
        folder=root,
        env=env,
        output=output,
        timeout_s=timeout_s,
    )
    if ended.code != 0:
        how = f"still ran after {timeout_s:.0f} s" if ended.code is None else f"ended with {ended.code}"
        last = complaint(output / "stderr.txt") or "it said nothing"
        raise BaseError(f"the build command {how} at {output.stem}: {last}; see {output}")
