"""Gaps with their causes and iterations as rows to draw and to tabulate, over the whole capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ai_prof.timeline import advice
from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.operations import busy_devices
from ai_prof.trace.writers.track import Track

if TYPE_CHECKING:
    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.trace.model import Trace


def tracks(trace: Trace) -> list[Track]:
    """Iterations and gaps of every device that did any work."""
    found = []
    for device in busy_devices(trace):
        timeline = device_timeline(trace, device, "span")
        found += [_iterations(timeline), _gaps(timeline)]
    return found


def _iterations(timeline: DeviceTimeline) -> Track:
    """From start to start: the last one found has no end, and is not there."""
    found = timeline.iterations
    number = np.arange(max(len(found.starts) - 1, 0), dtype=np.int64)
    names = tuple(f"iteration {i}" + (" (warm-up)" if i < found.warm_up else "") for i in number.tolist())
    warm_up = (number < found.warm_up).astype(np.int64)
    values = {"iteration": number, "warm_up": warm_up}
    starts = found.starts
    return Track(
        timeline.device, "iterations", starts[:-1], starts[1:], number.astype(np.int32), names, values
    )


def _gaps(timeline: DeviceTimeline) -> Track:
    """Each gap by the cause of most of it."""
    gaps, causes = timeline.busy.gaps, timeline.causes
    values = {f"{name}_ns": causes.of(name) for name in CAUSES}
    words = tuple(advice.CAUSES[name] for name in CAUSES)
    return Track(timeline.device, "gaps", gaps.start, gaps.end, causes.main(), CAUSES, values, words)
