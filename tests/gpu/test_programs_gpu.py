"""Captures of whole programs on a real GPU: of every kind, and with every end. They run side by side."""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from gpu_runs import captured, run_workload, start

from ai_prof.collect.environment import LEVELS
from ai_prof.runs.interpreter import requirements
from ai_prof.runs.workloads import find
from ai_prof.timeline.summary import summarise
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

    from ai_prof.trace.model import Trace

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

WORKLOADS = {workload.name: workload for workload in find(Path(__file__).parents[2] / "workloads")}
FEW = 12
COUNTED = ("cuda_native", "cupy_kernels", "triton_kernels", "jax_train")
SIDE_BY_SIDE = 8
WINDOW_S = 5  # of a program whose kernel of 7 s begins after 1.5 s
# How a program ends, and its exit code; an interrupted Python ends by the signal, after its own clean-up.
ENDS = {"exit": 0, "raise": 1, "leave": 0, "int": -2, "term": -15, "kill": -9}


class Runs:
    """Every program of this module, started at once; a test waits for its own."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor) -> None:
        self.folder, self.pool = folder, pool
        self.programs: dict[str, Future[tuple[Trace, str]]] = {}
        self.counts: dict[tuple[str, int], Future[tuple[Trace, dict[str, int]]]] = {}
        self.alone: dict[str, Future[CompletedProcess[str]]] = {}

    def program(self, name: str, *words: str, code: int = 0, **variables: str) -> None:
        """Start a program of our folder under capture, as `name`."""

        def work() -> tuple[Trace, str]:
            trace, done = captured(self.folder / name, *words, code=code, **variables)
            return trace, done.stdout

        self.programs[name] = self.pool.submit(work)

    def count(self, name: str, times: int) -> None:
        """Start a workload with FEW iterations, so many times as long."""

        def work() -> tuple[Trace, dict[str, int]]:
            folder = self.folder / f"{name}-{times}"
            done = run_workload(WORKLOADS[name], ["--iterations", str(times * FEW)], folder)
            assert done.returncode == 0, done.stderr
            return open_trace(folder), json.loads(done.stdout.splitlines()[-1])

        self.counts[name, times] = self.pool.submit(work)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        runs = Runs(tmp_path_factory.mktemp("programs"), pool)
        for name in COUNTED:
            if not unmet(name):
                for times in (1, 2, 3):
                    runs.count(name, times)
        for way in ("sleep", "wait"):
            runs.program(way, "asleep.py", way, AI_PROF_DURATION=str(WINDOW_S))
        for way, code in ENDS.items():
            runs.program(way, "asleep.py", way, code=code)
        runs.program("graph_early", "graph_early.py", AI_PROF_DELAY="4", AI_PROF_DURATION="2")
        for level in LEVELS:
            runs.program(f"later-{level}", "profiled_later.py", AI_PROF_DURATION="0.5", level=level)
        runs.alone["later"] = pool.submit(start, "profiled_later.py")
        for name in ("ranges", "replays", "family"):
            runs.program(name, f"{name}.py")
        yield runs


def unmet(name: str) -> str:
    """What the workload needs and is not here."""
    return "; ".join(requirements(WORKLOADS[name], sys.executable))


def nothing_lost(trace: Trace) -> bool:
    return all(loss.lost == 0 for loss in trace.source.losses.values())


def first_work(trace: Trace) -> int:
    """When the device began to work; ns."""
    return min(int(table.start.min()) for table in (trace.kernels, trace.memory) if len(table.start))


def kernels(trace: Trace, part: str) -> int:
    """How many kernels have `part` in their name."""
    known = [i for i, name in enumerate(trace.names) if part in name.lower()]
    return int(np.isin(trace.kernels.name, known).sum())


@pytest.mark.parametrize("name", COUNTED)
def test_kernels_are_those_that_the_program_counted(
    runs: Runs, name: str, row: Callable[[str, str, str], None]
) -> None:
    if missing := unmet(name):
        pytest.skip(missing)
    done = [runs.counts[name, times].result() for times in (1, 2, 3)]
    assert all(trace.source.complete and nothing_lost(trace) for trace, _ in done)
    more = np.diff([len(trace.kernels.start) for trace, _ in done]).tolist()
    row(f"{name}: kernels of {FEW} iterations more, and as many again", f"{more[0]}, {more[1]}", "the same")
    assert more[0] == more[1] > 0
    if "launches" in done[0][1]:
        own = np.diff([said["launches"] for _, said in done]).tolist()
        row(f"{name}: the same, by the program's own count", f"{own[0]}, {own[1]}", "the same")
        graphs = any((trace.kernels.graph != 0).any() for trace, _ in done)
        assert own == more or graphs  # a graph launch is one launch of many kernels


@pytest.mark.parametrize("way", ["sleep", "wait"])
def test_a_window_ends_behind_a_kernel_and_keeps_what_had_ended(
    runs: Runs, way: str, row: Callable[[str, str, str], None]
) -> None:
    """CUPTI's flush returns only after the kernel. It is not waited for, and that is told."""
    trace, _ = runs.programs[way].result()
    assert nothing_lost(trace)
    late_s = (int(trace.samples.time.max()) - first_work(trace)) / 1e9 - WINDOW_S
    row(f"a kernel in flight at the window's end, {way}: closed late by", f"{late_s:.1f} s", "")
    assert not trace.source.complete
    assert any("has not returned" in why for why in trace.source.warnings)
    assert kernels(trace, "add") == 100
    assert kernels(trace, "mul") == 0


