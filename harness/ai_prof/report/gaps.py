"""One iteration's time as stacked bars: the device at work, and the gap by cause."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from ai_prof.report import svg
from ai_prof.timeline.causes import CAUSES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from xml.etree import ElementTree as ET

    from markupsafe import Markup

    from ai_prof.gate.model import Run, WorkloadVerdict

WIDTH = 460
_LEFT, _RIGHT, _BAR, _PITCH = 82, 388, 28, 40
WORK = "work"


@dataclass(frozen=True)
class Split:
    """Where the mean iteration's time goes, in ms: medians over a side's runs.

    `work` is the iteration less its gap, so the parts sum to `iteration_ms`; `sync_shadow_ms` is in them.
    """

    label: str
    iteration_ms: float
    parts: dict[str, float]
    sync_shadow_ms: float = 0.0


@dataclass(frozen=True)
class CauseRow:
    """One cause before and after, as text."""

    cause: str
    name: str
    before: str
    after: str
    change: str


def splits(workload: WorkloadVerdict) -> list[Split]:
    """Return one split a side that has runs with gap causes, before and after next to each other."""
    sides = [
        ("baseline", workload.baseline_runs),
        ("candidate", workload.candidate_runs),
        ("fresh base", workload.confirm_base),
        ("fresh head", workload.confirm_head),
    ]
    return [split for label, runs in sides if (split := _split(label, runs)) is not None]


def compared(workload: WorkloadVerdict) -> tuple[Split, Split] | None:
    """Return before and after: fresh base and head where base ran again, else the baseline and the latest."""
    labels = {split.label: split for split in splits(workload)}
    before = labels.get("fresh base") or labels.get("baseline")
    after = labels.get("fresh head") or labels.get("candidate")
    return (before, after) if before and after else None


def table(before: Split, after: Split) -> list[CauseRow]:
    """Return the parts of both, the largest change first, what of them is sync shadow, and the iteration."""
    causes = sorted(
        before.parts.keys() | after.parts.keys(),
        key=lambda cause: (-abs(after.parts.get(cause, 0) - before.parts.get(cause, 0)), cause),
    )
    decimals = _decimals((before, after))
    pairs = [(cause, before.parts.get(cause, 0.0), after.parts.get(cause, 0.0)) for cause in causes]
    pairs.append(("shadow", before.sync_shadow_ms, after.sync_shadow_ms))
    pairs = [pair for pair in pairs if round(max(pair[1:]), decimals) > 0]
    pairs.append(("iteration", before.iteration_ms, after.iteration_ms))
    return [_cause_row(*pair, decimals) for pair in pairs]


def bars(sides: list[Split], workload: str) -> Markup:
    """Draw the splits on one scale; a part is labelled where it has room."""
    height = _PITCH * len(sides) + 24
    root = svg.canvas(
        WIDTH,
        height,
        f"Time of one iteration of {workload}: " + "; ".join(_describe(split) for split in sides),
    )
    decimals = _decimals(sides)
    x = svg.Scale(0, max(split.iteration_ms for split in sides), _LEFT, _RIGHT)
    bottom = _PITCH * len(sides)
    for tick, text in x.labels():
        svg.draw(root, "path", css="grid", d=f"M{x(tick)} 0V{bottom + 2}")
        svg.write(root, text, x(tick), bottom + 17, anchor="middle", css="soft")
    svg.write(root, "ms", 0, bottom + 17, css="soft")
    for place, split in enumerate(sides):
        _bar(root, split, place * _PITCH + 4, x, decimals)
    return svg.markup(root)


def _split(label: str, runs: list[Run]) -> Split | None:
    kept = [run for run in runs if run.gap_causes_ms and run.iteration_ms]
    if not kept:
        return None
    # Causes are means over iterations, so only the mean iteration is their sum with the work.
    iteration = median(fmean(run.iteration_ms) for run in kept)
    causes = {
        cause: median(run.gap_causes_ms.get(cause, 0.0) for run in kept)
        for cause in CAUSES
        if any(run.gap_causes_ms.get(cause) for run in kept)
    }
    shadow = median(run.sync_shadow_ms for run in kept)
    return Split(label, iteration, {WORK: max(0.0, iteration - sum(causes.values())), **causes}, shadow)


def _cause_row(cause: str, before: float, after: float, decimals: int) -> CauseRow:
    names = {WORK: "At work", "iteration": "Iteration", "shadow": "in sync shadow"}
    delta = round(after - before, decimals)
    sign = "-" if delta < 0 else "+" if delta else ""
    return CauseRow(
        cause=cause,
        name=names.get(cause, f"gap: {cause}"),
        before=_ms(before, decimals),
        after=_ms(after, decimals),
        change=sign + _ms(abs(delta), decimals),
    )


def _bar(root: ET.Element, split: Split, top: float, x: svg.Scale, decimals: int) -> None:
    svg.write(root, split.label, 0, top + 18)
    place = 0.0
    for cause, ms in split.parts.items():
        start, end = x(place), x(place + ms)
        place += ms
        if end - start < 0.1:
            continue
        part = svg.draw(root, "rect", css=f"part {cause}", x=start, y=top, width=end - start, height=_BAR)
        name = "at work" if cause == WORK else cause
        svg.draw(part, "title").text = f"{name}: {_ms(ms, decimals)}"
        if end - start > 9 * len(name):
            svg.write(root, name, (start + end) / 2, top + 18, anchor="middle", css=f"inside {cause}")
    svg.write(root, _ms(split.iteration_ms, decimals), x(split.iteration_ms) + 7, top + 18)


def _decimals(sides: Sequence[Split]) -> int:
    """Return the decimals that all times of a table share: to the us, of long iterations less finely."""
    longest = max(split.iteration_ms for split in sides)
    return 3 if longest < 10 else 2 if longest < 100 else 1


def _ms(ms: float, decimals: int) -> str:
    return f"{ms:,.{decimals}f} ms"


def _describe(split: Split) -> str:
    parts = ", ".join(f"{cause} {_ms(ms, 3)}" for cause, ms in split.parts.items())
    return f"{split.label} {_ms(split.iteration_ms, 3)} ({parts})"
