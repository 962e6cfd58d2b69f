"""A shard's evidence as files: what `gate --shard` leaves for `report merge`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from ai_prof import json_text
from ai_prof.baselines import profiles as profile_files
from ai_prof.errors import EnvironmentInvalidError, UsageError
from ai_prof.gate.measured import Measured, Shard
from ai_prof.gate.metrics import METRICS
from ai_prof.trace.writers.atomic import atomic_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ai_prof.timeline.profile import Profile

FILE = "shard.json"
PROFILES = "shard.profile.npz"
NAMED = 10  # missing shards

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class _ShardFile(msgspec.Struct, kw_only=True):
    schema: Literal["ai-prof/shard/1"] = "ai-prof/shard/1"
    shard: Shard
    measured: Measured


def save(folder: Path, shard: Shard, measured: Measured, profiles: Mapping[str, Profile]) -> Path:
    """Write a shard's evidence into `folder`; the path of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / PROFILES) as file:
        file.write(profile_files.encode(profiles.values()))
    with atomic_file(folder / FILE) as file:
        file.write(json_text.encode(_ShardFile(shard=shard, measured=measured)))
    return folder / FILE


def load(folders: Sequence[Path]) -> tuple[list[Measured], dict[str, Profile]]:
    """The evidence of all shards of one build, found anywhere below `folders`, and its profiles by digest.

    Raises UsageError where there is none, where one cannot be read or is there twice;
    EnvironmentInvalidError where one is missing: what it should have measured is no pass.
    """
    files = sorted({path.resolve() for folder in folders for path in folder.glob(f"**/{FILE}")})
    if not files:
        raise UsageError(f"no {FILE} below {', '.join(map(str, folders))}: name what `gate --shard` wrote")
    found: dict[int, Measured] = {}
    profiles: dict[str, Profile] = {}
    counts = set()
    for path in files:
        read = _read(path)
        if read.shard.index in found:
            raise UsageError(f"{path}: shard {read.shard} is there twice: keep the one to be judged")
        found[read.shard.index] = read.measured
        counts.add(read.shard.count)
        packed = path.with_name(PROFILES)
        if packed.exists():
            profiles |= profile_files.decode(packed.read_bytes(), packed)
    if len(counts) > 1:
        raise UsageError(f"shards of {' and '.join(map(str, sorted(counts)))}: they are of different builds")
    missing = [str(i) for i in range(1, counts.pop() + 1) if i not in found]
    if missing:
        told = ", ".join(missing[:NAMED]) + (f" and {len(missing) - NAMED} more" if missing[NAMED:] else "")
        raise EnvironmentInvalidError(f"no evidence of shard {told}: see why its job failed")
    return [found[index] for index in sorted(found)], profiles


def _read(path: Path) -> _ShardFile:
    try:
        read = msgspec.json.decode(path.read_bytes(), type=_ShardFile)
    except (OSError, *json_text.UNREADABLE) as error:
        raise UsageError(f"{path}: no evidence of a shard ({error}): measure it again") from error
    if not _RUN_ID.fullmatch(read.measured.build.run_id):  # the name of a folder
        raise UsageError(f"{path}: no evidence of a shard (its run id is none): measure it again")
    compared = {cell.metric for workload in read.measured.build.workloads for cell in workload.cells}
    if unknown := compared - METRICS.keys():
        told = ", ".join(sorted(unknown))
        raise UsageError(f"{path}: unknown metrics {told}: merge with the ai-prof that measured it")
    return read
