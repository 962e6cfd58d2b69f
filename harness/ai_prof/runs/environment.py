"""What the machine is, and what disturbed a run on it."""

from __future__ import annotations

import os
import platform
import re
import resource
import socket
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from ai_prof.baselines.machine_key import MachineFacts
from ai_prof.errors import NothingToCompareError
from ai_prof.gate.clock import clock_shifted
from ai_prof.runs import nvml
from ai_prof.runs.interpreter import probe
from ai_prof.trace.throttle import POWER_CAP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.gate.metrics import Backend
    from ai_prof.gate.model import Run
    from ai_prof.trace.model import Trace

# Command lines' first words: while one of these measures, it takes time and may hold CUPTI.
PROFILERS = frozenset({"nsys", "ncu", "nv-nsight-cu-cli", "nvprof", "rocprof", "rocprofv3"})
POCL = "Portable Computing Language"


class Moment(msgspec.Struct, frozen=True):
    """The state of the machine at one end of a run. Times in seconds, CPU times over all cores."""

    wall_s: float
    cpu_busy_s: float
    cpu_children_s: float
    load: float
    gpus: list[nvml.Gpu]
    cpu_mhz: float | None = None
    profilers: list[str] = []


def machine_facts(device: Backend, python: str) -> MachineFacts:
    """The stable facts that make the machine key. `python` is the interpreter of the workloads.

    Raises NothingToCompareError where there is no such device.
    """
    return _cuda_facts() if device == "cuda" else _opencl_facts(python)


def machine_details(device: Backend, python: str) -> dict[str, Any]:
    """What a report shows of the machine beyond its key."""
    seen = probe(python, ("pyopencl",) if device == "opencl" else ())
    details: dict[str, Any] = {
        "host": socket.gethostname(),
        "cpu": cpu_model(),
        "cores": cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "python": seen.version if seen else None,
    }
    if device == "cuda":
        details["driver"] = msgspec.to_builtins(nvml.driver())
        details["gpus"] = [msgspec.to_builtins(gpu) for gpu in nvml.gpus()]
    elif seen:
        details["opencl"] = [msgspec.to_builtins(each) for each in seen.opencl]
    return details


def lock_names(device: Backend) -> list[str]:
    """What captures on `device` have to hold, for `host_lock`."""
    return [gpu.uuid for gpu in nvml.gpus()] if device == "cuda" else ["cpu"]


def observe(device: Backend) -> Moment:
    """The state of the machine now."""
    cpu = psutil.cpu_times()
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Moment(
        wall_s=time.monotonic(),
        cpu_busy_s=sum(cpu) - idle - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0),
        cpu_children_s=children.ru_utime + children.ru_stime,
        load=os.getloadavg()[0],
        gpus=nvml.gpus() if device == "cuda" else [],
        cpu_mhz=_cpu_mhz(),
        profilers=_profilers() if device == "cuda" else [],
    )


def _cpu_mhz() -> float | None:
    """The mean clock of the cores; None where the kernel gives none."""
    try:
        clock = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        return None
    return round(clock.current) if clock is not None and clock.current else None


def _profilers() -> list[str]:
    """The names of profilers of GPUs that run here."""
    names = {process.info["name"] for process in psutil.process_iter(["name"])}
    return sorted(PROFILERS & names)


def describe(before: Moment, after: Moment, trace: Trace | None) -> dict[str, Any]:
    """What a run's record keeps of its surroundings; what could not be read is absent.

    `foreign_cores` is the mean number of cores that other programs kept busy. The clock is that sampled
    during the run: read at its end, the GPU is idle already and its clock says nothing of the run.
    """
    wall = max(after.wall_s - before.wall_s, 1e-9)
    foreign = (after.cpu_busy_s - before.cpu_busy_s) - (after.cpu_children_s - before.cpu_children_s)
    seen: dict[str, Any] = {"load": before.load, "foreign_cores": round(max(0.0, foreign / wall), 3)}
    if after.cpu_mhz is not None:
        seen["cpu_mhz"] = after.cpu_mhz
    if profilers := sorted({*before.profilers, *after.profilers}):
        seen["profilers"] = profilers
    if after.gpus:
        reasons = [gpu.throttle_reasons for gpu in (*before.gpus, *after.gpus)]
        clocks: list[int] = []
        if trace is not None and len(trace.samples.time):
            reasons += [int(bits) for bits in trace.samples.throttle_reasons if bits >= 0]
            clocks = _clocks_at_work(trace)
        every = 0
        for bits in reasons:
            every |= bits or 0
        processes = {pid for gpu in (*before.gpus, *after.gpus) for pid in gpu.compute_processes or ()}
        seen |= {
            "throttle_reasons": every,
            "slowdowns": nvml.slowdowns(every),
            "foreign_gpu_processes": sorted(processes),
            "gpus": [msgspec.to_builtins(gpu) for gpu in after.gpus],
        }
        if clocks:
            seen["sm_clock_mhz"] = statistics.median(clocks)
        if errors := _ecc_errors(before, after):
            seen["ecc_errors"] = errors
        if trace is not None and (others := _others_during(trace)):
            seen["foreign_gpu_processes_during"] = others
    return seen


