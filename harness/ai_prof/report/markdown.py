"""The job summary in GitHub's Markdown: the verdict, then a table, the strongest first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ai_prof.gate.model import Reason
from ai_prof.report import format as fmt
from ai_prof.report import provenance, remedy, view, words

if TYPE_CHECKING:
    from ai_prof.gate.model import BuildVerdict, WorkloadVerdict

MAX_BYTES = 1_000_000
"""GitHub's limit for a job summary is 1 MiB."""
_TEXT = 400
_NOTES = 20
_RESERVE = 200  # bytes for the closing tag and the line that counts what is hidden
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#|~!&$])")
_HEADER = (
    "| Workload | Metric | Baseline | Candidate | Change | Interval | Floor | MDE | Evidence | Verdict |\n"
    "|:--|:--|--:|--:|--:|--:|--:|--:|:--|:--|\n"
)


def render(verdict: BuildVerdict, limit: int = MAX_BYTES) -> str:
    """Return the summary, at most `limit` bytes of UTF-8; what did not fit is counted in it."""
    page = _Page(limit)
    title, _ = view.headline(verdict)
    page.add(f"## ai-prof: {text(title)}\n\n")
    workloads = view.ordered(verdict.workloads)
    changed = [w for w in workloads if not view.is_unchanged(w)]
    if subline := view.subline(verdict):
        page.add(f"{text(subline)}\n\n")
    counts = (f"{count} {word.label}" for word, count in view.tally(verdict))
    page.add(", ".join(counts) + "\n\n")
    _reasons(page, verdict, changed)
    page.add(_qualifiers(verdict))
    rows = [row for w in workloads for row in view.rows(w)]
    rows.sort(key=lambda row: row.rank)
    _table(
        page,
        [row for row in rows if row.reason is not Reason.PASS],
        [r for r in rows if r.reason is Reason.PASS],
        [f"- {text(w.workload, 80)} {text(missed)}\n" for w in workloads if (missed := view.unseen(w))],
    )
    page.close()
    return page.content


def text(value: str, width: int = _TEXT) -> str:
    """Return text that Markdown shows as it is: no markup, table cell, mention, reference or link."""
    plain = _SPECIAL.sub(r"\\\1", fmt.printable(fmt.shorten(value, width)))
    plain = plain.replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")
    return (
        plain.replace("@", "@\u200b")
        .replace("\\#", "\\#\u200b")
        .replace("www.", "www\u200b.")
        .replace("://", ":\u200b//")
    )


def code(value: str, width: int = 80) -> str:
    """Return a name in monospace; HTML's code, since a backtick span can't hold backticks or pipes."""
    return f"<code>{text(value, width)}</code>"


class _Page:
    """Text under a limit: once a piece does not fit, it and every later row are counted instead."""

    def __init__(self, limit: int) -> None:
        self.content = ""
        self.hidden = 0
        self._left = limit - _RESERVE
        self._open = ""

    def add(self, piece: str) -> bool:
        """Append `piece` where it fits."""
        size = len(piece.encode())
        fits = size <= self._left
        if fits:
            self.content += piece
            self._left -= size
        return fits

    def rows(self, pieces: list[str]) -> None:
        """Append rows up to the first that does not fit."""
        for place, piece in enumerate(pieces):
            if self.hidden or not self.add(piece):
                self.hidden += len(pieces) - place
                return

    def fold(self, summary: str) -> None:
        """Open a folded part."""
        if self.add(f"\n<details><summary>{summary}</summary>\n\n"):
            self._open = "\n</details>\n"

    def close(self) -> None:
        """End the folded part and say how many rows are hidden."""
        self.content += self._open
        if self.hidden:
            self.content += f"\n{fmt.plural(self.hidden, 'row')} hidden to keep this short: see the report.\n"


def _qualifiers(verdict: BuildVerdict) -> str:
    facts = [f"{name.lower()} {text(value, 120)}" for name, value in provenance.facts(verdict)]
    badges = [text(badge.text, 120) for badge in provenance.badges(verdict)]
    notes = "".join(f"- {text(fmt.typeset(note))}\n" for note in verdict.notes[:_NOTES])
    if len(verdict.notes) > _NOTES:
        notes += f"- {fmt.plural(len(verdict.notes) - _NOTES, 'more note')} in report.json\n"
    budget = f"false alarms in at most {fmt.level(verdict.alpha)} of builds"
    return f"<sub>{' · '.join([*badges, budget, *facts])}</sub>\n\n{notes}\n"


def _reasons(page: _Page, verdict: BuildVerdict, workloads: list[WorkloadVerdict]) -> None:
    pieces = [
        f"- {words.REASONS[w.reason].mark} **{text(w.workload, 80)}** {words.REASONS[w.reason].label}"
        f"{' (provisional)' if w.provisional else ''}: {text(view.explanation(w))}\n{_wanted(verdict, w)}"
        for w in workloads
    ]
    page.rows([*pieces, "\n"] if pieces else [])


def _wanted(verdict: BuildVerdict, workload: WorkloadVerdict) -> str:
    """How to accept what made it red, on a line of its own under it."""
    command = remedy.command(verdict, workload)
    return f"  <br>If this is wanted: {code(command, _TEXT)}\n" if command else ""


def _table(page: _Page, changed: list[view.Row], unchanged: list[view.Row], unseen: list[str]) -> None:
    if changed:
        page.rows([_HEADER + _row(changed[0]), *map(_row, changed[1:])])
    if unchanged:
        page.fold(f"{fmt.plural(len(unchanged), 'row')} without a finding")
        for line in unseen:
            page.add(line)
        page.rows(["\n" + _HEADER + _row(unchanged[0]), *map(_row, unchanged[1:])])


def _row(row: view.Row) -> str:
    change = text(row.change)
    cells = (
        text(row.workload, 80),
        code(row.name) if row.is_kernel else text(row.name),
        text(row.before),
        text(row.after),
        f"**{change}**" if row.reason is not Reason.PASS else change,
        text(row.interval),
        text(row.floor),
        text(row.mde),
        text(row.sureness),
        f"{row.word.mark} {row.verdict}",
    )
    return f"| {' | '.join(cells)} |\n"
