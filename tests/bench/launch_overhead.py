"""What a capture costs on an NVIDIA GPU, side by side with the least it could cost and with other profilers.

Interleaved rounds of fresh processes: a launch loop in C++ under nothing, under a bare CUPTI client that
throws its records away (the floor) and under ai-prof, at both levels and with CUDA graphs at both levels; and
PyTorch loops under nothing, the floor, ai-prof and torch.profiler. Differences of minima with 90 % bootstrap
intervals are written as a page, anew after each round, and printed; the raw figures go to figures/. A process
that fails costs its own round alone, and is counted. Needs g++, libcupti with its headers, and torch for its
part:

    python tests/bench/launch_overhead.py [--rounds 20] [--minutes 8] [--output docs/overhead.md] [--more]

With --more the rounds come to those that figures/ holds of such a machine. With --kinds it tells instead what
each kind of record costs: the floor at both levels, whole, with each kind left out in turn, and with all of
them left out.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from launch_page import COST, KINDS, KINDS_LOOP, KINDS_TORCH, LOOP, TORCH, Facts, Head, Section, page
from launch_programs import (
    AFTER,
    CAPTURES,
    NOTHING,
    ROOT,
    STANDBY,
    Capture,
    LoopFailedError,
    Parts,
    build,
    find_cupti,
    package_folders,
    run_loop,
    without,
)
from torch_server import MEASURES, TorchServer, Watcher, torch_server

from ai_prof.runs.environment import cores, cpu_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAUNCH = ("launch_us", "graph_us")
FIGURES = Path(__file__).parent / "figures"  # docs/comparison.md is made from overhead.json


WATCHERS = [
    Watcher(NOTHING),
    Watcher(Capture("floor, kernel", "floor", "kernel"), loops=("tiny",)),
    Watcher(Capture("ours, kernel", "ours", "kernel")),
    Watcher(Capture("floor, api", "floor", "api"), loops=("tiny",)),
    Watcher(Capture("ours, api", "ours", "api")),
    Watcher(Capture("torch.profiler, CUDA"), "cuda"),
    Watcher(Capture("torch.profiler, CPU and CUDA"), "cpu+cuda"),
    Watcher(Capture("cupti-python"), "cupti-python"),
]


@dataclass(frozen=True)
class Plan:
    """What is measured in a round, and the page that is made of it; `name` is that of its files."""

    name: str
    head: Head
    captures: list[Capture]  # of the launch loop
    watchers: list[Watcher]
    loop: Section
    torch: Section


FLOORS = [NOTHING, *without("kernel"), *without("api")]
USUAL = Plan("overhead", COST, [NOTHING, *CAPTURES, *AFTER, STANDBY], WATCHERS, LOOP, TORCH)
OF_KINDS = Plan(
    "kinds", KINDS, FLOORS, [Watcher(capture, loops=("tiny",)) for capture in FLOORS], KINDS_LOOP, KINDS_TORCH
)


@dataclass
class Figures:
    """What was measured: a value a round, or None, by measure and by what it ran under; why some failed."""

    rounds: int = 0
    columns: dict[str, dict[str, list[float | None]]] = field(default_factory=lambda: defaultdict(dict))
    failures: list[dict[str, str | int]] = field(default_factory=list)

    def add(self, name: str, measures: tuple[str, ...], measure: Callable[[], dict[str, float]]) -> None:
        """One program of this round under `name`."""
        values: dict[str, float] = {}
        try:
            values = measure()
        except LoopFailedError as error:
            failure: dict[str, str | int] = {
                "under": name,
                "measures": ", ".join(measures),
                "round": self.rounds,
                "why": str(error),
            }
            self.failures.append(failure)
            sys.stderr.write(f"\n{name}: {error}\n")
        for each in measures:
            column = self.columns[each].setdefault(name, [])
            column += [None] * (self.rounds - 1 - len(column))  # before this plan had it
            column.append(values.get(each))

    def end_round(self) -> None:
        """Give what this plan no longer has a None of this round."""
        for column in self._all():
            column.extend([None] * (self.rounds - len(column)))

    @property
    def none(self) -> bool:
        """Whether nothing was measured yet."""
        return all(value is None for column in self._all() for value in column)

    def _all(self) -> Iterator[list[float | None]]:
        return (column for each in self.columns.values() for column in each.values())


def measure_round(plan: Plan, figures: Figures, server: TorchServer | None, parts: Parts) -> None:
    """One process of each kind."""
    figures.rounds += 1
    for capture in plan.captures:
        figures.add(capture.name, LAUNCH, partial(run_loop, capture, parts))
    if server is not None:
        for watcher in plan.watchers:
            measures = tuple(MEASURES[loop] for loop in watcher.loops)
            figures.add(watcher.capture.name, measures, partial(server.measure, watcher))
    figures.end_round()


def place(server: TorchServer | None, parts: Parts) -> dict[str, str | None]:
    """What is measured on."""
    return {
        "machine": "; ".join(machine()),
        "cupti": parts.cupti.parent.parent.name,
        "torch": server.about["torch"] if server else None,
    }


def kept(plan: Plan, at: dict[str, str | None]) -> Figures:
    """The figures of earlier rounds; ends the program where they are of another place."""
    path = FIGURES / f"{plan.name}.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    if other := [f"{facts[name]}, not {now}" for name, now in at.items() if facts[name] != now]:
        raise SystemExit(f"{path} is of {'; '.join(other)}: measure anew, without --more")
    rounds = len(facts["columns"]["launch_us"]["nothing"])
    return Figures(rounds, defaultdict(dict, facts["columns"]), facts["failures"])


def keep(plan: Plan, figures: Figures, at: dict[str, str | None]) -> None:
    """Write the raw figures of all rounds so far, with what was measured on."""
    facts = {"date": today(), **at, "columns": figures.columns, "failures": figures.failures}
    FIGURES.mkdir(exist_ok=True)
    text = json.dumps(facts, indent=1) + "\n"
    (FIGURES / f"{plan.name}.json").write_text(text, encoding="utf-8")


def busy_of_step(server: TorchServer) -> float | None:
    """Share of the time that the training step keeps the device busy, by a capture of its own."""
    from ai_prof.timeline.summary import summarise  # noqa: PLC0415 - of the package that is measured
    from ai_prof.trace.open import open_trace  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "capture"
        try:
            server.record(Watcher(Capture("", "ours", "kernel"), loops=("step",)), output)
        except LoopFailedError as error:
            sys.stderr.write(f"PyTorch's training step: {error}\n")
            return None
        device = summarise(open_trace(output)).devices[0]
    return device.kernel_busy


def machine() -> list[str]:
    """The card, its driver and the processor, with the cores that we may use."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return [card, f"{cores()} cores of {cpu_model()}"]


