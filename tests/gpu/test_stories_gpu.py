"""docs/stories.md on a real GPU: advice that is followed, and confirmed. A minute."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from gpu_runs import run_workload  # noqa: E402 - imports what needs no GPU only after the skip

from ai_prof.report.diff_view import FLOORS  # noqa: E402
from ai_prof.runs.workloads import find, select  # noqa: E402
from ai_prof.timeline.diff import diff  # noqa: E402
from ai_prof.timeline.summary import summarise  # noqa: E402
from ai_prof.trace.open import open_trace  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from ai_prof.trace.model import Trace

WORKLOADS = find(Path(__file__).parents[2] / "workloads")
RECORD = Path(__file__).parent / "record"
LOGS = "from marks import Marks; from programs import PROGRAMS; PROGRAMS['log'](Marks())"


def captured(folder: Path, name: str, *arguments: str) -> Trace:
    """A workload's capture."""
    (workload,) = select(WORKLOADS, [name])
    place = folder / "-".join((name, *arguments)).replace("--", "")
    done = run_workload(workload, arguments, place)
    assert done.returncode == 0, done.stderr
    return open_trace(place)


def test_graphs_make_an_eager_decoder_truly_faster(tmp_path: Path, row: Callable[..., None]) -> None:
    eager = captured(tmp_path, "torch_decode", "--iterations", "100")
    graph = captured(tmp_path, "torch_decode_graph", "--iterations", "200")
    first = summarise(eager).findings[0]
    assert first.id == "gap-launch"
    assert "torch.compile or CUDA graphs" in first.actions[0]
    found = diff(eager, graph, FLOORS)
    assert found.kind == "accelerated"
    figures = {each.name: (each.before, each.after) for each in found.figures}
    for name in ("iteration_ms", "kernel_busy", "kernel_mean_us"):
        row(f"torch_decode, eager and as a graph: {name}", "{:.3f} to {:.3f}".format(*figures[name]))


def test_the_gap_at_the_start_shrinks_as_workers_grow(tmp_path: Path, row: Callable[..., None]) -> None:
    counts = ("0", "1", "2", "8")
    traces = [captured(tmp_path, "torch_vision_loader", "--workers", n, "--iterations", "30") for n in counts]
    first = summarise(traces[0]).findings[0]
    assert first.id == "gap-data"
    assert "twice the loader workers" in first.actions[0]
    waits = []
    for trace in traces:
        (device,) = summarise(trace).devices
        length = device.iterations.median_ms
        assert length is not None
        waits.append(device.gap_causes["data"] * length)
    row(
        "ms an iteration that the device waits for data", " ".join(f"{each:.1f}" for each in waits), counts[0]
    )
    assert waits[0] > waits[1] > waits[3]
    found = diff(traces[1], traces[3], FLOORS)
    assert found.kind == "accelerated"


def test_a_slow_logging_call_is_named_by_the_stacks(tmp_path: Path, row: Callable[..., None]) -> None:
    words = [sys.executable, "-m", "ai_prof", "run", "--stacks", "--level", "api", "--output", str(tmp_path)]
    done = subprocess.run(
        [*words, "--", sys.executable, "-c", LOGS], cwd=RECORD, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = summarise(open_trace(tmp_path))
    (host,) = (each for each in summary.findings if each.id == "gap-host")
    row("slow logging: gaps at which the function is", f"{host.evidence['function_share']:.0%}")
    assert str(host.evidence["function"]).startswith("write_log ")
