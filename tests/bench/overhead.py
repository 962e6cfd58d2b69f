"""What a capture costs: time per iteration of each workload with and without it, interleaved rounds.

The time of an iteration is the difference between a long and a short process over the difference of
their iterations, so that starting up and importing cancel out. Prints medians, minima and their ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ai_prof.collect.environment import capture_environment
from ai_prof.runs.interpreter import choose, requirements
from ai_prof.runs.workloads import Workload, find, select

ROOT = Path(__file__).parents[2]
MODES = ("nothing", "kernel", "api")


def seconds(workload: Workload, python: str, mode: str, iterations: int) -> float:
    """Wall time of one process."""
    command = [python if word == "python" else word for word in workload.command]
    env = dict(os.environ) | workload.env
    with tempfile.TemporaryDirectory() as folder:
        if mode != "nothing":
            env = capture_environment(Path(folder), mode, env)
        start = time.perf_counter()
        subprocess.run(
            [*command, "--iterations", str(iterations)],
            cwd=workload.folder,
            env=env,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - start


def iteration_ms(workload: Workload, python: str, mode: str, short: int, long: int) -> float:
    """Time of one iteration, start-up taken out."""
    spent = seconds(workload, python, mode, long) - seconds(workload, python, mode, short)
    return 1e3 * spent / (long - short)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", type=int, default=20)
    parser.add_argument("--long", type=int, default=120)
    parser.add_argument("--python")
    args = parser.parse_args()
    print(
        f"{'workload':<16}{'capture':<10}{'median ms':>11}{'min ms':>9}{'median ratio':>14}{'min ratio':>11}"
    )
    for workload in select(find(ROOT / "workloads"), args.workload):
        python = choose(workload, args.python)
        if unmet := requirements(workload, python):
            sys.stderr.write(f"{workload.name}: skipped: {'; '.join(unmet)}\n")
            continue
        times: dict[str, list[float]] = {mode: [] for mode in MODES}
        for _ in range(args.rounds):
            for mode in MODES:
                times[mode].append(iteration_ms(workload, python, mode, args.short, args.long))
        base = times["nothing"]
        for mode, own in times.items():
            middle, least = statistics.median(own), min(own)
            print(
                f"{workload.name:<16}{mode:<10}{middle:>11.3f}{least:>9.3f}"
                f"{middle / statistics.median(base):>14.3f}{least / min(base):>11.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
