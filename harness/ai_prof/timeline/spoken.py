"""Times and mean counts as they stand in a sentence: few digits, and never an exponent."""

from __future__ import annotations


def time(ms: float) -> str:
    """Return a time in the largest unit of which there is one: `1.77 s`, `290.6 ms`, `8.19 us`."""
    seconds = _digits(ms / 1000)
    if float(seconds) >= 1:
        return f"{seconds} s"
    whole = _digits(ms)
    return f"{whole} ms" if float(whole) >= 1 else f"{ms * 1000:.3g} us"


def _digits(x: float) -> str:
    """Three digits, from 100 on one behind the point."""
    return f"{x:.3g}" if x < 99.95 else f"{x:.1f}"


def count(x: float, digits: int = 4) -> str:
    """Return a mean count, of which no digit before the point is left out: `0.438`, `12.32`, `8,241`."""
    return f"{x:,.{digits}g}" if x < 10**digits - 0.5 else f"{x:,.0f}"
