"""What the `.pth` file runs at every Python start with AI_PROF_ENABLE set. Imports nothing but os.

CUDA loads what CUDA_INJECTION64_PATH names, the OpenCL loader what OPENCL_LAYERS names: both are read
when the program first uses the device, so setting them here is early enough.
"""

from __future__ import annotations

import os
import sys
import time

import ai_prof

TYPE_CHECKING = False  # typing itself costs a Python start milliseconds
if TYPE_CHECKING:
    from collections.abc import MutableMapping

INJECTION = "CUDA_INJECTION64_PATH"
LAYERS = "OPENCL_LAYERS"
LIBRARY = "libai_prof.so"
NVTX = "NVTX_INJECTION64_PATH"
CUPTI_WHEELS = ("nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.12")


def library_path() -> str | None:
    """Path of the native library of this installation; None where it was not built."""
    for folder in ai_prof.__path__:
        path = os.path.join(folder, "_native", LIBRARY)  # noqa: PTH118 - pathlib costs a millisecond
        if os.path.exists(path):  # noqa: PTH110
            return os.path.realpath(path)
    return None


def add_injection(environ: MutableMapping[str, str], library: str) -> str | None:
    """Make CUDA and OpenCL programs started with `environ` load `library`. Idempotent.

    It takes the place of another installation's: two of them would record the same work twice.
    Returns a foreign CUDA_INJECTION64_PATH that was left alone, else None.
    """
    layers = [layer for layer in environ.get(LAYERS, "").split(":") if layer and not is_ours(layer)]
    environ[LAYERS] = ":".join([*layers, library])
    foreign = environ.get(INJECTION)
    if foreign and not is_ours(foreign):
        return foreign
    environ[INJECTION] = library
    return None


def is_ours(path: str) -> bool:
    """Whether it is the native library of this or another installation."""
    return path.rpartition("/")[2] == LIBRARY


def started_by(environ: MutableMapping[str, str]) -> str | None:
    """The native library of the installation that started this program; None where none did."""
    for layer in environ.get(LAYERS, "").split(":"):
        if is_ours(layer) and os.path.exists(layer):  # noqa: PTH110 - pathlib costs a millisecond
            return layer
    return None


def lead_nvtx(environ: MutableMapping[str, str]) -> None:
    """Lead NVTX to the libcupti of this Python, for ranges that the program opens before it uses CUDA.

    Later ones find their way without it: the library leads NVTX to the libcupti that it has loaded. Two
    libcupti in one process can't be, so where it is not certain which one that will be, nothing is set.
    """
    asked = environ.get("AI_PROF_CUPTI")
    found = [asked] if asked else [f"{folder}/{wheel}" for folder in sys.path for wheel in CUPTI_WHEELS]
    found = [path for path in found if os.path.exists(path)]  # noqa: PTH110 - pathlib costs a millisecond
    if len(found) == 1:
        environ.setdefault(NVTX, found[0])


def share_capture(environ: MutableMapping[str, str]) -> None:
    """Make the processes started from here one capture: one id, and one folder whatever theirs is.

    A relative folder stays as it is where the current one is gone: the library says that it can't be made.
    """
    environ.setdefault("AI_PROF_CAPTURE_ID", os.urandom(8).hex())
    output = environ.get("AI_PROF_OUTPUT") or time.strftime("ai-prof-%Y%m%dT%H%M%SZ", time.gmtime())
    try:
        environ["AI_PROF_OUTPUT"] = os.path.abspath(output)  # noqa: PTH100 - pathlib costs a millisecond
    except FileNotFoundError:
        environ["AI_PROF_OUTPUT"] = output


def start() -> None:
    """Prepare this process and its children for the capture that AI_PROF_ENABLE asks for."""
    enable = os.environ.get("AI_PROF_ENABLE", "0")
    if enable in {"", "0"}:
        return
    library = started_by(os.environ) or library_path()
    if library is None:
        sys.stderr.write(
            "ai-prof: AI_PROF_ENABLE is set, but this installation has no native library: no capture\n"
        )
        return
    foreign = add_injection(os.environ, library)
    if enable != "standby":  # who wakes it says where to record
        share_capture(os.environ)
        if not foreign:
            lead_nvtx(os.environ)
    if foreign:
        sys.stderr.write(
            f"ai-prof: CUDA_INJECTION64_PATH already names {foreign}: no CUDA capture; unset it first\n"
        )


start()
