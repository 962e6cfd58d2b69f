"""What to do about a finding of an AMD GPU: the same as of NVIDIA's, with the tools that there are for it.

PyTorch calls its graphs and its API `cuda` there too.
"""

from __future__ import annotations

_WORDS = {
    "(ncu)": "(rocprof-compute)",
    "a warm-up pass, or CUDA_MODULE_LOADING=EAGER.": "a warm-up pass.",
    "cudaLaunchHostFunc": "hipLaunchHostFunc",
}


def in_words_of_hip(action: str) -> str:
    """Name what AMD has in place of what only NVIDIA has."""
    for nvidia, amd in _WORDS.items():
        action = action.replace(nvidia, amd)
    return action
