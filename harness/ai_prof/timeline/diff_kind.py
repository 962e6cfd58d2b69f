"""Whether a change is a gain, and of which kind: which part of an iteration's time fell decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.timeline.diff import Count, Figure, Part

Kind = Literal["accelerated", "less-work", "faster", "idle-filled", "slower", "unchanged", "unknown"]
WORK = ("kernels", "copies", "copy_bytes", "threads")  # counts of what the device has to do
_OF_KERNELS = ("kernels", "threads")
_MOST = 0.5


def kind_of(
    figures: Mapping[str, Figure],
    parts: Sequence[Part],
    changed: Sequence[Count],
    floors: Mapping[str, tuple[float, float]],
) -> Kind:
    """Tell the gains apart by `changed`, the counts that did: less to do, or as much in less time."""
    latency, busy = figures["iteration_ms"], figures["kernel_busy"]
    if latency.change is None:
        return "unknown"
    longer, busier = _direction(latency, floors), _direction(busy, floors)
    if longer < 0:
        if busier > 0 and not saved_by_kernels(parts):
            return "accelerated"
        return "less-work" if _less(changed) else "faster"
    if longer > 0:
        return "slower"
    return "idle-filled" if busier > 0 else "unchanged"


def saved_by_kernels(parts: Sequence[Part]) -> bool:
    """Whether most of what the mean iteration takes less is kernels at work: no idle time was won then."""
    change = sum(part.change_ms for part in parts)
    kernels = next(part.change_ms for part in parts if part.name == "kernels")
    return change < 0 and kernels < _MOST * change


def telling(kind: Kind, parts: Sequence[Part], changed: Sequence[Count]) -> Count | None:
    """Choose the count that changed most and in the direction of the verdict; None where none did."""
    if kind == "less-work":
        fell = _less(changed)
        of_kernels = [count for count in fell if count.name in _OF_KERNELS and saved_by_kernels(parts)]
        return max(of_kernels or fell, key=_share_changed)
    fitting = [count for count in changed if kind != "slower" or count.after > count.before]
    return max(fitting, key=_share_changed, default=None)


def _less(changed: Sequence[Count]) -> list[Count]:
    return [count for count in changed if count.name in WORK and count.after < count.before]


def _share_changed(count: Count) -> float:
    return abs(count.after - count.before) / max(count.before, count.after)


def _direction(figure: Figure, floors: Mapping[str, tuple[float, float]]) -> int:
    """1 for up, -1 for down, 0 for a change within the floors."""
    relative, absolute = floors[figure.name]
    change = figure.change or 0.0
    if abs(change) <= max(relative * abs(figure.before or 0.0), absolute):
        return 0
    return 1 if change > 0 else -1
