"""Stacks beside a capture: read with it, seen in its gaps, and named by its findings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import aiprof_file as af
import numpy as np
import pytest

from ai_prof.timeline.summary import summarise
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = "/venv/lib/python3.12/site-packages"
MAIN = "<module> (/app/train.py)"
LOG = "log_metrics (/app/train.py)"
LIBRARY = f"emit ({PACKAGES}/logger/handlers.py)"
LOADER = f"__next__ ({PACKAGES}/torch/utils/data/dataloader.py)"
HEADER = {"schema": "ai-prof/stacks/1", "pid": 100, "boot_id": None, "error_ns": 2_000_000}


class Stacks:
    """Lines of a stacks file."""

    def __init__(self, **header: object) -> None:
        self.lines: list[dict[str, object]] = [{**HEADER, **header}]
        self.known: list[tuple[str, ...]] = []

    def seen(self, start: int, end: int, *frames: str, thread: int = 100) -> None:
        if frames not in self.known:
            self.lines.append({"stack": len(self.known), "frames": frames})
            self.known.append(frames)
        stack = self.known.index(frames)
        self.lines.append({"start": start, "end": end, "thread": thread, "stack": stack})

    def write(self, folder: Path, more: str = "", name: str = "h-100-0.stacks.jsonl") -> None:
        (folder / name).write_text("\n".join(json.dumps(line) for line in self.lines) + more)


def step(program: af.Program, stacks: Stacks, busy: int, *frames: str, **options: int) -> None:
    """An upload, a kernel, host work of `busy` ns in `frames`, and another kernel."""
    program.copy(af.HTOD, 10_000)
    program.launch("a", 300_000)
    program.work(500_000)
    stacks.seen(program.now - 500_000, program.now, MAIN, **options)
    program.work(busy)
    stacks.seen(program.now - busy, program.now, MAIN, *frames, **options)
    program.launch("b", 300_000)
    program.synchronize()


def summary_of(program: af.Program, folder: Path):
    program.write(folder)
    return summarise(open_trace(folder))


def test_the_function_is_named(tmp_path: Path) -> None:
    program, stacks = af.Program(), Stacks()
    for _ in range(20):
        step(program, stacks, 2_000_000, LOG, LIBRARY)
    stacks.write(tmp_path)
    summary = summary_of(program, tmp_path)
    gap = summary.devices[0].longest_gaps[0]
    assert gap.cause == "host"
    assert gap.frames[0].frames == [
        "<module> (train.py)",
        "log_metrics (train.py)",
        "emit (logger/handlers.py)",
    ]
    # The gap begins with the first kernel's end, in MAIN, and ends with the launch of the second.
    assert gap.frames[0].ms == pytest.approx(2.0)
    (host,) = (finding for finding in summary.findings if finding.id == "gap-host")
    assert host.evidence["function"] == "log_metrics (train.py)"
    assert host.evidence["function_share"] > 0.8
    assert host.actions[0].startswith("Look at log_metrics (train.py)")
    assert not any("--stacks" in action for action in host.actions)


@pytest.mark.parametrize(("error_ns", "said"), [(400_000, False), (900_000, True)])
def test_a_clock_that_may_be_off_by_a_good_part_of_a_gap_is_told(
    tmp_path: Path, error_ns: int, said: bool
) -> None:
    program, stacks = af.Program(), Stacks(error_ns=error_ns)
    for _ in range(20):
        step(program, stacks, 2_000_000, LOG)
    stacks.write(tmp_path)
    (host,) = (each for each in summary_of(program, tmp_path).findings if each.id == "gap-host")
    assert ("stacks may be off by 0.9 ms, a gap takes 2.2 ms" in host.actions[0]) == said


def test_in_a_loader_it_is_data(tmp_path: Path) -> None:
    program, stacks = af.Program(), Stacks()
    for i in range(20):
        step(program, stacks, 2_000_000, *((LOADER,) if i % 2 else (LOG,)))
    stacks.write(tmp_path)
    causes = [gap.cause for gap in summary_of(program, tmp_path).devices[0].longest_gaps]
    assert set(causes) == {"data", "host"}


def test_the_launching_thread_is_looked_at_before_the_first(tmp_path: Path) -> None:
    program, stacks = af.Program(), Stacks()
    for _ in range(20):
        begin = program.now
        step(program, stacks, 2_000_000, LOG, thread=1)
        stacks.seen(begin, program.now, MAIN, LIBRARY, thread=100)
    stacks.write(tmp_path)
    (host,) = (f for f in summary_of(program, tmp_path).findings if f.id == "gap-host")
    assert host.evidence["function"] == "log_metrics (train.py)"


def test_without_stacks_nothing_is_claimed(tmp_path: Path) -> None:
    program = af.Program()
    for _ in range(20):
        step(program, Stacks(), 2_000_000)
    summary = summary_of(program, tmp_path)
    assert all(gap.frames == [] for gap in summary.devices[0].longest_gaps)
    (host,) = (finding for finding in summary.findings if finding.id == "gap-host")
    assert "function" not in host.evidence
    assert any("--stacks" in action for action in host.actions)


def test_a_cut_file_is_read_up_to_there(tmp_path: Path) -> None:
    program, stacks = af.Program(), Stacks()
    step(program, stacks, 1_000_000, LOG)
    stacks.write(tmp_path, '\n{"start": 5, "en')
    program.write(tmp_path)
    trace = open_trace(tmp_path)
    assert trace.stacks is not None
    assert len(trace.stacks.start) == 2
    assert (np.diff(trace.stacks.start) >= 0).all()
    assert trace.stacks.error_ns == 2_000_000
    assert any("damaged or cut" in warning for warning in trace.source.warnings)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"pid": 7}, "of another process"),
        ({"schema": "other/1"}, "holds no stacks"),
        ({"pid": "x"}, "holds no"),
    ],
)
def test_what_does_not_belong_is_left_out(header: dict[str, object], why: str, tmp_path: Path) -> None:
    program, stacks = af.Program(), Stacks(**header)
    step(program, stacks, 1_000_000, LOG)
    stacks.write(tmp_path)
    program.write(tmp_path)
    trace = open_trace(tmp_path)
    assert trace.stacks is None
    assert any(why in warning for warning in trace.source.warnings)


def shifted(by: int, error: int, seed: int, folder: Path) -> tuple[af.Program, Stacks]:
    """40 steps of uneven host work in a logger, sampled by a clock that is `by` ns late."""
    rng = np.random.default_rng(seed)
    program, stacks = af.Program(), Stacks(error_ns=error)
    for _ in range(40):
        before = program.now
        program.launch("a", 3_000_000)
        program.synchronize()
        stacks.seen(before + by, program.now + by, MAIN, thread=program.thread)
        begin = program.now
        program.work(int(rng.uniform(4e6, 12e6)))
        stacks.seen(begin + by, program.now + by, MAIN, LOG, thread=program.thread)
    program.write(folder)
    stacks.write(folder)
    return program, stacks


@pytest.mark.parametrize(("by", "seed"), [(-5_000_000, 1), (-1_200_000, 2), (0, 3), (3_700_000, 4)])
def test_the_clock_of_the_stacks_is_told_by_the_calls(tmp_path: Path, by: int, seed: int) -> None:
    shifted(by, 6_000_000, seed, tmp_path)
    trace = open_trace(tmp_path)
    assert trace.stacks is not None
    assert trace.stacks.error_ns < 500_000
    logging = trace.stacks.start[trace.stacks.stack == 1]
    ends = np.sort(trace.syncs.end)
    assert np.abs(logging - ends[: len(logging)]).max() <= trace.stacks.error_ns


def test_without_calls_the_clock_of_the_stacks_is_left(tmp_path: Path) -> None:
    program, stacks = af.Program(), Stacks(error_ns=5_000_000)
    begin = program.now
    for _ in range(20):
        step(program, stacks, 2_000_000, LOG, thread=7)
    program.write(tmp_path)
    stacks.write(tmp_path)
    found = open_trace(tmp_path).stacks
    assert found is not None
    assert found.error_ns == 5_000_000
    assert found.start[0] >= begin


def test_short_gaps_beside_long_ones_cast_no_doubt(tmp_path: Path) -> None:
    program, stacks = af.Program(), Stacks(error_ns=900_000)
    for _ in range(20):
        step(program, stacks, 8_000_000, LOG)
        for _ in range(3):
            program.work(300_000)
            program.launch("c", 10_000)
            program.synchronize()
    stacks.write(tmp_path)
    (host,) = (each for each in summary_of(program, tmp_path).findings if each.id == "gap-host")
    assert "may be off" not in host.actions[0]
