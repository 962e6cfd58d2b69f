"""The baselines that a build is compared with, as they are stored, and those that it records itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ai_prof.baselines import accepted, store
from ai_prof.baselines.files import place
from ai_prof.runs.checkout import git

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ai_prof.gate.model import Acceptance, Told
    from ai_prof.runs.checkout import Checkout
    from ai_prof.timeline.profile import Profile

LOCAL = Path(".ai-prof")


@dataclass(frozen=True)
class Stored:
    """A baseline, the file it lies in, its runs' aligned profiles by digest, and what was accepted since.

    `notes` say what was accepted and counts no more.
    """

    baseline: store.Baseline
    path: Path
    profiles: Mapping[str, Profile]
    accepted: Sequence[Acceptance]
    notes: Sequence[str] = ()

    @property
    def commit(self) -> str | None:
        """The commit whose code the baseline holds; None where it was not exactly one."""
        origin = self.baseline.origin
        return None if origin.dirty else origin.commit

    def provenance(self) -> dict[str, Told]:
        """What a report says of it."""
        origin = self.baseline.origin
        return {
            "commit": origin.commit,
            "dirty": origin.dirty,
            "recorded": origin.when,
            "who": origin.who,
            "why": origin.why,
            "sessions": self.baseline.sessions,
            "runs": len(self.baseline.runs),
            "path": str(self.path),
            "sha256": store.digest(self.baseline),
        }


def folders_of(root: Path, reviewed: Path) -> tuple[Path, Path]:
    """Where the baselines of a project lie: the reviewed ones, then those recorded on this machine."""
    return reviewed, root / LOCAL / "baselines"


def load(
    folders: Iterable[Path], machine_key: str, names: Iterable[str], own: Path | None = None
) -> dict[str, Stored]:
    """The baseline of each workload from the first of the folders that has one.

    What is accepted of it may also lie in `own`, the checkout's folder of baselines: a pull request is
    compared with the baselines of its target, and brings what it wants accepted itself.
    """
    folders = list(folders)
    stored = {}
    for name in names:
        for folder in folders:
            found = store.load_with_profiles(folder, machine_key, name)
            if found is not None:
                baseline, profiles = found
                path = store.path_of(folder, machine_key, name)
                paths = [path]
                if own is not None and own.resolve() != folder.resolve():
                    paths.append(store.path_of(own, machine_key, name))
                wanted = accepted.latest(each for where in paths for each in accepted.load(where, baseline))
                notes = [note for where in paths if (note := accepted.stale(where, baseline))]
                stored[name] = Stored(baseline, path, profiles, wanted, notes)
                break
    return stored


def left_behind(
    folders: Iterable[Path], machine_key: str, known: Collection[str], skipped: Collection[str]
) -> list[str]:
    """Say which baselines of this machine gate nothing: of workloads that are not known, or not run."""
    notes = []
    for path in (path for folder in folders for path in store.paths(folder, machine_key)):
        if path.stem not in known:
            what = "is of no workload that is here: what was gated by it is no more"
            notes.append(f"{place(path)} {what}; remove it where that is wanted")
        elif path.stem in skipped:
            what = "was measured on this machine, where the workload is skipped now: it gates nothing"
            notes.append(f"{place(path)} {what}")
    return notes


def origin(code: Checkout, why: str) -> store.Origin:
    """Who records what is recorded now."""
    return store.Origin(who=user(code.root), why=why, when=now(), commit=code.commit, dirty=code.dirty)


def user(root: Path) -> str:
    """Who runs this: the name that their commits in `root` carry, else the account's."""
    return git(root, "config", "user.name") or psutil.Process().username()


def now() -> str:
    """The time as files keep it: RFC 3339, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
