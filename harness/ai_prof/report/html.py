"""The HTML report: one self-contained page that needs no network; a script only adds hover and zoom."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ai_prof.gate.model import Reason
from ai_prof.report import cause, gaps, history_plot, lanes, plot, provenance, remedy, view, why_view, words
from ai_prof.report import format as fmt
from ai_prof.timeline.advice import CAUSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_prof.baselines.history import Point
    from ai_prof.gate.model import BuildVerdict, Cell, WorkloadVerdict

MAX_BYTES = 2_000_000
FRAME_BYTES = 500_000  # of them for all that is no workload's
FINDINGS = 10
DRAWN = 10  # workloads with plots and timelines
ROWS = 1000  # of a list of the page, that of its workloads among them
LONG = 600  # characters of a sentence that is shown
_ALWAYS_DRAWN = ("iteration_ms", "kernel_time_ms")
_STRIPS = 6


@dataclass(frozen=True)
class Detail:
    """How much a workload shows: more than its line, drawings, and how many rows of structure."""

    told: bool
    drawn: bool
    structure: int


LINE = Detail(told=False, drawn=False, structure=0)
LEAN = Detail(told=True, drawn=False, structure=10)
RICH = Detail(told=True, drawn=True, structure=40)


@dataclass(frozen=True)
class Section:
    """All that the page shows of one workload. `why` are sentences, the first the most telling."""

    workload: WorkloadVerdict
    anchor: str
    word: words.Word
    why: list[str]
    host: str
    strength: view.Strength
    metrics: list[view.Row]
    unchanged: list[view.Row]
    unseen: str
    accept: str
    structure: list[view.Row]
    hidden_structure: int
    detail: Detail
    strips: list[Markup]
    iterations: Markup | None
    legend: list[tuple[str, str]]
    bars: Markup | None
    causes: list[gaps.CauseRow]
    compared: list[str]
    places: list[why_view.Row]
    hidden_places: str
    elsewhere: str
    timelines: lanes.Timelines | None
    untypical: str
    links: list[tuple[str, str]]
    history: Markup | None


@dataclass(frozen=True)
class Beside:
    """What lies beside a verdict: each workload's timelines, and every build's latency, the oldest first.

    Of a timeline the words and the address, relative to the page and empty where there is none.
    """

    links: Mapping[str, list[tuple[str, str]]] = field(default_factory=dict)
    history: Mapping[str, list[Point]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Piece:
    """A workload as HTML, in so many bytes."""

    section: Section
    html: Markup
    size: int


def render(verdict: BuildVerdict, beside: Beside | None = None) -> str:
    """Return the page, at most 2 MB: the verdict, then each workload, regressions first.

    What has no room is counted, and what changed is shown in all its details before any that did not.
    """
    workloads = view.ordered(verdict.workloads)
    changed = [workload for workload in workloads if not view.is_unchanged(workload)]
    unchanged = [workload for workload in workloads if view.is_unchanged(workload)]
    sections = _Sections(verdict, beside or Beside(), [*changed, *unchanged], len(changed))
    rows = ROWS
    while (frame := len(_page(sections, [], rows, scripted=True).encode())) > FRAME_BYTES and rows:
        rows //= 2
    pieces = _fitting(sections, MAX_BYTES - frame)
    return _page(sections, pieces, rows, scripted=any(piece.section.timelines for piece in pieces))


def _fitting(sections: _Sections, room: int) -> list[_Piece]:
    """Return the first workloads, with the most details that fit into `room` bytes in all.

    One that has no room ends it. A line for each comes before details of any, but those of what changed
    before lines of what did not.
    """
    pieces: list[_Piece] = []
    listed = min(len(sections.workloads), ROWS)
    split = min(sections.changed, listed)
    stages = itertools.product((range(split), range(split, listed)), ((LINE,), (RICH, LEAN)))
    for place, details in ((place, details) for places, details in stages for place in places):
        old = pieces[place].size if place < len(pieces) else 0
        made = (sections.piece(place, each) for each in details if place < DRAWN or not each.drawn)
        piece = next((piece for piece in made if piece.size - old <= room), None)
        if piece is None:
            break
        room -= piece.size - old
        pieces[place : place + 1] = [piece]
    return pieces


@dataclass(frozen=True)
class _Sections:
    """The workloads of a build in the page's order: first those that changed, `changed` in number."""

    verdict: BuildVerdict
    beside: Beside
    workloads: list[WorkloadVerdict]
    changed: int

    def at(self, place: int, detail: Detail) -> Section:
        return _section(self.workloads[place], place, detail, self.beside, self.verdict)

    def piece(self, place: int, detail: Detail) -> _Piece:
        section = self.at(place, detail)
        name = "changed" if place < self.changed else "unchanged"
        text = template(f"{name}.html.j2").render(section=section)
        return _Piece(section, Markup(text), len(text.encode()))  # noqa: S704 - the template escapes


