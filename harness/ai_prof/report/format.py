"""Numbers as text, the same in every report. A None is an en dash; every number has its unit."""

from __future__ import annotations

import math
import re
import unicodedata

from ai_prof.timeline.names import telling

NOTHING = "–"  # noqa: RUF001 - a dash is what it is
RATIO = "ratio"
LARGEST_SHARE = 10  # of a value, that is told as one
DELTA = "delta "  # before a unit: the change is a difference in that unit, no share of the value
_UNITS = {"us": "µs"}
_PREFIXES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TURNING = frozenset({"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"})
# Parts of words at a cut; a longer part tells more than none of the word.
_BEGUN_WORD, _ENDED_WORD = re.compile(r" \S{1,12}$"), re.compile(r"^\S{1,12} ")
LONGEST = 1000  # characters of a line that are shown anywhere; browsers show no more on hover


def number(x: float) -> str:
    """Four significant digits, more before the point, thousands separated and no exponent."""
    if not math.isfinite(x):
        return NOTHING
    if x == 0:
        return "0"
    exponent = int(f"{x:.3e}".partition("e")[2])
    return f"{x:,.{min(max(3 - exponent, 0), 9)}f}"


def unit_name(unit: str) -> str:
    """Return the unit as printed on an axis: a ratio is shown in per cent."""
    return "%" if unit == RATIO else _UNITS.get(unit, unit)


def plotted(x: float, unit: str) -> float:
    """Return `x` in the unit that `unit_name` names."""
    return 100 * x if unit == RATIO else x


def value(x: float | None, unit: str) -> str:
    """One value of a metric: `12.41 ms`, `83.1 %`."""
    if x is None or not math.isfinite(x):
        return NOTHING
    if unit == RATIO:
        return f"{100 * x:.1f} %"
    return f"{number(x)} {unit_name(unit)}".rstrip()


def change(x: float | None, unit: str) -> str:
    """A signed change: per cent for a relative one, points for a difference of ratios."""
    if x is None or not math.isfinite(x):
        return NOTHING
    return f"{_sized(x, unit, signed=True)} {_change_unit(unit)}"


def interval(bounds: tuple[float, float] | None, unit: str) -> str:
    """Both ends of the interval of a change."""
    if bounds is None:
        return NOTHING
    low, high = (_sized(x, unit, signed=True) if math.isfinite(x) else "unbounded" for x in bounds)
    return f"{low} to {high} {_change_unit(unit)}"


def threshold(x: float | None, unit: str) -> str:
    """A size of change without a sign: a floor or a minimum detectable effect.

    Of a share that is beyond all sense, as that of next to no time, only that it is.
    """
    if x is None or not math.isfinite(x):
        return NOTHING
    if not unit.startswith(DELTA) and abs(x) > LARGEST_SHARE:
        return f"{_sized(LARGEST_SHARE, unit)} {_change_unit(unit)} and more"
    return f"{_sized(abs(x), unit)} {_change_unit(unit)}"


def probability(p: float | None) -> str:
    """A p-value to two significant digits, four decimals at the most."""
    if p is None or not math.isfinite(p):
        return NOTHING
    if p < 0.0001:
        return "< 0.0001"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def level(alpha: float) -> str:
    """A chance in per cent, without trailing zeros: 0.01 is `1 %`."""
    return f"{100 * alpha:g} %"


def count(n: int, name: str = "") -> str:
    """A count per iteration; `copy_bytes` in bytes."""
    if name != "copy_bytes":
        return f"{n:,}"
    for unit, size in _PREFIXES:
        if abs(n) >= size:
            return f"{number(n / size)} {unit}"
    return f"{n:,} B"


def count_change(before: int, after: int, name: str = "") -> str:
    """The signed difference of two counts."""
    sign = "+" if after >= before else "-"
    return sign + count(abs(after - before), name)


def plural(n: int, word: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def typeset(text: str) -> str:
    """Write what the gate says in plain ASCII as the reports write it: `10 us -> 1 ms` is `10 µs → 1 ms`."""
    return re.sub(r"(?<=\d) us\b", " µs", text).replace(" -> ", " → ")


def unbroken(text: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(?:[nµm]?s|pts|points?|[kMG]?B|MHz)\b|%)", "\N{NO-BREAK SPACE}", text)


def moment(text: str) -> str:
    """Return a time of RFC 3339 in UTC as people write it; anything else as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)", text)
    return f"{found[1]} {found[2]} UTC" if found else text


def lower_first(text: str) -> str:
    """Begin a name inside a sentence: `MDE of x` stays as it is."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def shorten(name: str, width: int = 72) -> str:
    """Cut the middle out of a long name: the ends of a kernel's name tell most.

    Words stay whole, so that names in a row are cut between two of them; of a long word a part stays.
    """
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    tail = width // 3
    head, end = name[: width - tail - 1], name[-tail:]
    if name[len(head)] != " ":
        head = _BEGUN_WORD.sub("", head)
    if name[-tail - 1] != " ":
        end = _ENDED_WORD.sub("", end)
    return f"{head.rstrip()}…{end.lstrip()}"


def operation(name: str, width: int = 72) -> str:
    """Return a kernel's name, or what a copy does, short.

    Of a template those arguments stay that tell it from others. Too long, it is cut at its end; any other
    name in its middle.
    """
    if "<" not in name:
        return shorten(name, width)
    text = telling(name)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def displayed(text: str) -> str:
    """Return a line as any report shows it: printable, and of no more than LONGEST characters."""
    return printable(text if len(text) <= LONGEST else shorten(text, LONGEST))


def printable(text: str) -> str:
    """Replace control characters, which XML forbids and terminals obey; line ends and tabs stay.

    Those that change the direction of what follows are among them: a name may turn round no verdict.
    """
    return "".join(c if c in "\n\t" or _is_text(c) else "\ufffd" for c in text)


def _is_text(c: str) -> bool:
    return (
        unicodedata.category(c) not in {"Cc", "Cs", "Cn"}
        and unicodedata.bidirectional(c) not in _TURNING
        and c not in "\ufffe\uffff"
    )


def _change_unit(unit: str) -> str:
    if unit.startswith(DELTA):
        return unit_name(unit.removeprefix(DELTA))
    return "pts" if unit == RATIO else "%"


def _sized(x: float, unit: str, *, signed: bool = False) -> str:
    size = number(abs(x)) if unit.startswith(DELTA) else _percent(abs(x))
    if not signed:
        return size
    return ("-" if x < 0 and float(size.replace(",", "")) else "+") + size


def _percent(x: float) -> str:
    return f"{100 * x:,.1f}" if x < 10 else f"{100 * x:,.0f}"