def _ecc_errors(before: Moment, after: Moment) -> int:
    """Memory errors of the run that could not be corrected."""
    was = {gpu.uuid: gpu.ecc_errors for gpu in before.gpus}
    return sum((gpu.ecc_errors or 0) - (was.get(gpu.uuid) or 0) for gpu in after.gpus if gpu.ecc_errors)


def _others_during(trace: Trace) -> int:
    """The most compute processes on a device at once that are not of this capture."""
    samples, most = trace.samples, 0
    for device in range(len(trace.devices)):
        mine = samples.device == device
        if mine.any():
            own = len(set(samples.process[mine].tolist()))  # each sees the others of the capture, too
            most = max(most, int(samples.other_processes[mine].max()) - (own - 1))
    return most


def _clocks_at_work(trace: Trace) -> list[int]:
    """The SM clocks sampled between the first and the last kernel, MHz."""
    if not len(trace.kernels.start):
        return []
    time = trace.samples.time
    at_work = (time >= trace.kernels.start[0]) & (time <= trace.kernels.end.max())
    return [int(mhz) for mhz in trace.samples.sm_clock_mhz[at_work] if mhz > 0]


def disturbances(environment: dict[str, Any], earlier: Sequence[Run] = ()) -> list[str]:
    """Why a run is no measurement; empty where it is one. `earlier`: good runs of the same side.

    Other compute processes and profilers on the GPU, slowdowns of the hardware, memory errors, and a clock
    that has shifted since. A busy host is only shown: fresh interleaved runs stand it, and few are idle. Nor
    does a power cap disturb: under it the clock follows the work, by 8 % between equal runs on an H200.
    """
    found = list(environment.get("slowdowns", []))
    if environment.get("foreign_gpu_processes"):
        ids = ", ".join(str(pid) for pid in environment["foreign_gpu_processes"])
        found.append(f"other compute processes on the GPU: {ids}")
    elif environment.get("foreign_gpu_processes_during"):
        found.append(f"{environment['foreign_gpu_processes_during']} other compute processes came to the GPU")
    if environment.get("profilers"):
        found.append(f"a profiler is at work: {', '.join(environment['profilers'])}")
    if environment.get("ecc_errors"):
        found.append(f"{environment['ecc_errors']} memory errors that could not be corrected")
    if shift := _clock_shift(environment, [run.environment for run in earlier]):
        found.append(shift)
    return found


def _clock_shift(now: dict[str, Any], earlier: Sequence[dict[str, Any]]) -> str | None:
    """What is said of a clock that has shifted; None where it has not, or a power cap moves it."""
    clock = now.get("sm_clock_mhz")
    clocks = [each["sm_clock_mhz"] for each in earlier if "sm_clock_mhz" in each]
    if not clock or not clocks:
        return None
    usual = statistics.median(clocks)
    capped = any(each.get("throttle_reasons", 0) & POWER_CAP for each in (now, *earlier))
    if capped or not clock_shifted(clock, usual):
        return None
    return f"the GPU ran at {clock:g} MHz, the runs before it at {usual:g} MHz"


def cpu_model() -> str:
    """The CPU's name as the kernel gives it; its architecture where it gives none."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace") if info.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def host_cores() -> int:
    """The number of CPU cores of the host, of which a run's `foreign_cores` are some."""
    return psutil.cpu_count() or 1


def _cuda_facts() -> MachineFacts:
    gpus = nvml.gpus()
    if not gpus:
        raise NothingToCompareError(
            "no NVIDIA GPU that NVML can see: use --device opencl, or mend the driver"
        )
    driver = nvml.driver()
    first = gpus[0]
    return MachineFacts(
        backend="cuda",
        model=first.name,
        count=len(gpus),
        memory_bytes=first.memory_bytes,
        mig=first.mig,
        driver=driver.version,
        cuda=driver.cuda,
    )


def _opencl_facts(python: str) -> MachineFacts:
    seen = probe(python, ("pyopencl",))
    devices = seen.opencl if seen else ()
    if not devices:
        raise NothingToCompareError(
            f"no OpenCL device for {python}: pip install pyopencl pocl-binary-distribution there"
        )
    device = next((each for each in devices if each.platform == POCL), devices[0])
    if device.platform != POCL:
        return MachineFacts(backend="opencl", model=device.device, count=1, driver=device.driver)
    version = re.search(r"PoCL (\d+\.\d+)", device.version)
    return MachineFacts(
        backend="opencl",
        model=cpu_model(),
        count=cores(),
        driver=version[1] if version else device.driver,
    )