def today() -> str:
    """The date, in UTC."""
    return dt.datetime.now(dt.timezone.utc).date().isoformat()


def python_with_torch() -> str:
    """This interpreter where it has torch, else the first on PATH outside of its environment."""
    here = str(Path(sys.executable).parent)
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder != here]
    other = shutil.which("python3", path=os.pathsep.join(folders))
    return sys.executable if find_spec("torch") or other is None else other


def measured(
    plan: Plan, figures: Figures, server: TorchServer | None, parts: Parts, limits: tuple[int, float]
) -> Iterator[str]:
    """The page after each round, of all rounds so far; the last one begins before the time is up."""
    rounds, end = limits
    about, at = facts_of(plan, parts.cupti, server), place(server, parts)
    sections = [plan.loop, *([plan.torch] if server else [])]
    for done in range(rounds):
        if done and time.monotonic() > end:
            return
        measure_round(plan, figures, server, parts)
        if figures.none:
            raise SystemExit("no program could be measured: see above")
        keep(plan, figures, at)
        sys.stderr.write(f"\rround {done + 1} of {rounds}")
        yield page(plan.head, figures.columns, replace(about, rounds=figures.rounds), sections)


def main() -> None:
    """Build, measure, write."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no other round after so long")
    parser.add_argument("--more", action="store_true", help="add to the rounds that are kept in figures/")
    parser.add_argument("--kinds", action="store_true", help="tell what each kind of record costs")
    parser.add_argument("--output", type=Path, help="the page; docs/overhead.md, or docs/kinds.md of --kinds")
    parser.add_argument("--python", default=python_with_torch(), help="the one that has torch")
    parser.add_argument(
        "--cupti", type=Path, help="the libcupti of the launch loop; no newer than the driver"
    )
    parser.add_argument("--without-torch", action="store_true")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    plan = OF_KINDS if args.kinds else USUAL
    output = args.output or ROOT / "docs" / f"{plan.name}.md"
    roots = list(dict.fromkeys([*package_folders(args.python), *package_folders(sys.executable)]))
    cupti = args.cupti or find_cupti(roots)
    with tempfile.TemporaryDirectory() as folder:
        parts = Parts(Path(folder), cupti)
        build(parts.built, roots)
        with torch_server(parts, args.python, wanted=not args.without_torch) as server:
            if server:
                plan = replace(plan, watchers=[each for each in plan.watchers if server.can(each)])
            figures = kept(plan, place(server, parts)) if args.more else Figures()
            for text in measured(plan, figures, server, parts, (args.rounds, end)):
                output.write_text(text, encoding="utf-8")
    sys.stderr.write("\n")
    sys.stdout.write(output.read_text(encoding="utf-8"))


def facts_of(plan: Plan, cupti: Path, server: TorchServer | None) -> Facts:
    """What is measured on, before any round."""
    about = [*machine(), f"CUPTI of {cupti.parent.parent.name}"]
    if server:
        about.append(f"PyTorch {server.about['torch']}")
    stepping = server if "step_ms" in plan.torch.measures else None
    return Facts(about, 0, today(), busy_of_step(stepping) if stepping else None)


if __name__ == "__main__":
    main()
