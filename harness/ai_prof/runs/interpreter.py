"""The Python that runs a workload, and whether it has what the workload requires."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ai_prof.errors import EnvironmentInvalidError, UsageError
from ai_prof.runs.nvml import gpu_count

if TYPE_CHECKING:
    from ai_prof.runs.workloads import Workload

PROBE_TIMEOUT_S = 60
REMEDIES = {
    "pyopencl": "pip install pyopencl pocl-binary-distribution",
    "torch": "install PyTorch, or name an interpreter that has it with --python",
}
# Printed by the interpreter that is asked. Listing OpenCL devices starts their drivers, so only on demand.
PROBE = """
import importlib.util, json, sys
found = {"version": sys.version.split()[0], "missing": [], "opencl": []}
def missing(module):
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:  # the package that it would be in
        return True
found["missing"] = [m for m in sys.argv[1:] if missing(m)]
if "pyopencl" in sys.argv[1:] and "pyopencl" not in found["missing"]:
    import pyopencl as cl
    try:
        found["opencl"] = [
            {"platform": p.name, "version": p.version, "device": d.name, "driver": d.driver_version}
            for p in cl.get_platforms() for d in p.get_devices()
        ]
    except cl.Error:
        pass  # the loader found no platform: an empty list says so
print(json.dumps(found))
"""


class OpenClDevice(msgspec.Struct, frozen=True):
    """What an OpenCL device says of itself."""

    platform: str
    version: str
    device: str
    driver: str


class Probe(msgspec.Struct, frozen=True):
    """What an interpreter has. `opencl` lists devices only where pyopencl was asked for and is there."""

    version: str
    missing: tuple[str, ...]
    opencl: tuple[OpenClDevice, ...]


@lru_cache
def probe(python: str, modules: tuple[str, ...]) -> Probe | None:
    """Ask `python` for `modules`; None where it is no interpreter that starts.

    Raises EnvironmentInvalidError where it starts and does not answer: what it has is not known then.
    """
    try:
        done = subprocess.run(
            [python, "-c", PROBE, *modules],
            capture_output=True,
            check=True,
            timeout=PROBE_TIMEOUT_S,
            env=_without_capture(),
        )
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=Probe)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentInvalidError(
            f"{python} did not say within {PROBE_TIMEOUT_S} s what it has: "
            "the machine is overloaded or the interpreter hangs; try again when it is quiet"
        ) from error
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, IndexError):
        return None


def interpreter(named: str, by: str = "--python") -> str:
    """The path of the interpreter that the option or setting `by` names. Raises UsageError without one."""
    python = shutil.which(named)
    if python is None or probe(python, ()) is None:
        raise UsageError(f"{by} {named} is no Python interpreter that starts: give the path of one")
    return str(Path(python).absolute())


def choose(workload: Workload, named: str | None = None) -> str:
    """The interpreter of a workload: `named`, else ours for OpenCL, else the first on PATH that fits.

    Raises UsageError where `named` does not start.
    """
    if named is not None:
        return interpreter(named)
    if workload.device == "opencl":
        return sys.executable
    found = _on_path()
    fits = (python for python in found if (seen := probe(python, workload.requires)) and not seen.missing)
    return next(fits, found[0] if found else sys.executable)


def requirements(workload: Workload, python: str) -> list[str]:
    """What the workload needs and does not have here, each with its remedy; empty where it can run."""
    seen = probe(python, workload.requires)
    if seen is None:
        return [f"{python} does not start: name another interpreter with --python"]
    unmet = [
        f"{python} has no module {module}: {REMEDIES.get(module, f'pip install {module} there')}"
        for module in seen.missing
    ]
    unmet += [
        f"no {program} on PATH: install it, or add the folder where it lies to PATH"
        for program in workload.programs
        if shutil.which(program) is None
    ]
    if workload.device == "cuda":
        count = gpu_count()
        if count < workload.gpus:
            unmet.append(f"needs {workload.gpus} NVIDIA GPU(s), {count} here: run it on a machine with them")
    elif "pyopencl" in workload.requires and not unmet and not seen.opencl:
        unmet.append("no OpenCL device: pip install pocl-binary-distribution, or the distribution's PoCL")
    return unmet


def _on_path() -> list[str]:
    """Every `python` and `python3` on PATH, in its order."""
    candidates = [
        Path(folder) / name for folder in os.get_exec_path() if folder for name in ("python", "python3")
    ]
    return [str(path) for path in candidates if path.is_file() and os.access(path, os.X_OK)]


def _without_capture() -> dict[str, str]:
    """Our environment without what would record the probe itself."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AI_PROF_")}
