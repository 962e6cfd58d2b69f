"""What is wrong, how much it costs, and what to do about it first.

Healthy is: busy above 85 % (below 70 % starved), gap below 15 % (above 30 % starved), kernel mean above 50 us
(below 20 us fragmented), copies hidden to 80 %. Findings are ranked by severity; then code that is loaded in
the loop comes first, since the host plans and compiles in the gaps there; then long gaps, since one gap of
10 ms outweighs a hundred kernels that are 1 us faster; then the number of kernels; then single kernels, which
cost most to improve and return least surely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ai_prof.timeline import spoken
from ai_prof.timeline.advice import LAUNCHES_LOST, LAUNCHES_UNSEEN, PIN
from ai_prof.timeline.busy import copy_compute_overlap
from ai_prof.timeline.capture_findings import capture_findings
from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.communication import comm_exposed
from ai_prof.timeline.device_finding import device_finding
from ai_prof.timeline.gaps import PLACES, placements
from ai_prof.timeline.healthy import (
    BUSY_STARVED,
    EXPOSED,
    GAP_HEALTHY,
    GAP_STARVED,
    KERNEL_FRAGMENTED_US,
    KERNEL_HEALTHY_US,
    NOTABLE,
    OVERLAP_HEALTHY,
)
from ai_prof.timeline.intervals import clip, intersect, length, union
from ai_prof.timeline.kernels import kernel_figures
from ai_prof.timeline.names import short
from ai_prof.timeline.ranks import late_finding, late_rank
from ai_prof.timeline.stacks import name_function
from ai_prof.timeline.sync_sites import sync_sites
from ai_prof.timeline.syncs import sync_figures
from ai_prof.timeline.window_findings import window_findings
from ai_prof.trace.model import CallKind, CopyKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.finding import Finding, Severity
    from ai_prof.timeline.ranks import LateRank
    from ai_prof.timeline.sync_sites import SyncUse
    from ai_prof.trace.model import I32, I64, Trace

SITES = 2  # of synchronizes that are named
MOSTLY_PAGEABLE = 0.5  # of the copies' time: they are not pinned
AGAIN = 3  # iterations that load code: fewer are some first time
_SETUP = (
    *(CallKind.ALLOC, CallKind.FREE, CallKind.HOST_ALLOC, CallKind.MODULE_LOAD),
    *(CallKind.GRAPH_INSTANTIATE, CallKind.MAP),
)
_SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")


def find(trace: Trace, timelines: Sequence[DeviceTimeline]) -> list[Finding]:
    """Findings of all devices, ranked; one of each id, for the device where it costs most.

    Of a capture that is mostly lost, that alone.
    """
    of_capture = capture_findings(trace, worked=bool(timelines))
    if trace.source.mostly_lost:
        return of_capture
    found: dict[str, tuple[int, Finding]] = {}
    late = late_rank(trace, timelines)
    for timeline in timelines:
        for rank, finding in _device_findings(trace, timeline, late):
            if finding.id not in found or found[finding.id][1].saves_ms < finding.saves_ms:
                found[finding.id] = rank, finding
    if late:
        finding = late_finding(late)
        found[finding.id] = 1, finding
    ranked = sorted(found.values(), key=_rank)
    return of_capture + [_unknown(trace, finding) for _, finding in ranked]


def _unknown(trace: Trace, finding: Finding) -> Finding:
    """What to do about gaps without a cause, where more host calls are not what is missing."""
    if finding.id != "gap-unknown" or (trace.source.complete and not len(trace.calls.start)):
        return finding
    action = LAUNCHES_UNSEEN if trace.source.complete else LAUNCHES_LOST
    return msgspec.structs.replace(finding, actions=[action])


def _rank(found: tuple[int, Finding]) -> tuple[int, int, float]:
    kind, finding = found
    return _SEVERITIES.index(finding.severity), kind, -finding.saves_ms


def _device_findings(
    trace: Trace, timeline: DeviceTimeline, late: LateRank | None
) -> list[tuple[int, Finding]]:
    """With kinds. 0: what explains gaps; 1: gaps; 2: the number of kernels; 3: copies, kernels; 4: notes."""
    return [
        *((0, f) for f in _code_loads(trace, timeline)),
        *((1, f) for f in _gaps(trace, timeline)),
        *((1, f) for f in _syncs(trace, timeline)),
        *((1, f) for f in _communication(trace, timeline, late)),
        *((2, f) for f in _fragmented(trace, timeline)),
        *((3, f) for f in _copies(trace, timeline)),
        *((3, f) for f in _hot_kernel(trace, timeline)),
        *((4, f) for f in window_findings(trace, timeline)),
    ]


def _starved(timeline: DeviceTimeline) -> bool:
    busy = timeline.busy
    return busy.gap > GAP_STARVED * busy.window or busy.kernel < BUSY_STARVED * busy.window


def _gaps(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    """One finding for each cause of gap worth naming, once the gap ratio is not healthy."""
    busy = timeline.busy
    gap = busy.gap / busy.window
    if gap < GAP_HEALTHY:
        return []
    lengths = busy.gaps.end - busy.gaps.start
    place = placements(timeline)
    found = []
    for cause in CAUSES:
        column = timeline.causes.of(cause)
        ns = int(column.sum())
        share = ns / busy.window
        if share < NOTABLE or cause == "sync":
            continue  # synchronizes have a finding of their own
        severity: Severity = "critical" if _starved(timeline) and share >= GAP_HEALTHY else "warning"
        finding = device_finding(
            timeline,
            _gap_name(trace, timeline, cause, ns),
            severity,
            ns,
            gap=gap,
            share=share,
            placement={name: int(column[place == i].sum()) / ns for i, name in enumerate(PLACES)},
            gaps=len(lengths),
            median_gap_us=float(np.median(lengths)) / 1000,
            streams=len(np.unique(timeline.operations.stream)),
            longest_gap_ms=float(lengths.max()) / 1e6,
        )
        of_python = cause in {"host", "data"}
        found.append(name_function(finding, trace, timeline, column) if of_python else finding)
    return found


def _gap_name(trace: Trace, timeline: DeviceTimeline, cause: str, ns: int) -> str:
    """Most of the time that calls took may be in those that set something up: no launches then."""
    if cause != "launch":
        return f"gap-{cause}"
    calls = trace.calls
    mine = np.isin(calls.kind, _SETUP) & np.isin(calls.process, np.unique(timeline.operations.process))
    setup = length(intersect(timeline.busy.gaps, union(calls.start[mine], calls.end[mine])))
    return "setup-calls" if 2 * setup > ns else "gap-launch"


def _code_loads(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    """Code that is loaded again and again in the loop: what shapes are new is planned or compiled anew.

    It costs what the iterations that load take longer than the others; where none does not, that is unknown.
    """
    iterations, operations, calls = timeline.iterations, timeline.operations, trace.calls
    lengths = iterations.lengths
    first = iterations.operation[iterations.first_row[iterations.warm_up :]]
    launched = operations.launched[first]  # the host is ahead of the device
    mine = np.isin(calls.process, np.unique(operations.process))
    loaded = calls.start[mine & (calls.kind == CallKind.MODULE_LOAD)]
    of = np.searchsorted(np.where(launched >= 0, launched, operations.start[first]), loaded, side="right") - 1
    loads = np.zeros(len(lengths), bool)
    loads[of[(of >= 0) & (of < len(lengths))]] = True
    if loads.sum() < AGAIN or loads.all():
        return []
    with_ns, without_ns = float(lengths[loads].mean()), float(lengths[~loads].mean())
    saves = min((with_ns - without_ns) * int(loads.sum()), timeline.busy.gap)
    if saves < NOTABLE * timeline.busy.window:
        return []
    severity: Severity = "critical" if saves >= GAP_HEALTHY * timeline.busy.window else "warning"
    return [
        device_finding(
            timeline, "code-loads", severity, saves,
            share=float(loads.mean()), with_ms=with_ns / 1e6, without_ms=without_ns / 1e6,
        )
    ]  # fmt: skip


def _syncs(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    """Synchronizes that cost run-ahead: the gap while blocked and the gap until the host leads again.

    Without them host and device would still need their own time, so they return at most what the host
    spent blocked, and at most the gap that the host did not spend on input or on something else: a host
    that loads data after each synchronize waits for its data.
    """
    busy, causes, shadow = timeline.busy, timeline.causes.total(), timeline.causes.sync_shadow
    figures = sync_figures(trace, timeline.device, timeline.operations, busy.low, busy.high)
    own_gap = busy.gap - causes["data"] - causes["host"]
    # A blocking copy blocks without being a synchronize.
    blocked = max(figures.blocked_ns, causes["sync"])
    saves = min(shadow + causes["sync"], blocked, own_gap)
    if saves < NOTABLE * busy.window or not saves:
        return []
    sites = sync_sites(trace, timeline)[:SITES]
    finding = device_finding(
        timeline,
        "frequent-syncs",
        _sync_severity(timeline, saves),
        saves,
        syncs_per_iteration=figures.count / timeline.iterations_in_window,
        by_kind=figures.by_kind,
        sync_shadow=shadow / busy.window,
        sites=[msgspec.to_builtins(site) for site in sites],
    )
    first, *rest = finding.actions
    return [msgspec.structs.replace(finding, actions=[_where(sites, timeline) + first, *rest])]


def _where(sites: Sequence[SyncUse], timeline: DeviceTimeline) -> str:
    """Say where a host waits longest, and how often; nothing where it blocks in copies alone."""
    if not sites:
        return ""
    told = [
        f"{'once' if round(site.count, 2) == 1 else f'{spoken.count(site.count, 3)} times'} in {site.call}"
        f"{f' after {short(site.after)}' if site.after else ''}"
        for site in sites
    ]
    each = "In an iteration" if timeline.iterations.window else "Here"
    return f"{each} it waits {', '.join(told)}. "


def _sync_severity(timeline: DeviceTimeline, saves: int) -> Severity:
    busy = timeline.busy
    if busy.gap < GAP_HEALTHY * busy.window:
        return "info"
    return "critical" if _starved(timeline) and saves >= GAP_HEALTHY * busy.window else "warning"


def _communication(trace: Trace, timeline: DeviceTimeline, late: LateRank | None) -> list[Finding]:
    """Communication that nothing hides, but for the wait for a late rank, which has a finding of its own."""
    busy = timeline.busy
    waiting = late.costs_ms if late and late.rank.device != timeline.device else 0.0
    exposed = comm_exposed(timeline.operations, trace.names, busy.low, busy.high)
    saves = exposed - waiting * 1e6 * timeline.iterations_in_window
    if saves < EXPOSED * busy.window or not exposed:
        return []
    severity: Severity = "critical" if saves >= GAP_STARVED * busy.window else "warning"
    evidence = {"comm_exposed": exposed / busy.window, "waiting_for_late_rank_ms": waiting}
    return [device_finding(timeline, "exposed-communication", severity, saves, **evidence)]


def _fragmented(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    busy = timeline.busy
    figures = kernel_figures(timeline.operations, busy.low, busy.high)
    if not figures.count or figures.mean_us >= KERNEL_HEALTHY_US:
        return []
    total = timeline.causes.total()
    saves = total["launch"] + total["device"]
    if saves < NOTABLE * busy.window and busy.gap < GAP_HEALTHY * busy.window:
        return []  # launched far enough ahead, as graphs are, they keep the device busy
    return [
        device_finding(
            timeline,
            "small-kernels",
            "critical" if figures.mean_us < KERNEL_FRAGMENTED_US and busy.gap > GAP_HEALTHY * busy.window
            else "warning" if figures.mean_us < KERNEL_FRAGMENTED_US else "info",
            saves,
            kernel_mean_us=figures.mean_us,
            tiny_kernel_share=figures.tiny_share,
            kernels_per_iteration=figures.count / timeline.iterations_in_window,
            iterations=timeline.iterations.count,
            most_often=_most_often(trace, timeline),
        )
    ]  # fmt: skip


def _most_often(trace: Trace, timeline: DeviceTimeline) -> dict[str, Any]:
    """Of those that are too small the kernel that runs most often, how often, and how long each time."""
    name, duration = _kernels(timeline)
    runs, time = np.bincount(name + 1), np.bincount(name + 1, weights=duration)  # an unknown name is -1
    small = time < KERNEL_HEALTHY_US * 1000 * runs
    top = int(np.where(small, runs, 0).argmax()) - 1
    return {
        "kernel": short(trace.names[top]) if top >= 0 else "unknown kernel",
        "per_iteration": int((name == top).sum()) / timeline.iterations_in_window,
        "mean_us": float(duration[name == top].mean()) / 1000,
    }


def _kernels(timeline: DeviceTimeline) -> tuple[I32, I64]:
    """The name of each kernel that starts in the window, and how long it runs, ns; (n,) each."""
    busy, operations = timeline.busy, timeline.operations
    inside = operations.is_kernel & operations.begin_in(busy.low, busy.high)
    return operations.name[inside], (operations.end - operations.start)[inside]


def _copies(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    """Copies that could hide behind kernels and do not."""
    busy, operations = timeline.busy, timeline.operations
    overlap = copy_compute_overlap(operations, busy.low, busy.high)
    if overlap is None or overlap >= OVERLAP_HEALTHY:
        return []
    copies = clip(operations.union(operations.is_memcpy), busy.low, busy.high)
    bare = length(copies) - length(intersect(copies, operations.union(operations.is_kernel)))
    if bare < NOTABLE * busy.window:  # `copy_only` has memsets in it
        return []
    # Few gaps and yet little computing: the device is busy, with copies.
    instead = busy.gap < GAP_HEALTHY * busy.window and busy.kernel < BUSY_STARVED * busy.window
    share = bare / busy.window
    severity: Severity = (
        "critical" if instead or share >= GAP_STARVED else "warning" if share >= EXPOSED else "info"
    )
    inside = operations.begin_in(busy.low, busy.high)
    time = (operations.end - operations.start).astype(np.float64)  # added up, absurd times would overflow
    with_host = np.isin(operations.kind, (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST))
    mostly_host = 2 * time[with_host].sum() >= time[operations.is_memcpy].sum()
    pageable = _pageable_share(trace, timeline)
    found = device_finding(
        timeline,
        "unoverlapped-copies" if mostly_host else "device-copies",
        severity,
        bare,
        copy_compute_overlap=overlap,
        copy_only=busy.copy_only / busy.window,
        streams=len(np.unique(operations.stream[inside])),
        pageable_share=pageable,
    )
    if not mostly_host or pageable < MOSTLY_PAGEABLE:
        return [found]
    return [msgspec.structs.replace(found, actions=[PIN.format(share=pageable), *found.actions])]


def _pageable_share(trace: Trace, timeline: DeviceTimeline) -> float:
    """The share of the time of copies that start in the window whose host side is known to be pageable."""
    memory, busy = trace.memory, timeline.busy
    mine = (memory.device == timeline.device) & (memory.kind != CopyKind.SET)
    chosen = mine & (memory.start >= busy.low) & (memory.start < busy.high)
    time = (memory.end - memory.start)[chosen].astype(np.float64)
    return float((time * memory.pageable[chosen]).sum() / max(time.sum(), 1.0))


def _hot_kernel(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    """The kernel that takes most of the kernel time: where to look once the device is fed."""
    busy = timeline.busy
    name, duration = _kernels(timeline)
    if not duration.any() or busy.kernel < BUSY_STARVED * busy.window:
        return []
    time = np.bincount(name + 1, weights=duration)  # an unknown name is -1
    top = int(time.argmax()) - 1
    return [
        device_finding(
            timeline,
            "hot-kernel",
            "info",
            float(time.max()),
            kernel=short(trace.names[top]) if top >= 0 else "unknown kernel",
            share_of_kernel_time=float(time.max() / max(time.sum(), 1)),
            mean_us=float(duration[name == top].mean()) / 1000,
            nvml_memory_utilization=_memory_utilization(trace, timeline),
        )
    ]


def _memory_utilization(trace: Trace, timeline: DeviceTimeline) -> float | None:
    """Mean over the window of what NVML says of it, as a share; None without a sample."""
    time, column = trace.samples.time, trace.samples.memory_utilization
    inside = (time >= timeline.busy.low) & (time < timeline.busy.high)
    chosen = inside & (trace.samples.device == timeline.device) & (column >= 0)
    return float(column[chosen].mean()) / 100 if chosen.any() else None
