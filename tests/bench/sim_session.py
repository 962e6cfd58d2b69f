"""How often the screen flags within one session, where nothing changed and where something did.

The launches are those of `sim_totals.py`; their session is in both sides, and so in neither. Prints how often
one workload of five metrics is flagged against three launches and ten, and the least change of latency that
the screen says it would find.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from doc_tables import percent
from scipy import stats
from sim_totals import CENTRES, RUNS, TIMES, Farm, Setting, runs

from ai_prof.gate import decide, screen
from ai_prof.gate.metrics import Rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ai_prof.gate.model import WorkloadVerdict

BASELINES = (3, 10)
EFFECTS = (0.05, 0.10, 0.20, 0.50)
SETTINGS = [
    Setting("0.3 %", 0, 0.003),
    Setting("2 %", 0, 0.02),
    Setting("2 %, 10 % of launches slow", 0, 0.02, slow=0.1),
    Setting("2 %, t with 3 df", 0, 0.02, tails=3.0),
    Setting("15 %", 0, 0.15),
    Setting("two speeds 1.7x apart", 0, 0.01, modes=1.7),
]
HEAD = (
    "sd of launches", "baseline runs", "flagged (95 % bound)", "says it finds, median",
    *(f"+{100 * effect:.0f} %" for effect in EFFECTS),
)  # fmt: skip


def rows(builds: int) -> Iterator[list[str]]:
    """One for each setting and size of the baseline: `builds` without a change, a quarter for each effect."""
    for number, setting in enumerate(SETTINGS):
        for count in BASELINES:
            null = list(screened(setting, count, builds, 0.0, 5000 + number))
            hits = sum(verdict.flagged for verdict in null)
            bound = float(stats.beta.ppf(0.95, hits + 1, builds - hits))
            moved = [list(screened(setting, count, builds // 4, e, 6000 + number)) for e in EFFECTS]
            yield [
                setting.name,
                str(count),
                f"{percent(hits, builds)} ({100 * bound:.1f} %)",
                f"{100 * float(np.median([finds(verdict) for verdict in null])):.0f} %",
                *(f"{np.mean([verdict.flagged for verdict in verdicts]):.2f}" for verdicts in moved),
            ]


def screened(
    setting: Setting, count: int, builds: int, effect: float, seed: int
) -> Iterator[WorkloadVerdict]:
    """Screens of one workload whose times grew by `effect`."""
    farm, priors = Farm(setting, seed), screen.table_priors("cuda")
    for _ in range(builds):
        old, new = farm.launches(count), farm.launches(RUNS) + math.log1p(effect) * TIMES
        yield decide.screen_workload(
            "w", runs("w", old, "now"), runs("w", new, "now", count), rules=Rules(), priors=priors
        )


def finds(verdict: WorkloadVerdict) -> float:
    """The least change of latency that is found in 80 % of cases, as the verdict says."""
    cell = next(cell for cell in verdict.cells if cell.metric == next(iter(CENTRES)))
    return math.nan if cell.mde is None else cell.mde
