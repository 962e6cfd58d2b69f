"""How fast traces are read, and how much memory that takes.

Kineto: read a torch.profiler trace, then busy and idle of each device, against HolisticTraceAnalysis
(HTA), on the traces given and on a generated one of a million events. Native: the whole summary of generated
captures of 1, 2, 5 and 10 million records.

Every run is a fresh process, those of both tools interleaved; imports are not timed. Beside the time on the
clock stands the processor's, of all threads: on a busy machine it is the one to compare. Memory is the
process's peak: all of it (VmHWM) against HTA, and RssAnon, sampled, for captures, whose file is mapped.
HTA may live in an environment of its own, since it brings pandas and more:

    python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0
    python tests/bench/readers.py --hta /tmp/hta/bin/python [TRACE.json.gz ...]

The figures are kept in figures/readers.json too, for docs/comparison.md, where HTA was run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from kineto_generated import write_trace
from native_capture import write_capture

MILLION = 1_000_000
CAPTURES = (1, 2, 5, 10)  # millions of records
SAMPLING_S = 0.01
RAW = Path(__file__).parent / "figures" / "readers.json"
VERSION = "from importlib.metadata import version; print(version('HolisticTraceAnalysis'))"

BUSY = """
import sys, time
from pathlib import Path
from ai_prof.timeline.busy import busy
from ai_prof.timeline.operations import busy_devices, device_operations
from ai_prof.trace.open import open_trace
begin, begin_cpu = time.perf_counter(), time.process_time()
trace = open_trace(Path(sys.argv[1]))
for device in busy_devices(trace):
    operations = device_operations(trace, device)
    busy(operations, int(operations.start.min()), int(operations.end.max()))
"""
HTA_BUSY = """
import sys, time
from hta.trace_analysis import TraceAnalysis
begin, begin_cpu = time.perf_counter(), time.process_time()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_temporal_breakdown(visualize=False)
"""
SUMMARY = """
import sys, time
from pathlib import Path
from ai_prof.timeline.summary import summarise
from ai_prof.trace.open import open_trace
begin, begin_cpu = time.perf_counter(), time.process_time()
assert summarise(open_trace(Path(sys.argv[1]))).devices[0].iterations.count
"""
REPORT = """
seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, cpu, peak)
"""


class Run(NamedTuple):
    """Seconds on the clock and of the processor, and peaks in bytes."""

    seconds: float
    cpu: float
    resident: int
    anonymous: int


def measure(python: str, code: str, trace: Path) -> Run:
    """Run one fresh process."""
    with subprocess.Popen(
        [python, "-c", code + REPORT, trace],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        anonymous = 0
        while process.poll() is None:
            anonymous = max(anonymous, anonymous_bytes(process.pid))
            time.sleep(SAMPLING_S)
        output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{python} failed on {trace}")
    seconds, cpu, resident = output.split()[-3:]
    return Run(float(seconds), float(cpu), int(resident) << 10, anonymous)


def anonymous_bytes(pid: int) -> int:
    """RssAnon of a process; 0 once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon")), 0)


def against_hta(python: str, traces: list[Path], rounds: int) -> dict[str, dict[str, Run]]:
    """Print a line for each trace and tool: the quickest run, and HTA's over ours; return those runs."""
    kept: dict[str, dict[str, Run]] = {}
    print(f"{'trace':<24}{'tool':<9}{'min s':>8}{'speed':>8}{'min cpu s':>11}{'':>8}{'MiB':>7}{'memory':>8}")
    for trace in traces:
        found: dict[str, list[Run]] = {"HTA": [], "ai-prof": []}
        for _ in range(rounds):
            found["HTA"].append(measure(python, HTA_BUSY, trace))
            found["ai-prof"].append(measure(sys.executable, BUSY, trace))
        name, base = trace.name.split(".")[0], quickest(found["HTA"])
        for tool, runs in found.items():
            best = kept.setdefault(name, {})[tool] = quickest(runs)
            print(
                f"{name:<24}{tool:<9}"
                f"{best.seconds:>8.3f}{base.seconds / best.seconds:>7.1f}x"
                f"{best.cpu:>11.3f}{base.cpu / best.cpu:>7.1f}x"
                f"{best.resident / 2**20:>7.0f}{best.resident / base.resident:>8.2f}",
                flush=True,
            )
    return kept


def keep(python: str, found: dict[str, dict[str, Run]]) -> None:
    """Write what `against_hta` found, with what it was measured on."""
    asked = subprocess.run([python, "-c", VERSION], check=True, capture_output=True, text=True)
    facts = {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {"HTA": asked.stdout.strip(), "ai-prof": version("ai-prof")},
        "traces": {
            trace: {tool: best._asdict() for tool, best in tools.items()} for trace, tools in found.items()
        },
    }
    RAW.parent.mkdir(exist_ok=True)
    RAW.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def quickest(runs: list[Run]) -> Run:
    """The least of the times, and the most of the memory."""
    seconds, cpu, resident, anonymous = zip(*runs, strict=True)
    return Run(min(seconds), min(cpu), max(resident), max(anonymous))


def of_captures(folder: Path, rounds: int) -> None:
    """Print a line for each size of capture."""
    print(f"{'records':<12}{'min s':>8}{'us each':>9}{'min cpu s':>11}{'us each':>9}{'MiB':>7}{'bytes':>8}")
    for millions in CAPTURES:
        capture, records = folder / f"{millions}M.aiprof", millions * MILLION
        write_capture(capture, records)
        best = quickest([measure(sys.executable, SUMMARY, capture) for _ in range(rounds)])
        capture.unlink()
        print(
            f"{records:<12}{best.seconds:>8.2f}{best.seconds / millions:>9.2f}"
            f"{best.cpu:>11.2f}{best.cpu / millions:>9.2f}"
            f"{best.anonymous / 2**20:>7.0f}{best.anonymous / records:>8.0f}",
            flush=True,
        )


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", nargs="*", type=Path)
    parser.add_argument("--hta", metavar="PYTHON", help="interpreter that has HTA; without it captures alone")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.hta:
            million = Path(folder) / "generated_1M.json.gz"
            write_trace(million, MILLION)
            keep(args.hta, against_hta(args.hta, [*args.trace, million], args.rounds))
        of_captures(Path(folder), args.rounds)


if __name__ == "__main__":
    main()
