"""Prints how well iterations and gap causes agree with what the recorded programs say themselves.

Usage: python tests/bench/iterations.py FOLDER, of NAME.aiprof with NAME.json (or NAME.aiprof.xz), as
tests/gpu/record writes them.
"""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from truth import Agreement, agreement, marked_starts

from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.operations import busy_devices
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
TARGET_FOUND, TARGET_CAUSE = 0.99, 0.90


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


def load(folder: Path, name: str) -> Recorded | None:
    """A recorded program; None where it isn't there."""
    marks = folder / f"{name}.json"
    plain, packed = folder / f"{name}.aiprof", folder / f"{name}.aiprof.xz"
    if not marks.exists():
        return None
    if plain.exists():
        trace = open_trace(plain)
    else:
        with TemporaryDirectory() as scratch:
            unpacked = Path(scratch) / "h-1-0.aiprof"
            unpacked.write_bytes(lzma.decompress(packed.read_bytes()))
            trace = open_trace(unpacked)
    times = json.loads(marks.read_text())["marks"]
    kinds = PHASES.get(name, ("iteration",))
    device = int(np.bincount(trace.kernels.device).argmax())
    assert device in busy_devices(trace)
    timeline = device_timeline(trace, device)
    return Recorded(name, trace, timeline, sorted(t for kind in kinds for t in times.get(kind, ())))


def per_iteration(recorded: Recorded) -> dict[str, float]:
    """Ms of gap an iteration by cause, with the sync shadow, over the marked steady iterations.

    The first fifth is left out on both sides of a pair, as warm-up.
    """
    causes = recorded.timeline.causes
    count = max(recorded.timeline.iterations_in_window, 1)
    spent = {cause: ns / count / 1e6 for cause, ns in causes.total().items()}
    spent["shadow"] = causes.sync_shadow / count / 1e6
    spent["gap"] = recorded.timeline.busy.gap / count / 1e6
    return spent


def print_iterations(captures: list[Recorded]) -> bool:
    """A line for each capture with markers, and the share of all."""
    print(
        f"{'capture':<20}{'marked':>7}{'found':>7}{'extra':>7}{'share':>8}{'confidence':>11}{'offset us':>11}"
    )
    marked = found = 0
    held = True
    for capture in captures:
        iterations = capture.timeline.iterations
        seen = f"{iterations.method} {iterations.count} at {iterations.confidence:.2f}"
        if capture.name in APERIODIC or (capture.name == BARE and iterations.method == "none"):
            held &= iterations.method == "none"
            print(f"{capture.name:<20}   none is right: {seen}")
            continue
        agreed = capture.agreement()
        marked, found = marked + agreed.marked, found + agreed.found
        held &= agreed.share >= TARGET_FOUND
        print(
            f"{capture.name:<20}{agreed.marked:>7}{agreed.found:>7}{agreed.extra:>7}{agreed.share:>8.1%}"
            f"{iterations.confidence:>6.2f}{agreed.offset_ns / 1000:>11.1f}"
        )
    print(f"all: {found} of {marked} boundaries, {found / max(marked, 1):.2%} (target {TARGET_FOUND:.0%})")
    return held


def print_causes(captures: dict[str, Recorded]) -> bool:
    """For each pair how much gap the fault adds to an iteration, and which share its causes take."""
    columns = (*CAUSES, "shadow")
    print(f"\n{'fault':<20}{'expected':<14}{'gap ms':>8}{'share':>8}  " + "".join(f"{c:>9}" for c in columns))
    held = True
    for base, fault, expected in PAIRS:
        if base not in captures or fault not in captures:
            continue
        before, after = per_iteration(captures[base]), per_iteration(captures[fault])
        added = {name: after[name] - before[name] for name in after}
        share = sum(added[cause] for cause in expected) / added["gap"]
        held &= share >= TARGET_CAUSE and added["unknown"] == 0
        rest = "".join(f"{added[c]:>9.3f}" for c in columns)
        print(f"{fault:<20}{'+'.join(expected):<14}{added['gap']:>8.3f}{share:>8.1%}  {rest}")
    return held


def main() -> int:
    """Print both tables; 1 where a target is missed."""
    folder = Path(sys.argv[1])
    names = sorted(path.stem for path in folder.glob("*.json"))
    captures = {name: capture for name in names if (capture := load(folder, name))}
    held = [print_iterations(list(captures.values())), print_causes(captures)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