@pytest.mark.parametrize("way", ENDS)
def test_every_end_keeps_what_had_ended(runs: Runs, way: str) -> None:
    trace, _ = runs.programs[way].result()
    assert trace.source.complete == (way in {"exit", "raise"})
    assert nothing_lost(trace)
    assert kernels(trace, "add") == 100


@pytest.mark.parametrize("level", LEVELS)
def test_torch_profiler_records_after_the_window(runs: Runs, level: str) -> None:
    trace, printed = runs.programs[f"later-{level}"].result()
    undisturbed = runs.alone["later"].result()
    assert undisturbed.returncode == 0, undisturbed.stderr
    seen = json.loads(printed)
    assert trace.source.complete
    assert sum(count for name, count in seen.items() if "mul" in name.lower()) == 50
    assert seen == json.loads(undisturbed.stdout)


def test_ranges_and_samples_are_there_and_one_cupti(runs: Runs) -> None:
    trace, printed = runs.programs["ranges"].result()
    names = [trace.names[i] for i in trace.ranges.name]
    assert [name for name in names if name.startswith("step ")] == [f"step {i}" for i in range(10)]
    assert len(trace.samples.time) >= 3
    assert trace.processes[0].header["nvidia_driver"]
    used = Path(trace.processes[0].header["cupti_path"])
    assert printed.split() == [str(used.resolve())]


def test_graphs_in_flight_by_the_hundred_thousand_are_all_recorded(runs: Runs) -> None:
    trace, _ = runs.programs["replays"].result()
    assert trace.source.complete
    assert nothing_lost(trace)
    assert int((trace.kernels.graph != 0).sum()) == 8 * 40_000


def test_a_graph_made_before_the_window_opens_is_seen_into(runs: Runs) -> None:
    trace, _ = runs.programs["graph_early"].result()
    assert trace.source.complete
    assert nothing_lost(trace)
    in_graph = trace.kernels.correlation[trace.kernels.graph != 0]
    _, counts = np.unique(in_graph, return_counts=True)
    assert len(counts) > 100
    assert int((counts != 8).sum()) <= 2  # the replays that the window cuts


def test_children_neither_hang_nor_write_into_the_capture_of_their_parent(runs: Runs) -> None:
    trace, printed = runs.programs["family"].result()
    assert int(printed) == 0
    assert trace.source.complete
    assert nothing_lost(trace)
    assert len(trace.processes) == 2  # itself, and the child with CUDA work of its own
    assert len({process.header["capture_id"] for process in trace.processes}) == 1
    (parent,) = (i for i, one in enumerate(trace.processes) if "family.py" in " ".join(one.command_line))
    assert int((trace.kernels.process == parent).sum()) >= 101


def test_iterations_that_have_settled_are_recorded(
    tmp_path: Path, row: Callable[[str, str, str], None]
) -> None:
    """By the bare variables, in the 0.8 s that a decode of 200 tokens takes; alone, for time matters."""
    program = str(WORKLOADS["torch_decode"].folder / "main.py")
    trace, _ = captured(tmp_path, program, level="kernel", AI_PROF_STEADY="1", AI_PROF_ITERATIONS="20")
    found = summarise(trace).devices[0].iterations.count
    row("torch_decode, 200 tokens, 20 wanted: iterations in the capture", str(found), "20 to 150")
    assert trace.source.complete
    assert not trace.processes[0].header.get("errors")
    assert nothing_lost(trace)
    assert 20 <= found <= 150
