"""Run `main.cu`, a CUDA C++ program with a static runtime: a blur over images, copied in and out beside it.

nvcc builds it at the first run, into a cache folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from reference import parse

FAULTS = {
    "sync": "wait for the device after every pass",
    "tiny": "a pass runs in many bands of rows",
    "stall": "the host sleeps before an image",
    "slow": "there are more passes",
    "eager": "passes are launched one by one, and not as one graph",
}
FLAGS = (
    *("-O2", "-std=c++17", "-cudart", "static"),
    *("-gencode", "arch=compute_75,code=compute_75", "-gencode", "arch=compute_80,code=sm_80"),
    *("-gencode", "arch=compute_90,code=sm_90"),
)


def cache() -> Path:
    """The folder of programs built before."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reference-workloads"


def build() -> Path:
    """Return the program, built where this source has not been built with these flags before."""
    source = Path(__file__).resolve().parent / "main.cu"
    digest = hashlib.sha256(" ".join(FLAGS).encode() + source.read_bytes()).hexdigest()[:16]
    program = cache() / f"cuda_native-{digest}"
    if program.exists():
        return program
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        sys.exit("no nvcc on PATH: this workload needs the CUDA toolkit to build itself at the first run")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made = Path(folder, "program")
        done = subprocess.run([nvcc, *FLAGS, "-o", made, source], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"nvcc failed: {(done.stderr or done.stdout).strip()}")
        made.replace(program)
    return program


def main() -> None:
    options = parse(__doc__, FAULTS, iterations=400)
    program = str(build())
    arguments = (options.iterations, options.fault or "none", options.strength)
    os.execv(program, [program, *map(str, arguments)])  # noqa: S606 - built above


if __name__ == "__main__":
    main()
