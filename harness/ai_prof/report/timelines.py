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

    A run whose capture is gone, or never was on this machine, or holds nothing, has no address; its words say
    why.
    """
    regressed = [each for each in view.ordered(verdict.workloads) if each.reason is Reason.REGRESSED]
    links: dict[str, list[tuple[str, str]]] = {}
    for number, workload in enumerate(regressed[:MOST]):
        for label, run in _latest(workload).items():
            name = re.sub(r"[^\w.-]", "_", f"{number}-{workload.workload[:60]}-{label}") + ".json.gz"
            if run.capture is not None:
                missing = _write(Path(run.capture), folder / FOLDER / name)
                link = (f"none of {label}: {missing}", "") if missing else (label, f"{FOLDER}/{name}")
                links.setdefault(workload.workload, []).append(link)
    return links


def _latest(workload: WorkloadVerdict) -> dict[str, Run]:
    """The last run of each side that the report compares."""
    sides = {"base": workload.confirm_base, "head": workload.confirm_head or workload.candidate_runs}
    return {label: runs[-1] for label, runs in sides.items() if runs}


def _write(capture: Path, path: Path) -> str:
    """Write one; why there is none, empty where it is written."""
    if not capture.exists():
        return "its capture is not here"
    try:
        trace = open_trace(capture)
    except UsageError:
        return "its capture cannot be read"
    drawn = tracks(trace)
    if not drawn:
        return "its capture holds no device work"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_timeline(trace, path, drawn)
    return ""
