"""The kernels and gaps that changed, as rows of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_prof.gate.metrics import METRICS
from ai_prof.report import format as fmt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_prof.gate.model import GapChange, Why
    from ai_prof.timeline.diff_kernels import KernelChange, KernelUse

ROWS = 12
LEAST_US = 1.0  # an iteration: what changed by less is left out,
LEAST = 0.001  # and by less than this share of it has no row
TOLD = 0.01  # a call is named from this share of all calls' time on
SHARED = 0.2  # a further cause is named from this share of the gaps' time on
ELSEWHERE = 0.25  # of what kernels take longer may be missing from their rows
_CHANGES = {"slower": "longer", "faster": "shorter"}  # cut in two, a kernel is no faster


@dataclass(frozen=True)
class Spell:
    """What one side spends an iteration in: in all, and as so many times so long where there are several."""

    total: str
    each: str = ""


@dataclass(frozen=True)
class Row:
    """One kernel, or the gaps between two operations; times per iteration.

    `causes` are causes of gap with their words, the largest first; none for a kernel. `size` is the change in
    us, which rows are sorted by.
    """

    what: str
    name: str
    other: str
    before: Spell
    after: Spell
    change: str
    causes: list[tuple[str, str]]
    told: str
    size: float

    @property
    def tone(self) -> str:
        """Its colour."""
        return "bad" if self.size > 0 else "good"


def rows(why: Why | None) -> tuple[list[Row], str]:
    """Return the largest changes of kernels and gaps, what grew before what shrank, and what is left out."""
    if why is None:
        return [], ""
    more_syncs = any(site.count[1] > site.count[0] for site in why.syncs)
    found = [*map(_kernel, why.kernels), *(_gap(gap, more_syncs=more_syncs) for gap in why.gaps)]
    found = sorted((row for row in found if abs(row.size) >= LEAST_US), key=lambda row: -abs(row.size))
    least = LEAST * why.after.length / 1e3 if why.after else LEAST_US
    shown = [row for row in found[:ROWS] if abs(row.size) >= least]
    return sorted(shown, key=lambda row: row.size < 0), _hidden(found[len(shown) :])


def _hidden(found: list[Row]) -> str:
    if not found:
        return ""
    total = _signed(sum(row.size for row in found))
    return f"{fmt.plural(len(found), 'smaller change')} ({total} in all) in report.json."


def elsewhere(why: Why | None) -> str:
    """Say where the rows of kernels leave out much of what all kernels take longer; else nothing."""
    if why is None:
        return ""
    longer = why.kernel_ms[1] - why.kernel_ms[0]
    shown = sum(kernel.change_ms for kernel in why.kernels)
    least = METRICS["kernel_time_ms"].floor.relative * why.kernel_ms[0]
    if abs(longer) <= least or abs(longer - shown) <= ELSEWHERE * abs(longer):
        return ""
    return (
        f"The time of all kernels changed by {_signed(1e3 * longer)}, of those that are listed by "
        f"{_signed(1e3 * shown)}: the others changed by no more than their runs differ."
    )


def _kernel(kernel: KernelChange) -> Row:
    us = 1e3 * kernel.change_ms
    what = ", ".join(_CHANGES.get(change, change) for change in kernel.changes)
    sides = (_use(kernel.before), _use(kernel.after))
    return Row(f"kernel {what}", kernel.name, "", *sides, _signed(us), [], _variant(kernel), us)


def _variant(kernel: KernelChange) -> str:
    """Say that another variant runs, of those that differ in the numbers of their names alone."""
    before, after = (use.example if use else "" for use in (kernel.before, kernel.after))
    if not (before and after) or before == after:
        return ""
    return f"before {fmt.operation(before, 80)}, now {fmt.operation(after, 80)}"


def _gap(gap: GapChange, *, more_syncs: bool) -> Row:
    least = TOLD * sum(gap.calls_ms.values())
    calls = ", ".join(f"{name} {time(1e3 * ms)}" for name, ms in gap.calls_ms.items() if ms >= least)
    told = [f"host calls in the longest: {calls}"] if calls else []
    shadow = gap.shadow_us / max(gap.us)
    if more_syncs and shadow >= SHARED:
        told.insert(0, f"{min(100 * shadow, 100):.0f} % of it in the shadow of synchronizes")
    return Row(
        f"gap {_what(gap)}",
        gap.before,
        gap.after,
        _spell(gap.count[0], gap.us[0]),
        _spell(gap.count[1], gap.us[1]),
        _signed(gap.change_us),
        causes(gap.causes),
        "; ".join(told),
        gap.change_us,
    )


def causes(us: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the causes of some gaps that are worth naming, the largest first, with their shares in words."""
    total = sum(us.values())
    shares = [(cause, each / total) for cause, each in us.items() if total]
    named = [each for i, each in enumerate(shares) if i == 0 or each[1] >= SHARED]
    return [(cause, cause if share > 0.995 else f"{cause} {100 * share:.0f} %") for cause, share in named]


def _what(gap: GapChange) -> str:
    if not all(gap.us):
        return "new" if gap.us[1] else "gone"
    return "longer" if gap.change_us > 0 else "shorter"


def _use(use: KernelUse | None) -> Spell:
    return _spell(use.count, 1e3 * use.ms) if use else Spell(fmt.NOTHING)


def _spell(count: float, us: float) -> Spell:
    """Return `36.00 µs`, and `3 × 12.00 µs` where that comes of several or of some iterations alone."""  # noqa: RUF002 - the sign of a product
    if not us:
        return Spell(fmt.NOTHING)
    if count < 1 and (share := round(100 * count)) < 100:
        return Spell(time(us), f"{time(us / count)} in {share or '<1'} % of iterations")
    often = f"{count:,.0f}" if count >= 10 else f"{count:.2g}"
    return Spell(time(us), "" if often == "1" else f"{often} × {time(us / count)}")  # noqa: RUF001


def _signed(us: float) -> str:
    return ("-" if us < 0 else "+") + time(abs(us))


def time(us: float) -> str:
    """Return a time in µs, from a millisecond on in ms; below one µs to the ns."""
    if 0 < abs(us) < 1:
        return f"{us:.3f} µs"
    return fmt.value(us / 1e3, "ms") if abs(us) >= 1000 else fmt.value(us, "us")
