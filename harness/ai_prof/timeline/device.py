"""Everything known of one device over its window: the shared ground of summary, findings and evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ai_prof.timeline.busy import Busy, busy
from ai_prof.timeline.causes import GapCauses, gap_causes
from ai_prof.timeline.iterations import Iterations, find_iterations
from ai_prof.timeline.operations import Operations, device_operations
from ai_prof.timeline.structure import Structure, structure
from ai_prof.timeline.xla import compiled_by_xla

if TYPE_CHECKING:
    from ai_prof.trace.model import Trace

Window = Literal["auto", "span"]


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """`window` names [busy.low, busy.high): whole iterations after warm-up, or first start to last end.

    `kind` is the device's own: cuda, hip, opencl or unknown. `by_xla` says that XLA compiled its kernels.
    """

    device: int
    kind: str
    by_xla: bool
    operations: Operations
    iterations: Iterations
    structure: Structure
    window: Literal["iterations", "span"]
    busy: Busy
    causes: GapCauses

    @property
    def iterations_in_window(self) -> int:
        """Whole iterations that the window covers; 1 for a span without any."""
        if self.window == "iterations":
            return len(self.iterations.lengths)
        return max(self.iterations.count, 1)


def device_timeline(
    trace: Trace, device: int, window: Window = "auto", counted: int | None = None
) -> DeviceTimeline:
    """Analyse one device, which must have done some work; `counted` iterations, as the program says."""
    operations = device_operations(trace, device)
    iterations = find_iterations(trace, operations, device, counted)
    whole = iterations.window if window == "auto" else None
    low, high = whole or (int(operations.start.min()), int(operations.end.max()))
    spent = busy(operations, low, max(high, low + 1))  # a window of no length has no shares
    return DeviceTimeline(
        device,
        trace.devices[device].kind,
        compiled_by_xla(trace.names, operations),
        operations,
        iterations,
        structure(trace, operations, iterations),
        "iterations" if whole else "span",
        spent,
        gap_causes(trace, operations, device, spent.gaps, iterations.starts),
    )
