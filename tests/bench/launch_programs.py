"""Builds the C++ programs of the bench without a CUDA toolkit, and runs them under each capture."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.collect.environment import capture_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
LAUNCHES = 30_000
WINDOW_S, LATER_S = 0.3, 2.0  # a window that has ended, and CUPTI been left, before the loop is timed
TIMEOUT_S = 60


class LoopFailedError(Exception):
    """A process of the bench that measured nothing; the text says why."""


@dataclass(frozen=True)
class Capture:
    """What a program runs under, by the name that the page gives it; `more` are further variables."""

    name: str
    tool: str = ""
    level: str = ""
    graphs: str = "node"
    more: Mapping[str, str] = field(default_factory=dict)


NOTHING = Capture("nothing")
AFTER = [
    Capture(f"{tool} {level}, after its window", tool, level, more={f"{prefix}_DURATION": str(WINDOW_S)})
    for level in ("kernel", "api")
    for tool, prefix in (("floor", "FLOOR"), ("ours", "AI_PROF"))
]
STANDBY = Capture("ours, standing by", "ours", "kernel", more={"AI_PROF_ENABLE": "standby"})
CAPTURES = [
    Capture(f"{tool} {level} {graphs}", tool, level, graphs)
    for level in ("kernel", "api")
    for graphs in ("node", "graph")
    for tool in ("floor", "ours")
]

# What `capture/tests/floor.cpp` can leave out.
KINDS = ("CONTEXT", "MEMCPY", "MEMCPY2", "MEMSET", "OVERHEAD", "MARKER")


def without(level: str) -> list[Capture]:
    """The floor at a level: whole, without each kind of record in turn, and without all of them.

    Then with one more, that the calls that synchronize stand for.
    """
    alone = "kernels alone" if level == "kernel" else "kernels and calls alone"
    left_out = {"": "", **{f", no {kind}": kind for kind in KINDS}, f", {alone}": ",".join(KINDS)}
    return [
        *(
            Capture(f"level {level}{said}", "floor", level, more={"FLOOR_KINDS": kinds})
            for said, kinds in left_out.items()
        ),
        Capture(f"level {level} and SYNCHRONIZATION", "floor", level, more={"FLOOR_SYNCS": "kind"}),
    ]


@dataclass(frozen=True)
class Parts:
    """The folder of what was compiled, and the libcupti that all its clients use."""

    built: Path
    cupti: Path


def package_folders(python: str) -> list[Path]:
    """Where an interpreter keeps its packages."""
    command = [python, "-c", "import json, sys; print(json.dumps(sys.path))"]
    paths = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [Path(path) for path in paths if path.endswith("-packages")]


def _first(roots: list[Path], patterns: list[str], what: str) -> Path:
    """The first file of these folders, then of a toolkit."""
    for root in (*roots, Path("/usr/local")):
        for pattern in patterns:
            if found := sorted(root.glob(pattern)):
                return found[-1]
    raise SystemExit(f"no {what}: install nvidia-cuda-cupti and nvidia-cuda-runtime, or a CUDA toolkit")


def find_cupti(roots: list[Path]) -> Path:
    """The libcupti that all CUPTI clients of the bench use."""
    names = ["nvidia/*/lib/libcupti.so.1?", "cuda*/lib64/libcupti.so.1?"]
    return _first(roots, [*names, "cuda*/extras/CUPTI/lib64/libcupti.so.1?"], "libcupti")


def _includes(roots: list[Path]) -> list[str]:
    cupti = ["nvidia/*/include/cupti.h", "cuda*/include/cupti.h", "cuda*/extras/CUPTI/include/cupti.h"]
    cuda = ["nvidia/*/include/cuda.h", "cuda*/include/cuda.h"]
    crt = ["nvidia/*/include/crt/host_defines.h", "cuda*/include/crt/host_defines.h"]
    found = [_first(roots, cupti, "cupti.h"), _first(roots, cuda, "cuda.h")]
    folders = [*(path.parent for path in found), _first(roots, crt, "crt/host_defines.h").parents[1]]
    own = ROOT / "capture"
    return [f"-I{own}/include", f"-I{own}/src", *(f"-isystem{folder}" for folder in dict.fromkeys(folders))]


def build(into: Path, roots: list[Path]) -> None:
    """Compile `launch_loop` and `floor.so` into a folder; takes seconds."""
    compiler = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", *_includes(roots)]
    source = ROOT / "capture"
    floor = [source / "tests/floor.cpp"]
    floor += [source / "src/cupti" / f"{name}.cpp" for name in ("cupti_api", "subscription", "calls")]
    hidden = ["-fPIC", "-shared", "-fvisibility=hidden"]
    for command in (
        [*compiler, str(Path(__file__).parent / "launch_loop.cpp"), "-o", str(into / "launch_loop"), "-ldl"],
        [*compiler, *hidden, *map(str, floor), "-o", str(into / "floor.so"), "-ldl", "-pthread"],
    ):
        subprocess.run(command, check=True)


def bare_environment() -> dict[str, str]:
    """This environment without any capture in it."""
    ours = ("AI_PROF_", "FLOOR_", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def variables(capture: Capture, parts: Parts, output: Path) -> dict[str, str]:
    """What must be added to the bare environment for a capture."""
    if not capture.tool:
        return {}
    if capture.tool == "floor":
        names = {
            "FLOOR_CUPTI": str(parts.cupti),
            "FLOOR_LEVEL": capture.level,
            "FLOOR_GRAPHS": capture.graphs,
        }
        return {**names, **capture.more, "CUDA_INJECTION64_PATH": str(parts.built / "floor.so")}
    options = {"AI_PROF_CUPTI": str(parts.cupti), "AI_PROF_GRAPHS": capture.graphs, **capture.more}
    bare = bare_environment()
    whole = capture_environment(output, capture.level, bare, options)
    return {name: value for name, value in whole.items() if bare.get(name) != value}


def run_loop(capture: Capture, parts: Parts) -> dict[str, float]:
    """One process of the loop under a capture: us a launch and us a graph launch. Raises LoopFailedError."""
    with tempfile.TemporaryDirectory() as folder:
        env = bare_environment() | variables(capture, parts, Path(folder) / "capture")
        later = [str(LATER_S)] if capture in AFTER else []
        command = [str(parts.built / "launch_loop"), str(LAUNCHES), *later]
        try:
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise LoopFailedError(f"the loop was still running after {TIMEOUT_S} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise LoopFailedError(f"the loop ended with {done.returncode}: {said[-1]}")
    return dict(json.loads(done.stdout))
