"""`ai-prof baseline show` and `log`: what is stored, for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from ai_prof.baselines import accepted, store
from ai_prof.baselines.contents import Held, contents
from ai_prof.cli.console import OutputConsole
from ai_prof.cli.settings import load, rules_of
from ai_prof.errors import NothingToCompareError
from ai_prof.gate import screen
from ai_prof.gate.acceptance import note
from ai_prof.gate.latency import quantile_note, quantile_of
from ai_prof.gate.metrics import METRICS
from ai_prof.json_text import for_people
from ai_prof.report.format import NOTHING, change, plural, threshold, value
from ai_prof.runs.stored import folders_of

if TYPE_CHECKING:
    import argparse

    from ai_prof.baselines.store import Baseline, Entry
    from ai_prof.gate.model import Acceptance

ONE_SESSION = (
    "Runs of its own session (the same boot, within the hour) are held against it by how launches differ, "
    "later ones by how sessions do, which one session can't tell: refresh it on other days."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of both."""
    parser.add_argument("workload", nargs="*", metavar="WORKLOAD", help="what to show (default: all)")
    parser.add_argument(
        "--baselines",
        type=Path,
        metavar="DIR",
        help="where they lie (default: baselines, then .ai-prof/baselines)",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def show(args: argparse.Namespace) -> int:
    """Print the baselines."""
    found = find(args)
    rules = rules_of({each.workload for _, each in found}, Path.cwd(), load(Path.cwd()))
    by_key: dict[str, dict[str, Baseline]] = {}
    for _, baseline in found:
        by_key.setdefault(baseline.machine_key, {})[baseline.workload] = baseline
    shown = []
    for path, baseline in found:
        history = {name: each.runs for name, each in by_key[baseline.machine_key].items()}
        priors = screen.shared_priors(history, baseline.backend)
        held = contents(baseline, rules[baseline.workload], priors)
        shown.append((path, baseline, held, accepted.load(path, baseline)))
    if args.json:
        print(for_people([_facts(*each) for each in shown]))
    else:
        for path, baseline, held, wanted in shown:
            _show(path, baseline, held, wanted)
    return 0


def log(args: argparse.Namespace) -> int:
    """Print the logs, oldest entry first."""
    found = find(args)
    if args.json:
        print(
            for_people(
                [{"workload": b.workload, "machine_key": b.machine_key, "log": b.log} for _, b in found]
            )
        )
        return 0
    for _, baseline in found:
        table = Table(title=f"{baseline.workload}, {baseline.machine_key}", title_justify="left", box=None)
        for name in ("when", "who", "commit", "runs", "why", "moved"):
            table.add_column(name, overflow="fold")
        for entry in baseline.log:
            runs = f"{entry.runs} of {plural(entry.sessions, 'session')}"
            commit = (entry.commit or NOTHING)[:12] + ("+" if entry.dirty else "")
            table.add_row(entry.when, entry.who, commit, runs, entry.why, _moved(entry))
        OutputConsole().print(table)
    return 0


def find(args: argparse.Namespace) -> list[tuple[Path, Baseline]]:
    """The baselines of every machine, by path. Raises NothingToCompareError where there are none."""
    root = Path.cwd()
    folders = (args.baselines,) if args.baselines else folders_of(root, root / load(root).baselines)
    found = store.every(folders, args.workload)
    if not found:
        named = " of " + ", ".join(args.workload) if args.workload else ""
        raise NothingToCompareError(
            f"no baseline{named} in {' or '.join(map(str, folders))}: `ai-prof baseline refresh` makes one"
        )
    return found


def _show(path: Path, baseline: Baseline, held: list[Held], wanted: list[Acceptance]) -> None:
    console = OutputConsole()
    kind = "" if baseline.sessions > 1 else ", provisional"
    size = f"{plural(len(baseline.runs), 'run')} of {plural(baseline.sessions, 'session')}"
    table = Table(
        title=f"{baseline.workload}, {baseline.machine_key}: {size}{kind}", title_justify="left", box=None
    )
    table.add_column("metric")
    detectable = ("detectable",) if baseline.sessions > 1 else ("detectable in its hour", "later")
    for name in ("value", "spread", *detectable, "since the anchor"):
        table.add_column(name, justify="right")
    for row in held:
        spread = threshold(row.spread, row.unit)
        sizes = [row.mde] if baseline.sessions > 1 else [row.mde_in_session, row.mde]
        mde = [threshold(size, row.unit) for size in sizes]
        if METRICS[row.metric].role == "structure":
            mde = ["exact" if row.value is not None else "varies"] * len(sizes)
        table.add_row(row.label, value(row.value, row.unit), spread, *mde, change(row.drift, row.unit))
    console.print(table)
    if baseline.sessions == 1:
        console.print(ONE_SESSION, highlight=False, soft_wrap=True)
    for said in quantile_note(baseline.runs, quantile_of(baseline.runs)):
        console.print(said, highlight=False, soft_wrap=True)
    for each in wanted:
        console.print(f"{each.metric}: {note(each)}", highlight=False)
    console.print(str(path), style="dim", highlight=False, soft_wrap=True)


def _moved(entry: Entry) -> str:
    parts = []
    for key, (old, new) in entry.moved.items():
        metric = METRICS.get(key)
        unit = metric.unit if metric else ""
        parts.append(f"{metric.label if metric else key} {value(old, unit)} to {value(new, unit)}")
    return "; ".join(parts) or NOTHING


def _facts(path: Path, baseline: Baseline, held: list[Held], wanted: list[Acceptance]) -> dict[str, Any]:
    return {
        "workload": baseline.workload,
        "machine_key": baseline.machine_key,
        "path": str(path),
        "origin": baseline.origin,
        "sessions": baseline.sessions,
        "runs": len(baseline.runs),
        "metrics": held,
        "accepted": wanted,
    }
