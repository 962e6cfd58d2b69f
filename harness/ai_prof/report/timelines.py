"""The full timelines of what regressed, for Perfetto, beside the report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.errors import UsageError
from ai_prof.gate.model import Reason
from ai_prof.report import view
from ai_prof.timeline.tracks import tracks
from ai_prof.trace.open import open_trace
from ai_prof.trace.writers.timeline import write_timeline

if TYPE_CHECKING:
    from ai_prof.gate.model import BuildVerdict, Run, WorkloadVerdict

FOLDER = "timelines"
MOST = 10  # regressions, the strongest first


def write_timelines(verdict: BuildVerdict, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Write the captures that stand behind each regression; their words and addresses, by workload.

    A run whose capture is gone, or never was on this machine, has none.
    """
    regressed = [each for each in view.ordered(verdict.workloads) if each.reason is Reason.REGRESSED]
    links: dict[str, list[tuple[str, str]]] = {}
    for number, workload in enumerate(regressed[:MOST]):
        for label, run in _latest(workload).items():
            name = re.sub(r"[^\w.-]", "_", f"{number}-{workload.workload[:60]}-{label}") + ".json.gz"
            if run.capture is not None and _write(Path(run.capture), folder / FOLDER / name):
                links.setdefault(workload.workload, []).append((label, f"{FOLDER}/{name}"))
    return links


def _latest(workload: WorkloadVerdict) -> dict[str, Run]:
    """The last run of each side that the report compares."""
    sides = {"base": workload.confirm_base, "head": workload.confirm_head or workload.candidate_runs}
    return {label: runs[-1] for label, runs in sides.items() if runs}


def _write(capture: Path, path: Path) -> bool:
    """Write one; False where there is no capture that can be read."""
    try:
        trace = open_trace(capture)
    except UsageError:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_timeline(trace, path, tracks(trace))
    return True
