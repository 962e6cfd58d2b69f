"""Notes on the window: whether it speaks for the workload, and under which clock and utilization it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.timeline import spoken
from ai_prof.timeline.device_finding import device_finding
from ai_prof.timeline.healthy import BUSY_HEALTHY, BUSY_STARVED
from ai_prof.timeline.iteration_kinds import Kinds, kinds
from ai_prof.trace.throttle import POWER_CAP, SLOWDOWNS

if TYPE_CHECKING:
    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.finding import Finding
    from ai_prof.trace.model import Trace

_MIN_ITERATIONS, _MIN_WINDOW_NS = 5, 10_000_000_000
_SAMPLE_NS, _MIN_SAMPLES = 1_000_000_000, 3  # of NVML
_SURE = 0.8  # a period that explains less of the work may be none
_FEW = 3  # samples: less say nothing of a power cap
_MOSTLY = 0.5  # of the samples: a power cap that comes and goes is the rule under load
_THROTTLES = {POWER_CAP: "power cap", **SLOWDOWNS}


def window_findings(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    """What to know of the window before its figures are acted on; nothing returns any time."""
    return [*_utilization(trace, timeline), *_throttled(trace, timeline), *_window(timeline)]


def _utilization(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    """NVML's utilization against the timeline, where they contradict each other.

    A sample covers up to a second before it, and may be odd: the median counts, of those within the window.
    """
    busy = timeline.busy
    samples = trace.samples
    time, column = samples.time, samples.gpu_utilization
    covered = (time >= busy.low + _SAMPLE_NS) & (time < busy.high) & (samples.device == timeline.device)
    values = column[covered & (column >= 0)]
    if len(values) < _MIN_SAMPLES:
        return []
    utilization = float(np.median(values)) / 100
    device_busy = (busy.kernel + busy.copy_only) / busy.window
    evidence = {"nvml_utilization": utilization, "device_busy": device_busy, "samples": len(values)}
    if utilization < BUSY_STARVED and device_busy >= BUSY_HEALTHY:
        return [device_finding(timeline, "utilization-below-timeline", "info", 0.0, **evidence)]
    if utilization >= BUSY_HEALTHY and device_busy < BUSY_STARVED:
        return [device_finding(timeline, "utilization-above-timeline", "info", 0.0, **evidence)]
    return []


def _throttled(trace: Trace, timeline: DeviceTimeline) -> list[Finding]:
    """A clock that was held down while the device worked: kernels take longer than elsewhere."""
    samples = trace.samples
    inside = (samples.time >= timeline.busy.low) & (samples.time < timeline.busy.high)
    inside &= (samples.device == timeline.device) & (samples.throttle_reasons >= 0)
    bits, clocks = samples.throttle_reasons[inside], samples.sm_clock_mhz[inside]
    found = {name: float((bits & bit > 0).mean()) for bit, name in _THROTTLES.items() if (bits & bit).any()}
    slowed = found.keys() & set(SLOWDOWNS.values())
    if not slowed and (len(bits) < _FEW or found.get(_THROTTLES[POWER_CAP], 0.0) < _MOSTLY):
        return []
    known = clocks[clocks > 0]
    span = [int(known.min()), int(known.max())] if len(known) else None
    finding = device_finding(
        timeline, "throttled", "warning" if slowed else "info", 0.0,
        reasons=found, sm_clock_mhz=span, samples=len(bits),
    )  # fmt: skip
    told = ", ".join(f"{name} in {share:.0%} of {len(bits)} samples" for name, share in found.items())
    clock = f", SM clock {span[0]} to {span[1]} MHz" if span else ""
    first = f"{told[0].upper()}{told[1:]}{clock}. {finding.actions[0]}"
    return [msgspec.structs.replace(finding, actions=[first, *finding.actions[1:]])]


def _window(timeline: DeviceTimeline) -> list[Finding]:
    """Whether the window speaks for the workload: 5 iterations, 10 s, and a period that is really one."""
    iterations, window = timeline.iterations, timeline.busy.window
    if iterations.method == "none":
        return [device_finding(timeline, "no-iterations", "info", 0.0, window_ms=window / 1e6)]
    found = [_of_two_kinds(timeline, two)] if (two := kinds(iterations.lengths)) else []
    if iterations.confidence < _SURE:
        found.append(
            device_finding(timeline, "uncertain-iterations", "info", 0.0, confidence=iterations.confidence)
        )
    count = len(iterations.lengths)
    if count < _MIN_ITERATIONS or window < _MIN_WINDOW_NS:
        evidence = {"iterations": count, "window_ms": window / 1e6}
        found.append(device_finding(timeline, "short-capture", "info", 0.0, **evidence))
    return found


def _of_two_kinds(timeline: DeviceTimeline, two: Kinds) -> Finding:
    long, short = spoken.time(two.long_ns / 1e6), spoken.time(two.short_ns / 1e6)
    finding = device_finding(
        timeline, "two-kinds", "info", 0.0,
        iterations=two.count, long=two.long, long_ms=two.long_ns / 1e6, short_ms=two.short_ns / 1e6,
        first=two.turn,
    )  # fmt: skip
    if two.turn is None:
        told = f"{two.long} of {two.count} take {long}, the others {short}."
    else:
        before, after = (long, short) if two.long_first else (short, long)
        told = f"The first {two.turn} of {two.count} take {before}, those after them {after}."
    return msgspec.structs.replace(finding, actions=[f"{told} {finding.actions[0]}"])
