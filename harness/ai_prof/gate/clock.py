"""Whether a GPU ran at another clock: what took longer then was not made slower."""

from __future__ import annotations

_SHIFT = 0.05


def clock_shifted(mhz: float, usual: float) -> bool:
    """Whether a clock is not the usual one, either way."""
    return abs(mhz - usual) > _SHIFT * usual
