"""What a report says first of faults that were built into a program, recorded on an H200."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from recorded import load

from ai_prof.gate.explain import explain
from ai_prof.gate.model import Cell, Reason, Run, StructureChange, WorkloadVerdict
from ai_prof.report import cause
from ai_prof.timeline.evidence import RunEvidence, evidence

FOLDER = Path(__file__).parent / "captures" / "h200"


@cache
def seen(name: str) -> RunEvidence:
    return evidence(load(FOLDER, name).trace)


def run(name: str) -> Run:
    found = seen(name)
    return Run(
        workload="train", session="s", order=0, host="h", started="2025-01-01T00:00:00Z",
        metrics=found.metrics, structure=found.structure, iteration_ms=found.iteration_ms,
        gap_causes_ms=found.gap_causes_ms, sync_shadow_ms=found.sync_shadow_ms,
    )  # fmt: skip


def regressed(name: str, base: str = "base") -> WorkloadVerdict:
    """The program with a fault against the same without."""
    sides = seen(base), seen(name)
    profiles = [[side.profile] if side.profile else [] for side in sides]
    counts = [
        StructureChange(name=count, baseline=before, candidate=after, reason=Reason.REGRESSED)
        for count, before in sides[0].structure.items()
        if before is not None and (after := sides[1].structure[count]) is not None and after != before
    ]
    before, after = (side.metrics["iteration_ms"] for side in sides)
    latency = Cell(
        metric="iteration_ms", unit="ms", reason=Reason.REGRESSED, baseline=before, candidate=after
    )
    return WorkloadVerdict(
        workload="train", reason=Reason.REGRESSED, cells=[latency], structure=counts,
        baseline_runs=[run(base)], candidate_runs=[run(name)],
        explained=explain(*profiles, ("baseline", "candidate")),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "first", "second"),
    [
        (
            "sync",
            "4 more synchronizes: cudaDeviceSynchronize after vectorized_elementwise_kernel<",
            "because synchronizes emptied its queue",
        ),
        ("tiny", "400 more kernels", "while the host issues calls"),
        (
            "stall_start",
            "while the host prepares input",
            "between memcpy device to host and memcpy host to device",
        ),
        ("stall_middle", "while the host is busy outside the device's API", "nll_loss_forward"),
        ("wait", "for another stream or an event", "nll_loss_forward"),
        (
            "log",
            "1 more synchronize: cudaStreamSynchronize after memcpy device to host",
            "while the host is busy",
        ),
    ],
)
def test_what_was_built_in_is_said_first(fault, first, second):
    said = cause.sentences(regressed(fault))
    assert first in said[0]
    assert second in said[1]


def test_what_six_synchronizes_cost_of_a_training_step_is_laid_to_them():
    """The device waits for the host at short kernels long after the last of them."""
    said = cause.sentences(regressed("torch_train_sync", "torch_train"))
    assert said[0].startswith("Each iteration has 6 more synchronizes: cudaDeviceSynchronize after ")
    assert "because synchronizes emptied its queue" in said[1]
