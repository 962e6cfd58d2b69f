"""A finding about one device, with what to do in the words of what programs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ai_prof.timeline.advice import ACTIONS, COMPILE, HELD_ALONE, LARGER_GRAPHS
from ai_prof.timeline.advice_hip import in_words_of_hip
from ai_prof.timeline.advice_opencl import OPENCL_ACTIONS
from ai_prof.timeline.advice_xla import XLA_ACTIONS, XLA_COMPILE
from ai_prof.timeline.finding import Finding, Severity

if TYPE_CHECKING:
    from ai_prof.timeline.device import DeviceTimeline


def device_finding(
    timeline: DeviceTimeline, name: str, severity: Severity, saves_ns: float, **evidence: Any
) -> Finding:
    """Make the finding `name`; acting on it returns at most `saves_ns` over the window."""
    saves = saves_ns / timeline.iterations_in_window / 1e6
    return Finding(name, severity, {"device": timeline.device, **evidence}, saves, _actions(timeline, name))


def _actions(timeline: DeviceTimeline, name: str) -> list[str]:
    """In the words of the device and of OpenCL, JAX or PyTorch."""
    actions = _by_program(timeline, name)
    return [in_words_of_hip(action) for action in actions] if timeline.kind == "hip" else actions


def _by_program(timeline: DeviceTimeline, name: str) -> list[str]:
    """What is in graphs already needs no advice to use them."""
    own = OPENCL_ACTIONS if timeline.kind == "opencl" else XLA_ACTIONS if timeline.by_xla else {}
    operations = timeline.operations
    if name == "gap-wait" and name not in own and len(np.unique(operations.stream)) == 1:
        return [HELD_ALONE]
    from_graphs = (operations.graph[operations.is_kernel] > 0).sum() * 2 > operations.is_kernel.sum()
    graphs = {COMPILE, XLA_COMPILE} if from_graphs else set()
    return [LARGER_GRAPHS if action in graphs else action for action in own.get(name, ACTIONS[name])]
