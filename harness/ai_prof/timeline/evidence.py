"""What the gate needs to know of one run."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline.busy import copy_compute_overlap
from ai_prof.timeline.capture_findings import incomplete
from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.device import DeviceTimeline, device_timeline
from ai_prof.timeline.intervals import Intervals, complement, intersect_pieces, lengths
from ai_prof.timeline.kernels import kernel_figures
from ai_prof.timeline.operations import busy_devices
from ai_prof.timeline.profile import Profile, profile
from ai_prof.timeline.structure import COUNTS

if TYPE_CHECKING:
    from ai_prof.trace.model import Trace


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """One run over all its devices.

    `metrics`: kernel_busy, gap, copy_compute_overlap (ratios); kernel_mean_us; iteration_ms, and per
    iteration kernel_time_ms (durations added up) and gap_ms, each the median over iterations after
    warm-up; None where a metric does not exist. Ratios and times are means over devices, times per
    iteration of all devices added up; iteration_ms and its list are the slowest device's. `structure` and
    `kernels` add up the devices; None where iterations differ. `gap_causes_ms` are means over iterations,
    since only those add up, to the mean gap, and means over devices, as an iteration is one for all of them;
    so is `sync_shadow_ms`, a part of it. `gap_ms` is the median one.
    `profile` is that of the first device with iterations. `problems` say what makes the run unfit to compare.
    """

    metrics: dict[str, float | None]
    structure: dict[str, int | None]
    kernels: dict[str, int] | None
    iterations: int
    iteration_ms: list[float]
    gap_causes_ms: dict[str, float]
    sync_shadow_ms: float
    problems: list[str]
    profile: Profile | None = None


def evidence(trace: Trace, counted: int | None = None) -> RunEvidence:
    """Figures of one run for the gate; a run without GPU work has no metrics and says so in `problems`.

    `counted` is how many iterations the program says that it made.
    """
    return evidence_of(trace, working_timelines(trace, counted))


def working_timelines(trace: Trace, counted: int | None = None) -> list[DeviceTimeline]:
    """The devices that a run is judged by.

    A device beside the work (one small copy at start-up) has no iterations and says nothing of them.
    """
    timelines = [device_timeline(trace, device, counted=counted) for device in busy_devices(trace)]
    return [t for t in timelines if t.iterations.window] or timelines


def evidence_of(trace: Trace, timelines: list[DeviceTimeline]) -> RunEvidence:
    """The same from timelines that are known already."""
    problems = _problems(trace, timelines)
    if not timelines:
        return RunEvidence({}, dict.fromkeys(COUNTS), None, 0, [], {}, 0.0, problems)
    slowest = max(timelines, key=lambda t: t.iterations.median_ns)
    lengths = (slowest.iterations.lengths / 1e6).tolist()
    return RunEvidence(
        metrics=_metrics(timelines, lengths),
        structure=_structure(timelines),
        kernels=_kernels(timelines),
        iterations=min(t.iterations.count for t in timelines),
        iteration_ms=lengths,
        gap_causes_ms={
            cause: fmean(t.causes.total()[cause] / t.iterations_in_window for t in timelines) / 1e6
            for cause in CAUSES
        },
        sync_shadow_ms=fmean(t.causes.sync_shadow / t.iterations_in_window for t in timelines) / 1e6,
        problems=problems,
        profile=profile(trace, timelines[0]),
    )


def _metrics(timelines: list[DeviceTimeline], lengths: list[float]) -> dict[str, float | None]:
    overlaps = [copy_compute_overlap(t.operations, t.busy.low, t.busy.high) for t in timelines]
    known = [overlap for overlap in overlaps if overlap is not None]
    figures = [kernel_figures(t.operations, t.busy.low, t.busy.high) for t in timelines]
    count = sum(f.count for f in figures)
    found = all(t.iterations.window for t in timelines)
    kernel_ns = sum(float(np.median(t.structure.kernel_ns)) for t in timelines) if found else None
    return {
        "kernel_busy": float(np.mean([t.busy.kernel / t.busy.window for t in timelines])),
        "gap": float(np.mean([t.busy.gap / t.busy.window for t in timelines])),
        "copy_compute_overlap": float(np.mean(known)) if known else None,
        "kernel_mean_us": sum(f.mean_us * f.count for f in figures) / count if count else None,
        "kernel_time_ms": kernel_ns / 1e6 if kernel_ns is not None else None,
        "gap_ms": sum(_median_gap(t) for t in timelines) / 1e6 if found else None,
        "iteration_ms": float(np.median(lengths)) if lengths else None,
    }


def _median_gap(timeline: DeviceTimeline) -> float:
    """Median over iterations of the gap within each, ns."""
    iterations = timeline.iterations
    edges = iterations.starts[iterations.warm_up :]
    gaps = complement(timeline.operations.union(), int(edges[0]), int(edges[-1]))
    pieces, of = intersect_pieces(Intervals(edges[:-1], edges[1:]), gaps)
    return float(np.median(lengths(pieces, of, len(edges) - 1)))


def _structure(timelines: list[DeviceTimeline]) -> dict[str, int | None]:
    constants = [t.structure.constant() for t in timelines]
    return {
        name: None if any(c[name] is None for c in constants) else sum(c[name] or 0 for c in constants)
        for name in COUNTS
    }


def _kernels(timelines: list[DeviceTimeline]) -> dict[str, int] | None:
    total: dict[str, int] = {}
    for timeline in timelines:
        kernels = timeline.structure.kernels
        if kernels is None:
            return None
        for name, count in kernels.items():
            total[name] = total.get(name, 0) + count
    return total


def _problems(trace: Trace, timelines: list[DeviceTimeline]) -> list[str]:
    problems = incomplete(trace)
    if not any(t.operations.is_kernel.any() for t in timelines):
        problems.append("no kernel was recorded: the run did no device work, or it was not captured")
    elif not any(t.iterations.window for t in timelines):
        problems.append("no iterations were found: per-iteration figures are missing")
    return problems
