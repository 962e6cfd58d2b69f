"""Every gated value over time: a local SQLite file, and the same as JSON lines to carry it elsewhere."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from ai_prof.errors import BaselineError
from ai_prof.gate.metrics import COUNTS, TOTALS
from ai_prof.json_text import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ai_prof.gate.model import BuildVerdict, Run, WorkloadVerdict

FILE = "history.sqlite"
VERSION = 1
WAIT_S = 30.0  # for another writer
# What to do where nothing is wrong with the file itself, by what SQLite says.
_SOUND = {
    "full": "make room",
    "readonly": "check its permissions",
    "unable to open": "check the permissions of the file and its folder",
    "locked": "wait for the other writer's end",
}
_TABLE = """
CREATE TABLE IF NOT EXISTS points (
    run_id TEXT NOT NULL, workload TEXT NOT NULL, metric TEXT NOT NULL, machine_key TEXT NOT NULL,
    started TEXT NOT NULL, session TEXT NOT NULL, host TEXT NOT NULL, commit_id TEXT, dirty INTEGER NOT NULL,
    runs INTEGER NOT NULL, value REAL NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (run_id, workload, metric)
)
"""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one workload in one build: the median over `runs` fresh processes, in the metric's unit.

    A count is there where it was the same in every iteration of every run.
    `started` is RFC 3339, UTC; `reason` is the workload's verdict.
    """

    run_id: str
    workload: str
    metric: str
    machine_key: str
    started: str
    session: str
    host: str
    commit: str | None
    dirty: bool
    runs: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    value: Annotated[float, msgspec.Meta(ge=0, le=1e18)]
    reason: str


def points(verdict: BuildVerdict) -> list[Point]:
    """What a build adds to the history; nothing where a known slowdown was switched on."""
    if verdict.regress:
        return []
    return [point for workload in verdict.workloads for point in _points(verdict, workload)]


def append(path: Path, new: Iterable[Point]) -> int:
    """Add the points that are new; how many those were. Raises BaselineError where they can't be kept."""
    rows = [
        {**msgspec.structs.asdict(point), "dirty": int(point.dirty), "commit_id": point.commit}
        for point in new
    ]
    with _open(path, create=True) as history:
        before = history.total_changes
        history.executemany(
            "INSERT OR IGNORE INTO points VALUES (:run_id, :workload, :metric, :machine_key, :started,"
            " :session, :host, :commit_id, :dirty, :runs, :value, :reason)",
            rows,
        )
        return history.total_changes - before


def load(path: Path) -> list[Point]:
    """Every point, oldest first. Raises BaselineError where the file cannot be read."""
    if not path.exists():
        return []
    with _open(path, create=False) as history:
        rows = history.execute(
            "SELECT run_id, workload, metric, machine_key, started, session, host, commit_id, dirty, runs,"
            " value, reason FROM points ORDER BY started, run_id, workload, metric"
        ).fetchall()
    names = Point.__struct_fields__
    try:
        return [msgspec.convert(dict(zip(names, row, strict=True)), Point, strict=False) for row in rows]
    except msgspec.ValidationError as error:
        msg = f"{path}: holds what is no point of a history ({error}): move it away, a new one is begun"
        raise BaselineError(msg) from error


def series(every: Sequence[Point]) -> dict[tuple[str, str, str], list[Point]]:
    """The points of each machine, workload and metric, in their order."""
    found: dict[tuple[str, str, str], list[Point]] = {}
    for point in every:
        found.setdefault((point.machine_key, point.workload, point.metric), []).append(point)
    return found


def to_lines(every: Iterable[Point]) -> bytes:
    """One point a line, as JSON."""
    return b"".join(msgspec.json.encode(point) + b"\n" for point in every)


def from_lines(data: bytes, path: Path) -> list[Point]:
    """The points in such lines. Raises BaselineError, which names `path` and the line, for anything else."""
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                found.append(msgspec.json.decode(line, type=Point))
            except UNREADABLE as error:
                raise BaselineError(f"{path}: line {number} is no point of a history ({error})") from error
    return found


def _points(verdict: BuildVerdict, workload: WorkloadVerdict) -> Iterator[Point]:
    runs = [run for run in workload.candidate_runs or workload.confirm_head if run.problem is None]
    for key, values in [*_totals(runs), *_counts(runs)]:
        if values:
            yield Point(
                run_id=verdict.run_id,
                workload=workload.workload,
                metric=key,
                machine_key=verdict.machine_key,
                started=verdict.started,
                session=runs[0].session,
                host=runs[0].host,
                commit=verdict.commit,
                dirty=verdict.dirty,
                runs=len(values),
                value=float(np.median(values)),
                reason=workload.reason.value,
            )


def _totals(runs: Sequence[Run]) -> Iterator[tuple[str, list[float]]]:
    """The finite values of each total."""
    for metric in TOTALS:
        values = (run.metrics.get(metric.key) for run in runs)
        yield metric.key, [value for value in values if value is not None and np.isfinite(value)]


def _counts(runs: Sequence[Run]) -> Iterator[tuple[str, list[float]]]:
    """The values of each count that is the same in every run."""
    for metric in COUNTS:
        values = [run.structure.get(metric.key) for run in runs]
        same = [float(value) for value in values if value is not None and value == values[0]]
        if len(same) == len(runs):
            yield metric.key, same


@contextmanager
def _open(path: Path, *, create: bool) -> Iterator[sqlite3.Connection]:
    """The database, committed where the block ends well."""
    remedy = "move it away, and import what you exported"
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=WAIT_S)) as history, history:
            (version,) = history.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise BaselineError(f"{path}: is of a newer ai-prof (version {version}): {remedy}")
            if create:
                history.execute(_TABLE)
                history.execute(f"PRAGMA user_version = {VERSION}")
            yield history
    except (sqlite3.Error, OSError) as error:
        sound = next((what for said, what in _SOUND.items() if said in str(error)), remedy)
        raise BaselineError(f"{path}: the history cannot be used ({error}): {sound}") from error
