"""The HTML report: one self-contained page that needs no network; a script only adds hover and zoom."""

from __future__ import annotations

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
FINDINGS = 10
LONG = 600  # characters of a sentence that is shown
_ALWAYS_DRAWN = ("iteration_ms", "kernel_time_ms")
_STRIPS = 6


@dataclass(frozen=True)
class Detail:
    """How much is drawn: workloads with plots, regressions with timelines, and structure rows a workload."""

    plotted: int
    timelines: int
    structure: int


DETAILS = (Detail(10, 10, 40), Detail(4, 4, 10), Detail(0, 0, 3))
"""From rich to lean: the first that fits into MAX_BYTES is used, and the page says what it left out."""


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
    plotted: bool
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
    """What lies beside a verdict: each workload's full timelines (words and address, relative to the page).

    And every build's latency, the oldest first.
    """

    links: Mapping[str, list[tuple[str, str]]] = field(default_factory=dict)
    history: Mapping[str, list[Point]] = field(default_factory=dict)


def render(verdict: BuildVerdict, beside: Beside | None = None) -> str:
    """Return the page, at most 2 MB: the verdict, then each workload, regressions first."""
    beside = beside or Beside()
    page = ""
    for detail in DETAILS:
        page = _page(verdict, detail, beside)
        if len(page.encode()) <= MAX_BYTES:
            break
    return page


def _page(verdict: BuildVerdict, detail: Detail, beside: Beside) -> str:
    workloads = view.ordered(verdict.workloads)
    sections = [_section(w, i, detail, beside, verdict) for i, w in enumerate(workloads)]
    unchanged = [s for s in sections if view.is_unchanged(s.workload)]
    changed = [s for s in sections if not view.is_unchanged(s.workload)]
    title, tone = view.headline(verdict)
    return template("report.html.j2").render(
        verdict=verdict,
        title=title,
        tone=tone,
        subline=view.subline(verdict),
        tally=view.tally(verdict),
        findings=[(s, view.leading(s.workload)) for s in changed[:FINDINGS]],
        hidden_findings=max(0, len(changed) - FINDINGS),
        changed=changed,
        unchanged=unchanged,
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
    pair = gaps.compared(sides)
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
        plotted=place < detail.plotted,
        strips=_strips(workload) if place < detail.plotted else [],
        iterations=plot.iterations(workload) if place < detail.plotted else None,
        legend=plot.roles(workload),
        bars=gaps.bars(sides, workload.workload) if place < detail.plotted and sides else None,
        causes=gaps.table(*pair) if pair else [],
        compared=[side.label for side in pair or ()],
        places=places,
        hidden_places=hidden,
        elsewhere=why_view.elsewhere(workload.explained),
        timelines=lanes.draw(workload.explained) if place < detail.timelines else None,
        untypical=_untypical(workload, pair),
        links=beside.links.get(workload.workload, []),
        history=history_plot.draw(beside.history.get(workload.workload, []), workload, verdict.run_id)
        if place < detail.plotted
        else None,
    )


def _untypical(workload: WorkloadVerdict, pair: tuple[gaps.Split, gaps.Split] | None) -> str:
    """Say that the iterations that are drawn differ otherwise than the means of all runs."""
    why = workload.explained
    if pair is None or why is None or why.before is None or why.after is None:
        return ""
    drawn = (why.after.length - why.before.length) / 1e6
    mean = pair[1].iteration_ms - pair[0].iteration_ms
    if abs(drawn - mean) <= max(abs(mean), 0.05 * pair[0].iteration_ms) / 4:
        return ""
    told = (fmt.change(ms, fmt.DELTA + "ms") for ms in (drawn, mean))
    return "These two differ by {}, the mean iterations of all runs by {}.".format(*told)


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


def _printable(value: Any) -> Any:
    return fmt.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def template(name: str) -> Template:
    """Return a page's template, with what the pages share."""
    environment = Environment(
        loader=PackageLoader("ai_prof.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
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
