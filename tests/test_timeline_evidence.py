from __future__ import annotations

import aiprof_file as af
import pytest

from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.evidence import evidence
from ai_prof.trace.readers import native


def loop(program, iterations, *, extra_sync=False, odd=False):
    for i in range(iterations):
        program.work(500_000)
        program.iteration()
        program.copy(af.HTOD, 20_000, size=4096)
        for name in ("gemm_128x64", "relu", "gemm_64x64"):
            program.launch(name, 100_000)
        if odd and i == iterations // 2:
            program.launch("log", 10_000)
        if extra_sync:
            program.synchronize()
        program.synchronize()
    return program


def test_one_run(tmp_path):
    found = evidence(native.read([loop(af.Program(), 20).write(tmp_path)]))
    assert found.problems == []
    assert found.iterations == 20
    assert len(found.iteration_ms) in {18, 19}
    assert found.structure == {
        "kernels": 3,
        "copies": 1,
        "copy_bytes": 4096,
        "syncs": 1,
        "graph_launches": 0,
    }
    assert found.kernels == {"gemm_#x#": 2, "relu": 1}
    # By hand: 500 us of host work, 4 us launch and 2 us latency before the upload, then 20 + 3 * 100 us of
    # device work, and 3 us until the synchronize returns.
    assert found.metrics["iteration_ms"] == pytest.approx(0.829)
    assert found.metrics["kernel_time_ms"] == pytest.approx(0.3)
    assert found.metrics["gap_ms"] == pytest.approx(0.509)
    assert found.metrics["kernel_mean_us"] == pytest.approx(100)
    assert found.metrics["kernel_busy"] == pytest.approx(300 / 829)
    assert found.metrics["gap"] == pytest.approx(509 / 829)
    assert found.metrics["copy_compute_overlap"] == 0
    assert set(found.gap_causes_ms) == set(CAUSES)
    assert sum(found.gap_causes_ms.values()) == pytest.approx(0.509)
    assert found.gap_causes_ms["data"] == pytest.approx(0.5)
    assert found.gap_causes_ms["sync"] == pytest.approx(0.003)


def test_one_more_synchronize_is_seen(tmp_path):
    found = evidence(native.read([loop(af.Program(), 20, extra_sync=True).write(tmp_path)]))
    assert found.structure["syncs"] == 2


def test_counts_that_differ_are_none(tmp_path):
    found = evidence(native.read([loop(af.Program(), 20, odd=True).write(tmp_path)]))
    assert found.structure["kernels"] is None
    assert found.structure["copies"] == 1
    assert found.kernels is None


@pytest.mark.parametrize(
    ("odd", "found"),
    [
        (("relu", "gemm_64x64", "gemm_128x64"), {"gemm_#x#": 2, "relu": 1}),
        (("relu", "gelu", "gemm_128x64"), None),
    ],
)
def test_kernels_of_iterations_that_have_as_many(tmp_path, odd, found):
    program = af.Program()
    for i in range(20):
        program.iteration()
        program.copy(af.HTOD, 20_000, size=4096)
        for name in odd if i == 10 else ("gemm_128x64", "relu", "gemm_64x64"):
            program.launch(name, 100_000)
        program.synchronize()
    run = evidence(native.read([program.write(tmp_path)]))
    assert run.structure["kernels"] == 3
    assert run.kernels == found


def test_no_copies_no_overlap(tmp_path):
    program = af.Program()
    for _ in range(10):
        program.launch("a", 10_000)
        program.launch("b", 10_000)
        program.synchronize()
    assert evidence(native.read([program.write(tmp_path)])).metrics["copy_compute_overlap"] is None


def test_no_work_is_a_problem(tmp_path):
    found = evidence(native.read([af.Program().write(tmp_path)]))
    assert found.metrics == {}
    assert "no device work" in found.problems[0]


def test_losses_and_a_cut_file_are_problems(tmp_path):
    program = loop(af.Program(), 20)
    program.loss(af.KERNEL, 60, cupti=5)
    found = evidence(native.read([program.write(tmp_path, closed=False)]))
    assert found.problems[0].startswith("kernel: 5 records lost. Raise AI_PROF_BUFFER_MB")
    assert "without closing" in found.problems[1]


def test_work_without_iterations_is_a_problem(tmp_path):
    program = af.Program()
    program.launch("only", 10_000)
    found = evidence(native.read([program.write(tmp_path)]))
    assert found.metrics["iteration_ms"] is None
    assert found.metrics["kernel_time_ms"] is None
    assert found.metrics["kernel_busy"] == 1
    assert "no iterations" in found.problems[0]


def test_two_devices_are_added_up(tmp_path):
    paths = []
    for pid in (1, 2):
        program = af.Program(pid=pid)
        program.rows = [row for row in program.rows if row[0] != af.DEVICE]
        program.device(uuid=bytes([pid]) * 16)
        paths.append(loop(program, 20).write(tmp_path, f"{pid}.aiprof"))
    found = evidence(native.read(paths))
    assert found.structure["kernels"] == 6
    assert found.kernels == {"gemm_#x#": 4, "relu": 2}
    assert found.metrics["kernel_time_ms"] == pytest.approx(0.6)
    assert found.metrics["iteration_ms"] == pytest.approx(0.829)
