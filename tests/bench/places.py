"""What the aligned profile finds in recordings of record.py: false alarms, delays, their places and sizes.

    python tests/bench/places.py DIR [DIR...] [--draws 100] [--write]

Ten identical runs are the baseline, three of a fault the candidate, drawn at random; in `slow` rows the
baseline comes from the half of the identical runs whose hosts were fastest, the candidate's are the slowest
of the fault. `place` is the share of findings that hold the position most of them name; `size` the growth
that the report gives, beside what was asked for where a fault is a delay.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent))
import campaign
import doc_tables

from ai_prof.gate.metrics import METRICS
from ai_prof.gate.profile import Aspect, Compared, compare

if TYPE_CHECKING:
    from ai_prof.timeline.profile import Profile

FLOORS: dict[Aspect, float] = {
    "host": METRICS["host_profile"].floor.absolute,
    "host_slow": METRICS["host_profile"].floor.absolute,
    "kernel": METRICS["kernel_profile"].floor.absolute,
}
DELAY_US = 100.0  # of the workloads' faults `delay` and `delay_mid` at strength 1
HEAD = ("workload", "fault", "hosts", "found", "felt", "between", "place", "size, us", "asked for", "worst T")


@dataclass
class Found:
    """What some comparisons of one fault gave."""

    draws: int = 0
    hits: int = 0
    felt: int = 0
    worst: float = 0.0
    places: Counter[int] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    sizes: list[float] = field(default_factory=list)

    def add(self, seen: list[Compared]) -> None:
        self.draws += 1
        self.worst = max([self.worst, *(each.t / each.critical for each in seen)])
        findings = [each.finding for each in seen if each.finding]
        if findings:
            best = max(findings, key=lambda finding: finding.t)
            self.hits += 1
            self.felt += best.felt
            self.places.update(best.positions)
            self.names[f"{best.before} and {best.at}"] += 1
            self.sizes.append(best.size_us)

    def row(self, workload: str, fault: str, hosts: str) -> list[str]:
        bound = float(stats.beta.ppf(0.95, self.hits + 1, self.draws - self.hits)) if not fault else None
        said = doc_tables.percent(self.hits, self.draws) + (
            "" if bound is None else f" ({100 * bound:.0f} %)"
        )
        name, _, strength = fault.partition("+")[0].partition("=")
        asked = f"{DELAY_US * float(strength or 1):.0f}" if name in {"delay", "delay_mid"} else "-"
        tail = ["-"] * 4
        if self.hits:
            most = self.places.most_common(1)[0][1]
            low, middle, high = np.quantile(self.sizes, (0.1, 0.5, 0.9))
            between = self.names.most_common(1)[0][0]
            place = doc_tables.percent(most, self.hits)
            tail = [
                f"{100 * self.felt / self.hits:.0f} %",
                between,
                place,
                f"{middle:.0f} ({low:.0f} - {high:.0f})",
            ]
        return [workload, fault or "none", hosts, said, *tail, asked, f"{self.worst:.2f}"]


def host_time(profile: Profile) -> float:
    """What the host took for an iteration, us: a run's speed."""
    return float(np.nansum(np.exp(profile.values[1].astype(np.float64))))


def draw(source: campaign.Recorded, fault: str, hosts: str, rng: np.random.Generator) -> list[Compared]:
    """One comparison."""
    same, slowed = (
        [source.profiles[run.profile] for run in source.runs[kind] if run.profile in source.profiles]
        for kind in ("", fault)
    )
    if hosts == "slow":
        same.sort(key=host_time)
        slowed.sort(key=host_time)
        half = len(slowed) // 2 if not fault else max(0, len(slowed) - campaign.CANDIDATE - 1)
        old, new = same[: (len(same) + 1) // 2], slowed[half:]
    else:
        old, new = same, slowed
    chosen = [new[i] for i in rng.permutation(len(new))[: campaign.CANDIDATE].tolist()]
    left = [profile for profile in old if not any(profile is one for one in chosen)]
    return compare(
        [left[i] for i in rng.permutation(len(left))[: campaign.BASELINE].tolist()], chosen, FLOORS
    )


def rows(source: campaign.Recorded, draws: int) -> list[list[str]]:
    """The table's rows of one workload, without a fault first."""
    made = []
    for fault in ("", *source.faults):
        for hosts in ("any", "slow"):
            found, rng = Found(), np.random.default_rng(0)
            for _ in range(draws):
                found.add(draw(source, fault, hosts, rng))
            made.append(found.row(source.name, fault, hosts))
    return made


def main() -> None:
    """Print the table."""
    options = campaign.arguments(__doc__, folders="+")
    made = [row for source in campaign.recorded(options.folders) for row in rows(source, options.draws)]
    text = doc_tables.table(HEAD, made)
    print(text)
    if options.write:
        doc_tables.write("table: places, recorded", text)


if __name__ == "__main__":
    main()
