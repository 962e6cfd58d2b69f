from __future__ import annotations

from pathlib import Path

import aiprof_file as af
import pytest
from test_timeline_profile import loop, of

from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.spent import LEAST_US, spent
from ai_prof.timeline.syncs import sync_figures
from ai_prof.trace.open import open_trace

CAPTURES = Path(__file__).parent / "captures"


@pytest.mark.parametrize("name", ["h200_torch_train", "h200_torch_decode"])
def test_kernels_and_gaps_add_up_to_the_mean_iteration(name):
    trace = open_trace(CAPTURES / f"{name}.aiprof")
    timeline = device_timeline(trace, 0)
    found, per, busy = spent(trace, timeline), timeline.iterations_in_window, timeline.busy
    operations = timeline.operations
    inside = operations.is_kernel & (operations.start >= busy.low) & (operations.start < busy.high)
    whole_ms = (operations.end - operations.start)[inside].sum() / per / 1e6
    assert sum(use.ms for use in found.kernels.values()) == pytest.approx(whole_ms)
    assert sum(use.count for use in found.kernels.values()) == pytest.approx(inside.sum() / per)
    for cause, ns in timeline.causes.total().items():
        listed = sum(gap.us.get(cause, 0.0) for gap in found.gaps)
        assert listed <= ns / per / 1e3 + 0.01
    listed = sum(sum(gap.us.values()) for gap in found.gaps)
    kinds = len({*found.kernels}) + 6
    assert listed >= busy.gap / per / 1e3 - LEAST_US * kinds**2
    assert listed == pytest.approx(busy.gap / per / 1e3, rel=0.05)


def test_a_kernel_that_takes_longer_now_and_then_counts_with_its_mean(tmp_path):
    program = af.Program()
    for i in range(40):
        program.work(500_000)
        program.copy(af.HTOD, 20_000, size=4096)
        program.launch("gemm", 100_000)
        program.launch("relu", 400_000 if i % 4 == 0 else 100_000)
        program.synchronize()
    found = of(program, tmp_path).spent
    assert found.kernels["relu"].ms == pytest.approx(0.175, rel=0.03)
    assert found.kernels["gemm"].ms == pytest.approx(0.1)


def synchronized(tmp_path):
    """What iterations with a synchronize after each of three kernels spend their time on."""
    program = af.Program()
    for _ in range(40):
        program.work(500_000)
        for _ in range(2):
            program.launch("gemm_64x64", 100_000)
            program.synchronize()
        program.launch("relu", 100_000)
        program.synchronize()
    return of(program, tmp_path).spent


def test_a_synchronize_stands_after_what_it_waited_for(tmp_path):
    found = {(each.call, each.after): each for each in synchronized(tmp_path).syncs}
    assert {site: round(each.count) for site, each in found.items()} == {
        ("cudaStreamSynchronize", "gemm_#x#"): 2,
        ("cudaStreamSynchronize", "relu"): 1,
    }
    assert all(each.us > 90 * each.count for each in found.values())


@pytest.mark.parametrize("name", ["h200_torch_train", "h200_torch_decode"])
def test_all_synchronizes_and_the_whole_shadow_are_there(name):
    trace = open_trace(CAPTURES / f"{name}.aiprof")
    timeline = device_timeline(trace, 0)
    found, per = spent(trace, timeline), timeline.iterations_in_window
    low, high = timeline.busy.low, timeline.busy.high
    figures = sync_figures(trace, 0, timeline.operations, low, high)
    assert sum(each.count for each in found.syncs) == pytest.approx(figures.count / per)
    shadow = sum(gap.shadow_us for gap in found.gaps)
    assert shadow <= timeline.causes.sync_shadow / per / 1e3 + 0.01
    assert all(gap.shadow_us <= sum(gap.us.values()) + 0.01 for gap in found.gaps)


def test_a_kernel_has_its_threads_and_its_name_as_it_was(tmp_path):
    use = synchronized(tmp_path).kernels["gemm_#x#"]
    assert use.example == "gemm_64x64"
    assert use.threads == 1


def test_a_gap_stands_between_the_operations_around_it_with_its_causes(tmp_path):
    (gap,) = of(loop(40), tmp_path).spent.gaps
    assert (gap.before, gap.after) == ("gemm_#x#", "memcpy host to device")
    assert gap.count == pytest.approx(1)
    assert max(gap.us, key=gap.us.get) == "data"
    assert gap.us["data"] == pytest.approx(500, abs=20)
