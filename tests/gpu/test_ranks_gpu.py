"""`ddp_train` on two GPUs and more: every rank is captured, and the one that is slowed is named. A minute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
if torch.cuda.device_count() < 2:
    pytest.skip("fewer than two CUDA devices", allow_module_level=True)

from gpu_runs import run_workload  # noqa: E402 - imports what needs no GPU only after the skip

from ai_prof.runs.workloads import find, select  # noqa: E402
from ai_prof.timeline.summary import Summary, summarise  # noqa: E402
from ai_prof.trace.open import open_trace  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

(WORKLOAD,) = select(find(Path(__file__).parents[2] / "workloads"), ["ddp_train"])
RANKS = torch.cuda.device_count()


def captured(folder: Path, *arguments: str) -> tuple[Summary, int]:
    """The summary of a capture, and how many iterations the program counted."""
    done = run_workload(WORKLOAD, arguments, folder)
    assert done.returncode == 0, done.stderr
    return summarise(open_trace(folder)), json.loads(done.stdout.splitlines()[-1])["iterations"]


def test_every_rank_is_captured_and_its_exposed_communication_told(
    tmp_path: Path, row: Callable[..., None]
) -> None:
    found, iterations = captured(tmp_path / "out")
    assert found.source.complete
    losses = found.source.losses.values()
    assert not any(each.cupti_dropped + each.invalid_time + each.budget_dropped for each in losses)
    assert sorted(device.rank for device in found.devices if device.rank is not None) == list(range(RANKS))
    for device in found.devices:
        assert 0.8 * iterations <= device.iterations.count <= iterations
        exposed = device.comm_exposed
        row(f"ddp_train, rank {device.rank}: exposed communication", f"{100 * exposed:.1f} %")
    assert any(device.comm_exposed > 0 for device in found.devices)
    assert len({device.structure["kernels"] for device in found.devices}) == 1


def test_a_rank_that_is_slowed_is_named(tmp_path: Path, row: Callable[..., None]) -> None:
    found, _ = captured(tmp_path / "out", "--regress", "straggler")
    late = next(finding for finding in found.findings if finding.id == "late-rank")
    row("ddp_train, last rank slowed by 30 ms: the late rank", f"{late.evidence['rank']}", f"{RANKS - 1}")
    row("the others wait for it", f"{late.evidence['late_ms']:.1f} ms an iteration", "30 ms")
    assert late.evidence["rank"] == RANKS - 1
    assert late.severity != "info"
    assert late.evidence["late_ms"] > 15
