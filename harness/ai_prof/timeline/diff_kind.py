"""Whether a change is a gain, and of which kind: which part of an iteration's time fell decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ai_prof.timeline.diff_kernels import share_in_common
from ai_prof.timeline.gain import WORK, Gain, by_kernels, gain_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.timeline.diff import Count, Figure, Part
    from ai_prof.timeline.diff_kernels import KernelChange

Kind = Gain | Literal["idle-filled", "slower", "unchanged", "other-work", "unknown"]
_OF_KERNELS = ("kernels", "threads")
_HARDLY = 0.2  # of the kernel time: two versions of one program share more, if not all was fused or compiled
_OTHER_DATA = (0.5, 1024)  # what copied bytes differ by where the input is another: a share, and bytes


def kind_of(
    figures: Mapping[str, Figure],
    parts: Sequence[Part],
    changed: Sequence[Count],
    floors: Mapping[str, tuple[float, float]],
    *,
    strangers: bool,
) -> Kind:
    """Tell the gains apart by `changed`, the counts that did: less to do, or as much in less time.

    `strangers` have hardly a kernel in common: the same work by other kernels still copies as much.
    """
    latency, busy = figures["iteration_ms"], figures["kernel_busy"]
    if latency.change is None:
        return "unknown"
    if strangers and any(map(_of_other_data, changed)):
        return "other-work"
    longer, busier = _direction(latency, floors), _direction(busy, floors)
    if longer < 0:
        return gain_of(busier=busier > 0, by_kernels=saved_by_kernels(parts), less=bool(_less(changed)))
    if longer > 0:
        return "slower"
    return "idle-filled" if busier > 0 else "unchanged"


def are_strangers(kernels: Sequence[KernelChange]) -> bool:
    """Whether hardly a kernel is in both."""
    return share_in_common(kernels) < _HARDLY


def told_strangers(kernels: Sequence[KernelChange]) -> str:
    """Say of strangers what they are."""
    return f"{'hardly a' if share_in_common(kernels) else 'no'} kernel is in both"


def saved_by_kernels(parts: Sequence[Part]) -> bool:
    """Whether most of what the mean iteration takes less is kernels at work."""
    kernels = next(part.change_ms for part in parts if part.name == "kernels")
    return by_kernels(sum(part.change_ms for part in parts), kernels)


def telling(kind: Kind, parts: Sequence[Part], changed: Sequence[Count]) -> Count | None:
    """Choose the count that changed most and in the direction of the verdict; None where none did."""
    if kind == "less-work":
        fell = _less(changed)
        of_kernels = [count for count in fell if count.name in _OF_KERNELS and saved_by_kernels(parts)]
        return max(of_kernels or fell, key=_share_changed)
    fitting = {
        "slower": [count for count in changed if count.after > count.before],
        "other-work": [count for count in changed if _of_other_data(count)],
    }.get(kind, changed)
    return max(fitting, key=_share_changed, default=None)


def _of_other_data(count: Count) -> bool:
    share, least = _OTHER_DATA
    differs = abs(count.after - count.before)
    return count.name == "copy_bytes" and differs >= max(least, share * max(count.before, count.after))


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
