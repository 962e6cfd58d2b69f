"""Captures of PyTorch programs on a real GPU, held against torch.profiler and against what was run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from gpu_runs import PROGRAMS, captured, profiled

from ai_prof.trace.model import CallKind, CopyKind

if TYPE_CHECKING:
    from pathlib import Path

    from ai_prof.trace.model import Trace

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)


def assert_whole(trace: Trace) -> None:
    assert trace.source.complete, trace.source.warnings
    assert all(loss.lost == 0 for loss in trace.source.losses.values()), trace.source.losses
    assert not any(process.header.get("errors") for process in trace.processes)


@pytest.mark.parametrize("level", ["kernel", "api"])
@pytest.mark.parametrize("program", ["train.py", "graph.py"])
def test_agrees_with_torch_profiler(tmp_path: Path, program: str, level: str) -> None:
    theirs = profiled(tmp_path, program)
    trace, done = captured(tmp_path / "capture", program, level=level)
    assert_whole(trace)
    assert "ai-prof" not in done.stderr
    kernels = trace.kernels
    assert len(kernels.start) == len(theirs["kernel"])
    copies = int((trace.memory.kind != CopyKind.SET).sum())
    assert copies == len(theirs["gpu_memcpy"])
    assert len(trace.memory.start) - copies == len(theirs["gpu_memset"])
    ours = float((kernels.end - kernels.start).mean()) / 1000
    assert ours == pytest.approx(float(np.mean([us for _, us in theirs["kernel"]])), rel=0.02)
    assert {trace.names[i] for i in np.unique(kernels.name)} == {name for name, _ in theirs["kernel"]}
    assert (len(trace.calls.start) > 0) == (level == "api")


def test_every_kernel_has_its_one_launch(tmp_path: Path) -> None:
    trace, _ = captured(tmp_path, "train.py")
    calls = trace.calls
    asked = calls.correlation[calls.correlation != 0]
    assert len(np.unique(asked)) == len(asked)
    launches = calls.correlation[calls.kind == CallKind.LAUNCH]
    assert np.isin(trace.kernels.correlation, launches).all()
    assert np.isin(trace.memory.correlation, calls.correlation).all()
    order = np.argsort(calls.correlation)
    place = order[np.searchsorted(calls.correlation[order], trace.kernels.correlation)]
    assert (calls.start[place] < trace.kernels.start).all()


def test_synchronizes_are_the_same_at_both_levels(tmp_path: Path) -> None:
    lower, _ = captured(tmp_path / "kernel", "train.py", level="kernel")
    upper, _ = captured(tmp_path / "api", "train.py", level="api")
    assert np.bincount(lower.syncs.kind).tolist() == np.bincount(upper.syncs.kind).tolist()
    assert len(upper.syncs.start) == int((upper.calls.kind == CallKind.SYNC).sum()) > 0
    assert (lower.syncs.thread > 0).all()
    assert len(lower.calls.start) == 0


def test_driver_launches_are_seen(tmp_path: Path) -> None:
    # A program that does not know Python's way in still gets it: the variables are in its environment.
    trace, _ = captured(tmp_path, "ptx.py")
    assert_whole(trace)
    names = [trace.names[i] for i in trace.calls.name]
    assert names.count("cuLaunchKernel") == 100
    assert len(trace.kernels.start) == 100


def test_times_lie_within_the_run_on_the_host_clock(tmp_path: Path) -> None:
    before = time.monotonic_ns()
    trace, _ = captured(tmp_path, "train.py")
    after = time.monotonic_ns()
    for table in (trace.kernels, trace.memory, trace.calls, trace.syncs):
        assert before < table.start.min()
        assert table.end.max() < after


def test_the_device_is_described(tmp_path: Path) -> None:
    trace, _ = captured(tmp_path, "train.py", "5")
    facts = torch.cuda.get_device_properties(0)
    (device,) = trace.devices
    assert device.name == facts.name
    assert device.units == facts.multi_processor_count
    assert device.memory_bytes >= facts.total_memory
    assert device.uuid is not None
    assert device.uuid.replace("-", "") == str(facts.uuid).replace("-", "")
    header = trace.processes[0].header
    assert header["cupti_version"] > 0
    assert header["driver_version"] >= 12000
    assert "libcupti" in header["cupti_path"]


def test_graphs_as_one_record_each(tmp_path: Path) -> None:
    trace, _ = captured(tmp_path, "graph.py", AI_PROF_GRAPHS="graph")
    assert_whole(trace)
    names = [trace.names[i] for i in trace.kernels.name]
    assert names.count("cudaGraph") == 100


def test_an_abrupt_end_keeps_all_but_the_last_second(tmp_path: Path) -> None:
    trace, done = captured(tmp_path, "die.py", code=7)
    assert not trace.source.complete
    assert int(done.stdout) - int(trace.kernels.end.max()) < 1.5e9


def test_forked_workers_neither_hang_nor_write(tmp_path: Path) -> None:
    trace, _ = captured(tmp_path, "loader.py")
    assert_whole(trace)
    assert len(list(tmp_path.glob("*.aiprof"))) == 1


def test_a_profiler_inside_the_program_does_it_no_harm(tmp_path: Path) -> None:
    program = str(PROGRAMS / "train.py")
    trace, _ = captured(tmp_path / "capture", "profiled.py", str(tmp_path / "t.json"), program)
    assert len(trace.kernels.start) > 0


def test_a_window_is_kept(tmp_path: Path) -> None:
    trace, _ = captured(tmp_path, "die.py", code=7, AI_PROF_DELAY="1", AI_PROF_DURATION="1")
    assert trace.source.complete
    span = int(trace.kernels.end.max() - trace.kernels.start.min())
    assert 0 < span < 1.5e9
