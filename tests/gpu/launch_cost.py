"""Prints what a capture costs a launch: interleaved runs, the smallest of each, in us and as a ratio.

Usage: python tests/gpu/launch_cost.py [ROUNDS]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from gpu_runs import captured, start


def measure(rounds: int) -> dict[str, float]:
    """The smallest cost of a launch in us, by level; the levels take turns, as the host is noisy."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for level in ("none", "kernel", "api"):
            with tempfile.TemporaryDirectory() as folder:
                if level == "none":
                    done = start("tiny.py")
                    done.check_returncode()
                else:
                    _, done = captured(Path(folder) / "capture", "tiny.py", level=level)
            best[level] = min(best.get(level, float("inf")), float(done.stdout))
    return best


def main() -> None:
    """Measure and print."""
    best = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    print(f"{'capture':<10}{'us a launch':>12}{'ratio':>8}")
    for level, cost in best.items():
        print(f"{level:<10}{cost:>12.2f}{cost / best['none']:>8.2f}")


if __name__ == "__main__":
    main()
