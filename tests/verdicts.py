"""Sample verdicts for the tests of the reports, built from plausible runs with a fixed seed."""

from __future__ import annotations

import random
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import (
    BuildVerdict,
    Cell,
    Evidence,
    GapChange,
    Reason,
    Run,
    StructureChange,
    Why,
    WorkloadVerdict,
)
from ai_prof.timeline.diff_kernels import KernelChange, KernelUse
from ai_prof.timeline.typical import Lane, Typical, Wait

UNITS = {
    "iteration_ms": "ms",
    "kernel_time_ms": "ms",
    "gap_ms": "ms",
    "gap": "ratio",
    "kernel_busy": "ratio",
    "kernel_mean_us": "us",
    "copy_compute_overlap": "ratio",
}
TYPICAL = {
    "iteration_ms": 12.4,
    "kernel_time_ms": 9.8,
    "gap_ms": 2.1,
    "gap": 0.17,
    "kernel_busy": 0.79,
    "kernel_mean_us": 84.0,
    "copy_compute_overlap": 0.62,
}
NASTY = [
    "void f<std::vector<int>>(T&&, const char*) </script><img src=x onerror=alert(1)> \"q\" 'a' & | `tick`",
    "@octocat mentions | pipes ` ticks [link](javascript:alert(1)) *bold* #12 <b>bold</b>\nsecond line",
    "void cutlass::Kernel<" + "cutlass::gemm::GemmShape<128, 128, 32>, " * 100 + ">(Params)",
]


def parse(xml: str) -> ET.Element:
    """Return the root of a document that a report wrote."""
    return ET.fromstring(xml)  # noqa: S314 - our own output


def runs(
    workload: str,
    count: int,
    *,
    stage: int = 0,
    sessions: int = 1,
    slower: float = 1.0,
    moved: dict[str, float] | None = None,
    turn: int | None = None,
    causes: dict[str, float] | None = None,
) -> list[Run]:
    """Return `count` launches spread over `sessions`; `stage` orders them after earlier stages.

    `slower` scales latency, `moved` sets other metrics' typical values; `turn` is this side's place in ABBA.
    """
    rng = random.Random(f"{workload} {stage} {count} {slower} {turn}")
    typical = TYPICAL | {"iteration_ms": slower * TYPICAL["iteration_ms"]} | (moved or {})
    made = []
    for i in range(count):
        order = i if turn is None else 2 * i + (turn + i) % 2
        slow = slower * rng.lognormvariate(0, 0.01)
        iterations = [12.4 * slow * rng.lognormvariate(0, 0.03) for _ in range(60)]
        session = i * sessions // count
        metrics: dict[str, float | None] = {
            key: value * rng.lognormvariate(0, 0.004 if key.startswith("kernel") else 0.012)
            for key, value in typical.items()
        }
        made.append(
            Run(
                workload=workload,
                session=f"2025-0{stage + 1}-{session + 1:02}",
                order=order,
                host="runner-7",
                started=f"2025-0{stage + 1}-{session + 1:02}T10:{order:02}:00Z",
                commit="5f1c2d9",
                iterations=60,
                metrics=metrics,
                iteration_ms=iterations,
                gap_causes_ms=causes or {"launch": 1.2, "sync": 0.4, "device": 0.3, "data": 0.2},
                environment={
                    "load": 0.31,
                    "foreign_cores": round(rng.random() / 4, 3),
                    "slowdowns": [],
                    "foreign_gpu_processes": [],
                    "gpus": [{"name": "NVIDIA H200", "temperature_c": 41 + rng.randrange(5)}],
                    "sm_clock_mhz": 1980 - rng.randrange(3) * 15,
                },
            )
        )
    return made


def cell(metric: str = "iteration_ms", effect: float = 0.003, **changes: Any) -> Cell:
    """Return one metric's verdict with every field filled; `changes` override them."""
    unit, before = UNITS.get(metric, "ms"), TYPICAL.get(metric, 5.0)
    after = before + effect if unit == "ratio" else before * (1 + effect)
    fields: dict[str, Any] = {
        "reason": Reason.PASS,
        "evidence": Evidence.SCREEN,
        "baseline": before,
        "candidate": after,
        "effect": effect,
        "interval": (effect - 0.012, effect + 0.012),
        "floor": 0.01,
        "p": 0.41,
        "mde": 0.021,
    }
    return Cell(metric=metric, unit=unit, **(fields | changes))


