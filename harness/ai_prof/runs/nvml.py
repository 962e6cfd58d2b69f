"""What NVML says of the GPUs. A field that a card does not support, or NVML itself, is absent, not zero."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pynvml

from ai_prof.trace.throttle import SLOWDOWNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU at one moment. Clocks in MHz, temperature in degrees Celsius, power in mW, memory in bytes.

    `compute_processes` lists the ids of processes with a compute context, as the driver numbers them.
    `ecc_errors` counts memory errors since the driver was loaded that could not be corrected.
    """

    uuid: str
    name: str
    memory_bytes: int | None = None
    mig: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    throttle_reasons: int | None = None
    compute_processes: list[int] | None = None
    display_active: bool | None = None
    ecc: bool | None = None
    ecc_errors: int | None = None


class Driver(msgspec.Struct, frozen=True):
    """The driver's version ("570.124.06") and the highest CUDA version it serves ("12.8")."""

    version: str | None
    cuda: str | None


def gpu_count() -> int:
    """How many GPUs a process started now may use; 0 without NVML."""
    return len(gpus())


def gpus() -> list[Gpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves visible, in PCI order; empty without NVML."""
    with _session() as ready:
        if not ready:
            return []
        count = _ask(pynvml.nvmlDeviceGetCount) or 0
        handles = [_ask(pynvml.nvmlDeviceGetHandleByIndex, i) for i in range(count)]
        every = [_read(handle) for handle in handles if handle is not None]
    return visible(every, os.environ.get("CUDA_VISIBLE_DEVICES"))


def driver() -> Driver:
    """The driver; both fields None without NVML."""
    with _session() as ready:
        if not ready:
            return Driver(None, None)
        cuda = _ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        return Driver(
            _ask(pynvml.nvmlSystemGetDriverVersion),
            None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )


def visible(every: list[Gpu], setting: str | None) -> list[Gpu]:
    """Those of `every` that a CUDA_VISIBLE_DEVICES of `setting` names, by index or (short) UUID.

    As in CUDA, what follows an unknown entry is invisible. A MIG UUID stands for no GPU of the list
    by itself, so it leaves the list as it is.
    """
    if setting is None or setting.startswith("MIG-"):
        return every
    chosen: list[Gpu] = []
    for entry in filter(None, (part.strip() for part in setting.split(","))):
        if entry.isdigit():
            found = every[int(entry) : int(entry) + 1]
        else:
            found = [gpu for gpu in every if gpu.uuid.startswith(entry)]
        if len(found) != 1:
            break
        chosen += found
    return chosen


def slowdowns(reasons: int | None) -> list[str]:
    """The names of the slowdowns in a set of throttle reasons."""
    return [name for bit, name in SLOWDOWNS.items() if (reasons or 0) & bit]


def _read(handle: Any) -> Gpu:
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    processes = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    display = _ask(pynvml.nvmlDeviceGetDisplayActive, handle)
    ecc = _ask(pynvml.nvmlDeviceGetEccMode, handle)
    return Gpu(
        uuid=_ask(pynvml.nvmlDeviceGetUUID, handle) or "",
        name=_ask(pynvml.nvmlDeviceGetName, handle) or "NVIDIA GPU",
        memory_bytes=None if memory is None else int(memory.total),
        mig=_mig(handle),
        sm_clock_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=_ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        temperature_c=_ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_mw=_ask(pynvml.nvmlDeviceGetPowerUsage, handle),
        power_limit_mw=_ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        throttle_reasons=_ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        compute_processes=None if processes is None else sorted(int(each.pid) for each in processes),
        display_active=None if display is None else bool(display),
        ecc=bool(ecc[0]) if ecc else None,
        ecc_errors=_ask(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
    )


def _mig(handle: Any) -> str | None:
    """The name of the first MIG instance where MIG is on."""
    mode = _ask(pynvml.nvmlDeviceGetMigMode, handle)
    if not mode or not mode[0]:
        return None
    instance = _ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, 0)
    return "on" if instance is None else _ask(pynvml.nvmlDeviceGetName, instance) or "on"


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of an NVML call; None where the card, the driver or the library does not have it."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


@contextmanager
def _session() -> Iterator[bool]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()
