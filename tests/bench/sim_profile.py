"""How often the aligned profile flags: without any change, and with a host delay at one place.

Simulated runs: a speed of the host per run and thread, heavy tails, correlated positions. Prints, per program
and number of baseline runs, false alarms per comparison of three candidate runs with their 95 % bound, the
share of delays found at the right position, at the start and in the middle of an iteration, and by how much
the size they are given is off (the median over those found).
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))
from gate_profiles import Program, decode, train

from ai_prof.gate.profile import Compared, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOORS = {"host": 20.0, "host_slow": 20.0, "kernel": 20.0}
DELAYS = (50.0, 100.0, 300.0)


def found(results: list[Compared], place: int) -> float | None:
    """The size given to the host's delay, us, where it was flagged where it is; None where it was not."""
    found = [result.finding for result in results if result.aspect != "kernel" and result.finding]
    return next((finding.size_us for finding in found if place in finding.positions), None)


def draw(program: Program, baseline: int, mode: str, delays: dict[int, float] | None) -> list[Compared]:
    """One baseline and three candidate runs; in `slow` mode all of those are slow, all of it fast."""
    sd = program.speed_sd
    if mode == "slow":
        old = [program.run(speed=-abs(program.rng.normal(0, sd))) for _ in range(baseline)]
        new = [program.run(speed=abs(program.rng.normal(0, sd)), delays=delays) for _ in range(3)]
    else:
        old, new = program.runs(baseline), program.runs(3, delays=delays)
    return compare(old, new, FLOORS)


HEAD = (
    "program, spread of hosts", "hosts", "baseline runs", "false alarms (95 % bound)", "worst T",
    "+50 us, start / middle", "+100 us", "+300 us", "size off",
)  # fmt: skip


def rows(draws: int) -> Iterator[list[str]]:
    """The table's rows, one for each program, choice of hosts and number of baseline runs."""
    for name, make in (("decode, 32 %", decode), ("train, 12 %", train)):
        for mode in ("same", "slow"):
            for baseline in (3, 6, 10, 30):
                yield row(name, make, mode, baseline, draws)


def row(name: str, make: Callable[[int], Program], mode: str, baseline: int, draws: int) -> list[str]:
    """One line: false alarms, and detection."""
    null = [draw(make(seed), baseline, mode, None) for seed in range(draws)]
    alarms = sum(any(result.finding for result in results) for results in null)
    bound = float(stats.beta.ppf(0.95, alarms + 1, draws - alarms)) if alarms < draws else 1.0
    worst = max(result.t / result.critical for results in null for result in results)
    cells, off = [], []
    for delay in DELAYS:
        shares = []
        for start in (True, False):
            hits = []
            for seed in range(draws // 4):
                program = make(draws + seed)
                place = 0 if start else program.positions // 2
                hits.append(found(draw(program, baseline, mode, {place: delay}), place))
            sizes = [size for size in hits if size is not None]
            shares.append(100 * len(sizes) / len(hits))
            off += [abs(size / delay - 1) for size in sizes]
        cells.append(f"{shares[0]:.0f} / {shares[1]:.0f} %")
    said = f"{100 * alarms / draws:.1f} % ({100 * bound:.1f} %)"
    return [name, mode, str(baseline), said, f"{worst:.2f}", *cells, f"{100 * statistics.median(off):.0f} %"]
