"""What of the capture itself makes every other figure doubtful."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.advice import ACTIONS, LOST, NOT_REACHED, UNRECORDED
from ai_prof.timeline.finding import Finding, Severity
from ai_prof.trace.model import CallKind

if TYPE_CHECKING:
    from ai_prof.trace.model import Trace

OF_CAPTURE = frozenset({"no-device-work", "lost-records", "incomplete-capture", "capture-notes"})
_ASK_FOR_WORK = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY)


def capture_findings(trace: Trace, *, worked: bool) -> list[Finding]:
    """They come before all others; `worked` says whether any device did."""
    found = []
    if not worked and trace.source.complete:
        actions = UNRECORDED.get(trace.source.format, _ours_without_work(trace))
        evidence = {"host_calls": len(trace.calls.start)}
        found.append(Finding("no-device-work", "critical", evidence, 0.0, list(actions)))
    if any(loss.lost for loss in trace.source.losses.values()):
        found.append(_lost_records(trace))
    warnings = list(trace.source.warnings)
    if not trace.source.complete:
        found.append(_incomplete(trace, worked=worked))
    elif warnings:
        found.append(Finding("capture-notes", "info", {"warnings": warnings}, 0.0, warnings))
    return found


def _incomplete(trace: Trace, *, worked: bool) -> Finding:
    """Of a file of which next to nothing is left, or no device work, no figure says anything."""
    severity: Severity = "critical"
    actions: tuple[str, ...]
    if trace.source.mostly_lost:
        part = f"{trace.source.read:.1%}" if trace.source.read else "nothing"
        actions = (f"Capture again: {part} of it could be read, and no figure speaks for the rest.",)
    elif not worked:
        actions = ("Capture again: the device work may lie in the part that could not be read.",)
    else:
        severity, actions = "warning", ACTIONS["incomplete-capture"]
    evidence = {"warnings": list(trace.source.warnings)}
    return Finding("incomplete-capture", severity, evidence, 0.0, list(actions))


def work_asked(trace: Trace) -> int:
    """How many of the recorded host calls asked for device work, and were not refused."""
    calls = trace.calls
    return int((np.isin(calls.kind, _ASK_FOR_WORK) & (calls.result == 0)).sum())


def _ours_without_work(trace: Trace) -> tuple[str, ...]:
    """What to do about a capture of ours without device work; a program that came to none is first."""
    return ACTIONS["no-device-work"] if work_asked(trace) else (NOT_REACHED, *ACTIONS["no-device-work"])


def incomplete(trace: Trace) -> list[str]:
    """Why a capture is none to compare or assert by, with the remedy; empty where all of it is there."""
    said = []
    lost = {kind: loss.lost for kind, loss in trace.source.losses.items() if loss.lost}
    if lost:
        counts = ", ".join(f"{kind}: {count} records lost" for kind, count in lost.items())
        said.append(f"{counts}. {' '.join(_lost_records(trace).actions)}")
    if not trace.source.complete:
        said += trace.source.warnings or ("the capture is incomplete",)
    return said


def _lost_records(trace: Trace) -> Finding:
    """Each way to lose records has a remedy of its own."""
    losses = trace.source.losses
    dropped = sum(loss.cupti_dropped for loss in losses.values())
    refused = sum(loss.budget_dropped for loss in losses.values())
    invalid = sum(loss.invalid_time for loss in losses.values())
    disk = any(process.header.get("write_errors") for process in trace.processes)
    remedies = {
        "buffer": dropped or (refused and not disk),
        "disk": refused and disk,
        "time": invalid and trace.source.format == "native",
        "file": invalid and trace.source.format != "native",
    }
    evidence = {
        "lost": {kind: loss.lost for kind, loss in losses.items() if loss.lost},
        "cupti_dropped": dropped,
        "budget_dropped": refused,
        "invalid_time": invalid,
    }
    actions = [LOST[remedy] for remedy, needed in remedies.items() if needed]
    return Finding("lost-records", "critical", evidence, 0.0, actions)
