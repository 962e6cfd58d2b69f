"""Jobs of several ranks, simulated: in each iteration all wait in one all-reduce for the last of them."""

from __future__ import annotations

import json
import random

import aiprof_file as af
import pytest

from ai_prof import cli

LAYER_NS, LAYERS, REDUCE_NS = 200_000, 20, 300_000
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def job(
    folder,
    ranks,
    iterations=12,
    *,
    late_ns=(),
    reduce_ns=REDUCE_NS,
    boot_apart=0,
    clock_error=0,
    hidden=False,
):
    """Files of all ranks; `late_ns` is by rank what its host adds to each iteration.

    With `hidden` every rank computes on another stream until the all-reduce has ended.
    """
    draw = random.Random(1)
    programs = [
        af.Program(pid=100 + r, rank=r, host=f"h{r}", boot_id=f"b{r if boot_apart else 0}")
        for r in range(ranks)
    ]
    for r, program in enumerate(programs):
        program.rows = [row for row in program.rows if row[0] not in {af.CLOCK, af.DEVICE}]
        program.device(r, uuid=bytes([r + 1]) * 16)
        apart = r * boot_apart
        program.clock(1 + apart, 1 + apart, 7 + r * clock_error)
        program.now += apart
    for _ in range(iterations):
        arrivals = []
        for r, program in enumerate(programs):
            program.work(100_000 + (late_ns[r] if r < len(late_ns) else 0) + draw.randrange(5_000))
            program.copy(af.HTOD, 20_000)
            for _ in range(LAYERS):
                program.launch("gemm", LAYER_NS)
            arrivals.append(program.free[7] - r * boot_apart)
        ends = max(arrivals) + reduce_ns
        for r, program in enumerate(programs):
            if hidden:
                program.launch("side", ends + r * boot_apart - program.now - 10_000, stream=8)
            program.launch(NCCL, ends + r * boot_apart - program.free[7])
            program.launch("adam", 100_000)
            program.synchronize()
    for r, program in enumerate(programs):
        program.rows = [(kind, _on_device(kind, row, r)) for kind, row in program.rows]
        program.write(folder, f"h{r}-{100 + r}-0.aiprof")
    return folder


def _on_device(kind, row, device):
    """The simulated program's work is on device 0: put it on the rank's own."""
    at = {af.KERNEL: 16, af.MEMCPY: 16, af.SYNC: 24}.get(kind)
    return row if at is None else row[:at] + device.to_bytes(4, "little") + row[at + 4 :]


def summary(capsys, folder, *arguments):
    assert cli.main(["summary", "--input", str(folder), "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("boot_apart", "clock_error"), [(0, 0), (3_600_000_000_000, 900_000)])
def test_the_late_rank_is_named_with_what_it_costs(tmp_path, capsys, boot_apart, clock_error):
    folder = job(tmp_path, 4, late_ns=(0, 0, 1_000_000), boot_apart=boot_apart, clock_error=clock_error)
    found = summary(capsys, folder)
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1, 2, 3]
    late = [rank["late_ms"] for rank in found["ranks"]]
    assert late[2] == pytest.approx(1.0, rel=0.05)
    assert max(late[:2] + late[3:]) < 0.01
    assert found["ranks"][2]["last_share"] == 1
    (finding,) = [f for f in found["findings"] if f["id"] == "late-rank"]
    assert finding["evidence"]["rank"] == 2
    assert finding["saves_ms"] == late[2]
    assert finding["severity"] == "warning"
    # The others pay for it in communication that nothing hides.
    exposed = [rank["comm_exposed_ms"] for rank in found["ranks"]]
    assert exposed[0] - exposed[2] == pytest.approx(1.0, rel=0.05)


def test_the_text_names_it_after_its_cause_and_before_what_it_brings_about(tmp_path, capsys):
    assert cli.main(["summary", "--input", str(job(tmp_path, 2, late_ns=(0, 3_000_000)))]) == 0
    steps = [line for line in capsys.readouterr().out.splitlines() if line[:3] in {"1. ", "2. ", "3. "}]
    assert "1. Rank 1: The device waits for input data at the start of iterations (" in steps[0]
    assert "Rank 1 comes late to communication (last at 100% of the collectives)" in steps[1]
    assert not any("no computing hides" in step for step in steps)


def test_a_wait_that_computing_hides_costs_nothing(tmp_path, capsys):
    found = summary(capsys, job(tmp_path, 2, late_ns=(0, 1_000_000), hidden=True))
    assert found["ranks"][1]["late_ms"] == pytest.approx(1.0, rel=0.05)
    assert "late-rank" not in {finding["id"] for finding in found["findings"]}


def test_even_ranks_have_no_straggler(tmp_path, capsys):
    found = summary(capsys, job(tmp_path, 3))
    assert [rank["late_ms"] < 0.01 for rank in found["ranks"]] == [True] * 3
    assert "late-rank" not in {finding["id"] for finding in found["findings"]}


def test_one_rank_is_no_job(tmp_path, capsys):
    assert "ranks" not in summary(capsys, job(tmp_path, 1))


def test_ranks_that_never_communicate_are_only_listed(tmp_path, capsys):
    for r in range(2):
        program = af.Program(pid=100 + r, rank=r)
        program.device(0, uuid=bytes([r + 1]) * 16)
        for _ in range(8):
            program.copy(af.HTOD, 20_000)
            program.launch("gemm", LAYER_NS)
            program.synchronize()
        program.write(tmp_path, f"h-{100 + r}-0.aiprof")
    found = summary(capsys, tmp_path)
    assert [rank["late_ms"] for rank in found["ranks"]] == [None, None]
    assert [rank["iteration_ms"] > 0 for rank in found["ranks"]] == [True, True]


def test_a_slower_all_reduce_is_exposed_communication(tmp_path, capsys):
    added = 2_000_000
    times = []
    for name, ns in (("fast", REDUCE_NS), ("slow", REDUCE_NS + added)):
        (tmp_path / name).mkdir()
        found = summary(capsys, job(tmp_path / name, 2, reduce_ns=ns))
        times.append(found["ranks"][0])
    longer = times[1]["iteration_ms"] - times[0]["iteration_ms"]
    assert longer == pytest.approx(added / 1e6, rel=0.02)
    assert times[1]["comm_exposed_ms"] - times[0]["comm_exposed_ms"] >= 0.9 * longer
