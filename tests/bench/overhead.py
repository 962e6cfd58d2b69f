"""What a capture costs: time per iteration of each workload with and without it, interleaved rounds.

The time is the program's own, its median iteration on the host's clock. Prints medians and minima over the
rounds and their ratios to no capture.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ai_prof.collect.environment import capture_environment
from ai_prof.runs.interpreter import choose, requirements
from ai_prof.runs.workloads import Workload, find, select

ROOT = Path(__file__).parents[2]
MODES = ("nothing", "kernel", "api")


def iteration_ms(workload: Workload, python: str, mode: str) -> float:
    """Run one process; the median iteration that it measured itself."""
    command = [python if word == "python" else word for word in workload.command]
    env = dict(os.environ) | workload.env
    with tempfile.TemporaryDirectory() as folder:
        if mode != "nothing":
            env = capture_environment(Path(folder), mode, env)
        done = subprocess.run(
            command, cwd=workload.folder, env=env, check=True, stdout=subprocess.PIPE, text=True
        )
    return float(json.loads(done.stdout.splitlines()[-1])["iteration_us"]) / 1e3


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("workload", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
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
                times[mode].append(iteration_ms(workload, python, mode))
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