def _page(sections: _Sections, pieces: list[_Piece], rows: int, *, scripted: bool) -> str:
    """Write the page with these pieces, and lists of at most `rows` lines."""
    verdict, changed = sections.verdict, sections.changed
    first = [sections.at(place, LINE) for place in range(min(changed, FINDINGS, rows))]
    title, tone = view.headline(verdict)
    return template("report.html.j2").render(
        verdict=verdict,
        title=title,
        tone=tone,
        subline=view.subline(verdict),
        tally=view.tally(verdict),
        findings=[(section, view.leading(section.workload)) for section in first],
        hidden_findings=changed - len(first),
        changed=[piece.html for piece in pieces[:changed]],
        unchanged=[piece.html for piece in pieces[changed:]],
        all_changed=changed,
        all_unchanged=len(sections.workloads) - changed,
        unlisted=len(sections.workloads) - len(pieces),
        untold=len(sections.workloads) - sum(piece.section.detail.told for piece in pieces),
        rows=rows,
        scripted=scripted,
        badges=provenance.badges(verdict),
        baselines=provenance.baselines(verdict),
        facts=provenance.facts(verdict),
        machine=provenance.machine(verdict),
        environment=provenance.environment(verdict),
    )


def _section(
    workload: WorkloadVerdict, place: int, detail: Detail, beside: Beside, verdict: BuildVerdict
) -> Section:
    structure = view.structure_rows(workload)
    rows = view.metric_rows(workload)
    folded = [] if view.is_unchanged(workload) else [row for row in rows if row.reason is Reason.PASS]
    sides = gaps.splits(workload)
    pair = gaps.compared(workload)
    places, hidden = why_view.rows(workload.explained)
    return Section(
        workload=workload,
        anchor=f"workload-{place + 1}",
        word=view.word(workload),
        why=cause.sentences(workload) or [text for text in [_said(workload)] if text],
        host=cause.host_speed(workload),
        strength=view.strength(workload),
        metrics=[row for row in rows if row not in folded],
        unchanged=folded,
        unseen=view.unseen(workload),
        accept=remedy.command(verdict, workload),
        structure=structure[: detail.structure],
        hidden_structure=max(0, len(structure) - detail.structure),
        detail=detail,
        strips=_strips(workload) if detail.drawn else [],
        iterations=plot.iterations(workload) if detail.drawn else None,
        legend=plot.roles(workload),
        bars=gaps.bars(sides, workload.workload) if detail.drawn and sides else None,
        causes=gaps.table(*pair) if pair else [],
        compared=[side.label for side in pair or ()],
        places=places,
        hidden_places=hidden,
        elsewhere=why_view.elsewhere(workload.explained),
        timelines=lanes.draw(workload.explained) if detail.drawn else None,
        untypical=_untypical(workload, pair),
        links=beside.links.get(workload.workload, []),
        history=history_plot.draw(beside.history.get(workload.workload, []), workload, verdict.run_id)
        if detail.drawn
        else None,
    )


def _untypical(workload: WorkloadVerdict, pair: tuple[gaps.Split, gaps.Split] | None) -> str:
    """Say that the iterations that are drawn differ otherwise than the mean ones."""
    why = workload.explained
    if pair is None or why is None or why.before is None or why.after is None:
        return ""
    drawn = (why.after.length - why.before.length) / 1e6
    mean = pair[1].iteration_ms - pair[0].iteration_ms
    if abs(drawn - mean) <= max(abs(mean), 0.05 * pair[0].iteration_ms) / 4:
        return ""
    told = (fmt.change(ms, fmt.DELTA + "ms") for ms in (drawn, mean))
    return "These two differ by {}; the mean iterations, by medians over all runs, by {}.".format(*told)


def _said(workload: WorkloadVerdict) -> str:
    """What stands in no row: nothing twice."""
    return view.unsaid_of(workload) if view.leading(workload) else view.explanation(workload)


def _strips(workload: WorkloadVerdict) -> list[Markup]:
    """Draw the metrics that changed, strongest first, then those that are always worth a look."""
    cells = {cell.metric: cell for cell in workload.cells}
    changed = [row.key for row in view.metric_rows(workload) if row.reason is not Reason.PASS]
    drawn: list[Cell] = [
        cells[key] for key in dict.fromkeys([*changed[:_STRIPS], *_ALWAYS_DRAWN]) if key in cells
    ]
    return [strip for cell in drawn if (strip := plot.strip(cell, workload)) is not None]


def _prose(text: str) -> str:
    """A sentence as the page shows it: typeset, not too long, no number parted from its unit."""
    return fmt.unbroken(fmt.shorten(fmt.typeset(text), LONG))


def _displayed(value: Any) -> Any:
    return fmt.displayed(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def template(name: str) -> Template:
    """Return a page's template, with what the pages share."""
    environment = Environment(
        loader=PackageLoader("ai_prof.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_displayed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"fmt": fmt, "words": words, "causes": CAUSES}
    environment.filters |= {
        "shorten": fmt.shorten,
        "operation": fmt.operation,
        "lower_first": fmt.lower_first,
        "prose": _prose,
    }
    return environment.get_template(name)
