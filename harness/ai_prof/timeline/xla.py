"""Whether XLA compiled what a device runs, as JAX has it do: what speeds it up has other names there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.timeline.operations import Operations

# XLA's kernels are named as its operations are, and without arguments: loop_add_fusion_1, gemm_fusion_dot_6.
_OF_XLA = re.compile(r"(\w+_)?fusion(_\d+)?|gemm_fusion_\w+|wrapped_\w+")
_OF_PYTORCH = "at::"


def compiled_by_xla(names: Sequence[str], operations: Operations) -> bool:
    """Whether there are kernels of XLA's, and none of PyTorch's, which may work beside JAX."""
    used = np.unique(operations.name[operations.is_kernel & (operations.name >= 0)]).tolist()
    kernels = [names[i] for i in used]
    return any(map(_OF_XLA.fullmatch, kernels)) and not any(_OF_PYTORCH in name for name in kernels)
