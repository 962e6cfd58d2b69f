"""Communication kernels, and the time in which they alone hold the device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.intervals import clip, length, subtract

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ai_prof.timeline.operations import Operations

_COMMUNICATION = re.compile(
    r"nccl|rccl|nvshmem|msccl|oneccl|cross_device_reduce|one_?shot_all_?reduce|two_?shot_all_?reduce"
    r"|multimem_all|custom_all_?reduce|moe_all_?to_?all|deep_ep::"
)  # of a name in small letters: looking for either case takes several times as long


def is_communication(name: str) -> bool:
    """Whether a kernel of this name moves data between devices."""
    return _COMMUNICATION.search(name.lower()) is not None


def communication_rows(operations: Operations, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which operations are communication kernels; (n,)."""
    ids = np.unique(operations.name)
    ours = [i for i in ids.tolist() if i >= 0 and is_communication(names[i])]
    return operations.is_kernel & np.isin(operations.name, ours)


def comm_exposed(operations: Operations, names: Sequence[str], low: int, high: int) -> int:
    """Ns of [low, high) in which communication kernels ran and no compute kernel did."""
    communication = communication_rows(operations, names)
    compute = operations.union(operations.is_kernel & ~communication)
    return length(subtract(clip(operations.union(communication), low, high), compute))
