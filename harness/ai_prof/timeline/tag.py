"""One word on what bounds a workload, for a scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.timeline.communication import comm_exposed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.trace.model import Trace

_BUSY = 0.70  # busier with compute than this is compute-bound, whatever the rest
_TAGS = {
    "launch": "launch-bound",
    "device": "launch-bound",
    "host": "host-bound",
    "data": "data-bound",
    "sync": "sync-bound",
    "wait": "sync-bound",
}


def tag(trace: Trace, timelines: Sequence[DeviceTimeline]) -> str | None:
    """What most of the time not spent computing goes to; None without work or without known causes."""
    window = sum(t.busy.window for t in timelines)
    if not window:
        return None
    shares: dict[str, int] = {
        "communication-bound": sum(
            comm_exposed(t.operations, trace.names, t.busy.low, t.busy.high) for t in timelines
        ),
        "copy-bound": sum(t.busy.copy_only for t in timelines),
    }
    for timeline in timelines:
        for cause, ns in timeline.causes.total().items():
            if name := _TAGS.get(cause):
                shares[name] = shares.get(name, 0) + ns
    compute = sum(t.busy.kernel for t in timelines) - shares["communication-bound"]
    if compute >= _BUSY * window:
        return "compute-bound"
    worst = max(shares, key=lambda name: shares[name])
    unknown = sum(t.causes.total()["unknown"] for t in timelines)
    return worst if shares[worst] > unknown else None
