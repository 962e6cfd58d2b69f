"""docs/overhead.md, from what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minima import added, ratio, ratio_of_added

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Rounds = Mapping[str, Sequence[float]]
    Figure = tuple[float, tuple[float, float]]


METHOD = """\
Written by `nox -s bench`. Every figure is the minimum over {rounds} interleaved rounds of fresh processes,
or a difference of two such minima, with the 90 % interval of a bootstrap over the rounds: a host is only ever
slowed down by what else runs on it. The floor is a bare CUPTI client that asks for the same records with the
same attributes and flushes, and gives its buffers back unread (`capture/tests/floor.cpp`)."""


@dataclass(frozen=True)
class Facts:
    """What the page says besides figures; `busy` is the share of the step that the device works."""

    about: list[str]
    rounds: int
    date: str
    busy: float | None


@dataclass(frozen=True)
class Section:
    """One program: its measures by title, and what is wanted of it."""

    title: str
    measures: dict[str, str]
    goals: Callable[[Mapping[str, Rounds]], list[tuple[str, Figure, float]]]


def page(columns: Mapping[str, Rounds], facts: Facts, sections: Sequence[Section]) -> str:
    """The whole page, in Markdown."""
    lines = [
        "# What a capture costs",
        "",
        METHOD.format(rounds=facts.rounds),
        "",
        f"{'; '.join(facts.about)}. {facts.date}.",
    ]
    for section in sections:
        lines += ["", f"## {section.title}"]
        for measure, title in section.measures.items():
            lines += ["", title.format(busy=facts.busy), "", *_table(columns[measure])]
        lines += ["", "| wanted | measured | |", "|---|---|---|"]
        lines += [_goal(*goal) for goal in section.goals(columns)]
    return "\n".join(lines) + "\n"


def _table(rounds: Rounds) -> list[str]:
    lines = ["| under | minimum | added | 90 % | of nothing | of its floor's |", "|---|---|---|---|---|---|"]
    nothing = rounds["nothing"]
    for name, own in rounds.items():
        if name == "nothing":
            lines.append(f"| nothing | {min(own):.3f} | | | | |")
            continue
        more, (low, high) = added(nothing, own)
        floor = rounds.get(name.replace("ours", "floor", 1)) if name.startswith("ours") else None
        of_floor = "" if floor is None else _share(ratio_of_added(nothing, own, floor))
        share = f"{min(own) / min(nothing):.3f}"
        cells = (name, f"{min(own):.3f}", f"{more:+.3f}", f"{low:+.3f} to {high:+.3f}", share, of_floor)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _share(figure: Figure) -> str:
    value, (low, high) = figure
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def _goal(text: str, figure: Figure, bound: float) -> str:
    verdict = "met" if figure[0] <= bound else "no figure" if math.isnan(figure[0]) else "**not met**"
    return f"| {text} | {_share(figure)} | {verdict} |"


def _launch_goals(columns: Mapping[str, Rounds]) -> list[tuple[str, Figure, float]]:
    goals = []
    for measure, graphs in (("launch_us", "node"), ("graph_us", "node"), ("graph_us", "graph")):
        rounds = columns[measure]
        what = "a launch" if measure == "launch_us" else f"a graph launch at graph level {graphs}"
        for level in ("kernel", "api"):
            own, floor = rounds[f"ours {level} {graphs}"], rounds[f"floor {level} {graphs}"]
            text = f"{what}, level {level}: added at most 1.15 of what the floor adds"
            goals.append((text, ratio_of_added(rounds["nothing"], own, floor), 1.15))
    rounds = columns["launch_us"]
    for state in ("after its window", "standing by"):
        figure = ratio(rounds["nothing"], rounds[f"ours, {state}"])
        goals.append((f"{state}: at most 1.05 of never captured", figure, 1.05))
    return goals


def _torch_goals(columns: Mapping[str, Rounds]) -> list[tuple[str, Figure, float]]:
    tiny, step = columns["tiny_us"], columns["step_ms"]
    of_theirs = ratio_of_added(tiny["nothing"], tiny["ours, api"], tiny["torch.profiler, CUDA"])
    goals = [("tiny operations, level api: added below 0.6 of torch.profiler's, CUDA alone", of_theirs, 0.6)]
    for level in ("kernel", "api"):
        slowed = ratio(step["nothing"], step[f"ours, {level}"])
        goals.append(
            (f"a step that keeps the device busy, level {level}: slowed by less than 1 %", slowed, 1.01)
        )
    return goals


LAUNCH_LOOP = Section(
    "A launch loop in C++",
    {
        "launch_us": "Empty kernels, a synchronize every 500; us a launch:",
        "graph_us": "CUDA graphs of 20 empty kernels, a synchronize every 25; us a graph launch:",
    },
    _launch_goals,
)
TORCH = Section(
    "PyTorch",
    {
        "tiny_us": "Eager operations on 16 numbers, a synchronize every 500; us an operation:",
        "step_ms": "A training step that keeps the device busy for {busy:.1%} of its time; ms:",
    },
    _torch_goals,
)
