"""What the reference workloads share: their command line and their last line."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Options:
    """A parsed command line. `strength` multiplies a fault's default size."""

    iterations: int
    fault: str | None
    strength: float
    workers: int = 0

    def dose(self, fault: str) -> float:
        """Return the strength of `fault`, 0 where it is not switched on."""
        return self.strength if self.fault == fault else 0.0


def parse(
    description: str | None, faults: dict[str, str], iterations: int, workers: int | None = None
) -> Options:
    """Read `[--regress FAULT[=STRENGTH]] [--iterations N]`; `faults` maps a name to its help text.

    With `workers`, their default number, there is `--workers N` as well. Ends the process with code 2 and one
    line on stderr where an argument is wrong.
    """
    names = ", ".join(sorted(faults))
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description=description,
        epilog="; ".join(f"{name}: {text}" for name, text in faults.items()),
    )
    parser.add_argument("--regress", metavar="FAULT[=STRENGTH]", help="switch a known slowdown on")
    parser.add_argument("--iterations", type=int, default=iterations, metavar="N")
    if workers is not None:
        parser.add_argument("--workers", type=int, default=workers, metavar="N", help="that load data")
    args = parser.parse_args()
    if args.iterations < 1:
        parser.exit(2, f"{parser.prog}: --iterations must be at least 1, not {args.iterations}\n")
    number = 0 if workers is None else args.workers
    if number < 0:
        parser.exit(2, f"{parser.prog}: --workers must be 0 or more, not {number}\n")
    if args.regress is None:
        return Options(args.iterations, None, 0.0, number)
    fault, _, text = args.regress.partition("=")
    if fault not in faults:
        parser.exit(2, f"{parser.prog}: unknown fault {fault!r}; this workload knows: {names}\n")
    try:
        strength = float(text or 1)
    except ValueError:
        strength = -1.0
    if not 0 < strength < float("inf"):
        parser.exit(2, f"{parser.prog}: strength must be a number above 0, not {text!r}\n")
    return Options(args.iterations, fault, strength, number)


def busy(seconds: float) -> None:
    """Keep the host's thread at work for so long; so short a sleep would last as long as the kernel likes."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Loop:
    """Counts and times its iterations on the host's clock, from one `next` to the other."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seconds: list[float] = []

    def __iter__(self) -> Iterator[int]:
        """Yield 0, 1, ..."""
        for i in range(self.count):
            start = time.perf_counter()
            yield i
            self.seconds.append(time.perf_counter() - start)

    def report(self, launches: int | None = None) -> None:
        """Print the program's own figures as its last line: what a capture of it must agree with."""
        own = {"iterations": self.count, "iteration_us": round(1e6 * statistics.median(self.seconds))}
        if launches is not None:
            own["launches"] = launches
        sys.stdout.write(json.dumps(own) + "\n")
