"""Run a program with stand-ins for PyTorch, JAX, CuPy and Triton that see no device.

    python framework_stubs.py PROGRAM [ARGUMENT...]

What a workload does before it needs a device can so be tested where none of them is installed.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock

NAMES = (
    *("torch", "torch.nn", "torch.nn.functional", "torch.utils", "torch.utils.data"),
    *("cupy", "jax", "jax.numpy", "triton", "triton.language"),
)


class Mode(contextlib.ContextDecorator):
    """Stands in for a context that may also decorate a function."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class NoDeviceError(RuntimeError):
    """What a framework raises where it finds no device."""


for name in NAMES:
    sys.modules[name] = MagicMock()
sys.modules["torch"].cuda.is_available.return_value = False
sys.modules["torch"].inference_mode = sys.modules["torch"].no_grad = Mode
sys.modules["jax"].devices.side_effect = NoDeviceError
sys.modules["cupy"].cuda.runtime.CUDARuntimeError = NoDeviceError
sys.modules["cupy"].cuda.runtime.getDeviceCount.side_effect = NoDeviceError
sys.argv = sys.argv[1:]
sys.path[0] = str(Path.cwd())
runpy.run_path(sys.argv[0], run_name="__main__")
