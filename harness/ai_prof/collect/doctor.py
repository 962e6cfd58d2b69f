"""Whether a capture can work here, and what to do where it can't. Pure: judges what `doctor_facts` saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ai_prof.errors import EXIT_ENVIRONMENT, EXIT_NOTHING, EXIT_PASS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.collect.doctor_facts import Cuda, Cupti, Facts, OpenCl

Status = Literal["ok", "note", "absent", "blocked"]

MIB = 1 << 20
OWN_MEMORY = 16 * MIB  # beside the buffer
CUPTI_DEVICE_MEMORY = 64 * 3_200_000  # the pool limit that the library sets
FIRST_WITH_CALLS = "12.8"
CUDA_12 = {18: "12.0", 22: "12.4", 24: "12.6", 26: "12.8", 28: "12.9"}  # of cuptiGetVersion
UNRESTRICT = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | "
    "sudo tee /etc/modprobe.d/nvidia-profiling.conf, then reboot; "
    "in a container: start it with --cap-add SYS_ADMIN"
)
OPENCL = "pip install pyopencl pocl-binary-distribution (x86-64), or the distribution's PoCL"
COMPILER = "OpenCL compiler"
NEWER_POCL = (
    "this PoCL is older than the CPU: install a newer one, the distribution's or conda-forge's, or have the "
    "program call `teach` of pocl_cpu.py, which `ai-prof init --device opencl` writes"
)


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing looked at. `note`: nothing is in the way, but mind it. `blocked`: a capture can't work."""

    name: str
    status: Status
    text: str
    remedy: str | None = None


def examine(facts: Facts) -> list[Check]:
    """Every check, in the order in which a capture would meet it."""
    seen = facts.seen
    if seen is None:
        remedy = "name an interpreter that starts with --python; if it does, its driver crashes or hangs"
        probed = [Check("devices", "blocked", f"{facts.python} did not say what it finds", remedy)]
    else:
        cuda = _cuda(seen.cuda, seen.cupti, facts)
        opencl = _opencl(seen.opencl, facts, needed=cuda[0].status != "ok")
        probed = [*cuda, opencl, *_compiler(seen.opencl)]
    return [_library(facts), *probed, *_others(facts), _memory(facts), _device_memory(facts), _ptrace(facts)]


def exit_code(checks: Sequence[Check]) -> int:
    """0 where a capture can work, 4 where something blocks it, 3 where there is no device."""
    if any(check.status == "blocked" for check in checks):
        return EXIT_ENVIRONMENT
    return EXIT_PASS if capturable(checks) else EXIT_NOTHING


def capturable(checks: Sequence[Check]) -> list[str]:
    """Programs of what have a device here: CUDA, OpenCL."""
    kinds = {"CUDA driver": "CUDA", "OpenCL": "OpenCL"}
    return [kinds[check.name] for check in checks if check.name in kinds and check.status == "ok"]


def _library(facts: Facts) -> Check:
    if facts.library is not None:
        return Check("capture library", "ok", facts.library)
    remedy = "install ai-prof on Linux with a C++ compiler: pip install --no-binary ai-prof ai-prof"
    return Check("capture library", "blocked", "this installation has none", remedy)


def _cuda(cuda: Cuda | None, cupti: Cupti | None, facts: Facts) -> list[Check]:
    if cuda is None:
        return [Check("CUDA driver", "absent", "no libcuda.so.1: no NVIDIA driver here")]
    text = f"{facts.driver or 'version unknown'}, CUDA {_cuda_version(cuda.version)}"
    if cuda.init != 0 and not facts.driver:
        return [Check("CUDA driver", "absent", f"{text}, without a device (cuInit gave {cuda.init})")]
    if cuda.init != 0:
        remedy = "check `nvidia-smi`; in a container start it with --gpus all and a driver as new as its CUDA"
        return [Check("CUDA driver", "blocked", f"{text}: cuInit gave {cuda.init}", remedy)]
    if not cuda.devices:
        return [Check("CUDA driver", "absent", f"{text}, and no device is visible (CUDA_VISIBLE_DEVICES?)")]
    driver = Check("CUDA driver", "ok", f"{text}, {', '.join(cuda.devices)}")
    return [driver, *_runtime(cuda), *_cupti(cuda, cupti, facts)]


def _runtime(cuda: Cuda) -> list[Check]:
    if not cuda.runtimes or min(cuda.runtimes) <= cuda.version // 1000:
        return []
    newest = _cuda_version(cuda.version)
    text = f"this Python's is of CUDA {min(cuda.runtimes)}, newer than the driver's {newest}"
    remedy = "update the driver, or install packages built for its CUDA"
    return [Check("CUDA runtime", "blocked", text, remedy)]


