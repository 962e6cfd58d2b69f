"""Why a device's clock is lower than it could be: the bits of NVML's clock event (throttle) reasons."""

from __future__ import annotations

POWER_CAP = 0x04
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Reasons that make a measurement worthless; a power cap and idle clocks are normal."""
