"""What 25 programs recorded on an H200 say themselves: their iterations, and the faults that were built in.

Trimmed by tests/gpu/record/trim.py to their first iterations; `python tests/bench/iterations.py
tests/captures/h200` prints the figures.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest
from recorded import APERIODIC, BARE, NOTABLE, PAIRS, Recorded, added_gap
from recorded import load as load_from
from truth import agreement, marked_starts

from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.findings import find
from ai_prof.trace.model import CallKind

FOLDER = Path(__file__).parent / "captures" / "h200"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
PERIODIC = [name for name in NAMES if name not in {*APERIODIC, BARE}]
COLD = {"jax_train": 1, "prefill_decode": 1}
"""Boundaries that may be missed: before the steady state JAX places parameters after its first marker, the
first prefill is unlike all others."""


@cache
def load(name: str) -> Recorded:
    return load_from(FOLDER, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_captures_are_whole(name):
    trace = load(name).trace
    assert trace.source.complete
    assert trace.source.warnings == ()
    assert sum(loss.lost for loss in trace.source.losses.values()) == 0
    assert (trace.calls.kind == CallKind.LAUNCH).any()


@pytest.mark.parametrize("name", PERIODIC)
def test_iterations_begin_where_the_program_says(name):
    found = load(name).agreement()
    assert found.marked - found.found <= COLD.get(name, 0)
    assert found.extra <= COLD.get(name, 0)


def test_all_together_99_of_100_are_found():
    agreed = [load(name).agreement() for name in PERIODIC]
    assert len(agreed) >= 12
    assert sum(a.found for a in agreed) >= 0.99 * sum(a.marked for a in agreed)


@pytest.mark.parametrize("name", APERIODIC)
def test_no_period_is_invented(name):
    assert load(name).timeline.iterations.method == "none"


@pytest.mark.parametrize("name", NAMES)
def test_what_xla_compiled_is_known(name):
    assert load(name).timeline.by_xla is (name == "jax_train")


def test_one_kernel_over_and_over_is_none_or_each():
    recorded = load(BARE)
    assert recorded.timeline.iterations.method == "none" or recorded.agreement().share == 1


@pytest.mark.parametrize(("base", "fault", "expected"), [pair for pair in PAIRS if {*pair[:2]} <= {*NAMES}])
def test_added_gap_has_the_cause_that_was_built_in(base, fault, expected):
    added = added_gap(load(base), load(fault))
    assert added["gap"] > NOTABLE * load(base).timeline.iterations.median_ns / 1e6
    assert sum(added[cause] for cause in expected) >= 0.9 * added["gap"]


@pytest.mark.parametrize("name", NAMES)
def test_no_gap_is_unknown_where_the_host_was_recorded(name):
    assert load(name).timeline.causes.total()["unknown"] == 0


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        ("stall_start", "gap-data"),
        ("stall_middle", "gap-host"),
        ("log", "gap-host"),
        ("wait", "gap-wait"),
        ("loader_0", "gap-data"),
        ("sync", "frequent-syncs"),
    ],
)
def test_the_first_finding_is_what_was_built_in(fault, first):
    recorded = load(fault)
    assert next(f for f in find(recorded.trace, [recorded.timeline]) if f.saves_ms).id == first
    base = load("loader_4" if fault == "loader_0" else "base")
    assert first not in {f.id for f in find(base.trace, [base.timeline]) if f.severity != "info"}


def test_a_stream_that_nothing_recorded_holds_is_not_laid_to_another_one():
    recorded = load("wait")
    first = next(f for f in find(recorded.trace, [recorded.timeline]) if f.saves_ms)
    assert first.evidence["streams"] == 1
    assert "a host function (cudaLaunchHostFunc)" in first.actions[0]


def test_new_shapes_come_before_the_gaps_that_they_make():
    recorded = load("varying_lengths")
    first, second, *_ = [f for f in find(recorded.trace, [recorded.timeline]) if f.saves_ms]
    assert (first.id, second.id) == ("code-loads", "gap-host")
    assert first.saves_ms < second.saves_ms
    assert first.actions[0].startswith("Let few shapes occur")


def test_small_kernels_are_named_by_the_one_that_runs_most():
    recorded = load("tiny")
    (finding,) = [f for f in find(recorded.trace, [recorded.timeline]) if f.id == "small-kernels"]
    often = finding.evidence["most_often"]
    assert often["kernel"] == "vectorized_elementwise_kernel<CUDAFunctorOnSelf_add<float>>"
    assert often["per_iteration"] >= 400
    assert often["mean_us"] < 2


def test_kernels_of_graphs_are_not_told_to_use_graphs():
    recorded = load("graph_decode")
    (finding,) = [f for f in find(recorded.trace, [recorded.timeline]) if f.id == "gap-launch"]
    assert finding.actions[0].startswith("The kernels are launched as graphs already")
    assert not any("torch.compile" in action for action in finding.actions)


def test_synchronizes_are_told_with_their_call_and_what_they_wait_for():
    recorded = load("sync")
    (finding,) = [f for f in find(recorded.trace, [recorded.timeline]) if f.id == "frequent-syncs"]
    assert finding.actions[0].startswith(
        "In an iteration it waits once in cudaStreamSynchronize after memcpy device to host, 4 times in "
        "cudaDeviceSynchronize after vectorized_elementwise_kernel<CUDAFunctor_add<float>>. Find what makes"
    )


@pytest.mark.parametrize("name", PERIODIC)
def test_a_window_out_of_the_middle_has_the_same_iterations(name):
    """As an attach sees it: from the middle of one iteration to the middle of another."""
    recorded = load(name)
    first, last = recorded.marks[3], recorded.marks[-2]
    low, high = first + (last - first) // 7, last - (last - first) // 9
    trace = recorded.trace
    tables = ("kernels", "memory", "calls", "syncs")
    cut = replace(trace, **{table: within(getattr(trace, table), low, high) for table in tables})
    marks = [mark for mark in recorded.marks if low <= mark <= high]
    found = agreement(device_timeline(cut, 0).iterations.starts, marked_starts(cut, marks))
    assert found.found >= found.marked - 1  # of the last one little may be left
    assert found.extra == 0


def within(table, low, high):
    kept = (table.start >= low) & (table.end <= high)
    return replace(table, **{field.name: getattr(table, field.name)[kept] for field in fields(table)})
