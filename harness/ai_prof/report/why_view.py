"""The kernels and gaps that changed, as rows of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_prof.gate.model import Reason
from ai_prof.report import format as fmt

if TYPE_CHECKING:
    from ai_prof.gate.model import GapChange, Why, WorkloadVerdict
    from ai_prof.timeline.diff_kernels import KernelChange, KernelUse

ROWS = 12
TOLD = 0.01  # a call is named from this share of all calls' time on
ELSEWHERE = 0.25  # of what kernels take longer may be missing from their rows


@dataclass(frozen=True)
class Row:
    """One kernel, or the gaps between two operations; times per iteration.

    `cause` is a cause of gap, empty for a kernel. `size` is the change in us, which rows are sorted by.
    """

    what: str
    name: str
    other: str
    before: str
    after: str
    change: str
    cause: str
    told: str
    size: float

    @property
    def tone(self) -> str:
        """Its colour."""
        return "bad" if self.size > 0 else "good"


def rows(why: Why | None, least_us: float = 1.0) -> tuple[list[Row], int]:
    """Return the largest changes of kernels and gaps, what grew before what shrank, and how many more."""
    if why is None:
        return [], 0
    found = [*map(_kernel, why.kernels), *map(_gap, why.gaps)]
    found = sorted((row for row in found if abs(row.size) >= least_us), key=lambda row: -abs(row.size))
    return sorted(found[:ROWS], key=lambda row: row.size < 0), max(0, len(found) - ROWS)


def elsewhere(workload: WorkloadVerdict) -> str:
    """Say where the rows of kernels leave out much of what an iteration's kernels take longer; else nothing.

    A row adds up what a kernel takes as a rule, place by place: what takes far longer now and then, at this
    place or at that, is in the whole alone.
    """
    cell = next((cell for cell in workload.cells if cell.metric == "kernel_time_ms"), None)
    if cell is None or cell.reason is not Reason.REGRESSED or workload.explained is None:
        return ""
    longer = (cell.candidate or 0.0) - (cell.baseline or 0.0)
    shown = sum(kernel.change_ms for kernel in workload.explained.kernels)
    if abs(longer - shown) <= ELSEWHERE * abs(longer):
        return ""
    return (
        f"The kernels' rows add up to {_signed(1e3 * shown)}, of {_signed(1e3 * longer)} in all: "
        "they show what each takes as a rule; the rest is of some that take far longer now and then."
    )


def _kernel(kernel: KernelChange) -> Row:
    us = 1e3 * kernel.change_ms
    return Row(
        f"kernel {', '.join(kernel.changes)}",
        kernel.name,
        "",
        _use(kernel.before),
        _use(kernel.after),
        _signed(us),
        "",
        "",
        us,
    )


def _gap(gap: GapChange) -> Row:
    least = TOLD * sum(gap.calls_ms.values())
    calls = ", ".join(f"{name} {time(1e3 * ms)}" for name, ms in gap.calls_ms.items() if ms >= least)
    return Row(
        f"gap {_what(gap)}",
        gap.before,
        gap.after,
        _times(gap.count[0], gap.us[0]),
        _times(gap.count[1], gap.us[1]),
        _signed(gap.change_us),
        gap.cause,
        f"host calls meanwhile: {calls}" if calls else "",
        gap.change_us,
    )


def _what(gap: GapChange) -> str:
    if not all(gap.count):
        return "new" if gap.count[1] else "gone"
    return "longer" if gap.change_us > 0 else "shorter"


def _use(use: KernelUse | None) -> str:
    return _times(round(use.count), 1e3 * use.ms) if use else fmt.NOTHING


def _times(count: int, us: float) -> str:
    """Return `3 × 12.00 µs`: how often, and the mean of each."""  # noqa: RUF002 - the sign of a product
    if not count:
        return fmt.NOTHING
    return time(us) if count == 1 else f"{count:,} × {time(us / count)}"  # noqa: RUF001


def _signed(us: float) -> str:
    return ("-" if us < 0 else "+") + time(abs(us))


def time(us: float) -> str:
    """Return a time in µs, from a millisecond on in ms; below one µs to the ns."""
    if 0 < abs(us) < 1:
        return f"{us:.3f} µs"
    return fmt.value(us / 1e3, "ms") if abs(us) >= 1000 else fmt.value(us, "us")
