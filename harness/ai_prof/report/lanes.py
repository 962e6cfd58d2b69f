"""One iteration before and one after as aligned timelines: streams, gaps by cause and the host as lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ai_prof.report import format as fmt
from ai_prof.report import svg
from ai_prof.timeline.advice import CAUSES
from ai_prof.timeline.typical import cut_name

if TYPE_CHECKING:
    from markupsafe import Markup

    from ai_prof.gate.model import Why
    from ai_prof.timeline.typical import Lane, Typical

SPAN = 10_000  # units of a lane's width: the longer iteration
_LABELLED = 88  # per cent: of a number further right, the edge of a narrow window would leave a part
_THIN = 8  # the least width of a mark, about a pixel
_HEIGHTS = {"stream": 22, "gap": 14, "calls": 10, "waits": 10}
_COPIES = ("memcpy", "memset")


@dataclass(frozen=True)
class Drawn:
    """A lane: its title, drawing and height in px, and what the script shows of each mark."""

    title: str
    picture: Markup
    height: int
    marks: dict[str, Any]


@dataclass(frozen=True)
class Side:
    """One iteration; `share` is its length in per cent of the longer one's."""

    label: str
    length: str
    share: float
    lanes: list[Drawn]


@dataclass(frozen=True)
class Timelines:
    """Both sides on one scale: `ticks` (per cent, text), `legend` (class, words), and `label` in words."""

    sides: list[Side]
    ticks: list[tuple[float, str]]
    legend: list[tuple[str, str]]
    length_us: float
    label: str

    @property
    def data(self) -> dict[str, Any]:
        """What the script needs: times in tenths of us."""
        lanes = [lane.marks for side in self.sides for lane in side.lanes]
        return {"length_us": self.length_us, "span": SPAN, "lanes": lanes}


def draw(why: Why | None) -> Timelines | None:
    """Draw the typical iterations of what `why` compares; None without both."""
    if why is None or why.before is None or why.after is None:
        return None
    sides = list(zip(why.sides, (why.before, why.after), strict=True))
    length = max(each.length for _, each in sides) or 1
    changed = {cut_name(kernel.name) for kernel in why.kernels if kernel.change_ms > 0}
    drawn = [
        Side(
            label,
            fmt.value(each.length / 1e6, "ms"),
            100 * each.length / length,
            [_lane(lane, each, length, changed if each is why.after else set()) for lane in each.lanes],
        )
        for label, each in sides
    ]
    scale = svg.Scale(0, length / 1e6, 0, 100)
    places = [(scale(tick), text) for tick, text in scale.labels()]
    ticks = [(place, text if place <= _LABELLED else "") for place, text in places]
    classes = {name for side in drawn for lane in side.lanes for name in lane.marks["css"]}
    told = ", ".join(f"{label} {side.length}" for (label, _), side in zip(sides, drawn, strict=True))
    return Timelines(
        drawn, ticks, _legend(classes), length / 1e3, f"One iteration of each on one scale: {told}"
    )


def _lane(lane: Lane, typical: Typical, length: int, changed: set[str]) -> Drawn:
    """Draw all marks of one look as one path: it stays small, and the script knows which mark is where."""
    height = _HEIGHTS[lane.kind]
    css = [_css(lane.kind, typical.names[name], changed) for name in lane.name]
    paths: dict[str, list[str]] = {}
    unit = SPAN / length
    lengths = lane.ns or [b - a for a, b in zip(lane.start, lane.end, strict=True)]
    for start, end, name, ns in zip(lane.start, lane.end, css, lengths, strict=True):
        width = max(_THIN, round((end - start) * unit))
        # Of several operations in one mark, the height says how much of its time they take.
        tall = max(2, round(height * min(1.0, ns / max(end - start, 1)))) if ns else height
        mark = f"M{round(start * unit)} {height - tall}h{width}v{tall}h-{width}z"
        paths.setdefault(name, []).append(mark)
    root = svg.canvas(SPAN, height, "")
    root.attrib |= {"preserveAspectRatio": "none", "aria-hidden": "true", "style": f"height:{height}px"}
    del root.attrib["role"], root.attrib["aria-label"]
    for look, marks in paths.items():
        svg.draw(root, "path", css=f"part {look}", d="".join(marks))
    used = list(dict.fromkeys(lane.name))
    told = {
        "start": [round(ns / 100) for ns in lane.start],
        "end": [round(ns / 100) for ns in lane.end],
        "name": [used.index(name) for name in lane.name],
        "names": [_title(lane.kind, typical.names[name]) for name in used],
        "count": lane.count if max(lane.count) > 1 else [],
        "ns": lengths if max(lane.count) > 1 else [],
        "css": sorted(set(css)),
    }
    return Drawn(lane.title, svg.markup(root), height, told)


def _css(kind: str, name: str, changed: set[str]) -> str:
    if kind == "gap":
        return name
    if kind in {"calls", "waits"}:
        return kind
    if name.startswith(_COPIES):
        return "copy"
    return "changed" if name in changed else "work"


def _title(kind: str, name: str) -> str:
    return f"gap, {name}: {CAUSES[name]}" if kind == "gap" else fmt.printable(fmt.shorten(name, 120))


def _legend(classes: set[str]) -> list[tuple[str, str]]:
    entries = {"work": "kernel", "changed": "kernel that got slower, more frequent or new", "copy": "copy"}
    entries |= {cause: f"gap: {cause}" for cause in CAUSES}
    entries |= {"calls": "host in a call", "waits": "host in a synchronize"}
    return [(name, text) for name, text in entries.items() if name in classes]
