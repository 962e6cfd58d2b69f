"""Which code is being measured: the commit of a checkout, and whether it is exactly that."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_prof.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


OF_A_HOOK = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"})


@dataclass(frozen=True, slots=True)
class Checkout:
    """`commit` is None outside git; `dirty` is True there too, since nothing says what the code is."""

    root: Path
    commit: str | None
    dirty: bool

    def is_exactly(self, commit: str | None) -> bool:
        """Whether running this checkout is running `commit`."""
        return commit is not None and commit == self.commit and not self.dirty


def inspect(root: Path) -> Checkout:
    """Ask git about `root`; files that git ignores do not make it dirty, untracked ones do.

    So they do where its configuration leaves them out of `git status`, as that of large repositories does:
    a workload may import them.
    """
    commit = git(root, "rev-parse", "HEAD")
    status = git(root, "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none")
    return Checkout(root, commit, dirty=commit is None or status is None or bool(status))


def git(root: Path, *arguments: str) -> str | None:
    """What a git command prints, untranslated; None where it fails, or where there is no git.

    Names of files and authors may be of any encoding: they come as Python names files.
    It is about `root`, also within a hook of another repository, which git tells where that one lies.
    Raises UsageError where git refuses a checkout of another user, as a container's often is.
    """
    env = {name: text for name, text in os.environ.items() if name not in OF_A_HOOK}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=root,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
            env={**env, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return None
    if "dubious ownership" in done.stderr:
        _, _, owned = done.stderr.partition("--add safe.directory ")
        remedy = f"git config --global --add safe.directory {owned.partition(chr(10))[0] or root}"
        raise UsageError(f"git refuses {root}, which belongs to another user: run `{remedy}`")
    return done.stdout.removesuffix("\n") if done.returncode == 0 else None
