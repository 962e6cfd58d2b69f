"""Run every CUDA workload: plain, under capture, and once per fault; print a table and end with 1 on a fault.

    python tests/gpu/check_workloads.py [--jobs N] [--out FOLDER] [WORKLOAD...]

Plain and captured runs take turns, alone on the machine, so that their times compare. Faults run N at a time
with few iterations: their times do not. What each program printed is kept in the output folder.

Needs ai-prof installed, in the Python that has the frameworks; about five minutes on one GPU. What a workload
needs and this machine lacks is said last, as two GPUs for ddp_train.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import msgspec
from gpu_runs import run_workload

from ai_prof.errors import TraceError
from ai_prof.runs.interpreter import requirements
from ai_prof.runs.workloads import Workload, find, select
from ai_prof.timeline.summary import Summary, summarise
from ai_prof.trace.open import open_trace

WORKLOADS = Path(__file__).parents[2] / "workloads"
FEW = 16
HEADER = ("workload", "run", "code", "s", "it ms", "busy", "found/own", "kernels/own", "lost", "tag", "said")


@dataclass(frozen=True)
class Row:
    """One process: how it ended, what it counted itself, and what its capture shows."""

    workload: str
    run: str
    code: int
    seconds: float
    own: dict[str, int]
    summary: Summary | None
    said: str

    @property
    def lost(self) -> int:
        if self.summary is None:
            return 0
        losses = self.summary.source.losses.values()
        return sum(each.cupti_dropped + each.invalid_time + each.budget_dropped for each in losses)

    @property
    def kernels(self) -> int:
        """All that were captured, before the first iteration too."""
        kinds = self.summary.source.losses if self.summary else {}
        return sum(loss.captured for kind, loss in kinds.items() if kind == "kernel")

    @property
    def found(self) -> int:
        return max((d.iterations.count for d in self.summary.devices), default=0) if self.summary else 0

    def cells(self) -> list[str]:
        own = self.own
        plain = self.summary is None
        busy = "/".join(f"{d.kernel_busy:.2f}" for d in self.summary.devices) if self.summary else ""
        return [
            self.workload,
            self.run,
            str(self.code),
            f"{self.seconds:.1f}",
            f"{own.get('iteration_us', 0) / 1000:.2f}",
            busy,
            "" if plain else f"{self.found}/{own.get('iterations', '-')}",
            "" if plain else f"{self.kernels}/{own.get('launches', '-')}",
            "" if plain else str(self.lost),
            (self.summary.tag or "") if self.summary else "",
            self.said,
        ]

    def wrong(self) -> bool:
        if self.code != 0 or not self.own or self.lost or (self.summary and not self.summary.source.complete):
            return True
        return self.summary is not None and "launches" in self.own and self.kernels != self.own["launches"]


def one(workload: Workload, run: str, folder: Path, *arguments: str, capture: bool = True) -> Row:
    """Run a workload once in a folder of its own."""
    place = folder / f"{workload.name}-{run}"
    place.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    try:
        done = run_workload(workload, arguments, place / "capture" if capture else None)
    except subprocess.TimeoutExpired as error:
        return Row(
            workload.name, run, 124, error.timeout, {}, None, f"still running after {error.timeout:g} s"
        )
    seconds = time.perf_counter() - start
    (place / "stdout.txt").write_text(done.stdout)
    (place / "stderr.txt").write_text(done.stderr)
    summary, said = None, ""
    if capture:
        try:
            summary = summarise(open_trace(place / "capture"))
            (place / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
        except TraceError as error:
            said = str(error)
    try:
        own = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        own = {}
    last = [line for line in done.stderr.splitlines() if line.strip()]
    said = said or (last[-1][:90] if last and done.returncode else "")
    return Row(workload.name, run, done.returncode, seconds, own, summary, said)


def table(rows: list[Row]) -> str:
    cells = [list(HEADER), *(row.cells() for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEADER))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("workload", nargs="*")
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="workloads-"))
    chosen = [w for w in select(find(WORKLOADS), args.workload) if w.device == "cuda"]
    unmet = {w.name: requirements(w, sys.executable) for w in chosen}
    able = [w for w in chosen if not unmet[w.name]]
    begun = time.perf_counter()
    for workload in able:  # what is compiled at the first run is there before anything is timed
        if workload.name in {"cuda_native", "triton_kernels", "cupy_kernels"}:
            one(workload, "first", out, "--iterations", "1", capture=False)
    rows = []
    for workload in able:
        rows += [one(workload, "plain", out, capture=False), one(workload, "captured", out)]
        print(table(rows[-2:]), flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        faults = [
            pool.submit(one, w, f"fault-{fault}", out, "--regress", fault, "--iterations", str(FEW))
            for w in able
            for fault in w.faults
        ]
        for fault in as_completed(faults):
            print("  ".join(fault.result().cells()), flush=True)
        rows += [fault.result() for fault in faults]
    text = table(rows)
    text += "".join(f"\n{name}: skipped: {'; '.join(why)}" for name, why in unmet.items() if why)
    wrong = [f"{row.workload} {row.run}" for row in rows if row.wrong()]
    text += (
        f"\n{len(rows)} processes in {time.perf_counter() - begun:.0f} s; wrong: {', '.join(wrong) or 'none'}"
    )
    (out / "table.txt").write_text(text + "\n")
    print(f"\n{os.uname().nodename}, Python {sys.version.split()[0]}\n{text}")
    return 3 if not rows else bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
