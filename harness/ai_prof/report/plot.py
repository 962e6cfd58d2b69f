"""Strip plots: every run, and every iteration, as a mark in launch order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING

from ai_prof.report import cause, svg, view, words
from ai_prof.report import format as fmt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from xml.etree import ElementTree as ET

    from markupsafe import Markup

    from ai_prof.gate.model import Cell, Run, WorkloadVerdict

WIDTH, HEIGHT = 460, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 400, 30, 186
_EFFECT = 426  # where the change and its interval stand, right of the runs
_LEAST_SHARE = 0.3  # of the width for each group, so that its label has room
_MARKS = 2000
_HOST_BOUND = frozenset({"iteration_ms", "gap_ms"})
_HOSTS = ("launch", "data", "host")  # causes of gap that are the host's own time

Role = str
ROLES: dict[Role, str] = {
    "baseline": "baseline",
    "candidate": "candidate",
    "base": "fresh base",
    "head": "fresh head",
}
"""Class of the mark and its name in the legend."""


@dataclass(frozen=True)
class Dot:
    """One run's place: `slot` counts launches from the left, with room between groups."""

    role: Role
    run: Run
    slot: float


@dataclass(frozen=True)
class Group:
    """Runs that stand together under one label."""

    label: str
    dots: list[Dot]
    start: float
    end: float


def strip(cell: Cell, workload: WorkloadVerdict) -> Markup | None:
    """Draw one metric of every run in launch order, with the floor and the change's interval.

    None when no run has the metric.
    """
    groups = _groups(workload)
    dots = [
        (dot, value)
        for group in groups
        for dot in group.dots
        if (value := _plotted(dot.run, cell)) is not None
    ]
    if not dots:
        return None
    name, unit = words.metric(cell.metric), fmt.unit_name(cell.unit)
    root = svg.canvas(WIDTH, HEIGHT, _describe(cell, workload))
    expected = _at_host_speed(cell, workload)
    shown = [value for _, value in dots] + ([expected] if expected is not None else [])
    y = svg.Scale(*_range(cell, shown), _BOTTOM, _TOP)
    x = svg.Scale(0, groups[-1].end, _LEFT + 10, _RIGHT - 6)
    _floor(root, cell, y)
    _axis(root, y, f"{name}, {unit}")
    _labels(root, groups, x)
    _expected(root, cell, workload, y, x)
    for dot, place in dots:
        mark = svg.draw(root, "use", css=dot.role, href=f"#mark-{dot.role}", x=x(dot.slot), y=y(place))
        svg.draw(mark, "title").text = f"{ROLES[dot.role]}, {dot.run.session}: {fmt.number(place)} {unit}"
    _effect(root, cell, y)
    return svg.markup(root)


