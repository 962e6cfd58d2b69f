"""Baselines on disk: `baselines/<machine key>/<workload>.json`, one run a line, reviewed like code."""

from __future__ import annotations

import glob
import hashlib
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from ai_prof.baselines import profiles as codec
from ai_prof.baselines.files import read_file, write_files
from ai_prof.baselines.migrate import VERSION, migrated
from ai_prof.errors import BaselineError, NothingToCompareError
from ai_prof.gate.facts import Time
from ai_prof.gate.metrics import Backend
from ai_prof.gate.model import Anchor, Run
from ai_prof.json_text import UNREADABLE
from ai_prof.json_text import encode as encode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from ai_prof.timeline.profile import Profile

SCHEMA = f"ai-prof/baseline/{VERSION}"
NO_PROFILES: Mapping[str, Profile] = {}
PROFILES_LIMIT = 2_000_000  # bytes; a repository keeps every version of them
ACCEPTED = ".accepted.json"  # how the name of a file ends that holds what was accepted of a baseline
CALIBRATED = ".calibration.json"
DIGITS = 9  # of a version of the schema
RESERVED = tuple(each.removesuffix(".json") for each in (ACCEPTED, CALIBRATED))  # no end of a workload's name
SPENT = 3  # runs, a session's: a fresh base is compared instead of them wherever it can be run


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Who recorded a baseline, why, when (RFC 3339, UTC) and from which commit."""

    who: str
    why: str
    when: str
    commit: str | None = None
    dirty: bool = False


class Entry(Origin, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a baseline's log: its origin, what it had then, and what moved.

    `moved` holds every value that moved by more than its floor, old beside new.
    """

    sessions: int
    runs: int
    moved: dict[str, tuple[float | None, float | None]] = {}


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The stored runs of one workload on one kind of machine, and how it came to be, oldest first.

    `anchor` is what drift is held against, None until the first refresh.
    `profiles` is the SHA-256 of the file that holds the runs' aligned profiles, None where none was stored.
    """

    schema: str = SCHEMA
    workload: str
    machine_key: str
    backend: Backend
    origin: Origin
    log: list[Entry] = []
    anchor: Anchor | None = None
    profiles: str | None = None
    runs: list[Run]

    @property
    def sessions(self) -> int:
        """How many sessions the runs come from."""
        return len({run.session for run in self.runs})


def path_of(root: Path, machine_key: str, workload: str) -> Path:
    """Where the baseline of a workload lies."""
    return root / machine_key / f"{workload}.json"


def profiles_path(path: Path, sha256: str) -> Path:
    """Where the profiles of the baseline at `path` lie.

    Their name follows their content, so that a baseline and its profiles change in one step: that of the
    baseline's own file.
    """
    return path.with_name(f"{path.stem}.{sha256[:8]}.profile.npz")


def load_profiles(path: Path, baseline: Baseline) -> dict[str, Profile]:
    """The aligned profiles of a baseline's runs by digest; none where none were stored.

    Raises BaselineError where the file that the baseline names is missing or another one.
    """
    if baseline.profiles is None:
        return {}
    file = profiles_path(path, baseline.profiles)
    try:
        data = read_file(file)
    except OSError as error:
        raise BaselineError(
            f"{file}: cannot be read ({error.strerror}), but {path.name} needs it: restore both from git"
        ) from error
    if hashlib.sha256(data).hexdigest() != baseline.profiles:
        raise BaselineError(f"{file}: is not the one that {path.name} was stored with: restore both from git")
    return codec.decode(data, file)


def load(root: Path, machine_key: str, workload: str) -> Baseline | None:
    """The stored baseline, or None where there is none.

    Raises BaselineError for a file that can't be read as one, NothingToCompareError for one of another
    machine.
    """
    path = path_of(root, machine_key, workload)
    try:
        data = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read ({error.strerror}): check its permissions") from error
    baseline = _decode(data, path)
    if baseline.workload != workload:
        raise BaselineError(
            f"{path}: holds the baseline of {baseline.workload!r}: move it to {baseline.workload}.json"
        )
    if baseline.machine_key != machine_key:
        raise NothingToCompareError(
            f"{path}: recorded on {baseline.machine_key}, this machine is {machine_key}: the two don't "
            f"compare; record one here with `ai-prof gate --record`"
        )
    return baseline


def load_with_profiles(
    root: Path, machine_key: str, workload: str
) -> tuple[Baseline, dict[str, Profile]] | None:
    """The stored baseline and its runs' profiles, also where a refresh replaces both meanwhile; or None.

    Raises as `load` and `load_profiles` do.
    """
    path, baseline = path_of(root, machine_key, workload), load(root, machine_key, workload)
    if baseline is None:
        return None
    try:
        return baseline, load_profiles(path, baseline)
    except BaselineError:
        replaced = load(root, machine_key, workload)
        if replaced is None or replaced.profiles == baseline.profiles:
            raise
        return replaced, load_profiles(path, replaced)


def paths(root: Path, machine_key: str | None = None) -> list[Path]:
    """Where the baselines of a machine lie, or of every machine.

    Raises PermissionError where a folder cannot be looked into: a glob would find nothing in it.
    """
    folders = _in(root) if machine_key is None else [root / machine_key]
    found = (path for folder in folders for path in _in(folder) if path.suffix == ".json")
    return sorted(path for path in found if not path.name.endswith((ACCEPTED, CALIBRATED)))


def _in(folder: Path) -> list[Path]:
    """What lies in a folder; nothing where there is none."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def every(folders: Iterable[Path], names: Collection[str] = ()) -> list[tuple[Path, Baseline]]:
    """The baselines of every machine in the folders, by path; of all workloads where no name is given.

    Raises as `paths` and `load` do.
    """
    found = [
        (path, load(path.parents[1], path.parent.name, path.stem))
        for folder in folders
        for path in paths(folder)
        if not names or path.stem in names
    ]
    return [(path, baseline) for path, baseline in found if baseline is not None]


