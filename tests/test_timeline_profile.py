from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import aiprof_file as af
import numpy as np
import pytest

from ai_prof.gate.profile_align import align
from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.evidence import evidence
from ai_prof.timeline.profile import ROWS, host_intervals, profile
from ai_prof.trace.open import open_trace
from ai_prof.trace.readers import native

CAPTURES = Path(__file__).parent / "captures"
RECORDED = ("h200_torch_train", "h200_torch_decode")


def of(program, folder):
    return evidence(native.read([program.write(folder)])).profile


def row(found, name):
    return found.values[ROWS.index(name)]


def loop(iterations, *, slow=None, graph=False):
    """Each iteration: 500 us of host work, an upload, three kernels, a wait; `slow` iterations take 2 ms."""
    program = af.Program()
    for i in range(iterations):
        program.work(2_000_000 if slow and i in slow else 500_000)
        program.copy(af.HTOD, 20_000, size=4096)
        program.launch("gemm_128x64", 100_000)
        program.work(30_000)
        if graph:
            program.graph_launch(["relu", "add"], 50_000)
        else:
            program.launch("relu", 100_000)
        program.launch("gemm_64x64", 100_000)
        program.synchronize()
    return program


def test_positions_are_the_operations_of_one_iteration(tmp_path):
    found = of(loop(40), tmp_path)
    assert found.names == ("memcpy host to device", "gemm_#x#", "relu", "gemm_#x#")
    assert found.thread.tolist() == [0, 0, 0, 0]
    assert row(found, "device_us").tolist() == [20, 100, 100, 100]
    # The wait for 300 us of device work is not the host's; its work and its calls of 4 us are.
    host = np.exp(row(found, "host_p25"))
    assert 500 <= host[0] < 515
    assert host[1:] == pytest.approx([4, 34, 4], abs=0.1)
    gap = row(found, "gap_us")
    assert gap[0] > 500
    assert gap[1:].tolist() == [0, 0, 0]


def test_few_slow_iterations_show_in_no_row_and_many_in_the_slow_one(tmp_path):
    few = of(loop(60, slow=range(5, 60, 10)), tmp_path)
    assert np.exp(row(few, "host_p75"))[0] < 515
    many = of(loop(60, slow=range(5, 60, 2)), tmp_path)
    assert np.exp(row(many, "host_p75"))[0] > 1500
    assert np.exp(row(many, "host_p25"))[0] < 515


def test_a_graph_is_one_submission_of_several_operations(tmp_path):
    found = of(loop(40, graph=True), tmp_path)
    assert found.names == ("memcpy host to device", "gemm_#x#", "relu", "add", "gemm_#x#")
    assert np.isnan(row(found, "host_p25")).tolist() == [False, False, False, True, False]
    assert row(found, "device_us").tolist() == [20, 100, 50, 50, 100]


def test_too_few_iterations_have_no_profile(tmp_path):
    assert of(loop(8), tmp_path) is None


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_programs_have_every_submission_of_an_iteration(name):
    trace = open_trace(CAPTURES / f"{name}.aiprof")
    timeline = device_timeline(trace, 0)
    found = profile(trace, timeline)
    operations = timeline.operations
    first, last = timeline.iterations.starts[-2:]
    inside = (operations.start >= first) & (operations.start < last)
    assert len(found.names) == inside.sum()
    assert int((found.kind == -1).sum()) == timeline.structure.constant()["kernels"]
    assert len(set(found.thread.tolist())) == (2 if "train" in name else 1)
    assert np.isfinite(found.values).all()
    busy = (operations.end - operations.start)[inside].sum() / 1e3
    assert row(found, "device_us").sum() == pytest.approx(busy, rel=0.03)
    again = profile(trace, device_timeline(trace, 0))
    assert again.digest() == found.digest()


@pytest.mark.parametrize("name", RECORDED)
def test_host_intervals_equal_a_slow_recount(name):
    trace = open_trace(CAPTURES / f"{name}.aiprof")
    timeline = device_timeline(trace, 0)
    operations, order = timeline.operations, timeline.iterations.operation
    order = order[order >= 0][-1200:]
    found = host_intervals(trace, 0, operations, order)
    calls = {
        c: (s, t)
        for c, s, t in zip(
            *(getattr(trace.calls, k).tolist() for k in ("correlation", "start", "thread")), strict=True
        )
        if c > 0
    }
    waits = [
        (s, e, calls[c][1])
        for s, e, c in zip(
            *(getattr(trace.syncs, k).tolist() for k in ("start", "end", "correlation")), strict=True
        )
        if c in calls
    ]
    starts = [calls[c] for c in operations.correlation[order].tolist()]
    expected = []
    for (low, _), (high, thread) in pairwise(starts):
        blocked = sum(max(0, min(e, high) - max(s, low)) for s, e, t in waits if t == thread)
        expected.append(max(high - low - blocked, 100))
    assert np.isnan(found[0])
    assert found[1:].tolist() == expected


@pytest.mark.parametrize("name", RECORDED)
def test_a_delay_put_into_a_recording_appears_where_it_is_and_nowhere_else(name):
    trace = open_trace(CAPTURES / f"{name}.aiprof")
    timeline = device_timeline(trace, 0)
    before = profile(trace, timeline)
    place, delay = len(before.names) // 2, 200_000
    order = timeline.iterations.operation
    at = order[order >= 0]
    first = np.searchsorted(np.flatnonzero(order >= 0), timeline.iterations.first_row)
    marks = np.sort(timeline.operations.launch[at[first[first + place < len(at)] + place]])

    def later(table):
        moved = {
            k: getattr(table, k) + delay * np.searchsorted(marks, getattr(table, k), side="right")
            for k in ("start", "end")
        }
        return replace(table, **moved)

    slowed = replace(trace, **{k: later(getattr(trace, k)) for k in ("kernels", "memory", "syncs", "calls")})
    after = profile(slowed, device_timeline(slowed, 0))
    both = align(before, [before, after])  # the delay may have moved where an iteration begins
    assert len(both.position) == len(before.names)
    grown = np.diff(np.exp(both.row("host_p25")), axis=0)[0]
    assert grown[place] == pytest.approx(200, abs=3)
    # Where an iteration begins elsewhere, there is one fewer or one more of them to take quantiles of.
    assert np.abs(np.delete(grown, place)).max() < 3
