"""The builds before this one: every build's latency, its levels, and what the baseline and its anchor say."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from ai_prof.gate.changes import change_points
from ai_prof.gate.metrics import METRICS
from ai_prof.report import format as fmt
from ai_prof.report import svg, words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from xml.etree import ElementTree as ET

    from markupsafe import Markup

    from ai_prof.baselines.history import Point
    from ai_prof.gate.model import BuildVerdict, Run, WorkloadVerdict

METRIC = "iteration_ms"
LEAST = 3  # builds: fewer are no history
MOST = 200  # the latest builds are drawn
WIDTH, HEIGHT = 460, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 448, 30, 186


def of(points: Sequence[Point], verdict: BuildVerdict) -> dict[str, list[Point]]:
    """Return each workload's latencies on this machine, oldest first."""
    found: dict[str, list[Point]] = {}
    for point in points:
        if point.metric == METRIC and point.machine_key == verdict.machine_key:
            found.setdefault(point.workload, []).append(point)
    return found


def draw(points: Sequence[Point], workload: WorkloadVerdict, run_id: str) -> Markup | None:
    """Draw one mark a build, the levels between changes, the baseline's range, anchor and last refresh.

    None where fewer than three builds are known.
    """
    points = points[-MOST:]
    if len(points) < LEAST:
        return None
    values = [point.value for point in points]
    band, pinned = _values(workload.baseline_runs), _values(workload.anchor.runs if workload.anchor else [])
    y = _vertical([*values, *band, *pinned])
    x = svg.Scale(0, len(points) - 1, _LEFT + 8, _RIGHT - 8)
    builds, last = fmt.plural(len(points), "build"), fmt.value(values[-1], "ms")
    told = f"History of {workload.workload}: {words.metric(METRIC).lower()} of {builds}, last {last}"
    root = svg.canvas(WIDTH, HEIGHT, told)
    _frame(root, band, y)
    if pinned:
        line = svg.draw(root, "path", css="anchor", d=f"M{_LEFT} {y(median(pinned))}H{_RIGHT}")
        svg.draw(line, "title").text = f"anchor: {fmt.value(median(pinned), 'ms')}"
    _refresh(root, points, workload, x)
    _levels(root, values, x, y)
    for place, point in enumerate(points):
        role = "candidate" if point.run_id == run_id else "baseline"
        mark = svg.draw(root, "use", css=role, href=f"#mark-{role}", x=x(place), y=y(point.value))
        commit = f", commit {point.commit[:8]}" if point.commit else ""
        svg.draw(mark, "title").text = f"{fmt.moment(point.started)}{commit}: {fmt.value(point.value, 'ms')}"
    svg.write(root, points[0].started[:10], _LEFT, _BOTTOM + 16, css="soft")
    svg.write(root, points[-1].started[:10], _RIGHT, _BOTTOM + 16, anchor="end", css="soft")
    return svg.markup(root)


def _vertical(values: Sequence[float]) -> svg.Scale:
    low, high = min(values), max(values)
    pad = 0.07 * (high - low) or 0.05 * high
    return svg.Scale(max(0.0, low - pad), high + pad, _BOTTOM, _TOP)


def _frame(root: ET.Element, band: Sequence[float], y: svg.Scale) -> None:
    """Draw title, axis, and the range of the baseline's runs."""
    if band:
        top, bottom = y(max(band)), y(min(band))
        size = {"width": _RIGHT - _LEFT, "height": max(1.0, bottom - top)}
        svg.draw(root, "rect", css="floor", x=_LEFT, y=top, **size)
    for tick, text in y.labels():
        svg.draw(root, "path", css="grid", d=f"M{_LEFT} {y(tick)}H{_RIGHT}")
        svg.write(root, text, _LEFT - 7, y(tick) + 3.5, anchor="end", css="soft")
    svg.write(root, f"{words.metric(METRIC)} of each build, ms", 0, 12, css="axis")


def _values(runs: Sequence[Run]) -> list[float]:
    return [value for run in runs if (value := run.metrics.get(METRIC)) is not None]


def _refresh(root: ET.Element, points: Sequence[Point], workload: WorkloadVerdict, x: svg.Scale) -> None:
    """Mark the baseline's last refresh, where it lies between two builds."""
    recorded = str(workload.baseline.get("recorded") or "")
    earlier = sum(point.started < recorded for point in points)
    if 0 < earlier < len(points):
        at = x(earlier - 0.5)
        line = svg.draw(root, "path", css="divide", d=f"M{at} {_TOP}V{_BOTTOM + 4}")
        svg.draw(line, "title").text = f"baseline recorded {fmt.moment(recorded)}"
        svg.write(root, "refresh", at, _BOTTOM + 16, anchor="middle", css="soft")


def _levels(root: ET.Element, values: Sequence[float], x: svg.Scale, y: svg.Scale) -> None:
    """Draw the median of each level between two changes of the history."""
    scale = METRICS[METRIC]
    edges = [0, *change_points([scale.y(value) for value in values]), len(values)]
    for low, high in pairwise(edges):
        level = y(median(values[low:high]))
        svg.draw(root, "path", css="level", d=f"M{x(low)} {level}H{x(high - 1)}")
        if low:
            at = x(low - 0.5)
            svg.draw(root, "path", css="change-point", d=f"M{at} {_TOP}V{_BOTTOM}")