def workload(name: str = "torch_train", reason: Reason = Reason.PASS, **changes: Any) -> WorkloadVerdict:
    """Return an unchanged workload with a full-strength baseline; `changes` override its fields."""
    fields: dict[str, Any] = {
        "evidence": Evidence.SCREEN,
        "cells": [cell(metric) for metric in UNITS],
        "baseline": {
            "commit": "5f1c2d9a77e0b1",
            "sessions": 10,
            "runs": 30,
            "recorded": "2025-01-10T10:29:00Z",
            "path": f"baselines/h200/{name}.json",
            "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        },
        "baseline_runs": runs(name, 30, sessions=10),
        "candidate_runs": runs(name, 3, stage=1),
    }
    return WorkloadVerdict(workload=name, reason=reason, **(fields | changes))


def lane(kind: str, title: str, start: list[int], end: list[int], name: list[int]) -> Lane:
    """Return a lane whose marks are one operation each."""
    ns = [b - a for a, b in zip(start, end, strict=True)]
    return Lane(kind, title, start, end, name, [1] * len(start), ns)


def typical(kernels: int = 60, stall_us: int = 200, names: list[str] | None = None) -> Typical:
    """Return an iteration of kernels of 100 us, 10 us apart, after an upload that a stall holds back."""
    called = ["memcpy host to device", "data", "device", "cudaLaunchKernel", "stream synchronize"]
    called += names or [f"gemm_{i}" for i in range(3)]
    start = [1000 * (stall_us + 50 + 110 * i) for i in range(kernels)]
    end = [at + 100_000 for at in start]
    upload = 1000 * stall_us
    length = end[-1] + 30_000
    drawn = [5 + i % (len(called) - 5) for i in range(kernels)]
    calls = [t // 4 for t in start]
    lanes = [
        lane("stream", "stream 0", [upload, *start], [upload + 40_000, *end], [0, *drawn]),
        lane("gap", "gaps", [0, *end], [upload, *start[1:], length], [1, *([2] * kernels)]),
        lane("calls", "host calls", calls, [t + 9000 for t in calls], [3] * kernels),
        lane("waits", "host waits", [start[-1] // 4], [end[-1]], [4]),
    ]
    wait = Wait("gemm_2", "memcpy host to device", "data", upload, {"cudaMemcpyAsync": 0.01})
    return Typical(length, called, lanes, [wait])


def explained(names: list[str] | None = None) -> Why:
    """Return what a stall of 4.5 ms before the upload changes, and one kernel that got slower."""
    slower = KernelChange(
        (names or ["gemm_1"])[0], ["slower"], KernelUse(20, 100.0, 2.0), KernelUse(20, 112.0, 2.24), 0.24
    )
    gap = GapChange(
        "gemm_2",
        "memcpy host to device",
        (1, 1),
        (200.0, 4700.0),
        {"data": 4700.0},
        {"cudaMemcpyAsync": 0.01},
    )
    sides = ("fresh base", "fresh head")
    before, after = typical(names=names), typical(stall_us=4700, names=names)
    return Why(sides=sides, kernels=[slower], gaps=[gap], kernel_ms=(8.4, 8.64), before=before, after=after)


def regressed_by_time(name: str = "torch_decode") -> WorkloadVerdict:
    """Return a workload whose latency grew by a host stall, confirmed by fresh runs."""
    stalled = {"launch": 1.3, "sync": 0.4, "device": 0.3, "data": 4.9}
    after = {"gap_ms": 6.8, "gap": 0.389, "kernel_busy": 0.577}
    worse: dict[str, Any] = {"reason": Reason.REGRESSED, "evidence": Evidence.CONFIRMED, "flagged": True}
    return workload(
        name,
        Reason.REGRESSED,
        evidence=Evidence.CONFIRMED,
        why="Each iteration is 4.7 ms longer; the device waits for input at its start (gap cause: data).",
        cells=[
            cell("kernel_time_ms"),
            cell("iteration_ms", 0.381, p=0.0004, p_adjusted=0.0011, interval=(0.352, 0.411), **worse),
            cell("gap_ms", 2.24, p=0.0004, p_adjusted=0.0011, interval=(2.05, 2.44), **worse),
            cell("gap", 0.219, p=0.0004, p_adjusted=0.0022, interval=(0.198, 0.241), **worse),
            cell("kernel_busy", -0.213, p=0.0006, p_adjusted=0.0022, interval=(-0.24, -0.19), **worse),
            cell("kernel_mean_us", 0.001),
            cell("copy_compute_overlap", notes=["multimodal"]),
        ],
        notes=["The host was 1.04 times slower than over the baseline."],
        explained=explained(),
        candidate_runs=runs(name, 3, stage=1, slower=1.38, moved=after, causes=stalled),
        confirm_base=runs(name, 6, stage=2, turn=0),
        confirm_head=runs(name, 6, stage=2, turn=1, slower=1.38, moved=after, causes=stalled),
    )


def one_run_of_base() -> BuildVerdict:
    """Return a build whose base gave one fresh run, and head many."""
    slower = regressed_by_time()
    return build(msgspec.structs.replace(slower, confirm_base=slower.confirm_base[:1]), exit_code=1)


def regressed_by_structure(name: str = "cl_tiny") -> WorkloadVerdict:
    """Return a workload with more kernels and syncs an iteration, against a provisional baseline."""
    more: dict[str, Any] = {"reason": Reason.REGRESSED}
    return workload(
        name,
        Reason.REGRESSED,
        evidence=Evidence.STRUCTURE,
        provisional=True,
        why="One more synchronize and 64 more kernels in every iteration.",
        structure=[
            StructureChange(name="kernel:void vector_add<float>(float*)", baseline=4, candidate=68, **more),
            StructureChange(name="kernels", baseline=211, candidate=275, why="64 of vector_add", **more),
            StructureChange(name="syncs", baseline=1, candidate=2, why="clFinish, once an iteration", **more),
            StructureChange(
                name="copy_bytes", baseline=4_194_304, candidate=2_097_152, reason=Reason.IMPROVED
            ),
        ],
        baseline={"commit": "5f1c2d9a77e0b1", "sessions": 1, "runs": 3},
        baseline_runs=runs(name, 3),
    )


def failed(name: str = "cl_loader") -> WorkloadVerdict:
    """Return a workload that never gave a value."""
    return WorkloadVerdict(
        workload=name,
        reason=Reason.FAILED,
        why="The workload ended with code 139 (segmentation fault) in run 2; see capture/cl_loader.",
    )


def build(*workloads: WorkloadVerdict, exit_code: int = 0, summary: str = "", **changes: Any) -> BuildVerdict:
    """Return a build of these workloads."""
    fields: dict[str, Any] = {
        "run_id": "20250210-101500-5f1c2d9",
        "started": "2025-02-10T10:15:00Z",
        "finished": "2025-02-10T10:23:41Z",
        "device": "NVIDIA H200",
        "machine_key": "h200-1x-141gb-r570-cuda12",
        "machine": {
            "host": "runner-7",
            "driver": {"version": "570.86.15", "cuda": "12.8"},
            "gpus": [{"name": "NVIDIA H200", "memory_bytes": 150_754_820_096, "mig": None}],
        },
        "commit": "8c2e11f0a4",
        "base": "origin/main",
        "version": "0.1.0",
    }
    return BuildVerdict(exit_code=exit_code, summary=summary, workloads=list(workloads), **(fields | changes))


def passing() -> BuildVerdict:
    """Return a build in which nothing changed."""
    return build(*(workload(name) for name in ("torch_train", "torch_decode", "cl_train")))


def mixed() -> BuildVerdict:
    """Return a build with every kind of verdict in it, in no useful order."""
    flagged = {"reason": Reason.INCONCLUSIVE, "flagged": True}
    return build(
        workload("cl_train"),
        WorkloadVerdict(
            workload="cl_new", reason=Reason.NO_BASELINE, why="No baseline yet: run with --record."
        ),
        workload(
            "torch_eval",
            Reason.IMPROVED,
            evidence=Evidence.CONFIRMED,
            why="Latency fell and the device is busier: true acceleration.",
            cells=[
                cell(
                    "iteration_ms",
                    -0.12,
                    reason=Reason.IMPROVED,
                    evidence=Evidence.CONFIRMED,
                    p_adjusted=0.0022,
                ),
                cell("kernel_time_ms", -0.02),
            ],
            candidate_runs=runs("torch_eval", 3, stage=1, slower=0.88),
        ),
        failed(),
        workload(
            "cl_overlap",
            Reason.INCONCLUSIVE,
            why="Flagged by the screen; the budget of 20 minutes ended before it could be confirmed.",
            cells=[
                cell("iteration_ms", 0.06, p=0.004, p_adjusted=0.011, **flagged),
                cell("kernel_time_ms", why="kernel time grew 0.3 %: within the noise"),
            ],
            candidate_runs=runs("cl_overlap", 3, stage=1, slower=1.06),
        ),
        regressed_by_structure(),
        regressed_by_time(),
        WorkloadVerdict(workload="torch_ddp", reason=Reason.SKIPPED, why="Needs 2 GPUs; this machine has 1."),
        exit_code=1,
        summary="2 of 7 workloads regressed: cl_tiny does more work; torch_decode is 38.1 % slower",
        dirty=True,
        notes=["This pull request changes workloads/cl_train/main.py."],
    )


def every_kind() -> BuildVerdict:
    """Return a build with a regression of each metric and by each evidence, and a workload of each reason."""
    bad: dict[str, Any] = {"reason": Reason.REGRESSED, "p": 0.001, "p_adjusted": 0.004}
    found = []
    for key, metric in METRICS.items():
        name, effect = f"by_{key}", 0.3 * (metric.direction or 1)
        if metric.role == "structure":
            change = StructureChange(name=key, baseline=4, candidate=7, reason=Reason.REGRESSED)
            found.append(workload(name, Reason.REGRESSED, evidence=Evidence.STRUCTURE, structure=[change]))
            continue
        made = cell(key, effect, evidence=Evidence.CONFIRMED, **bad)
        if metric.role == "profile":
            made = msgspec.structs.replace(
                made, unit="us", place="host time between gemm and relu (operation 3)", effect=4.0, floor=2.0
            )
        found.append(workload(name, Reason.REGRESSED, evidence=Evidence.CONFIRMED, cells=[made]))
    for evidence in (Evidence.REPEATED, Evidence.SCREEN):
        flagged = cell("iteration_ms", 0.3, evidence=evidence, **bad)
        found.append(workload(f"{evidence.value}", Reason.REGRESSED, evidence=evidence, cells=[flagged]))
    rest = [workload(f"is_{reason.value}", reason, why="What the gate says of it.") for reason in Reason]
    return build(*found, *rest, exit_code=1, summary="Everything regressed.")


def disturbed() -> BuildVerdict:
    """Return a build that the machine spoiled."""
    return build(
        workload(
            "torch_train",
            Reason.INVALID_ENVIRONMENT,
            why="Another process (pid 4242, python) used the GPU during 3 of 3 runs.",
            cells=[cell("iteration_ms", 0.4, reason=Reason.INVALID_ENVIRONMENT, evidence=Evidence.NONE)],
        ),
        exit_code=4,
        summary="The machine was not fit to measure.",
    )


def no_baseline() -> BuildVerdict:
    """Return a first run."""
    fresh = [
        WorkloadVerdict(workload=f"cl_{i}", reason=Reason.NO_BASELINE, why="Run with --record.") for i in "ab"
    ]
    return build(*fresh, exit_code=3, summary="No baseline for this machine.", commit=None, base=None)


def nasty() -> BuildVerdict:
    """Return a build whose names try to break every format."""
    changes = [
        StructureChange(name=f"kernel:{name}", baseline=0, candidate=i + 1, reason=Reason.REGRESSED, why=name)
        for i, name in enumerate(NASTY)
    ]
    return build(
        workload(
            NASTY[0],
            Reason.REGRESSED,
            why=NASTY[1],
            structure=changes,
            notes=NASTY,
            explained=explained(NASTY),
        ),
        exit_code=1,
        summary=NASTY[1],
        machine={NASTY[0]: NASTY[1]},
        notes=["a\x00b\x1b[31mred"],
    )


def large(workloads: int = 60, metrics: int = 12, kernels: int = 60) -> BuildVerdict:
    """Return 60 workloads x 12 metrics, a third regressed, each with many kernels of 4 kB names."""
    made = []
    for i in range(workloads):
        bad = i % 3 == 0
        reason = Reason.REGRESSED if bad else Reason.PASS
        effect = 0.02 + i / 100 if bad else 0.001
        cells = [
            cell(key, effect, reason=reason, evidence=Evidence.CONFIRMED if bad else Evidence.SCREEN)
            for key in (*UNITS, *(f"extra_{n}_ms" for n in range(metrics - len(UNITS))))
        ]
        changes = [
            StructureChange(name=f"kernel:{NASTY[2]}{n}", baseline=n, candidate=n + 1, reason=reason)
            for n in range(kernels if bad else 0)
        ]
        why = explained([NASTY[2]]) if bad else None
        made.append(workload(f"workload_{i:02}", reason, cells=cells, structure=changes, explained=why))
    return build(*made, exit_code=1, summary="20 of 60 workloads regressed")
