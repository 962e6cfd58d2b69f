"""The summary of a capture: why each device idled, with every figure that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from ai_prof.timeline.busy import copy_compute_overlap, stream_concurrency
from ai_prof.timeline.capture_findings import work_asked
from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.communication import comm_exposed
from ai_prof.timeline.device import DeviceTimeline, Window, device_timeline
from ai_prof.timeline.finding import Finding
from ai_prof.timeline.findings import find
from ai_prof.timeline.gaps import GapHistogram, LongGap, gap_histogram, longest_gaps
from ai_prof.timeline.kernels import KernelTime, kernel_figures, top_kernels
from ai_prof.timeline.operations import busy_devices
from ai_prof.timeline.ranks import RankSummary, rank_of, rank_summaries
from ai_prof.timeline.syncs import sync_figures
from ai_prof.timeline.tag import tag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ai_prof.trace.model import Trace


class Losses(msgspec.Struct, frozen=True):
    """Records of one kind: kept, and lost in each of three ways."""

    captured: int
    cupti_dropped: int
    invalid_time: int
    budget_dropped: int


class SourceSummary(msgspec.Struct, frozen=True):
    """Where the trace came from, and whether all of it is there."""

    format: str
    files: list[str]
    complete: bool
    losses: dict[str, Losses]


class IterationSummary(msgspec.Struct, frozen=True):
    """`boundaries_ns` are the starts of all iterations found; lengths are of those after warm-up."""

    count: int
    median_ms: float
    p5_ms: float
    p95_ms: float
    boundaries_ns: list[int]
    method: str
    confidence: float


class DeviceSummary(msgspec.Struct, frozen=True):
    """One device over its window; ratios are shares of the window, `structure` is per iteration."""

    device: int
    uuid: str | None
    name: str
    rank: int | None
    window_ns: int
    window: Literal["iterations", "span"]
    kernel_busy: float
    copy_only: float
    gap: float
    device_busy: float
    comm_exposed: float
    stream_concurrency: float
    kernel_count: int
    kernel_mean_us: float
    kernel_p50_us: float
    kernel_p95_us: float
    tiny_kernel_share: float
    top_kernels: list[KernelTime]
    memcpy_count: int
    memset_count: int
    copy_compute_overlap: float | None
    sync_count: int
    sync_blocked_ns: int
    syncs: dict[str, int]
    streams: int
    structure: dict[str, int]
    iterations: IterationSummary
    gap_causes: dict[str, float]
    sync_shadow: float
    gap_histogram: GapHistogram
    longest_gaps: list[LongGap]


class Summary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What `ai-prof summary --json` prints.

    `reason` is there only when no device did any work, `ranks` only for a job of several. The `device` of a
    rank and of a finding's evidence is a position in `devices`.
    """

    schema: str
    source: SourceSummary
    devices: list[DeviceSummary]
    findings: list[Finding]
    tag: str | None
    reason: str | None = None
    ranks: list[RankSummary] = []


SCHEMA = "ai-prof/summary/1"

_HOW_TO_RECORD = {
    "kineto": "the program did none, or was profiled without ProfilerActivity.CUDA",
    "nsys": "the program did none, or was profiled without `--trace=cuda`",
}


def summarise(trace: Trace, window: Window = "auto") -> Summary:
    """Every figure, cause and finding of a trace; `span` forces first start to last end on every device."""
    timelines = [device_timeline(trace, device, window) for device in busy_devices(trace)]
    position = {timeline.device: i for i, timeline in enumerate(timelines)}
    return Summary(
        schema=SCHEMA,
        source=_source(trace),
        devices=[_device(trace, timeline) for timeline in timelines],
        findings=[_placed(finding, position) for finding in find(trace, timelines)],
        tag=None if trace.source.mostly_lost else tag(trace, timelines),
        reason=None if timelines else _no_work(trace),
        ranks=[
            msgspec.structs.replace(rank, device=position[rank.device])
            for rank in rank_summaries(trace, timelines)
        ],
    )


def _placed(finding: Finding, position: Mapping[int, int]) -> Finding:
    """The finding with its device's position for the row of the trace's table."""
    if "device" not in finding.evidence:
        return finding
    evidence = {**finding.evidence, "device": position[finding.evidence["device"]]}
    return msgspec.structs.replace(finding, evidence=evidence)


def _source(trace: Trace) -> SourceSummary:
    source = trace.source
    losses = {
        kind: Losses(loss.captured, loss.cupti_dropped, loss.invalid_time, loss.budget_dropped)
        for kind, loss in source.losses.items()
    }
    return SourceSummary(source.format, source.shown_files, source.complete, losses)


def _device(trace: Trace, timeline: DeviceTimeline) -> DeviceSummary:
    device, operations, busy = trace.devices[timeline.device], timeline.operations, timeline.busy
    low, high, window = busy.low, busy.high, busy.window
    inside = operations.begin_in(low, high)
    kernels = kernel_figures(operations, low, high)
    syncs = sync_figures(trace, timeline.device, operations, low, high)
    causes = timeline.causes.total()
    return DeviceSummary(
        device=device.ordinal,
        uuid=device.uuid,
        name=device.name,
        rank=rank_of(trace, timeline),
        window_ns=window,
        window=timeline.window,
        kernel_busy=busy.kernel / window,
        copy_only=busy.copy_only / window,
        gap=busy.gap / window,
        device_busy=(busy.kernel + busy.copy_only) / window,
        comm_exposed=comm_exposed(operations, trace.names, low, high) / window,
        stream_concurrency=stream_concurrency(operations, low, high),
        kernel_count=kernels.count,
        kernel_mean_us=kernels.mean_us,
        kernel_p50_us=kernels.p50_us,
        kernel_p95_us=kernels.p95_us,
        tiny_kernel_share=kernels.tiny_share,
        top_kernels=top_kernels(trace.names, operations, low, high),
        memcpy_count=int((operations.is_memcpy & inside).sum()),
        memset_count=int((operations.is_memset & inside).sum()),
        copy_compute_overlap=copy_compute_overlap(operations, low, high),
        sync_count=syncs.count,
        sync_blocked_ns=syncs.blocked_ns,
        syncs=syncs.by_kind,
        streams=len(np.unique(operations.stream[inside])),
        structure=timeline.structure.typical(),
        iterations=_iterations(timeline),
        gap_causes={cause: causes[cause] / window for cause in CAUSES},
        sync_shadow=timeline.causes.sync_shadow / window,
        gap_histogram=gap_histogram(timeline),
        longest_gaps=longest_gaps(trace, timeline),
    )


def _iterations(timeline: DeviceTimeline) -> IterationSummary:
    found = timeline.iterations
    lengths = found.lengths / 1e6 if len(found.lengths) else np.zeros(1)
    p5, median, p95 = np.percentile(lengths, (5, 50, 95)).tolist()
    return IterationSummary(
        found.count, median, p5, p95, found.starts.tolist(), found.method, found.confidence
    )


def _no_work(trace: Trace) -> str:
    if not trace.source.complete:
        return "no device work is in what could be read of it: whether the program did any can't be told"
    asked = work_asked(trace)
    if asked:
        return (
            f"host calls asked for device work ({asked} of them) and none was recorded: "
            "the driver gave no records; check that no other profiler holds the device"
        )
    how = _HOW_TO_RECORD.get(trace.source.format, "the program did none, or the capture began after it")
    return f"no device work was recorded: {how}"
