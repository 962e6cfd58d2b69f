"""`ai-prof history`: what every gate measured, the levels it fell into, and the commit of each change."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from rich.table import Table

from ai_prof.baselines import history
from ai_prof.cli import add_verb
from ai_prof.cli.console import OutputConsole
from ai_prof.errors import NothingToCompareError, UsageError
from ai_prof.gate.changes import LEAST, change_points
from ai_prof.gate.metrics import COUNTS, METRICS, TOTALS
from ai_prof.gate.values import effect_of
from ai_prof.json_text import for_people
from ai_prof.report.format import NOTHING, change, count, count_change, number, plotted, value
from ai_prof.runs.stored import LOCAL
from ai_prof.say import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ai_prof.baselines.history import Point
    from ai_prof.gate.metrics import Metric


SHOWN = 12  # digits of a commit


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """Values between two changes. `since` and `commit` are the first one's, `before` the commit before.

    `dirty`: the first one was of uncommitted changes on that commit; `uncommitted`: how many of them were.
    """

    machine_key: str
    workload: str
    metric: str
    since: str
    commit: str | None
    dirty: bool
    before: str | None
    points: int
    uncommitted: int
    median: float
    lowest: float
    highest: float
    change: float | None  # from the level before; relative for times, a difference for ratios


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--history", type=Path, metavar="FILE", help=f"where it lies (default: {LOCAL / history.FILE})"
    )
    parser.add_argument("--workload", metavar="NAME", help="this workload alone")
    parser.add_argument(
        "--metric",
        choices=[m.key for m in (*TOTALS, *COUNTS)],
        metavar="METRIC",
        help="this metric alone, such as iteration_ms",
    )
    parser.add_argument("--json", action="store_true", help="print the levels as JSON")
    verbs = parser.add_subparsers(dest="history_verb", metavar="[VERB]")
    text = "write every value as JSON lines to stdout"
    add_verb(verbs, "export", text)
    text = "add values that `export` wrote, those that are not here yet"
    imported = add_verb(verbs, "import", text)
    imported.add_argument("file", type=Path, metavar="FILE", help="what `export` wrote")


def run(args: argparse.Namespace) -> int:
    """Show, export or import."""
    path = args.history or Path.cwd() / LOCAL / history.FILE
    if args.history_verb == "import":
        return bring_in(path, args.file)
    every = [
        point
        for point in history.load(path)
        if args.workload in {None, point.workload} and args.metric in {None, point.metric}
    ]
    if not every:
        raise NothingToCompareError(f"{path}: holds no such values: `ai-prof gate` adds them")
    if args.history_verb == "export":
        sys.stdout.write(history.to_lines(every).decode())
        return 0
    known = [point for point in every if point.metric in METRICS]
    if known != every:
        say(f"left out {len(every) - len(known)} values of metrics that this ai-prof does not know")
    levels = [level for each in history.series(known).values() for level in levels_of(each)]
    if args.json:
        print(for_people(levels))
    else:
        show(levels)
    return 0


def bring_in(path: Path, file: Path) -> int:
    """Add the points of a file of JSON lines."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from error
    found = history.from_lines(data, file)
    added = history.append(path, found)
    say(f"{path}: {added} of {len(found)} values were new")
    return 0


def levels_of(series: Sequence[Point]) -> list[Level]:
    """The levels of one series, oldest first."""
    metric = METRICS[series[0].metric]
    values = [point.value for point in series]
    edges = [0, *_changes(metric, values), len(values)]
    levels: list[Level] = []
    for low, high in itertools.pairwise(edges):
        first = series[low]
        median = float(np.median(values[low:high]))
        levels.append(
            Level(
                machine_key=first.machine_key,
                workload=first.workload,
                metric=first.metric,
                since=first.started,
                commit=first.commit,
                dirty=first.dirty,
                before=series[low - 1].commit if low else None,
                points=high - low,
                uncommitted=sum(point.dirty for point in series[low:high]),
                median=median,
                lowest=min(values[low:high]),
                highest=max(values[low:high]),
                change=effect_of(metric, levels[-1].median, median) if levels else None,
            )
        )
    return levels


def _changes(metric: Metric, values: Sequence[float]) -> list[int]:
    """Where a new level begins; a count is exact, and any other one is new."""
    if metric.role == "structure":
        return [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    return change_points([metric.y(value) for value in values])


def show(levels: Sequence[Level]) -> None:
    """Print one line a level, a table a workload; those of one series follow one another."""
    console = OutputConsole(highlight=False)
    few = False
    for (key, workload), of_one in itertools.groupby(levels, key=lambda lv: (lv.machine_key, lv.workload)):
        table = Table(title=f"{workload}, {key}", title_justify="left", box=None)
        table.add_column("metric", no_wrap=True)
        for name in ("level", "range", "change", "builds"):
            table.add_column(name, justify="right", no_wrap=name in {"level", "change"})
        for name in ("since", "commit"):
            table.add_column(name, no_wrap=True)
        for metric, series in itertools.groupby(of_one, key=lambda level: level.metric):
            rows = list(series)
            counted = METRICS[metric].role == "structure"
            few |= not counted and sum(level.points for level in rows) < 2 * LEAST
            if not counted or len(rows) > 1:
                for level in rows:
                    table.add_row(*_row(level))
        console.print(table)
    if few:
        told = f"A change shows from {2 * LEAST} builds on, {LEAST} on each side; that of a count at once."
        console.print(told, soft_wrap=True)


def _row(level: Level) -> tuple[str, ...]:
    """The cells of one level."""
    metric = METRICS[level.metric]
    name = metric.label if level.change is None else ""
    when = (level.since[:10], (level.commit or NOTHING)[:SHOWN] + ("+" if level.dirty else ""))
    dirty = f" ({level.uncommitted} uncommitted)" if level.uncommitted else ""
    builds = f"{level.points}{dirty}"
    if metric.role == "structure":
        told = count(round(level.median), metric.key)
        step = count_change(0, round(level.change), metric.key) if level.change is not None else NOTHING
        return (name, told, "", step, builds, *when)
    ends = (number(plotted(end, metric.unit)) for end in (level.lowest, level.highest))
    told = value(level.median, metric.unit)
    return (name, told, " to ".join(ends), change(level.change, metric.unit), builds, *when)
