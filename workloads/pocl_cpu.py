"""Lets PoCL 3.0, the last that pip installs, compile for CPUs that are younger than it.

A workload that runs on no such PoCL, but on a GPU or on a newer one, needs neither this file nor `teach`.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyopencl as cl

POCL = "Portable Computing Language"
# What LLVM calls a CPU that it doesn't know; its compiler takes that name for none.
UNKNOWN = b"generic\0"
# Of PoCL's record of a device, which names the CPU there and is longer: what follows it is of others.
DEVICE_BYTES = 1024


def teach(device: cl.Device) -> None:
    """Have PoCL compile for the CPU that any younger one can stand for; other drivers are left alone.

    PoCL keeps the name in a string that only its record of the device points to, and no option of it
    changes the name. Raises RuntimeError where it isn't found.
    """
    if device.platform.name != POCL or not device.version.endswith("-generic"):
        return
    known = b"haswell\0" if "avx2" in _flags() else b"x86-64\0\0"
    memory = os.open("/proc/self/mem", os.O_RDWR)
    try:
        words = struct.unpack(f"{DEVICE_BYTES // 8}Q", os.pread(memory, DEVICE_BYTES, device.int_ptr))
        names = {word for word in words if _read(memory, word) in (UNKNOWN, known)}
        if len(names) != 1:
            raise RuntimeError(f"{device.version} does not know this CPU: install a newer PoCL")
        os.pwrite(memory, known, names.pop())
    finally:
        os.close(memory)


def _read(memory: int, address: int) -> bytes:
    """Eight bytes of this process; none where nothing is mapped."""
    try:
        return os.pread(memory, len(UNKNOWN), address)
    except (OSError, OverflowError):
        return b""


def _flags() -> set[str]:
    """What the CPU can do, in the kernel's words."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())
