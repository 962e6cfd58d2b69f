"""docs/overhead.md, and the page of what each kind of record costs, from what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minima import added, least, median, ratio, ratio_by_round, ratio_of_added

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from minima import Column, Figure

    Rounds = Mapping[str, Column]
    Goal = tuple[str, Figure, float]


METHOD = """\
Every figure is the minimum over {rounds} interleaved rounds of fresh processes,
or a difference of two such minima, with the 90 % interval of a bootstrap over the rounds: a host is only ever
slowed down by what else runs on it. Beside it stand the median over the rounds, and the median of what a
program took in units of what nothing took in the same round. The floor is a bare CUPTI client that asks for
the same records with the same attributes and flushes, and gives its buffers back unread
(`capture/tests/floor.cpp`)."""


@dataclass(frozen=True)
class Head:
    """How a page begins."""

    title: str
    written: str  # by what, and what it shows


@dataclass(frozen=True)
class Facts:
    """What the page says besides figures; `busy` is the share of the step that the device works."""

    about: list[str]
    rounds: int
    date: str
    busy: float | None


def _no_goals(_: Mapping[str, Rounds]) -> list[Goal]:
    return []


def _untold(_: Mapping[str, Rounds]) -> str:
    return ""


@dataclass(frozen=True)
class Section:
    """One program: its measures by title, what a row is held against, what is wanted, and all in short."""

    title: str
    measures: dict[str, str]
    against: str
    reference: Callable[[str], str | None]
    goals: Callable[[Mapping[str, Rounds]], list[Goal]] = _no_goals
    short: Callable[[Mapping[str, Rounds]], str] = _untold


def page(head: Head, columns: Mapping[str, Rounds], facts: Facts, sections: Sequence[Section]) -> str:
    """The whole page, in Markdown."""
    busy = "an unknown part" if facts.busy is None else f"{facts.busy:.1%}"
    shorts = [text for section in sections if (text := section.short(columns))]
    lines = [
        f"# {head.title}",
        *(["", *shorts] if shorts else []),
        "",
        head.written,
        METHOD.format(rounds=facts.rounds),
        "",
        f"{'; '.join(facts.about)}. {facts.date}.",
    ]
    for section in sections:
        lines += ["", f"## {section.title}"]
        for measure, title in section.measures.items():
            lines += ["", title.format(busy=busy), "", *_table(columns[measure], section)]
            lines += _failures(columns[measure])
        if goals := section.goals(columns):
            lines += ["", "| wanted | measured | |", "|---|---|---|", *(_goal(*goal) for goal in goals)]
    return "\n".join(lines) + "\n"


def _table(rounds: Rounds, section: Section) -> list[str]:
    lines = [
        f"| under | minimum | median | added | 90 % | of nothing | in its round | {section.against} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    nothing = rounds["nothing"]
    for name, own in rounds.items():
        if name == "nothing" or math.isnan(least(own)):
            said = "no figure | " if math.isnan(least(own)) else f"{least(own):.3f} | {median(own):.3f}"
            lines.append(f"| {name} | {said} | | | | | |")
            continue
        more, (low, high) = added(nothing, own)
        reference = rounds.get(section.reference(name) or "")
        of_reference = _of_reference(nothing, own, reference) if reference else ""
        share = f"{ratio(nothing, own)[0]:.3f}"
        size = (name, f"{least(own):.3f}", f"{median(own):.3f}", f"{more:+.3f}", f"{low:+.3f} to {high:+.3f}")
        in_round = f"{ratio_by_round(nothing, own):.3f}"
        lines.append(f"| {' | '.join((*size, share, in_round, of_reference))} |")
    return lines


def _of_reference(nothing: Column, own: Column, reference: Column) -> str:
    """What `own` adds in units of what `reference` adds; empty where that may be nothing."""
    _, (low, _) = added(nothing, reference)
    return _share(ratio_of_added(nothing, own, reference)) if not low <= 0 else ""


def _failures(rounds: Rounds) -> list[str]:
    """What a reader must know of the columns that have not all rounds."""
    missing = {name: own.count(None) for name, own in rounds.items()}
    told = [
        f"{name}, {len(rounds[name]) - count} of {len(rounds[name])}"
        for name, count in missing.items()
        if count
    ]
    return ["", f"With figures of fewer rounds: {'; '.join(told)}."] if told else []


def _share(figure: Figure) -> str:
    value, (low, high) = figure
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _goal(text: str, figure: Figure, bound: float) -> str:
    verdict = "met" if figure[0] <= bound else "no figure" if math.isnan(figure[0]) else "**not met**"
    return f"| {text} | {_share(figure)} | {verdict} |"


def _launch_goals(columns: Mapping[str, Rounds]) -> list[Goal]:
    goals = []
    for measure, graphs in (("launch_us", "node"), ("graph_us", "node"), ("graph_us", "graph")):
        rounds = columns[measure]
        what = "a launch" if measure == "launch_us" else f"a graph launch at graph level {graphs}"
        for level in ("kernel", "api"):
            own, floor = rounds[f"ours {level} {graphs}"], rounds[f"floor {level} {graphs}"]
            text = f"{what}, level {level}: added at most 1.15 of what the floor adds"
            goals.append((text, ratio_of_added(rounds["nothing"], own, floor), 1.15))
    for measure, what in (("launch_us", "a launch"), ("graph_us", "a graph launch")):
        rounds = columns[measure]
        for state in ("ours kernel, after its window", "ours api, after its window", "ours, standing by"):
            figure = ratio(rounds["nothing"], rounds[state])
            goals.append((f"{what}, {state}: at most 1.05 of never captured", figure, 1.05))
    return goals


def _torch_goals(columns: Mapping[str, Rounds]) -> list[Goal]:
    tiny, step = columns["tiny_us"], columns["step_ms"]
    of_theirs = ratio_of_added(tiny["nothing"], tiny["ours, api"], tiny["torch.profiler, CUDA"])
    goals = [("tiny operations, level api: added below 0.6 of torch.profiler's, CUDA alone", of_theirs, 0.6)]
    for level in ("kernel", "api"):
        slowed = ratio(step["nothing"], step[f"ours, {level}"])
        goals.append(
            (f"a step that keeps the device busy, level {level}: slowed by less than 1 %", slowed, 1.01)
        )
    return goals


def _launch_short(columns: Mapping[str, Rounds]) -> str:
    launch, graph = columns["launch_us"], columns["graph_us"]
    kernel, api = (_more(launch, f"ours {level} node") for level in ("kernel", "api"))
    by_node, as_one = (_more(graph, f"ours kernel {level}") for level in ("node", "graph"))
    one, many = (f"{least(rounds['nothing']):.2f} us" for rounds in (launch, graph))
    return (
        f"While it is captured, a launch of {one} takes {kernel} us longer at level `kernel`, "
        f"{api} at `api`;\na CUDA graph of 20 kernels, {many}, {by_node} by node and {as_one} as one record."
    )


def _torch_short(columns: Mapping[str, Rounds]) -> str:
    tiny, step = columns["tiny_us"], columns["step_ms"]
    ours, theirs = (_more(tiny, name) for name in ("ours, kernel", "torch.profiler, CUDA"))
    slower = " and ".join(_slower(step, f"ours, {level}") for level in ("kernel", "api"))
    return (
        f"An eager operation of PyTorch, {least(tiny['nothing']):.2f} us, takes {ours} us longer, under "
        f"torch.profiler {theirs} for CUDA alone;\n"
        f"a training step that keeps the device busy, {slower} longer at the two levels."
    )


def _more(rounds: Rounds, name: str) -> str:
    """What a program takes longer than under nothing."""
    figure = added(rounds["nothing"], rounds[name])[0] if name in rounds else math.nan
    return "no figure" if math.isnan(figure) else f"{figure:.2f}"


def _slower(rounds: Rounds, name: str) -> str:
    """The same in per cent, by rounds: of a step, minima differ by more than what is looked for."""
    figure = ratio_by_round(rounds["nothing"], rounds[name]) if name in rounds else math.nan
    return "no figure" if math.isnan(figure) else f"{figure - 1:.1%}"


def _floor(name: str) -> str | None:
    """The floor of one of ours."""
    return name.replace("ours", "floor", 1) if name.startswith("ours") else None


def _whole(name: str) -> str | None:
    """What all kinds of a level cost together, of what a part of them costs."""
    level, comma, _ = name.partition(",")
    return level if comma else None


LAUNCHES = {"launch_us": "Empty kernels, a synchronize every 500; us a launch:"}
GRAPHS = {"graph_us": "CUDA graphs of 20 empty kernels, a synchronize every 25; us a graph launch:"}
TINY = {"tiny_us": "Eager operations on 16 numbers, a synchronize every 500; us an operation:"}
STEP = {"step_ms": "A training step that keeps the device busy for {busy} of its time; ms:"}

COST = Head("What a capture costs", "Written by `nox -s bench`.")
LOOP = Section(
    "A launch loop in C++", {**LAUNCHES, **GRAPHS}, "of its floor's", _floor, _launch_goals, _launch_short
)
TORCH = Section("PyTorch", {**TINY, **STEP}, "of its floor's", _floor, _torch_goals, _torch_short)

KINDS = Head(
    "What each kind of record costs",
    "Written by `tests/bench/launch_overhead.py --kinds`: the floor, with kinds of record left out.",
)
KINDS_LOOP = Section("A launch loop in C++", {**LAUNCHES, **GRAPHS}, "of its level's", _whole)
KINDS_TORCH = Section("PyTorch", TINY, "of its level's", _whole)
