"""What was recorded of the surroundings of runs, as text and as badges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ai_prof.report import format as fmt
from ai_prof.trace.throttle import POWER_CAP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_SHOWN_VALUES = 6
_BUSY_CORES = 0.5


@dataclass(frozen=True)
class Badge:
    """A short fact with a tone; `detail` is read on hover."""

    text: str
    tone: str
    detail: str = ""


def badges(environments: Sequence[Mapping[str, Any]], cores: int) -> list[Badge]:
    """Return what the runs' conditions say at a glance: throttling, clocks, other programs, repeats.

    `cores` is how many the machine has; 0 where that is not known.
    """
    seen = gather(environments)
    shown = []
    capped = sum(bool(int(bits) & POWER_CAP) for bits in seen.get("throttle_reasons", []))
    if "slowdowns" in seen:
        named = sorted({name for names in seen["slowdowns"] for name in names})
        none = "no throttling but by power" if capped else "no throttling"
        slowed = Badge(", ".join(named), "warn", "the device ran slower for it")
        shown.append(slowed if named else Badge(none, "pass"))
    if capped:
        shown.append(Badge(f"power-capped in {fmt.plural(capped, 'run')}", "quiet", "normal under full load"))
    clocks = seen.get("sm_clock_mhz")
    if clocks:
        shown.append(Badge(f"SM clock {spread(clocks)} MHz", "quiet"))
    if any(seen.get("foreign_gpu_processes", [])):
        shown.append(Badge("other processes on the GPU", "warn"))
    taken = max(seen.get("foreign_cores", []), default=0)
    if taken >= _BUSY_CORES:
        of = f" of {cores}" if cores else ""
        busy = f"other programs kept up to {taken:.1f}{of} cores busy"
        told = "host times, and kernels on a CPU, vary with it"
        shown.append(Badge(busy, "warn" if taken >= 1 else "quiet", told))
    repeated = len(seen.get("repeated_for", []))
    if repeated:
        shown.append(Badge(f"{fmt.plural(repeated, 'run')} repeated", "quiet", spread(seen["repeated_for"])))
    return shown


def gather(environments: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return every value of each condition over the runs, nested conditions with dotted names."""
    into: dict[str, list[Any]] = {}
    for facts in environments:
        for name, value in flatten(facts):
            into.setdefault(name, []).append(value)
    return into


def flatten(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested facts with dotted names, members of lists of facts numbered from 0, in their order."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            members = {str(place): item for place, item in enumerate(value)}
            yield from flatten(members, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def spread(values: Sequence[Any]) -> str:
    """Return numbers as a range, anything else as the distinct values."""
    if not values:
        return fmt.NOTHING
    if all(_is_number(value) for value in values):
        low, high = min(values), max(values)
        return text(low) if low == high else f"{text(low)} to {text(high)}"
    texts = list(dict.fromkeys(text(value) for value in values))
    rest = len(texts) - _SHOWN_VALUES
    return "; ".join(texts[:_SHOWN_VALUES]) + (f" and {rest} more" if rest > 0 else "")


def text(value: Any) -> str:
    """Return one fact for people."""
    if value is None:
        return fmt.NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return fmt.number(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(text(item) for item in value) or "none"
    return fmt.shorten(str(value), 200)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
