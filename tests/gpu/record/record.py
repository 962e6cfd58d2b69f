"""Records the programs of this folder on a GPU at level api, with their own markers beside each capture.

Usage: python tests/gpu/record/record.py FOLDER [PROGRAM...]

Each program runs in a child of a process that has imported torch and not touched CUDA, so that thirty of
them take few minutes. FOLDER gets `captures-N.tar` of NAME.aiprof.xz, NAME.json (the markers) and NAME.log.
"""

from __future__ import annotations

import json
import lzma
import os
import signal
import sys
import tarfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import torch  # noqa: F401 - once, for all programs
from marks import Marks
from programs import PROGRAMS

from ai_prof.collect.environment import capture_environment
from ai_prof.errors import AiProfError
from ai_prof.trace.open import open_trace

LONGEST_S = 75.0  # of one program
BUDGET_S = 270.0  # after which no other is begun
PART_BYTES = 15 << 20


def run_child(name: str, folder: Path) -> int:
    """Run a program under capture in this process; its exit code."""
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(capture_environment(folder / name, "api", os.environ))
    marks = Marks()
    try:
        PROGRAMS[name](marks)
    except Exception:  # noqa: BLE001 - it is the child's own end
        traceback.print_exc()
        return 1
    marks.write(folder / f"{name}.json", name)
    return 0


def wait(child: int) -> str:
    """How a child ended; one that takes too long is killed."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return str(os.waitstatus_to_exitcode(status))
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "killed"


def describe(name: str, folder: Path, ended: str, seconds: float) -> str:
    """A line of the table: the program, how it ended, and what its capture holds."""
    marks = folder / f"{name}.json"
    count = sum(map(len, json.loads(marks.read_text())["marks"].values())) if marks.exists() else 0
    try:
        trace = open_trace(folder / name)
    except AiProfError as error:
        return f"{name:<20}{ended:>6}{seconds:>7.1f}  {error}"
    size = sum(path.stat().st_size for path in (folder / name).glob("*.aiprof")) / 1e6
    lost = sum(loss.lost for loss in trace.source.losses.values())
    whole = "" if trace.source.complete else " (incomplete)"
    rows = f"{len(trace.kernels.start):>9}{len(trace.calls.start):>9}{lost:>6}{size:>7.2f}{whole}"
    return f"{name:<20}{ended:>6}{seconds:>7.1f}{count:>7}{rows}"


def compress(path: Path) -> Path:
    packed = path.parent.with_suffix(".aiprof.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    return packed


def pack(folder: Path, out: Path) -> None:
    """All captures, compressed, with markers and logs, in archives of at most PART_BYTES."""
    with ThreadPoolExecutor() as pool:
        captures = list(pool.map(compress, sorted(folder.glob("*/*.aiprof"))))
    parts: list[list[Path]] = [[]]
    total = 0
    for path in sorted([*captures, *folder.glob("*.json"), *folder.glob("*.log")]):
        size = path.stat().st_size + 2048
        if total + size > PART_BYTES:
            parts.append([])
            total = 0
        parts[-1].append(path)
        total += size
    for number, part in enumerate(parts):
        with tarfile.open(out / f"captures-{number}.tar", "w") as archive:
            for path in part:
                archive.add(path, path.name)
    print(f"{len(captures)} captures in {len(parts)} archives")


def main() -> int:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix="captures-"))
    begin = time.monotonic()
    ends: dict[str, tuple[str, float]] = {}
    for name in sys.argv[2:] or PROGRAMS:
        started = time.monotonic()
        if started - begin > BUDGET_S:
            print(f"{name}: no time left")
            continue
        sys.stdout.flush()
        child = os.fork()
        if not child:
            return run_child(name, folder)  # and end as a program ends, for the capture's sake
        ends[name] = wait(child), time.monotonic() - started
        print(name, *ends[name], flush=True)
    header = ("marks", "kernels", "calls", "lost", "MB")
    print(f"{'program':<20}{'ended':>6}{'s':>7}{'{:>7}{:>9}{:>9}{:>6}{:>7}'.format(*header)}")
    for name, (ended, seconds) in ends.items():
        print(describe(name, folder, ended, seconds))
    for name, (ended, _) in ends.items():
        if ended != "0":
            print(f"--- {name}:", *(folder / f"{name}.log").read_text().splitlines()[-4:], sep="\n    ")
    pack(folder, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
