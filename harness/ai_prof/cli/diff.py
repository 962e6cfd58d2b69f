"""`ai-prof diff A B`: what changed between two captures, and whether it is a gain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ai_prof.cli.console import OutputConsole
from ai_prof.cli.reading import read
from ai_prof.errors import EXIT_PASS
from ai_prof.json_text import for_people
from ai_prof.report import diff_html
from ai_prof.report import diff_view as view
from ai_prof.report import format as fmt
from ai_prof.say import say
from ai_prof.timeline.diff import diff
from ai_prof.trace.open import ACCEPTED
from ai_prof.trace.writers.atomic import atomic_file

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from ai_prof.timeline.diff import Diff

_KERNELS = 12
_NAME, _FIGURES = 48, 52  # columns: a name's at least, and all that the figures beside it may take


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("a", type=Path, metavar="A", help=f"before: {ACCEPTED}")
    parser.add_argument("b", type=Path, metavar="B", help=f"after: {ACCEPTED}")
    parser.add_argument("--json", action="store_true", help="everything that was compared, as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")


def run(args: argparse.Namespace) -> int:
    """Print what changed; 3 when either capture holds no GPU work."""
    found = diff(read(args.a), read(args.b), view.FLOORS)
    if args.html:
        with atomic_file(args.html) as file:
            file.write(diff_html.render(found).encode())
        say(f"wrote {args.html}")
    if args.json:
        print(for_people(found))
    else:
        console = OutputConsole(soft_wrap=True, highlight=False)
        name = max(console.width - _FIGURES, _NAME)
        console.width = name + _FIGURES  # no cell wraps; a narrower terminal wraps lines itself
        _print(found, console, name)
    return EXIT_PASS


def _print(found: Diff, console: Console, name: int) -> None:
    """The verdict, why, and then the tables, with names of `name` columns at most."""
    console.print(f"{view.headline(found)}: {view.sentence(found)}.")
    if why := view.reason(found):
        console.print(f"What changed most of the mean iteration: {why}.")
    if syncs := view.syncs(found):
        console.print(f"{syncs}.")
    if view.may_be_chance(found):
        console.print(f"Mind: {view.NOISE}.")
    for caution in found.cautions:
        console.print(f"Mind: {caution}.")
    console.print(f"A: {view.side(found.a)}")
    console.print(f"B: {view.side(found.b)}")
    by_iteration = found.unit == "iteration"
    kernels = view.kernel_rows(found)
    tables = (
        (f"Time of {'an iteration (mean)' if by_iteration else 'the whole capture'}", view.part_rows(found)),
        (f"Figure{' (per iteration: median)' if by_iteration else ''}", view.figure_rows(found)),
        ("Count", view.count_rows(found)),
        ("Kernel", kernels[:_KERNELS]),
    )
    for title, rows in tables:
        if rows:
            console.print(_table(title, rows, name))
    if len(kernels) > _KERNELS:
        console.print(f"{fmt.plural(len(kernels) - _KERNELS, 'more kernel')} changed: see --json or --html.")
    for line in view.finding_lines(found):
        console.print(f"Finding {line}.")


def _table(title: str, rows: list[view.Row], name: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(title, no_wrap=True)
    for label in ("A", "B", "change"):
        table.add_column(label, justify="right")
    for row in rows:
        table.add_row(fmt.shorten(row.name, name), row.before, row.after, row.change)
    return table
