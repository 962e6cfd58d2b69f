"""Aligned profiles as bytes: one compressed npz for the runs of a workload, or for one run."""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from ai_prof.errors import BaselineError
from ai_prof.json_text import UNREADABLE
from ai_prof.timeline.profile import ROWS, Profile
from ai_prof.timeline.spent import Spent
from ai_prof.timeline.typical import Typical

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt

    F64 = npt.NDArray[np.float64]


_Small = Annotated[int, msgspec.Meta(ge=-128, le=127)]
# What NumPy and what it unpacks with raise of damaged data; RuntimeError is also "not implemented".
UNPACKABLE = (
    *UNREADABLE,
    *(OSError, ValueError, KeyError, TypeError, SyntaxError, EOFError, RuntimeError, ArithmeticError),
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError),
)
LN_US, US = 60.0, 1e15  # no time of a host (its logarithm) and of a device is longer


class _Kind(msgspec.Struct, frozen=True):
    """What profiles of the same sequence share; `runs` are their digests, in the order of their values.

    `drawn` holds the iterations to draw, and `spent` the mean iteration's time, of those runs that kept one,
    by digest.
    """

    names: list[str]
    kind: list[_Small]
    thread: list[_Small]
    runs: list[str]
    drawn: dict[str, Typical] = {}
    spent: dict[str, Spent] = {}


def encode(profiles: Iterable[Profile]) -> bytes:
    """The npz of some profiles: a JSON `meta`, and `values_N` (runs, 5, P) for each kind of sequence."""
    alike: dict[tuple[tuple[str, ...], bytes, bytes], dict[str, Profile]] = {}
    for profile in profiles:
        key = (profile.names, profile.kind.tobytes(), profile.thread.tobytes())
        alike.setdefault(key, {})[profile.digest()] = profile
    kinds: list[_Kind] = []
    arrays: dict[str, Any] = {}
    for number, runs in enumerate(alike.values()):
        first = next(iter(runs.values()))
        kind, thread = first.kind.tolist(), first.thread.tolist()
        drawn = {digest: run.typical for digest, run in runs.items() if run.typical is not None}
        spent = {digest: run.spent for digest, run in runs.items() if run.spent is not None}
        kinds.append(_Kind(list(first.names), kind, thread, list(runs), drawn, spent))
        arrays[f"values_{number}"] = np.stack([run.values for run in runs.values()])
    arrays["meta"] = np.frombuffer(msgspec.json.encode(kinds), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def decode(data: bytes, path: Path) -> dict[str, Profile]:
    """The profiles by digest. Raises BaselineError, which names `path`, for anything else than `encode`'s."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            kinds = msgspec.json.decode(arrays["meta"].tobytes(), type=list[_Kind])
            values = [arrays[f"values_{number}"] for number in range(len(kinds))]
    except UNPACKABLE as error:
        raise BaselineError(f"{path}: holds no profiles ({error}): restore it from git") from error
    if not all(map(_sound, kinds, values)):
        raise BaselineError(f"{path}: is damaged, it holds times that none can be: restore it from git")
    found = {
        digest: Profile(
            tuple(kind.names),
            np.array(kind.kind, np.int8),
            np.array(kind.thread, np.int8),
            run,
            kind.drawn.get(digest),
            kind.spent.get(digest),
        )
        for kind, runs in zip(kinds, values, strict=True)
        for digest, run in zip(kind.runs, runs, strict=False)
    }
    if any(profile.digest() != digest for digest, profile in found.items()):
        raise BaselineError(f"{path}: is damaged, a profile in it has changed: restore it from git")
    return found


def _sound(kind: _Kind, values: F64) -> bool:
    """Whether the values are those of the runs at so many operations: a time, or NaN where none is known."""
    size = len(kind.names)
    if not size or {size} != {len(kind.kind), len(kind.thread)} or values.dtype.kind != "f":
        return False
    if values.shape != (len(kind.runs), len(ROWS), size):
        return False
    host, device = values[:, :-2], values[:, -2:]
    return not bool((np.abs(host) > LN_US).any()) and bool(((device >= 0) & (device <= US)).all())