def _decode(data: bytes, path: Path) -> Baseline:
    remedy = (
        f"restore it with `git checkout -- {shlex.quote(str(path))}`, or remove it and record it again with "
        "`ai-prof baseline refresh` (`ai-prof gate --record` for one below .ai-prof)"
    )
    try:
        head = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise BaselineError(f"{path}: is not a baseline ({error}): {remedy}") from error
    except UNREADABLE as error:
        text = data.strip()
        cut = not text or (text.startswith(b"{") and not text.endswith(b"}"))
        what = "is cut short" if cut else "is not valid JSON"
        raise BaselineError(f"{path}: {what} ({error}): {remedy}") from error
    family, _, version = str(head.get("schema", "")).rpartition("/")
    if family != "ai-prof/baseline" or not version.isdecimal() or len(version) > DIGITS:
        raise BaselineError(f"{path}: is not a baseline (schema {head.get('schema')!r}): {remedy}")
    if not 1 <= int(version) <= VERSION:
        raise BaselineError(
            f"{path}: has schema version {version}, this ai-prof reads 1 to {VERSION}: "
            f"use the ai-prof that wrote it, or record it again with `ai-prof baseline refresh`"
        )
    try:
        baseline = msgspec.convert(migrated(head, int(version)), Baseline)
        for run in baseline.runs:
            msgspec.convert(run.started, Time)  # sessions and times left are made of them
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise BaselineError(f"{path}: is damaged ({error}): {remedy}") from error
    if not baseline.runs:
        raise BaselineError(f"{path}: holds no runs: {remedy}")
    if len(set(map(identity, baseline.runs))) < len(baseline.runs):
        # Each would count as a further launch, and launches as more alike than they are.
        raise BaselineError(f"{path}: holds a run twice, as a merge may leave it: {remedy}")
    return baseline


def identity(run: Run) -> tuple[str, int, str]:
    """What no two runs of a workload have in common: each build of a session counts its launches from 0."""
    return run.session, run.order, run.started


def encode(baseline: Baseline) -> bytes:
    """The file's bytes: a field, a run or an entry of the log on a line of its own, runs in order."""
    fields = {name: getattr(baseline, name) for name in baseline.__struct_fields__ if name != "runs"}
    lines = [f'"{name}": {_line(name, value)},' for name, value in fields.items()]
    runs = sorted(baseline.runs, key=lambda run: (run.session, run.order))
    # Where a capture lay on the machine that recorded it is nobody's business elsewhere.
    runs = [msgspec.structs.replace(run, capture=None) for run in runs]
    body = ",\n".join(msgspec.json.encode(run).decode() for run in runs)
    return "\n".join(["{", *lines, '"runs": [', body, "]", "}", ""]).encode()


def _line(name: str, value: Any) -> str:
    if name != "log" or not value:
        return encode_json(value).decode()
    return "[\n" + ",\n".join(encode_json(entry).decode() for entry in value) + "\n]"


def digest(baseline: Baseline) -> str:
    """SHA-256 of the file's bytes, for the report's provenance."""
    return hashlib.sha256(encode(baseline)).hexdigest()


def save(root: Path, baseline: Baseline, profiles: Mapping[str, Profile] = NO_PROFILES) -> Path:
    """Write a baseline and its runs' profiles, of those given by digest; return the baseline's path.

    A write that fails leaves the old baseline as it was.
    """
    (path,) = save_all(root, [(baseline, profiles)])
    return path


def save_all(root: Path, stored: Iterable[tuple[Baseline, Mapping[str, Profile]]]) -> list[Path]:
    """Write baselines as `save` does; a write that fails leaves all old ones as they were."""
    baselines: dict[Path, bytes] = {}
    packed: dict[Path, bytes] = {}
    for baseline, profiles in stored:
        path = path_of(root, baseline.machine_key, baseline.workload)
        named = [run.profile for run in baseline.runs if run.profile is not None]
        data = _packed([profiles[digest] for digest in named if digest in profiles])
        sha256 = hashlib.sha256(data).hexdigest() if data else None
        if sha256 is not None:
            packed[profiles_path(path, sha256)] = data
        baselines[path] = encode(msgspec.structs.replace(baseline, profiles=sha256))
    write_files({**packed, **baselines})  # in this order: none is there before the profiles that it names
    for path in baselines:
        for old in path.parent.glob(f"{glob.escape(path.stem)}.????????.profile.npz"):
            if old not in packed:
                old.unlink(missing_ok=True)
    return list(baselines)


def _packed(profiles: list[Profile]) -> bytes:
    """The bytes of the profiles, oldest first; of as many of the latest as the limit allows.

    Of all their iterations to draw the last one stays, and what the last few spent their time on.
    """
    profiles = [*(replace(profile, typical=None) for profile in profiles[:-1]), *profiles[-1:]]
    old = max(0, len(profiles) - SPENT)
    profiles = [*(replace(profile, spent=None) for profile in profiles[:old]), *profiles[old:]]
    data = codec.encode(profiles) if profiles else b""
    while len(data) > PROFILES_LIMIT:
        profiles = profiles[len(profiles) // 4 + 1 :]
        data = codec.encode(profiles) if profiles else b""
    return data
