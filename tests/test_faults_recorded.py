"""Every fault that was recorded on an H200, through the gate to what its report says first."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).with_name("bench")))
import campaign
import fault_page
import faults

from ai_prof.gate import decide, screen
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import Reason

RECORDINGS = Path(__file__).parent / "bench" / "recordings"
PLAN = msgspec.toml.decode(faults.PLAN.read_bytes(), type=faults.Plan)


@cache
def sources() -> dict[str, campaign.Recorded]:
    folders = [RECORDINGS / f"h200-{start}" for start in "abc"]
    return {source.name: source for source in campaign.recorded(folders)}


@pytest.mark.parametrize("workload", ["cuda_chain", "cuda_graph", "torch_decode", "torch_train"])
def test_faults_are_found_and_named_first(workload):
    source = sources()[workload]
    priors = screen.table_priors("cuda")
    planned = {f"{fault}={x:g}" for fault, doses in PLAN.strengths[workload].items() for x in doses}
    unnamed = {}
    for fault in planned.intersection(source.faults).difference(PLAN.beneath.get(workload, ())):
        drawn = source.draw(0, fault)
        screened = decide.screen_workload(
            workload, drawn.baseline, drawn.candidate, rules=Rules(), priors=priors, profiles=drawn.profiles
        )
        fresh = {workload: decide.Fresh(base=drawn.base, head=drawn.head)}
        settled = decide.settle([screened], fresh, rules={}, priors=priors, profiles=drawn.profiles)
        build = decide.build(settled, run_id="", started="", finished="", device="cuda", machine_key="m")
        row = fault_page.row_of(build, workload, fault, 1.0, forked=False)
        if not PLAN.named(row):
            unnamed[fault] = row.said or row.why
    assert unnamed == {}


def test_a_delay_that_is_hidden_behind_queued_work_only_warns():
    """Iterations of the training step, and of the graph, take no longer for a delay in their middle."""
    for workload in ("cuda_graph", "torch_train"):
        source = sources()[workload]
        drawn = source.draw(1, "delay_mid=1")
        screened = decide.screen_workload(
            workload, drawn.baseline, drawn.candidate, rules=Rules(),
            priors=screen.table_priors("cuda"), profiles=drawn.profiles,
        )  # fmt: skip
        assert screened.reason is Reason.PASS
        assert [cell.notes for cell in screened.cells if cell.metric == "host_profile"] == [["warning"]]