def iterations(workload: WorkloadVerdict) -> Markup | None:
    """Draw the latency of each iteration of the last runs of each side, at most 2,000 marks.

    None when no run kept its iterations.
    """
    runs = [(role, run) for role, run in _last_runs(workload) if run.iteration_ms]
    if not runs:
        return None
    latencies = sorted(ms for _, run in runs for ms in run.iteration_ms)
    top = min(latencies[-1], 3 * latencies[len(latencies) // 2])
    low = latencies[0]
    pad = 0.06 * (top - low) or 0.05 * top
    root = svg.canvas(
        WIDTH, HEIGHT, f"Latency of each iteration of {fmt.plural(len(runs), 'run')} of {workload.workload}"
    )
    y = svg.Scale(max(0.0, low - pad), top + pad, _BOTTOM, _TOP)
    _axis(root, y, "Each iteration's latency, ms")
    _columns(root, runs, y)
    hidden = sum(ms > top for ms in latencies)
    if hidden:
        svg.write(root, f"{hidden:,} above the plot", WIDTH, 12, anchor="end", css="soft")
    return svg.markup(root)


def roles(workload: WorkloadVerdict) -> list[tuple[Role, str]]:
    """Return the legend's entries: the sides that the workload has runs of."""
    return [(role, ROLES[role]) for role, runs in _sides(workload).items() if runs]


def _sides(workload: WorkloadVerdict) -> dict[Role, list[Run]]:
    return {
        "baseline": workload.baseline_runs,
        "candidate": workload.candidate_runs,
        "base": workload.confirm_base,
        "head": workload.confirm_head,
    }


def _groups(workload: WorkloadVerdict) -> list[Group]:
    """Lay the runs out by launch: baseline (sessions apart), candidate, confirmation (sides interleaved)."""
    sides = _sides(workload)
    stages = [("baseline", ["baseline"]), ("candidate", ["candidate"]), ("fresh runs", ["base", "head"])]
    groups: list[Group] = []
    start = 0.0
    least = _LEAST_SHARE * sum(
        _slots([run.session for run in runs])[-1] + 1 for runs in sides.values() if runs
    )
    for label, members in stages:
        launched = sorted(
            ((run.started, run.order, role, run) for role in members for run in sides[role]),
            key=lambda item: item[:2],
        )
        if not launched:
            continue
        slots = _slots([run.session for *_, run in launched])
        end = start + max(slots[-1] + 1, least)
        shift = start + (end - start - slots[-1]) / 2
        dots = [Dot(role, run, shift + slot) for slot, (*_, role, run) in zip(slots, launched, strict=True)]
        groups.append(Group(label, dots, start, end))
        start = end + 1
    return groups


def _slots(sessions: Sequence[str]) -> list[float]:
    slots: list[float] = []
    place = 0.0
    for _, runs in groupby(sessions):
        for _ in runs:
            slots.append(place)
            place += 1
        place += 0.8
    return slots


def _plotted(run: Run, cell: Cell) -> float | None:
    value = run.metrics.get(cell.metric)
    return None if value is None else fmt.plotted(value, cell.unit)


def _shifted(cell: Cell, change: float) -> float:
    """Return where a change of the baseline's value puts it, in the plot's unit."""
    base = cell.baseline or 0.0
    return fmt.plotted(base + change if cell.unit == fmt.RATIO else base * (1 + change), cell.unit)


def _range(cell: Cell, values: list[float]) -> tuple[float, float]:
    """Return the y range: every run, the floor, and the interval as far as it is no wider than the runs."""
    if cell.baseline is not None and cell.floor is not None:
        values = [*values, _shifted(cell, cell.floor), _shifted(cell, -cell.floor)]
    if cell.baseline is not None and cell.effect is not None:
        values = [*values, _shifted(cell, cell.effect)]
    low, high = min(values), max(values)
    span = (high - low) or abs(high) * 0.02 or 1.0
    if cell.baseline is not None and cell.interval is not None:
        bottom, top = (_shifted(cell, end) for end in cell.interval)
        low, high = max(min(low, bottom), low - span / 2), min(max(high, top), high + span / 2)
    pad = 0.07 * span
    return (max(0.0, low - pad) if low >= 0 else low - pad), high + pad


def _axis(root: ET.Element, y: svg.Scale, title: str) -> None:
    for tick, text in y.labels():
        svg.draw(root, "path", css="grid", d=f"M{_LEFT} {y(tick)}H{_RIGHT}")
        svg.write(root, text, _LEFT - 7, y(tick) + 3.5, anchor="end", css="soft")
    svg.write(root, title, 0, 12, css="axis")


def _floor(root: ET.Element, cell: Cell, y: svg.Scale) -> None:
    if cell.baseline is None:
        return
    if cell.floor is not None:
        top, bottom = y(_shifted(cell, cell.floor)), y(_shifted(cell, -cell.floor))
        band = svg.draw(root, "rect", css="floor", x=_LEFT, y=top, width=_RIGHT - _LEFT, height=bottom - top)
        svg.draw(band, "title").text = f"floor: {fmt.threshold(cell.floor, cell.unit)} around the baseline"
    svg.draw(root, "path", css="reference", d=f"M{_LEFT} {y(_shifted(cell, 0))}H{_EFFECT + 8}")


def _expected(root: ET.Element, cell: Cell, workload: WorkloadVerdict, y: svg.Scale, x: svg.Scale) -> None:
    """Draw where the baseline would lie at the candidate's host speed, over the candidate's runs."""
    at = _at_host_speed(cell, workload)
    group = next((group for group in _groups(workload) if group.label == "candidate"), None)
    if at is None or group is None:
        return
    line = svg.draw(root, "path", css="expected", d=f"M{x(group.start)} {y(at)}H{x(group.end)}")
    svg.draw(line, "title").text = f"baseline at this host's speed, estimated: {fmt.value(at, cell.unit)}"


def _at_host_speed(cell: Cell, workload: WorkloadVerdict) -> float | None:
    """Return the baseline with the gaps of the host's own making at the host's new speed, or None."""
    if cell.baseline is None or cell.metric not in _HOST_BOUND or not cause.host_speed(workload):
        return None
    runs = [run.gap_causes_ms for run in workload.baseline_runs if run.gap_causes_ms]
    host_ms = median(sum(causes.get(name, 0.0) for name in _HOSTS) for causes in runs) if runs else 0.0
    return max(0.0, cell.baseline + ((workload.host_factor or 1.0) - 1) * host_ms)


def _labels(root: ET.Element, groups: list[Group], x: svg.Scale) -> None:
    for group in groups:
        middle = (x(group.start) + x(group.end)) / 2
        svg.write(root, group.label, middle, _BOTTOM + 16, anchor="middle", css="soft")
    for group in groups[1:]:
        edge = x(group.start - 0.5)
        svg.draw(root, "path", css="divide", d=f"M{edge} {_TOP}V{_BOTTOM + 4}")


def _effect(root: ET.Element, cell: Cell, y: svg.Scale) -> None:
    """Draw the change as a lozenge with its interval, at the right of the runs."""
    if cell.baseline is None or cell.effect is None:
        return
    if cell.interval is not None:
        low, high = (y(_shifted(cell, end)) for end in cell.interval)
        bar = svg.draw(
            root,
            "path",
            css="interval",
            d=f"M{_EFFECT - 4} {low}h8M{_EFFECT} {low}V{high}M{_EFFECT - 4} {high}h8",
        )
        svg.draw(bar, "title").text = f"interval: {fmt.interval(cell.interval, cell.unit)}"
    place = y(_shifted(cell, cell.effect))
    svg.draw(root, "path", css="effect", d=f"M{_EFFECT} {place - 4.5}l4.5 4.5l-4.5 4.5l-4.5 -4.5z")
    svg.write(root, "change", _EFFECT, _BOTTOM + 16, anchor="middle", css="soft")
    word = view.metric_row("", cell).word
    verdict = f"{fmt.change(cell.effect, cell.unit)} {word.label}"
    svg.write(root, verdict, WIDTH, 12, anchor="end", css=f"axis t-{word.tone}")


def _describe(cell: Cell, workload: WorkloadVerdict) -> str:
    return (
        f"{words.metric(cell.metric)} of every run of {workload.workload}: "
        f"baseline {fmt.value(cell.baseline, cell.unit)}, candidate {fmt.value(cell.candidate, cell.unit)}, "
        f"change {fmt.change(cell.effect, cell.unit)}"
    )


def _last_runs(workload: WorkloadVerdict) -> list[tuple[Role, Run]]:
    return [
        (role, run)
        for role, runs in _sides(workload).items()
        for run in sorted(runs, key=lambda run: (run.started, run.order))[-3:]
    ]


def _columns(root: ET.Element, runs: list[tuple[Role, Run]], y: svg.Scale) -> None:
    """Draw each run's iterations side by side, one path a run, and as much room for each side's label."""
    share = max(1, _MARKS // len(runs))
    sides = [(role, [run for _, run in members]) for role, members in groupby(runs, key=lambda item: item[0])]
    room = (_RIGHT - _LEFT) / len(sides)
    for side, (role, members) in enumerate(sides):
        left, width = _LEFT + side * room, room / len(members)
        for place, run in enumerate(members):
            kept = run.iteration_ms[:: -(-len(run.iteration_ms) // share)]
            ends = left + place * width + 3, left + (place + 1) * width - 3
            x = svg.Scale(0, max(len(kept) - 1, 1), *ends)
            marks = "".join(f"M{x(i):g} {y(ms):g}h0" for i, ms in enumerate(kept))
            path = svg.draw(root, "path", css=f"iterations {role}", d=marks)
            count = max(run.iterations, len(run.iteration_ms))  # of very many it carries a part
            many = fmt.plural(count, "iteration")
            svg.draw(path, "title").text = f"{ROLES[role]}, {run.session}: {many}"
        svg.write(root, ROLES[role], left + room / 2, _BOTTOM + 16, anchor="middle", css="soft")
        if side:
            svg.draw(root, "path", css="divide", d=f"M{left:g} {_TOP}V{_BOTTOM + 4}")
