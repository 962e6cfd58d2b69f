"""`ai-prof accept`: let a wanted change be green in its own pull request, with a reason on file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ai_prof.baselines import accepted, store
from ai_prof.baselines.files import place
from ai_prof.cli.settings import load
from ai_prof.errors import UsageError
from ai_prof.gate.acceptance import acceptable, note
from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import REPORT_SCHEMA, Acceptance, BuildVerdict, Reason, WorkloadVerdict
from ai_prof.json_text import UNREADABLE
from ai_prof.runs.stored import LOCAL, folders_of, now, user
from ai_prof.say import say

if TYPE_CHECKING:
    import argparse

_OPEN = (Reason.REGRESSED, Reason.INCONCLUSIVE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Accept a change that the last `ai-prof gate` reported, by its report. The change is written beside "
        "the baseline, from -> to, to be committed and reviewed like code; of a baseline in .ai-prof/ it "
        "stays on this machine. `ai-prof gate` honours it until the next refresh; what goes beyond it is a "
        "regression again."
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="as the report names it")
    parser.add_argument(
        "metric",
        nargs="+",
        metavar="METRIC",
        help="metrics or counts by key, such as iteration_ms, kernel_time_ms, kernels, syncs",
    )
    parser.add_argument("--reason", required=True, help="why the change is wanted, kept with it")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="a report.json or its folder (default: the newest reports/*/report.json)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the acceptances; print each."""
    if not args.reason.strip():
        raise UsageError("--reason is empty: say why the change is wanted")
    root = Path.cwd()
    verdict = read_report(args.report or newest_report(root / load(root).report))
    workload = find(verdict, args.workload)
    path, baseline = same_baseline(root, verdict, workload)
    made = {
        "who": user(root),
        "why": args.reason,
        "when": now(),
        "commit": verdict.commit,
        "dirty": verdict.dirty,
        "report": verdict.run_id,
    }
    changes = [
        msgspec.convert({**change_of(workload, metric), **made}, Acceptance)
        for metric in dict.fromkeys(args.metric)
    ]
    file = accepted.add(path, baseline, changes)
    for change in changes:
        print(f"{workload.workload}  {change.metric}  {note(change)}")
    say(f"written to {place(file)}: {_whose(file, root)}")
    return 0


def _whose(file: Path, root: Path) -> str:
    """Who gates by it: what is accepted of a baseline that only this machine has is of no use to others."""
    if file.is_relative_to(root / LOCAL):
        return "it stays here, as its baseline does; `ai-prof baseline refresh` makes one to be committed"
    return "commit it with the change"


class _Head(msgspec.Struct):
    """What of a report tells whether to read it: its schema, and when its build ended (RFC 3339, UTC)."""

    schema: str = ""
    finished: str = ""


def newest_report(folder: Path) -> Path:
    """The report of the build that ended last. Raises UsageError where there is none."""
    reports = list(folder.glob("*/report.json"))
    if not reports:
        raise UsageError(f"no report in {folder}: run `ai-prof gate` first, or name one with --report")
    return max(reports, key=lambda path: (_finished(path), path.parent.name))


def _finished(path: Path) -> str:
    """When the build of a report ended; empty, which comes first, where it does not say."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Head).finished
    except (OSError, *UNREADABLE):
        return ""


def read_report(path: Path) -> BuildVerdict:
    """The verdict in a report. Raises UsageError for one that nothing may be accepted from."""
    if path.is_dir():
        path /= "report.json"
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != REPORT_SCHEMA:
            raise UsageError(
                f"{path}: schema {schema!r} is not {REPORT_SCHEMA!r}: "
                "accept by the ai-prof that wrote it, or run `ai-prof gate` again"
            )
        verdict = msgspec.json.decode(data, type=BuildVerdict)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except UNREADABLE as error:
        raise UsageError(f"{path}: is no report.json of `ai-prof gate` ({error})") from error
    if verdict.regress:
        raise UsageError(
            f"report {verdict.run_id} is of a gate with --regress {verdict.regress}: run one without it"
        )
    return verdict


def find(verdict: BuildVerdict, name: str) -> WorkloadVerdict:
    """The named workload of a report. Raises UsageError where it is not there or had no baseline."""
    known = {workload.workload: workload for workload in verdict.workloads}
    if name not in known:
        raise UsageError(f"report {verdict.run_id} has no workload {name}; it has: {', '.join(known)}")
    if not known[name].baseline.get("path"):
        raise UsageError(f"{name} was compared with no stored baseline: there is none to accept a change of")
    return known[name]


def same_baseline(
    root: Path, verdict: BuildVerdict, workload: WorkloadVerdict
) -> tuple[Path, store.Baseline]:
    """The baseline that the report was made with, in this project if it is there: a report may come from CI.

    Raises UsageError where none here is the same.
    """
    told = Path(str(workload.baseline["path"]))
    names = (verdict.machine_key, workload.workload)
    if "\0" in str(told) or len(told.parents) < 2 or any(not _is_name(name) for name in names):
        raise UsageError(
            f"report {verdict.run_id} names no baseline: run `ai-prof gate` again, accept by that"
        )
    for folder in (*folders_of(root, root / load(root).baselines), told.parents[1]):
        baseline = store.load(folder, verdict.machine_key, workload.workload)
        if baseline is not None and store.digest(baseline) == workload.baseline.get("sha256"):
            return store.path_of(folder, verdict.machine_key, workload.workload), baseline
    raise UsageError(
        f"no baseline here is the one of report {verdict.run_id}: run `ai-prof gate` again, accept by that"
    )


def _is_name(name: str) -> bool:
    """Whether it names a file or folder in another one."""
    return bool(name) and Path(name).name == name and "\0" not in name


def change_of(workload: WorkloadVerdict, metric: str) -> dict[str, object]:
    """What became worse in a metric or count. Raises UsageError where nothing did."""
    if metric not in METRICS:
        raise UsageError(f"no metric {metric}; there are: {', '.join(METRICS)}")
    rows = {key: row for key, row in acceptable(workload, _OPEN).items() if key in METRICS}
    if metric not in rows:
        found = ", ".join(rows) or "nothing"
        raise UsageError(f"{metric} of {workload.workload} did not regress in the report; what did: {found}")
    return rows[metric]
