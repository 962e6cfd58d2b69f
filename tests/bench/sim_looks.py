"""What a second look at more launches finds beyond the first: shifts in spreads of a single launch.

One flagged workload of three correlated metrics that may fail it, all of which the shift moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from doc_tables import percent

from ai_prof.gate import confirm, decide

if TYPE_CHECKING:
    from collections.abc import Iterator

METRICS, CORRELATION = 3, 0.6
SHIFTS = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0)
HEAD = ("shift, spreads of a launch", "one look at 6", "both looks", "launches a side")


def rows(draws: int) -> Iterator[list[str]]:
    """The table's rows: how often a workload fails by one look at alpha, and by two that share it."""
    plan = confirm.plan(1)
    spread = np.full((METRICS, METRICS), CORRELATION) + (1 - CORRELATION) * np.eye(METRICS)
    mix = np.linalg.cholesky(spread)
    for shift in SHIFTS:
        rng = np.random.default_rng(int(10 * shift))
        one = both = launches = 0
        for _ in range(draws):
            base, head = mix @ rng.normal(size=(2, METRICS, confirm.MAX_LAUNCHES))
            first = smallest_p(base, head + shift, plan.launches)
            p = confirm.LOOKS * first
            again = plan.alpha < p <= decide.NEAR
            if again:
                p = min(p, confirm.LOOKS * smallest_p(base, head + shift, confirm.MAX_LAUNCHES))
            one += first <= plan.alpha
            both += p <= plan.alpha
            launches += confirm.MAX_LAUNCHES if again else plan.launches
        yield [f"{shift:g}", percent(one, draws), percent(both, draws), f"{launches / draws:.1f}"]


def smallest_p(base: np.ndarray, head: np.ndarray, launches: int) -> float:
    """The smallest joint p of metrics, (METRICS, launches) a side, by the first `launches`."""
    values = np.concatenate((base[:, :launches], head[:, :launches]), axis=1)
    _, joint = confirm.max_t(values, launches, np.ones(METRICS, np.int64))
    return float(joint.min())
