"""What an iteration that got shorter has won: idle time, less to do, or as much in less time."""

from __future__ import annotations

from typing import Literal

Gain = Literal["accelerated", "less-work", "faster"]
WORK = ("kernels", "copies", "copy_bytes", "threads")  # counts of what the device has to do
_MOST = 0.5


def gain_of(*, busier: bool, by_kernels: bool, less: bool) -> Gain:
    """Tell the gains apart.

    `busier`: a larger share of the time goes to kernels; `by_kernels` as the function says; `less`: a count
    of WORK fell.
    """
    if busier and not by_kernels:
        return "accelerated"
    return "less-work" if less else "faster"


def by_kernels(change: float, kernels: float) -> bool:
    """Whether most of the time that an iteration takes less was kernels at work: no idle time was won then.

    `change` is that of the iteration, `kernels` that of the time in which kernels run.
    """
    return change < 0 and kernels < _MOST * change
