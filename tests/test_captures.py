"""Two captures recorded on an H200: what they hold, by counts known from outside and by a slow recount.

`h200_torch_train.aiprof`: 12 steps of workloads/torch_train. `h200_torch_decode.aiprof`: 24 tokens of
workloads/torch_decode. PyTorch 2.11, CUPTI 13.0, level api. The iterations are the programs' own counts;
each of them reads one value back at the end of an iteration, so there is one host synchronize in each.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from ai_prof.timeline.evidence import evidence
from ai_prof.timeline.summary import summarise
from ai_prof.trace.model import CallKind, CopyKind
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from ai_prof.trace.model import Trace

FOLDER = Path(__file__).parent / "captures"
NAMES = ("h200_torch_train", "h200_torch_decode")
KNOWN = {
    "h200_torch_train": {"iterations": 12, "kernels": 411, "copies": 3, "syncs": 1, "all_kernels": 5087},
    "h200_torch_decode": {"iterations": 24, "kernels": 151, "copies": 1, "syncs": 1, "all_kernels": 3846},
}


def opened(name: str) -> Trace:
    return open_trace(FOLDER / f"{name}.aiprof")


def covered(rows: list[tuple[int, int]], low: int, high: int) -> int:
    """Length of a union within a window, by walking the intervals one after another."""
    total, reached = 0, low
    for start, end in sorted(rows):
        left, right = max(start, reached), min(end, high)
        if right > left:
            total += right - left
            reached = right
    return total


@pytest.mark.parametrize("name", NAMES)
def test_nothing_was_lost(name: str) -> None:
    trace = opened(name)
    assert trace.source.complete
    assert trace.source.warnings == ()
    assert sum(loss.lost for loss in trace.source.losses.values()) == 0
    assert len(trace.kernels.start) == KNOWN[name]["all_kernels"]
    assert trace.devices[0].name == "NVIDIA H200"


@pytest.mark.parametrize("name", NAMES)
def test_iterations_are_those_that_the_program_counted(name: str) -> None:
    found, known = evidence(opened(name)), KNOWN[name]
    assert found.iterations == known["iterations"]
    assert {key: found.structure[key] for key in ("kernels", "copies", "syncs")} == {
        key: known[key] for key in ("kernels", "copies", "syncs")
    }
    assert found.problems == []


@pytest.mark.parametrize("name", NAMES)
def test_figures_equal_a_slow_recount(name: str) -> None:
    trace = opened(name)
    (device,) = summarise(trace, "span").devices
    kernels = list(zip(trace.kernels.start.tolist(), trace.kernels.end.tolist(), strict=True))
    copying = trace.memory.kind != CopyKind.SET
    copies = list(zip(trace.memory.start[copying].tolist(), trace.memory.end[copying].tolist(), strict=True))
    every = [*kernels, *zip(trace.memory.start.tolist(), trace.memory.end.tolist(), strict=True)]
    low, high = min(start for start, _ in every), max(end for _, end in every)
    window = high - low
    assert device.window_ns == window
    busy, work = covered(kernels, low, high), covered(every, low, high)
    assert device.kernel_busy == pytest.approx(busy / window, rel=1e-12)
    assert device.copy_only == pytest.approx((work - busy) / window, rel=1e-9, abs=1e-12)
    assert device.gap == pytest.approx(1 - work / window, rel=1e-12)
    mean = sum(end - start for start, end in kernels) / len(kernels) / 1000
    assert device.kernel_mean_us == pytest.approx(mean, rel=1e-12)
    both = covered(kernels, low, high) + covered(copies, low, high) - covered(kernels + copies, low, high)
    assert device.copy_compute_overlap == pytest.approx(both / covered(copies, low, high), abs=1e-12)
    causes = msgspec.to_builtins(device.gap_causes)
    assert sum(causes.values()) == pytest.approx(device.gap, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_each_kernel_starts_after_its_one_launch(name: str) -> None:
    trace = opened(name)
    launches = trace.calls.kind == CallKind.LAUNCH
    asked = {
        int(correlation): int(start)
        for correlation, start in zip(
            trace.calls.correlation[launches], trace.calls.start[launches], strict=True
        )
    }
    assert len(asked) == int(launches.sum())
    rows = zip(trace.kernels.correlation.tolist(), trace.kernels.start.tolist(), strict=True)
    assert all(asked[correlation] < start for correlation, start in rows)
    assert (np.diff(trace.kernels.start) >= 0).all()


def test_what_bounds_them() -> None:
    assert summarise(opened("h200_torch_decode")).tag == "launch-bound"
    assert summarise(opened("h200_torch_train")).tag == "compute-bound"
