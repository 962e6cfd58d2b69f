"""How fast a torch.profiler trace is read and its busy time found, against HolisticTraceAnalysis (HTA).

The work is: read the trace, then kernel busy and idle of each device. Runs of both are interleaved, each in a
fresh process; imports are not timed, and memory is the process's peak (VmHWM). HTA may live in an environment
of its own, since it brings pandas and more:

    python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0
    python tests/bench/readers.py --hta /tmp/hta/bin/python [TRACE.json.gz ...]

A trace of a million events is generated beside the traces that are given.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MILLION = 1_000_000
PER_LAUNCH = 10  # events that stand behind one kernel, in the shares of a real training trace
OPERATORS = ("aten::add", "aten::linear", "aten::addmm", "aten::empty_strided", "aten::copy_")
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::Functor_{}<float>, Array<char*, 3>>"

OURS = """
import sys, time
from pathlib import Path
from ai_prof.timeline.busy import busy
from ai_prof.timeline.operations import busy_devices, device_operations
from ai_prof.trace.open import open_trace
begin = time.perf_counter()
trace = open_trace(Path(sys.argv[1]))
for device in busy_devices(trace):
    operations = device_operations(trace, device)
    busy(operations, int(operations.start.min()), int(operations.end.max()))
"""
THEIRS = """
import sys, time
from hta.trace_analysis import TraceAnalysis
begin = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
analysis.get_temporal_breakdown(visualize=False)
"""
REPORT = """
seconds = time.perf_counter() - begin
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, peak)
"""


def measure(python: str, code: str, trace: Path) -> tuple[float, float]:
    """Seconds and peak MiB of one fresh process."""
    done = subprocess.run(
        [python, "-c", code + REPORT, trace],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), int(peak) / 1024


def event(head: str, begin: int, length: int | None, **args: object) -> str:
    """An event in Kineto's own layout; without a length it is an instant."""
    phase, duration = ("i", "") if length is None else ("X", f', "dur": {us(length)}')
    return (
        f'  {{\n    "ph": "{phase}", {head},\n    "ts": {us(begin)}{duration},\n'
        f'    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}\n  }}'
    )


def arrow(phase: str, number: int, begin: int, where: str) -> str:
    """One end of the arrow from a call to its kernel."""
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, {where}, "ts": {us(begin)},\n'
        '    "cat": "ac2g", "name": "ac2g"\n  }'
    )


def launch_events(number: int) -> Iterator[str]:
    """The PER_LAUNCH events of one kernel launch."""
    at = 1_419_247_332_972_313 + number * 20_000
    host, stream = '"pid": 4000, "tid": 4000', '"pid": 0, "tid": 7'
    ids: dict[str, object] = {"External id": number, "Ev Idx": number}
    for depth in range(3):
        head = f'"cat": "cpu_op", "name": "{OPERATORS[(number + depth) % len(OPERATORS)]}", {host}'
        yield event(head, at + depth * 1000, 15_000 - depth * 2000, **ids, **{"Sequence number": number})
    memory: dict[str, object] = {"Total Allocated": 5435638784, "Bytes": 5242880, "Addr": 139926520725504}
    yield event(
        f'"cat": "cpu_instant_event", "s": "t", "name": "[memory]", {host}', at + 3500, None, **memory
    )
    for name, begin in (("cudaStreamIsCapturing", at + 4000), ("cudaLaunchKernel", at + 7000)):
        head = f'"cat": "cuda_runtime", "name": "{name}", {host}'
        yield event(head, begin, 2500, cbid=211, correlation=2 * number + (begin > at + 4000))
    yield arrow("f", 2 * number, at + 4000, host)
    yield arrow("s", 2 * number + 1, at + 7000, host)
    work: dict[str, object] = {"device": 0, "context": 1, "stream": 7, "correlation": 2 * number + 1}
    work |= {"registers per thread": 16, "shared memory": 0, "blocks per SM": 0.3, "warps per SM": 1.2}
    work |= {"grid": [24, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 2}
    head = f'"cat": "kernel", "name": "{KERNEL.format(number % 40)}", {stream}'
    yield event(head, at + 12_000, 5000 + number % 9000, **ids, queued=0, **work)
    yield arrow("f", 2 * number + 1, at + 12_000, stream)


def us(ns: int) -> str:
    """Microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def generate(path: Path, events: int) -> None:
    """Write a trace of so many events."""
    with gzip.open(path, "wt", compresslevel=3) as file:
        file.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],\n'
            '  "distributedInfo": {"rank": 0}, "baseTimeNanoseconds": 1751410836000000000,\n'
            '  "traceEvents": [\n'
        )
        for number in range(events // PER_LAUNCH):
            file.write((",\n" if number else "") + ",\n".join(launch_events(number)))
        file.write("\n  ]\n}\n")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", nargs="*", type=Path)
    parser.add_argument(
        "--hta", default=sys.executable, metavar="PYTHON", help="interpreter that has HTA, if not this one"
    )
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        million = Path(folder) / "generated_1M.json.gz"
        generate(million, MILLION)
        print(
            f"{'trace':<32}{'tool':<10}{'median s':>9}{'min s':>8}{'peak MiB':>10}{'speed':>8}{'memory':>8}"
        )
        for trace in (*args.trace, million):
            found: dict[str, list[tuple[float, float]]] = {"HTA": [], "ai-prof": []}
            for _ in range(args.rounds):
                found["HTA"].append(measure(args.hta, THEIRS, trace))
                found["ai-prof"].append(measure(sys.executable, OURS, trace))
            base = [statistics.median(column) for column in zip(*found["HTA"], strict=True)]
            for tool, runs in found.items():
                seconds, peaks = zip(*runs, strict=True)
                middle, peak = statistics.median(seconds), statistics.median(peaks)
                print(
                    f"{trace.name.split('.')[0]:<32}{tool:<10}{middle:>9.3f}{min(seconds):>8.3f}{peak:>10.0f}"
                    f"{base[0] / middle:>7.1f}x{peak / base[1]:>8.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
