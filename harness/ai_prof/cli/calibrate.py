"""`ai-prof calibrate`: how often the gate would fail builds without a change, from the stored runs alone."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ai_prof.baselines import calibrated, store
from ai_prof.cli.console import OutputConsole
from ai_prof.cli.settings import load, rules_of
from ai_prof.errors import NothingToCompareError, UsageError
from ai_prof.gate.calibration import TOO_FEW, Calibration, calibrate, enough
from ai_prof.gate.confirm import MIN_LAUNCHES
from ai_prof.gate.model import LastCalibration
from ai_prof.json_text import for_people
from ai_prof.runs.stored import folders_of
from ai_prof.say import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ai_prof.timeline.profile import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    text = "where they lie (default: baselines and .ai-prof/baselines)"
    parser.add_argument("--baselines", type=Path, metavar="DIR", help=text)
    parser.add_argument("--draws", type=int, default=200, metavar="N", help="builds to make (default: 200)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draws (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Calibrate every kind of machine that has baselines."""
    if args.draws < 1:
        raise UsageError(f"--draws {args.draws} must be 1 or more")
    root = Path.cwd()
    settings = load(root)
    folders = (args.baselines,) if args.baselines else folders_of(root, root / settings.baselines)
    machines = by_machine(folders)
    made = {}
    for key, stored in machines.items():
        runs = enough({name: baseline.runs for name, (baseline, _) in stored.items()})
        if not runs:
            say(f"{key}: {TOO_FEW}")
            continue
        say(f"{key}: gating {args.draws} builds drawn from what is stored of {', '.join(runs)}")
        profiles: dict[str, Profile] = {}
        for baseline, path in stored.values():
            profiles |= store.load_profiles(path, baseline)
        made[key] = calibrate(
            runs,
            next(baseline.backend for baseline, _ in stored.values()),
            rules=rules_of(stored, root, settings),
            profiles=profiles,
            draws=args.draws,
            seed=args.seed,
        )
    if not made:
        raise NothingToCompareError("nothing was calibrated")
    if args.json:
        print(for_people({"schema": "ai-prof/calibration/1", "machines": made}))
    else:
        for key, calibration in made.items():
            show(key, calibration)
    for key, calibration in made.items():
        for folder in sorted({path.parent for _, path in machines[key].values()}):
            calibrated.save(folder, _last(calibration))
    return 0


def by_machine(folders: Sequence[Path]) -> dict[str, dict[str, tuple[store.Baseline, Path]]]:
    """Baselines by machine and workload, each of the first folder that has one. Raises where none has any."""
    machines: dict[str, dict[str, tuple[store.Baseline, Path]]] = {}
    for path, baseline in store.every(folders):
        machines.setdefault(baseline.machine_key, {}).setdefault(baseline.workload, (baseline, path))
    if not machines:
        raise NothingToCompareError(f"no baselines in {' or '.join(map(str, folders))}: record some first")
    return machines


def _last(calibration: Calibration) -> LastCalibration:
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return LastCalibration(
        when=when, draws=calibration.draws, failed=calibration.failed, bound=calibration.bound
    )


def show(key: str, calibration: Calibration) -> None:
    """Print a machine's table and its rate."""
    console = OutputConsole()
    table = Table(title=key, title_justify="left", box=None)
    table.add_column("workload")
    for name in ("runs", "sessions", "flagged", "failed", "worst total", "worst place"):
        table.add_column(name, justify="right")
    for row in calibration.workloads:
        table.add_row(
            row.workload,
            str(row.runs),
            str(row.sessions),
            f"{100 * row.flagged / row.draws:.1f} %",
            f"{100 * row.failed / row.draws:.1f} %",
            *("-" if worst is None else f"{worst:.2f}" for worst in (row.worst_total, row.worst_profile)),
        )
    console.print(table)
    few = [row.workload for row in calibration.workloads if row.runs < 2 * MIN_LAUNCHES]
    if few:
        said = f"{', '.join(few)}: fewer than {2 * MIN_LAUNCHES} runs settle no flag, so look at `flagged`"
        console.print(said, soft_wrap=True)
    rate = f"{calibration.failed} of {calibration.draws} builds without a change failed"
    bound = f"at most {100 * calibration.bound:.0f} % with 95 % confidence"
    console.print(
        f"{rate}; {bound}, from {calibration.independent} that have no run in common. "
        "worst: the largest statistic over its critical value, 1 and more flags",
        soft_wrap=True,
    )
