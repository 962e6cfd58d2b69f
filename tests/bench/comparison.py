"""docs/comparison.md: ai-prof beside other tools on the same work, from the figures that other scripts kept.

    python tests/bench/comparison.py

Capture cost is of launch_overhead.py, the speed of analysis of readers.py: both keep raw figures in figures/.
The gate's rows are of the tables that peers.py wrote into docs/gate.md. What was not measured is said to be.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
import doc_tables
from minima import added, least, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minima import Column

ROOT = Path(__file__).parents[2]
FIGURES = Path(__file__).parent / "figures"
PAGE = ROOT / "docs" / "comparison.md"
NOT_MEASURED = "not measured"
HEAD = """\
# Beside other tools

The same work under ai-prof and under others, measured. Written by `nox -s comparison` from the figures of
`nox -s bench`, `nox -s bench-readers` and `tests/bench/peers.py`. What the figures mean, and how the others
define theirs: [metrics](metrics.md)."""

# Of launch_overhead.py: what a loop ran under, by the name it is shown with.
WATCHED = {
    "ai-prof, level kernel": "ours, kernel",
    "ai-prof, level api": "ours, api",
    "torch.profiler, CUDA alone": "torch.profiler, CUDA",
    "torch.profiler, CPU and CUDA": "torch.profiler, CPU and CUDA",
    "cupti-python": "cupti-python",
    "Nsight Systems": "Nsight Systems",
}
COST_HEAD = ("capture", "added to a tiny operation, us", "90 %", "a busy step, of none", "90 %")
SPEED_HEAD = ("trace", "tool", "s", "processor's s", "MiB")
GATE_HEAD = ("rule", "simulated: alarms", "found", "recorded: alarms", "found")

# What a tool is not for, by its own documentation.
LIMITS = (
    (
        "ai-prof",
        "counts no instructions and no bytes of memory; records no operators of a framework; sees no network",
    ),
    ("torch.profiler", "is called by the program; sees PyTorch alone; compares and decides nothing"),
    ("cupti-python", "is a binding: the program, or a tool yet to be written, calls it; analyses nothing"),
    ("Nsight Systems", "starts the program that it traces; passes and fails no build"),
    (
        "HolisticTraceAnalysis",
        "records nothing; reads torch.profiler's traces alone; passes and fails no build",
    ),
    (
        "TraceLens",
        "records nothing; passes and fails no build; not on PyPI, where other projects have its name",
    ),
    (
        "pytest-benchmark, asv, benchstat, rustc-perf",
        "time what they call: no kernel, gap or cause; their rules, on the same runs, are in the table above",
    ),
)


def page(overhead: Mapping[str, Any] | None, readers: Mapping[str, Any] | None, gate: str) -> str:
    """The whole page; None stands for what was not measured, `gate` is docs/gate.md."""
    parts = [HEAD, "## What a capture costs", *cost(overhead), "## How fast a trace is read", *speed(readers)]
    rows = rules(gate)
    parts += ["## What three runs tell", GATE, doc_tables.table(GATE_HEAD, rows) if rows else NOT_YET]
    parts += ["## What each can't do", doc_tables.table(("tool", "limits"), LIMITS)]
    return "\n\n".join(parts) + "\n"


NOT_YET = "Not measured yet."
GATE = """\
Ten stored runs and three new ones of a program, by each tool's rule; in the last row fresh runs as well.
*Alarms* is the largest share of builds without a change over the programs, *found* the mean share over them
and their faults, some of which no iteration is longer for: of these ours only warns. One by one:
[the gate's mathematics](gate.md#6-beside-other-tools-rules)."""


def cost(raw: Mapping[str, Any] | None) -> list[str]:
    """What watchers add to an operation and to a step."""
    if raw is None:
        return [NOT_YET]
    columns = raw["columns"]
    rows = [
        [name, *_added(columns.get("tiny_us", {}), key), *_slowed(columns.get("step_ms", {}), key)]
        for name, key in WATCHED.items()
    ]
    rounds = max(len(values) for column in columns.values() for values in column.values())
    torch = f"PyTorch {raw['torch']}" if raw["torch"] else "without PyTorch"
    about = f"{raw['machine']}; CUPTI of {raw['cupti']}; {torch}. {rounds} rounds, {raw['date']}."
    return [f"{about} The launch loop in C++, and its floor: [what a capture costs](overhead.md).",
            doc_tables.table(COST_HEAD, rows)]  # fmt: skip


def _added(column: Mapping[str, Column], key: str) -> tuple[str, str]:
    if math.isnan(least(column.get(key, ()))):
        return NOT_MEASURED, ""
    more, (low, high) = added(column["nothing"], column[key])
    return f"{more:+.2f}", f"{low:+.2f} to {high:+.2f}"


def _slowed(column: Mapping[str, Column], key: str) -> tuple[str, str]:
    if math.isnan(least(column.get(key, ()))):
        return NOT_MEASURED, ""
    times, (low, high) = ratio(column["nothing"], column[key])
    return f"{times:.3f}", f"{low:.3f} to {high:.3f}"


def speed(raw: Mapping[str, Any] | None) -> list[str]:
    """How long tools take for busy and idle of a trace, and the memory they need."""
    if raw is None:
        return [NOT_YET]
    versions = raw["versions"]
    rows = [
        [
            trace,
            f"{tool} {versions[tool]}",
            f"{run['seconds']:.2f}",
            f"{run['cpu']:.2f}",
            f"{run['resident'] / 2**20:.0f}",
        ]
        for trace, tools in raw["traces"].items()
        for tool, run in tools.items()
    ]
    rows.append([NOT_MEASURED, "TraceLens", "", "", ""])
    about = f"Busy and idle of every device, imports not timed; {raw['cores']} cores, load {raw['load']}"
    return [f"{about}, {raw['date']}.", doc_tables.table(SPEED_HEAD, rows)]


def rules(gate: str) -> list[list[str]]:
    """A row for each rule, from the gate's own tables of simulated and of recorded programs."""
    made: dict[str, list[str]] = {}
    for marker in ("table: peers", "table: peers, recorded"):
        alarms: dict[str, list[float]] = {}
        found: dict[str, list[float]] = {}
        for (_, _, *faults), *rows in doc_tables.read(marker, gate).values():
            for rule, alarm, *cells in rows:
                alarms.setdefault(rule, []).append(_percent(alarm))
                # Other load on the host, and no fault beside it, is nothing to find.
                found.setdefault(rule, []).extend(
                    _percent(cell) for fault, cell in zip(faults, cells, strict=True) if fault[:1] != "+"
                )
        for rule, shares in found.items():
            share = f"{statistics.fmean(shares):.0f} %"
            made.setdefault(rule, [rule]).extend([f"{max(alarms[rule]):g} %", share])
    return list(made.values())


def _percent(cell: str) -> float:
    return float(cell.partition(" %")[0])


def load(name: str) -> Any:
    """Raw figures; None where there are none yet."""
    path = FIGURES / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def main() -> None:
    """Write the page."""
    gate = doc_tables.PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page(load("overhead.json"), load("readers.json"), gate), encoding="utf-8")


if __name__ == "__main__":
    main()
