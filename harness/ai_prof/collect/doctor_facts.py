"""What `ai-prof doctor` looks at. What can't be read is None or empty, never invented."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import psutil
import pynvml

from ai_prof.collect.autostart import INJECTION, NVTX, library_path

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBE = Path(__file__).with_name("doctor_probe.py")
PROBE_TIMEOUT_S = 60
PROFILERS = {"nsys", "nsys-launcher", "ncu", "nv-nsight-cu-cli", "cuda-gdb", "compute-sanitizer", "nvprof"}
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
CGROUP = Path("/sys/fs/cgroup")
CAP_SYS_PTRACE = 19
Answer = TypeVar("Answer")


class Cuda(msgspec.Struct, frozen=True):
    """The driver that a program finds: cuInit's result, the CUDA version times 1000, device names.

    `runtimes`: the majors of the CUDA runtimes installed as packages of the interpreter.
    """

    init: int
    version: int
    devices: tuple[str, ...]
    runtimes: tuple[int, ...] = ()


class Cupti(msgspec.Struct, frozen=True):
    """The libcupti that a capture would load. `refusal`: why it records no kernels; None where it does."""

    path: str | None
    version: int
    selects_calls: bool
    refusal: str | None


class OpenCl(msgspec.Struct, frozen=True):
    """The OpenCL loader; `layers`: it loaded our layer.

    `faults`: what the compilers of some devices say to a kernel that each should take, by device.
    """

    loader: str | None
    layers: bool
    devices: tuple[str, ...]
    faults: dict[str, str] = {}


class Seen(msgspec.Struct, frozen=True):
    """What the examined interpreter found; None: absent."""

    cuda: Cuda | None = None
    cupti: Cupti | None = None
    opencl: OpenCl | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the checks judge. Memory in bytes."""

    library: str | None
    python: str
    seen: Seen | None  # None: the probe did not answer
    driver: str | None
    free_gpu_memory: int | None  # of the fullest card
    free_memory: int
    buffer: int
    foreign_injection: str | None
    foreign_nvtx: str | None
    profilers: tuple[str, ...]  # "nsys (pid 12)"
    captures: tuple[int, ...]  # processes with our library in them
    admin_only: bool | None  # the driver's restriction of profiling
    ptrace_scope: int | None
    may_ptrace: bool


def gather(python: str, environ: Mapping[str, str], buffer: int) -> Facts:
    """Look at the machine, and at what a program of the interpreter `python` would find. Takes seconds."""
    library = library_path()
    driver, free = nvml()
    injection = environ.get(INJECTION)
    profilers, captures = processes(library)
    return Facts(
        library=library,
        python=python,
        seen=probe(python, environ, library),
        driver=driver,
        free_gpu_memory=free,
        free_memory=min(psutil.virtual_memory().available, container_headroom()),
        buffer=buffer,
        foreign_injection=injection if injection and injection != library else None,
        foreign_nvtx=nvtx if (nvtx := environ.get(NVTX)) and "libcupti" not in nvtx else None,
        profilers=profilers,
        captures=captures,
        admin_only=admin_only(read(DRIVER_PARAMETERS)),
        ptrace_scope=int(scope) if (scope := read(PTRACE_SCOPE).strip()).isdigit() else None,
        may_ptrace=bool(capabilities(read(Path("/proc/self/status"))) >> CAP_SYS_PTRACE & 1),
    )


def probe(python: str, environ: Mapping[str, str], library: str | None) -> Seen | None:
    """What `python` finds when it looks; None where it does not start, crashes or hangs."""
    ours = {INJECTION, "OPENCL_LAYERS", NVTX}
    env = {
        name: value
        for name, value in environ.items()
        if name not in ours and (not name.startswith("AI_PROF_") or name == "AI_PROF_CUPTI")
    }
    seen = ask(python, library or "", env, Seen)
    if seen is None or seen.opencl is None or not seen.opencl.devices:
        return seen
    faults = ask(python, "build", env, dict[str, str])
    if faults is None:
        faults = dict.fromkeys(seen.opencl.devices, "the compiler crashed or hung")
    return msgspec.structs.replace(seen, opencl=msgspec.structs.replace(seen.opencl, faults=faults))


def ask(python: str, argument: str, env: Mapping[str, str], answer: type[Answer]) -> Answer | None:
    """What the probe prints; None where it does not start, crashes or hangs."""
    command = [python, "-c", PROBE.read_text(encoding="utf-8"), argument]
    try:
        done = subprocess.run(command, env=env, capture_output=True, check=True, timeout=PROBE_TIMEOUT_S)
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=answer)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, IndexError):
        return None


def nvml() -> tuple[str | None, int | None]:
    """The driver's version, and the free memory of the fullest GPU; both None without NVML."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None, None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        free = [int(pynvml.nvmlDeviceGetMemoryInfo(handle).free) for handle in handles]
        return str(pynvml.nvmlSystemGetDriverVersion()), min(free, default=None)
    except pynvml.NVMLError:
        return None, None
    finally:
        pynvml.nvmlShutdown()


def processes(library: str | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Profilers that run now, and processes other than this one that have our library loaded."""
    profilers, captures = [], []
    for process in psutil.process_iter(["name"]):
        if process.info["name"] in PROFILERS:
            profilers.append(f"{process.info['name']} (pid {process.pid})")
        maps = read(Path(f"/proc/{process.pid}/maps")) if library and process.pid != os.getpid() else ""
        if "/libai_prof.so" in maps:
            captures.append(process.pid)
    return tuple(profilers), tuple(captures)


def container_headroom() -> int:
    """Bytes until the container's memory limit; a number beyond any machine where there is none."""
    limit, used = read(CGROUP / "memory.max").strip(), read(CGROUP / "memory.current").strip()
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else 1 << 62


def admin_only(parameters: str) -> bool | None:
    """Whether the driver keeps profiling for administrators; None where it does not say."""
    for line in parameters.splitlines():
        name, _, value = line.partition(":")
        if name == "RmProfilingAdminOnly":
            return value.strip() != "0"
    return None


def capabilities(status: str) -> int:
    """The effective capabilities in the text of /proc/PID/status."""
    return next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)


def read(path: Path) -> str:
    """The file's text; empty where it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
