"""Accepted changes on disk: `WORKLOAD.accepted.json` beside the baseline, one change a line.

They are of one baseline, named by its digest, so the next refresh ends them even where the file stays.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

from ai_prof.baselines import store
from ai_prof.baselines.files import one_writer, place, read_file, write_file
from ai_prof.errors import BaselineError
from ai_prof.gate.metrics import METRICS, Metric, Scale
from ai_prof.gate.model import Acceptance
from ai_prof.json_text import UNREADABLE, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SCHEMA = "ai-prof/accepted/1"


class _File(msgspec.Struct, kw_only=True):
    """The contents; `baseline` is the digest of the baseline that the changes are of."""

    schema: str = SCHEMA
    workload: str
    machine_key: str
    baseline: str
    changes: list[Acceptance]


def path_of(baseline: Path) -> Path:
    """Where the accepted changes of the baseline at that path lie."""
    return baseline.with_name(f"{baseline.stem}{store.ACCEPTED}")


def load(path: Path, baseline: store.Baseline) -> list[Acceptance]:
    """What is accepted of the baseline at `path`; raises as `every` does."""
    return latest(every(path, baseline))


def latest(changes: Iterable[Acceptance]) -> list[Acceptance]:
    """One acceptance of each metric and place, the last."""
    return list({(each.metric, each.place): each for each in changes}.values())


def every(path: Path, baseline: store.Baseline) -> list[Acceptance]:
    """All that was accepted of the baseline at `path`, of one metric and place the last at the end.

    Nothing where the file is of another baseline. Raises BaselineError for a file that cannot be read.
    """
    found = _read(path_of(path))
    return found.changes if found is not None and found.baseline == store.digest(baseline) else []


def stale(path: Path, baseline: store.Baseline) -> str | None:
    """What to say of accepted changes that are of another baseline than the one at `path`; None else."""
    found = _read(path_of(path))
    if found is None or found.baseline == store.digest(baseline):
        return None
    metrics = ", ".join(each.metric for each in found.changes)
    return (
        f"{place(path_of(path))}: {metrics} was accepted of another baseline and counts no more: accept again"
    )


def add(path: Path, baseline: store.Baseline, changes: Sequence[Acceptance]) -> Path:
    """Accept more changes of the baseline at `path`.

    Of one metric and place the last counts; one of other code stays before it, since base may be that code.
    """
    file = path_of(path)
    with one_writer(file.parent):
        kept = {
            (each.metric, each.place, each.commit, each.dirty): each
            for each in [*every(path, baseline), *changes]
        }
        fields = {
            "schema": SCHEMA,
            "workload": baseline.workload,
            "machine_key": baseline.machine_key,
            "baseline": store.digest(baseline),
        }
        lines = [f'"{name}": {encode(value).decode()},' for name, value in fields.items()]
        ordered = sorted(kept.values(), key=lambda each: (each.metric, each.place, each.when))
        body = ",\n".join(encode(each).decode() for each in ordered)
        write_file(file, "\n".join(["{", *lines, '"changes": [', body, "]", "}", ""]).encode())
    return file


def end(path: Path) -> None:
    """Forget what was accepted: the baseline at `path` was refreshed."""
    path_of(path).unlink(missing_ok=True)


def _read(file: Path) -> _File | None:
    remedy = f"restore it with `git checkout -- {shlex.quote(str(file))}`, or remove it and accept again"
    try:
        found = msgspec.json.decode(read_file(file), type=_File)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{file}: cannot be read ({error.strerror}): check its permissions") from error
    except UNREADABLE as error:
        raise BaselineError(f"{file}: holds no accepted changes ({error}): {remedy}") from error
    if found.schema != SCHEMA:
        raise BaselineError(
            f"{file}: schema {found.schema!r}: use the ai-prof that wrote it, or accept again"
        )
    for each in found.changes:
        if not all(_may_be(METRICS[each.metric], value) for value in (each.old, each.new)):
            values = f"from {each.old:g} to {each.new:g}"
            raise BaselineError(f"{file}: {each.metric} {values} is no change of a time: {remedy}")
    return found


def _may_be(metric: Metric, value: float) -> bool:
    """Whether a value has a place on the scale of the tests."""
    return metric.scale is Scale.RAW or value + metric.floor.absolute > 0
