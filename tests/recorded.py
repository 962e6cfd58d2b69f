"""Programs recorded on an H200 by tests/gpu/record, what they say of themselves, and what is to be found."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from truth import Agreement, agreement, marked_starts

from ai_prof.timeline.device import device_timeline
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.trace.model import Trace

APERIODIC = ("shuffled", "tree", "algebra")
BARE = "bare_kernel"  # one kernel over and over: none is right
PHASES = {"prefill_decode": ("prefill", "decode")}  # each phase is its own iteration
PAIRS = (
    ("base", "stall_start", ("data",)),
    ("base", "stall_middle", ("host",)),
    ("base", "tiny", ("launch",)),
    ("base", "log", ("host",)),
    ("base", "wait", ("wait",)),
    ("base", "sync", ("sync", "shadow")),
    ("loader_4", "loader_0", ("data",)),
    ("torch_train", "torch_train_stall", ("data",)),
    ("torch_train", "torch_train_sync", ("sync", "shadow")),
    ("torch_decode", "torch_decode_stall", ("data",)),
    ("torch_decode", "torch_decode_sync", ("sync", "shadow")),
    ("torch_decode", "torch_decode_tiny", ("launch",)),
)
NOTABLE = 0.02  # of an iteration: a fault that adds less gap than this tells nothing of causes


@dataclass(frozen=True)
class Recorded:
    """A capture, its busiest device and its markers."""

    name: str
    trace: Trace
    timeline: DeviceTimeline
    marks: list[int]

    def agreement(self) -> Agreement:
        """Of the boundaries found with those marked."""
        return agreement(self.timeline.iterations.starts, marked_starts(self.trace, self.marks))


def load(folder: Path, name: str) -> Recorded:
    """A recorded program: NAME.aiprof.xz, and NAME.json with its markers."""
    with TemporaryDirectory() as scratch:
        unpacked = Path(scratch) / "h-1-0.aiprof"
        unpacked.write_bytes(lzma.decompress((folder / f"{name}.aiprof.xz").read_bytes()))
        trace = open_trace(unpacked)
    times = json.loads((folder / f"{name}.json").read_text())["marks"]
    marks = sorted(time for kind in PHASES.get(name, ("iteration",)) for time in times.get(kind, ()))
    device = int(np.bincount(trace.kernels.device).argmax())
    return Recorded(name, trace, device_timeline(trace, device), marks)


def added_gap(before: Recorded, after: Recorded) -> dict[str, float]:
    """Ms an iteration that a fault adds: to the `gap`, to each cause, and to the `shadow` of synchronizes."""
    spent = []
    for timeline in (before.timeline, after.timeline):
        figures = {**timeline.causes.total(), "shadow": timeline.causes.sync_shadow, "gap": timeline.busy.gap}
        count = timeline.iterations_in_window
        spent.append({name: ns / count / 1e6 for name, ns in figures.items()})
    return {name: spent[1][name] - spent[0][name] for name in spent[0]}
