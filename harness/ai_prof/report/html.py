"""The HTML report: one self-contained page that needs no script and no network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from ai_prof.gate.model import Reason
from ai_prof.report import format as fmt
from ai_prof.report import gaps, plot, provenance, view, words

if TYPE_CHECKING:
    from ai_prof.gate.model import BuildVerdict, Cell, WorkloadVerdict

MAX_BYTES = 2_000_000
FINDINGS = 10
LONG = 600  # characters of a sentence that is shown
_ALWAYS_DRAWN = ("iteration_ms", "kernel_time_ms")
_STRIPS = 6


@dataclass(frozen=True)
class Detail:
    """How much is drawn: workloads with plots, and structure rows a workload."""

    plotted: int
    structure: int


DETAILS = (Detail(10, 40), Detail(4, 10), Detail(0, 3))
"""From rich to lean: the first that fits into MAX_BYTES is used, and the page says what it left out."""


@dataclass(frozen=True)
class Section:
    """All that the page shows of one workload."""

    workload: WorkloadVerdict
    anchor: str
    word: words.Word
    why: str
    strength: view.Strength
    metrics: list[view.Row]
    structure: list[view.Row]
    hidden_structure: int
    plotted: bool
    strips: list[Markup]
    iterations: Markup | None
    legend: list[tuple[str, str]]
    bars: Markup | None
    causes: list[gaps.CauseRow]
    compared: str


def render(verdict: BuildVerdict) -> str:
    """Return the page, at most 2 MB: the verdict, then each workload, regressions first."""
    page = ""
    for detail in DETAILS:
        page = _page(verdict, detail)
        if len(page.encode()) <= MAX_BYTES:
            break
    return page


def _page(verdict: BuildVerdict, detail: Detail) -> str:
    workloads = view.ordered(verdict.workloads)
    sections = [_section(w, i, detail) for i, w in enumerate(workloads)]
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


def _section(workload: WorkloadVerdict, place: int, detail: Detail) -> Section:
    structure = view.structure_rows(workload)
    plotted = place < detail.plotted
    sides = gaps.splits(workload)
    before, after = _compared(sides)
    return Section(
        workload=workload,
        anchor=f"workload-{place + 1}",
        word=words.REASONS[workload.reason],
        why=workload.why if view.leading(workload) else view.explanation(workload),
        strength=view.strength(workload),
        metrics=view.metric_rows(workload),
        structure=structure[: detail.structure],
        hidden_structure=max(0, len(structure) - detail.structure),
        plotted=plotted,
        strips=_strips(workload) if plotted else [],
        iterations=plot.iterations(workload) if plotted else None,
        legend=plot.roles(workload),
        bars=gaps.bars(sides, workload.workload) if plotted and sides else None,
        causes=gaps.table(before, after) if before and after else [],
        compared=f"{before.label} and {after.label}" if before and after else "",
    )


def _compared(sides: list[gaps.Split]) -> tuple[gaps.Split | None, gaps.Split | None]:
    """Return the last pair: the fresh runs of base and head where there are any."""
    return (sides[-2], sides[-1]) if len(sides) >= 2 else (None, None)


def _strips(workload: WorkloadVerdict) -> list[Markup]:
    """Draw the metrics that changed, strongest first, then those that are always worth a look."""
    cells = {cell.metric: cell for cell in workload.cells}
    changed = [row.key for row in view.metric_rows(workload) if row.reason is not Reason.PASS]
    drawn: list[Cell] = [
        cells[key] for key in dict.fromkeys([*changed[:_STRIPS], *_ALWAYS_DRAWN]) if key in cells
    ]
    return [strip for cell in drawn if (strip := plot.strip(cell, workload)) is not None]


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
    environment.globals |= {"fmt": fmt, "words": words, "LONG": LONG}
    environment.filters["shorten"] = fmt.shorten
    return environment.get_template(name)
