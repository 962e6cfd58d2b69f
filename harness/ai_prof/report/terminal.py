"""One line per workload and the verdict, for people at a terminal and for a CI log."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ai_prof.gate.model import Reason
from ai_prof.report import cause, provenance, remedy, view
from ai_prof.report import format as fmt
from ai_prof.say import logged

if TYPE_CHECKING:
    from rich.console import Console

    from ai_prof.gate.model import BuildVerdict, WorkloadVerdict

STYLES = {
    "bad": "bold red",
    "warn": "yellow",
    "broken": "bold magenta",
    "good": "blue",
    "pass": "green",
    "quiet": "dim",
}
COMMENT_BYTES = 50_000  # GitHub takes 65,536 characters, what is around it among them


def render(verdict: BuildVerdict, console: Console) -> None:
    """Print a table at a terminal, plain lines elsewhere, and the verdict as the last line."""
    workloads = view.ordered(verdict.workloads)
    if not console.is_terminal:
        for line in (*_lines(verdict), _verdict(verdict)):
            console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
        return
    console.print(_table(workloads))
    for line in _told(verdict):
        console.print(Text(line, style="dim"), soft_wrap=True)
    _, tone = view.headline(verdict)
    console.print(Text(_verdict(verdict), style=STYLES[tone]), soft_wrap=True)


def plain(verdict: BuildVerdict) -> str:
    """Return what a pull request's comment shows: the lines of a log, with no markup in them.

    The last ones that don't fit are counted, and the verdict is never one of them.
    """
    lines = _lines(verdict)
    sizes = itertools.accumulate(len(f"{line}\n".encode()) for line in lines)
    kept = sum(size <= COMMENT_BYTES for size in sizes)
    hidden = len(lines) - kept
    counted = [f"{fmt.plural(hidden, 'more line')} in the report"] if hidden else []
    return "\n".join((*lines[:kept], *counted, _verdict(verdict), f"run {_single(verdict.run_id)}", ""))


def _lines(verdict: BuildVerdict) -> list[str]:
    """Return a line a workload, the strongest first, and what is to be told beside them."""
    return [*("  ".join(_line(workload)) for workload in view.ordered(verdict.workloads)), *_told(verdict)]


def _told(verdict: BuildVerdict) -> list[str]:
    said = (*provenance.disturbances(verdict), *map(fmt.typeset, verdict.notes))
    return [_single(line) for line in (*_remedies(verdict), *said)]


def _verdict(verdict: BuildVerdict) -> str:
    return f"{view.headline(verdict)[0]} (exit {verdict.exit_code})"


def _remedies(verdict: BuildVerdict) -> list[str]:
    """Give the command that accepts each regression, to be pasted."""
    commands = (remedy.command(verdict, workload) for workload in view.ordered(verdict.workloads))
    return [f"if this is wanted: {command}" for command in commands if command]


def _line(workload: WorkloadVerdict) -> tuple[str, str, str]:
    """Return name, verdict and what stands behind it."""
    label = view.word(workload).label + (", provisional" if workload.provisional else "")
    return _single(fmt.shorten(workload.workload, 40)), label, _single(_detail(workload))


def _detail(workload: WorkloadVerdict) -> str:
    lead = view.leading(workload)
    if lead and workload.reason is not Reason.ACCEPTED:  # what a person said of it is in the explanation
        more = f", and {len(lead) - 1} more" if len(lead) > 1 else ""
        why = [f". {fmt.shorten(sentence.rstrip('.'), 240)}" for sentence in cause.sentences(workload)[:2]]
        return f"{fmt.shorten(lead[0].sentence, 160)}{more}{''.join(why)}"
    latency = [row for row in view.rows(workload) if row.key == "iteration_ms"]
    if view.is_unchanged(workload) and latency:
        # A young baseline is blind to much of what latency does, and its places see more.
        keys = ("iteration_ms", "host_profile") if workload.provisional else ("iteration_ms",)
        missed = f"; {unseen}" if (unseen := view.unseen(workload, *keys)) else ""
        return f"{latency[0].name} {latency[0].after}, {latency[0].change}{missed}"
    return fmt.shorten(view.explanation(workload), 320)


def _table(workloads: list[WorkloadVerdict]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Workload", overflow="fold")
    table.add_column("Verdict")
    table.add_column("Why", overflow="fold")
    for workload in workloads:
        word = view.word(workload)
        name, label, detail = _line(workload)
        table.add_row(Text(name), Text(f"{word.mark} {label}", style=STYLES[word.tone]), Text(detail))
    return table


def _single(text: str) -> str:
    """Return one line, whatever is in it; CI takes one that begins with `::` or holds `##[` for a command."""
    line = logged(" ".join(fmt.displayed(text).split()))
    return f". {line}" if line.startswith("::") else line
