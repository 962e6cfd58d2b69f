"""Our verdicts beside those of other tools' rules, on the same runs: false alarms, and what each finds.

    python tests/bench/peers.py                 # simulated programs
    python tests/bench/peers.py DIR [DIR...]    # recordings of record.py

Each rule compares ten stored runs with three new ones of one workload. The others' rules look at iteration
latency, as those tools would: a pool of iterations or one value a run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent))
import campaign
import doc_tables

from ai_prof.gate import decide, screen
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ai_prof.gate.model import Run, WorkloadVerdict


def latencies(runs: Sequence[Run]) -> np.ndarray:
    """One value a run."""
    return np.array([run.metrics["iteration_ms"] for run in runs], np.float64)


def pooled(runs: Sequence[Run]) -> np.ndarray:
    """All iterations of all runs."""
    return np.concatenate([run.iteration_ms for run in runs])


def growth(old: np.ndarray, new: np.ndarray) -> float:
    """By how much the median grew."""
    return float(np.median(new) / np.median(old) - 1)


def threshold(share: float) -> Callable[[campaign.Draw], bool]:
    """pytest-benchmark's `--benchmark-compare-fail=median:N%`, against all stored iterations."""
    return lambda draw: growth(pooled(draw.baseline), pooled(draw.candidate)) > share


def mann_whitney(values: Callable[[Sequence[Run]], np.ndarray]) -> Callable[[campaign.Draw], bool]:
    """benchstat's test, two-sided at 0.05, where the new values are larger."""

    def rule(draw: campaign.Draw) -> bool:
        old, new = values(draw.baseline), values(draw.candidate)
        return bool(growth(old, new) > 0 and stats.mannwhitneyu(old, new).pvalue < 0.05)

    return rule


def welch(draw: campaign.Draw) -> bool:
    """Welch's t on one value a run, two-sided at 0.05."""
    old, new = latencies(draw.baseline), latencies(draw.candidate)
    return bool(new.mean() > old.mean() and stats.ttest_ind(old, new, equal_var=False).pvalue < 0.05)


def asv(draw: campaign.Draw) -> bool:
    """`asv continuous`: Mann-Whitney on pooled samples at 0.002, and a ratio of medians above 1.1."""
    old, new = pooled(draw.baseline), pooled(draw.candidate)
    return bool(growth(old, new) > 0.1 and stats.mannwhitneyu(old, new).pvalue < 0.002)


def fence(draw: campaign.Draw) -> bool:
    """rustc-perf's: above the upper fence, Q3 + 3 IQR, of the relative changes from run to run."""
    old = latencies(draw.baseline)
    changes = np.abs(np.diff(old) / old[:-1])
    low, high = np.quantile(changes, (0.25, 0.75))
    return bool(np.median(latencies(draw.candidate)) / old[-1] - 1 > high + 3 * (high - low))


def screened(draw: campaign.Draw) -> WorkloadVerdict:
    """Ours after three runs: regressed by structure, or flagged."""
    return decide.screen_workload(
        "w", draw.baseline, draw.candidate, rules=Rules(), priors=screen.table_priors(draw.backend),
        profiles=draw.profiles,
    )  # fmt: skip


def flagged(draw: campaign.Draw) -> bool:
    """Ours, flagged by three runs."""
    verdict = screened(draw)
    return verdict.flagged or verdict.reason is Reason.REGRESSED


def noticed(draw: campaign.Draw) -> bool:
    """Ours, flagged or warned of: a delay of the host that the device never feels."""
    verdict = screened(draw)
    return flagged(draw) or any("warning" in cell.notes for cell in verdict.cells)


def ours(draw: campaign.Draw) -> bool:
    """Ours to the end: what was flagged, settled by fresh launches of base and head."""
    verdict = screened(draw)
    fresh = {"w": decide.Fresh(base=draw.base, head=draw.head)}
    priors = screen.table_priors(draw.backend)
    (settled,) = decide.settle([verdict], fresh, rules={}, priors=priors, profiles=draw.profiles)
    return settled.reason is Reason.REGRESSED


RULES: dict[str, Callable[[campaign.Draw], bool]] = {
    "median above 5 % (pytest-benchmark)": threshold(0.05),
    "median above 10 % (pytest-benchmark)": threshold(0.10),
    "Mann-Whitney on iterations, p < 0.05": mann_whitney(pooled),
    "Mann-Whitney on runs, p < 0.05 (benchstat)": mann_whitney(latencies),
    "Welch's t on runs, p < 0.05": welch,
    "asv: p < 0.002 and above 10 %": asv,
    "rustc-perf's fence": fence,
    "**ours, three runs: warned or flagged**": noticed,
    "**ours, three runs: flagged**": flagged,
    "**ours, fresh runs: failed**": ours,
}


def rows(source: campaign.Source, draws: int) -> list[list[str]]:
    """A row for each rule: false alarms with their bound, and the share found of each fault."""
    kinds = (None, *source.faults)
    hits = {name: dict.fromkeys(kinds, 0) for name in RULES}
    for number, kind in enumerate(kinds):
        for i in range(draws):
            draw = source.draw(10_000 * number + i, kind)
            for name, rule in RULES.items():
                hits[name][kind] += rule(draw)
    made = []
    for name, mine in hits.items():
        alarms = mine[None]
        bound = float(stats.beta.ppf(0.95, alarms + 1, draws - alarms)) if alarms < draws else 1.0
        found = (f"{100 * mine[kind] / draws:.0f} %" for kind in source.faults)
        made.append([name, f"{doc_tables.percent(alarms, draws)} ({100 * bound:.0f} %)", *found])
    return made


def main() -> None:
    """Print a table for each workload."""
    options = campaign.arguments(__doc__, folders="*")
    made = []
    sources = campaign.recorded(options.folders) if options.folders else campaign.simulated()
    for source in sources:
        head = ("rule", "false alarms (bound)", *source.faults)
        made.append(f"{source.name}\n\n{doc_tables.table(head, rows(source, options.draws))}\n")
        print(made[-1], flush=True)
    if options.write:
        doc_tables.write("table: peers, recorded" if options.folders else "table: peers", "\n".join(made))


if __name__ == "__main__":
    main()
