"""The little of SVG that the plots share: elements, scales, ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from markupsafe import Markup

from ai_prof.report import format as fmt

_ALIKE = 1e-9  # ends that differ by no more than this share of them have no ticks in between
_NOTHING = 1e-20  # no end is taken for smaller than this


@dataclass(frozen=True)
class Scale:
    """A linear map from data to the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, x: float) -> float:
        """Return the place of `x`, to a tenth of a unit, kept inside the scale."""
        span = self.high - self.low
        share = (min(max(x, self.low), self.high) - self.low) / span if span > 0 else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Return multiples of the largest 1, 2 or 5 times a power of ten that gives three inside."""
        span = self.high - self.low
        if span <= _ALIKE * max(abs(self.low), abs(self.high), _NOTHING):
            return [self.low]
        power = 10.0 ** math.floor(math.log10(span))
        steps = (share * power for share in (5, 2, 1, 0.5, 0.2, 0.1))
        ticks = (self._multiples(step) for step in steps)
        return next(found for found in ticks if len(found) >= 3)

    def labels(self) -> list[tuple[float, str]]:
        """Return the ticks and their texts, all with the decimals that tell them apart: 1.0, 1.5, 2.0."""
        ticks = self.ticks()
        step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(tick, f"{tick:,.{decimals}f}") for tick in ticks]

    def _multiples(self, step: float) -> list[float]:
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * i for i in range(first, last + 1)]


def canvas(width: float, height: float, label: str) -> ET.Element:
    """Return an SVG element that a screen reader announces as one picture with `label`."""
    return ET.Element("svg", {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": label})


def draw(parent: ET.Element, tag: str, *, css: str = "", **attributes: float | str) -> ET.Element:
    """Add an element; underscores in attribute names are hyphens."""
    named = {name.replace("_", "-"): _attribute(value) for name, value in attributes.items()}
    return ET.SubElement(parent, tag, {"class": css, **named} if css else named)


def write(  # noqa: PLR0913 - a text has a place and a look
    parent: ET.Element, text: str, x: float, y: float, *, css: str = "", anchor: str = "start"
) -> None:
    """Add a text; `anchor` is start, middle or end."""
    draw(parent, "text", css=css, x=x, y=y, text_anchor=anchor).text = text


def markup(root: ET.Element) -> Markup:
    """Return the drawing as HTML, everything in it escaped by the serialiser, and no text without end."""
    root.attrib |= {key: fmt.displayed(text) for key, text in root.attrib.items() if key == "aria-label"}
    for element in root.iter():
        element.text = fmt.displayed(element.text) if element.text else None
    return Markup(fmt.printable(ET.tostring(root, encoding="unicode")))  # noqa: S704 - the serialiser escapes


def _attribute(value: float | str) -> str:
    return value if isinstance(value, str) else f"{round(value, 1):g}"
