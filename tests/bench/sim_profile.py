"""How often the aligned profile flags: without any change, and with a host delay at one place.

Simulated runs: a speed of the host per run and thread, heavy tails, correlated positions. Prints, per program
and number of baseline runs, false alarms per comparison of three candidate runs with their 95 % bound, the
share of delays found at their position, at the start and in the middle of an iteration, and of those found
the shares that are given that position alone, and a size within 15 % or 10 us of the delay.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))
from gate_profiles import Program, decode, train

from ai_prof.gate.profile import Aspect, Compared, Finding, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOORS: dict[Aspect, float] = {"host": 20.0, "host_slow": 20.0, "kernel": 20.0}
DELAYS = (50.0, 100.0, 300.0)


def found(results: list[Compared], place: int) -> Finding | None:
    """What was flagged of the host's time where the delay is; None where nothing was."""
    flagged = [result.finding for result in results if result.aspect != "kernel" and result.finding]
    return next((finding for finding in flagged if place in finding.positions), None)


def about(size_us: float, delay: float) -> bool:
    """Whether the size that a delay is given is near enough to act on."""
    return abs(size_us - delay) <= max(0.15 * delay, 10.0)


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
    "+50 us, start / middle", "+100 us", "+300 us", "place alone", "size, start / middle",
)  # fmt: skip


def rows(draws: int) -> Iterator[list[str]]:
    """The table's rows, one for each program, choice of hosts and number of baseline runs."""
    for name, make in (("decode, 32 %", decode), ("train, 12 %", train)):
        for mode in ("same", "slow"):
            for baseline in (3, 6, 10):
                yield row(name, make, mode, baseline, draws)


def row(name: str, make: Callable[[int], Program], mode: str, baseline: int, draws: int) -> list[str]:
    """One line: false alarms, and detection."""
    null = [draw(make(seed), baseline, mode, None) for seed in range(draws)]
    alarms = sum(any(result.finding for result in results) for results in null)
    bound = float(stats.beta.ppf(0.95, alarms + 1, draws - alarms)) if alarms < draws else 1.0
    worst = max(result.t / result.critical for results in null for result in results)
    cells: list[str] = []
    alone: list[bool] = []
    right: dict[bool, list[bool]] = {True: [], False: []}
    for delay in DELAYS:
        shares = []
        for start in (True, False):
            hits = []
            for seed in range(draws // 4):
                program = make(draws + seed)
                place = 0 if start else program.positions // 2
                hit = found(draw(program, baseline, mode, {place: delay}), place)
                hits.append(hit is not None)
                if hit is not None:
                    alone.append(hit.positions == (place,))
                    right[start].append(about(hit.size_us, delay))
            shares.append(share(hits))
        cells.append(f"{shares[0]:.0f} / {shares[1]:.0f} %")
    said = f"{100 * alarms / draws:.1f} % ({100 * bound:.1f} %)"
    sizes = f"{share(right[True]):.0f} / {share(right[False]):.0f} %"
    return [name, mode, str(baseline), said, f"{worst:.2f}", *cells, f"{share(alone):.0f} %", sizes]


def share(yes: list[bool]) -> float:
    """How many of them are true, per cent."""
    return 100 * sum(yes) / len(yes)
