"""What a capture costs on an NVIDIA GPU, side by side with the least it could cost and with other profilers.

Interleaved rounds of fresh processes: a launch loop in C++ under nothing, under a bare CUPTI client that
throws its records away (the floor) and under ai-prof, at both levels and with CUDA graphs at both levels; and
PyTorch loops under nothing, ai-prof and torch.profiler. Differences of minima with 90 % bootstrap intervals
are written as a page, anew after each round, and printed. Needs g++, libcupti with its headers, and torch
for its part:

    python tests/bench/launch_overhead.py [--rounds 20] [--minutes 8] [--output docs/overhead.md]
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch_page import LAUNCH_LOOP, TORCH, Facts, page
from launch_programs import (
    AFTER,
    CAPTURES,
    NOTHING,
    ROOT,
    STANDBY,
    Parts,
    bare_environment,
    build,
    find_cupti,
    label,
    package_folders,
    run_loop,
    variables,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# What PyTorch runs under: name, our level, another profiler.
WATCHERS = [
    ("nothing", "", None),
    ("ours, kernel", "kernel", None),
    ("ours, api", "api", None),
    ("torch.profiler, CUDA", "", "cuda"),
    ("torch.profiler, CPU and CUDA", "", "cpu+cuda"),
]
CUPTI_PYTHON = ("cupti-python", "", "cupti-python")

Columns = dict[str, dict[str, list[float]]]  # measure -> what it ran under -> one value a round
RAW = Path(__file__).parent / "figures" / "overhead.json"  # for docs/comparison.md


class TorchServer:
    """The process that forks a child for each PyTorch measurement."""

    def __init__(self, parts: Parts, python: str) -> None:
        self.parts = parts
        self.process = subprocess.Popen(
            [python, str(Path(__file__).parent / "torch_loops.py")],
            env=bare_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.about = self._answer()
        self.watchers = [*WATCHERS]
        if self.about["cupti_python"]:
            tried = self.measure("", CUPTI_PYTHON[2], ["tiny"], Path())
            if "error" in tried:
                sys.stderr.write(f"cupti-python is left out: {tried['error']}\n")
            else:
                self.watchers.append(CUPTI_PYTHON)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the PyTorch part ended early: see above, or leave it out with --without-torch")
        return dict(json.loads(line))

    def measure(self, level: str, profiler: str | None, loops: list[str], output: Path) -> dict[str, Any]:
        """Measure the loops in a child, under ours at a level or another profiler."""
        capture = ("ours", level, "node") if level else NOTHING
        given = variables(capture, self.parts, output)
        given.pop("AI_PROF_CUPTI", None)  # torch brings its own, which wins
        assert self.process.stdin is not None
        self.process.stdin.write(
            json.dumps({"variables": given, "profiler": profiler, "loops": loops}) + "\n"
        )
        self.process.stdin.flush()
        return self._answer()


@contextlib.contextmanager
def torch_server(parts: Parts, python: str, *, wanted: bool) -> Iterator[TorchServer | None]:
    """Start the server, and end it."""
    if not wanted:
        yield None
        return
    server = TorchServer(parts, python)
    try:
        yield server
    finally:
        assert server.process.stdin is not None
        server.process.stdin.close()
        server.process.wait(timeout=60)


def measure_round(columns: Columns, server: TorchServer | None, parts: Parts) -> None:
    """One process of each kind."""
    for capture in (NOTHING, *CAPTURES, AFTER, STANDBY):
        for measure, value in run_loop(capture, parts).items():
            columns[measure].setdefault(label(capture), []).append(value)
    if server is None:
        return
    for name, level, profiler in server.watchers:
        with tempfile.TemporaryDirectory() as folder:
            measured = server.measure(level, profiler, ["tiny", "step"], Path(folder) / "capture")
        if "error" in measured:
            raise SystemExit(f"PyTorch under {name}: {measured['error']}")
        for measure, value in measured.items():
            columns[measure].setdefault(name, []).append(value)
    keep(columns, server, parts)


def keep(columns: Columns, server: TorchServer | None, parts: Parts) -> None:
    """Write the raw figures of all rounds so far, with what was measured on."""
    facts = {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "machine": "; ".join(machine()),
        "cupti": parts.cupti.parent.parent.name,
        "torch": server.about["torch"] if server else None,
        "columns": columns,
    }
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def busy_of_step(server: TorchServer) -> float:
    """Share of the time that the training step keeps the device busy, by a capture of its own."""
    from ai_prof.timeline.summary import summarise  # noqa: PLC0415 - of the package that is measured
    from ai_prof.trace.open import open_trace  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "capture"
        measured = server.measure("kernel", None, ["step"], output)
        if "error" in measured:
            raise SystemExit(f"PyTorch's training step: {measured['error']}")
        device = summarise(open_trace(output)).devices[0]
    return device.kernel_busy


def machine() -> list[str]:
    """The card, its driver and the processor."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return [card, f"{len(models)} cores of {models[0]}" if models else "an unknown processor"]


def python_with_torch() -> str:
    """This interpreter where it has torch, else the first on PATH outside of its environment."""
    here = str(Path(sys.executable).parent)
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder != here]
    other = shutil.which("python3", path=os.pathsep.join(folders))
    return sys.executable if find_spec("torch") or other is None else other


def measured(
    columns: Columns, about: Facts, server: TorchServer | None, parts: Parts, limits: tuple[int, float]
) -> Iterator[str]:
    """The page after each round, of all rounds so far; the last one begins before the time is up."""
    rounds, end = limits
    for done in range(rounds):
        if done and time.monotonic() > end:
            return
        measure_round(columns, server, parts)
        sys.stderr.write(f"\rround {done + 1} of {rounds}")
        yield page(columns, replace(about, rounds=done + 1), [LAUNCH_LOOP, *([TORCH] if server else [])])


def main() -> None:
    """Build, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no other round after so long")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "overhead.md")
    parser.add_argument("--python", default=python_with_torch(), help="the one that has torch")
    parser.add_argument(
        "--cupti", type=Path, help="the libcupti of the launch loop; no newer than the driver"
    )
    parser.add_argument("--without-torch", action="store_true")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    roots = list(dict.fromkeys([*package_folders(args.python), *package_folders(sys.executable)]))
    cupti = args.cupti or find_cupti(roots)
    with tempfile.TemporaryDirectory() as folder:
        parts = Parts(Path(folder), cupti)
        build(parts.built, roots)
        with torch_server(parts, args.python, wanted=not args.without_torch) as server:
            facts = facts_of(cupti, server)
            for text in measured(collections.defaultdict(dict), facts, server, parts, (args.rounds, end)):
                args.output.write_text(text, encoding="utf-8")
    sys.stderr.write("\n")
    sys.stdout.write(args.output.read_text(encoding="utf-8"))


def facts_of(cupti: Path, server: TorchServer | None) -> Facts:
    """What is measured on, before any round."""
    about = [*machine(), f"CUPTI of {cupti.parent.parent.name}"]
    if server:
        about.append(f"PyTorch {server.about['torch']}")
    date = dt.datetime.now(dt.timezone.utc).date()
    return Facts(about, 0, date.isoformat(), busy_of_step(server) if server else None)


if __name__ == "__main__":
    main()