def _cupti(cuda: Cuda, cupti: Cupti | None, facts: Facts) -> list[Check]:
    major = cuda.version // 1000
    package = "nvidia-cuda-cupti" if major >= 13 else f"nvidia-cuda-cupti-cu{major}"
    if cupti is None:
        remedy = f"pip install {package} beside the program, or name one with AI_PROF_CUPTI"
        return [Check("libcupti", "blocked", "none found", remedy)]
    version = cupti_cuda(cupti.version)
    text = f"{cupti.path} (CUDA {version})"
    if int(version.split(".")[0]) > major:
        remedy = f"pip install {package}, or a driver of CUDA {version}"
        return [Check("libcupti", "blocked", f"{text} is newer than the driver's CUDA {major}", remedy)]
    if cupti.refusal is None:
        return [_level(cupti, text), _profiling(facts)]
    if "PRIVILEGES" in cupti.refusal:
        return [Check("libcupti", "blocked", f"{text} may not record kernels: {cupti.refusal}", UNRESTRICT)]
    remedy = "end the profiler that runs around this shell, or name another libcupti with AI_PROF_CUPTI"
    return [Check("libcupti", "blocked", f"{text} does not record kernels: {cupti.refusal}", remedy)]


def _level(cupti: Cupti, text: str) -> Check:
    if cupti.selects_calls:
        return Check("libcupti", "ok", text)
    remedy = f"for host calls and gap causes install a libcupti of CUDA {FIRST_WITH_CALLS} or later"
    return Check("libcupti", "note", f"{text} records at level kernel only", remedy)


def _profiling(facts: Facts) -> Check:
    if facts.admin_only:
        text = "hardware counters are for administrators; a timeline needs none"
        return Check("permissions", "note", text, UNRESTRICT)
    return Check("permissions", "ok", "CUPTI lets this user record kernels")


def _opencl(opencl: OpenCl | None, facts: Facts, *, needed: bool) -> Check:
    if opencl is None:
        return Check("OpenCL", "absent", f"no loader for {facts.python}", OPENCL)
    if not opencl.devices:
        return Check("OpenCL", "absent", f"{opencl.loader} finds no device", OPENCL)
    text = f"{opencl.loader}: {', '.join(opencl.devices)}"
    if facts.library is None or opencl.layers:
        return Check("OpenCL", "ok", text)
    remedy = "use a loader with layers: pyopencl's own, ocl-icd from 2.3 or Khronos' loader from 2021 on"
    return Check("OpenCL", "blocked" if needed else "note", f"{text}; this loader loads no layers", remedy)


def _compiler(opencl: OpenCl | None) -> list[Check]:
    """A compiler that takes no kernel. A note: there is something to capture where the program knows how."""
    if opencl is None or not opencl.faults:
        return []
    text = "; ".join(f"{device} compiles no kernel: {said}" for device, said in opencl.faults.items())
    remedy = NEWER_POCL if "unknown target CPU" in text else "install another driver for it"
    return [Check(COMPILER, "note", text, remedy)]


def _others(facts: Facts) -> list[Check]:
    found = []
    if facts.foreign_injection:
        text = f"CUDA_INJECTION64_PATH names {facts.foreign_injection}"
        found.append(Check("other tools", "blocked", text, "unset CUDA_INJECTION64_PATH"))
    if facts.foreign_nvtx:
        text = f"NVTX_INJECTION64_PATH names {facts.foreign_nvtx}: ranges go there"
        found.append(Check("other tools", "note", text, "unset NVTX_INJECTION64_PATH"))
    if facts.profilers:
        remedy = "end it before a capture: a program takes one profiler, and times would be disturbed"
        found.append(Check("other tools", "note", f"running: {', '.join(facts.profilers)}", remedy))
    if facts.captures:
        ids = ", ".join(map(str, facts.captures))
        found.append(Check("other tools", "note", f"captures of ai-prof run in processes {ids}"))
    return found or [Check("other tools", "ok", "no other profiler is seen")]


def _memory(facts: Facts) -> Check:
    wanted = facts.buffer + OWN_MEMORY
    text = f"{facts.free_memory // MIB} MiB free, a capture takes at most {wanted // MIB} MiB a process"
    if facts.free_memory >= wanted:
        return Check("memory", "ok", text)
    return Check("memory", "blocked", text, "free memory, or set AI_PROF_BUFFER_MB lower")


def _device_memory(facts: Facts) -> Check:
    if facts.free_gpu_memory is None:
        return Check("GPU memory", "absent", "NVML does not tell")
    text = (
        f"{facts.free_gpu_memory // MIB} MiB free on the fullest GPU, "
        f"CUPTI takes at most {CUPTI_DEVICE_MEMORY // MIB} MiB a context"
    )
    if facts.free_gpu_memory >= CUPTI_DEVICE_MEMORY:
        return Check("GPU memory", "ok", text)
    return Check("GPU memory", "note", text, "a program that fills the card may run out of it under capture")


def _ptrace(facts: Facts) -> Check:
    standby = "start the program with AI_PROF_ENABLE=standby"
    scope = facts.ptrace_scope
    if facts.may_ptrace or not scope:
        return Check("attaching", "ok", "a running process may be traced")
    text = f"kernel.yama.ptrace_scope is {scope}: a running process can't be attached to"
    if scope >= 3:
        return Check("attaching", "note", text, standby)
    return Check("attaching", "note", text, f"sudo sysctl kernel.yama.ptrace_scope=0, or {standby}")


def _cuda_version(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def cupti_cuda(version: int) -> str:
    """The CUDA release of a cuptiGetVersion: 130500 is 13.5, 26 is 12.8; the older of two known."""
    if version >= 130000:
        return f"{version // 10000}.{version % 10000 // 100}"
    known = [release for least, release in CUDA_12.items() if version >= least]
    return known[-1] if known else "11"
