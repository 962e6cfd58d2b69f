"""Makes runs as the gate sees them: a little model of a workload with session and launch noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import Run

if TYPE_CHECKING:
    from pathlib import Path

WORKLOAD = "train"


def make_run(
    *,
    session: str = "s0",
    order: int = 0,
    latency: float = 4.0,
    kernel_time: float = 3.0,
    overlap: float | None = 0.8,
    structure: dict[str, int | None] | None = None,
    kernels: dict[str, int] | None = None,
    metrics: dict[str, float | None] | None = None,
    **fields: Any,
) -> Run:
    """One run of a workload with 100 kernels; `metrics` overrides single values."""
    counts: dict[str, int | None] = {
        "kernels": 100,
        "copies": 2,
        "copy_bytes": 4096,
        "syncs": 1,
        "graph_launches": 0,
    }
    counts.update(structure or {})
    number = counts["kernels"] or 100
    values: dict[str, float | None] = {
        "iteration_ms": latency,
        "kernel_time_ms": kernel_time,
        "kernel_mean_us": 1000 * kernel_time / number,
        "gap_ms": latency - kernel_time,
        "gap": 1 - kernel_time / latency,
        "kernel_busy": kernel_time / latency,
        "copy_compute_overlap": overlap,
    }
    values.update(metrics or {})
    started = "2026-01-01T00:00:00+00:00"
    fields = {"workload": WORKLOAD, "host": "a", "started": started, "iterations": 60, **fields}
    return Run(
        session=session,
        order=order,
        structure=counts,
        kernels={"gemm": number - 2, "softmax": 2} if kernels is None else kernels,
        metrics=values,
        **fields,
    )


class Machine:
    """Draws runs whose latency and kernel time vary by session and by launch, sd of ln each."""

    def __init__(self, seed: int, *, session_sd: float = 0.005, run_sd: float = 0.003) -> None:
        self.rng = np.random.default_rng(seed)
        self.session_sd = session_sd
        self.run_sd = run_sd

    def session(self, name: str, count: int = 3, *, slower: float = 1.0, **fields: Any) -> list[Run]:
        """`count` launches of one session; `slower` multiplies every time."""
        shift = np.exp(self.rng.normal(0, self.session_sd)) * slower
        return [self.launch(shift, session=name, order=i, **fields) for i in range(count)]

    def launch(self, shift: float, *, latency: float = 4.0, kernel_time: float = 3.0, **fields: Any) -> Run:
        common = self.rng.normal(0, self.run_sd)
        own = self.rng.normal(0, self.run_sd, 2)
        return make_run(
            latency=float(latency * shift * np.exp(common + 0.5 * own[0])),
            kernel_time=float(kernel_time * shift * np.exp(common + 0.5 * own[1])),
            **fields,
        )

    def baseline(self, sessions: int = 10, **fields: Any) -> list[Run]:
        return [run for i in range(sessions) for run in self.session(f"s{i}", **fields)]

    def pairs(self, k: int, *, slower: float = 1.0, **head: Any) -> tuple[list[Run], list[Run]]:
        """k launches of base and k of head in one session."""
        shift = np.exp(self.rng.normal(0, self.session_sd))
        base = [self.launch(shift, session="now", order=2 * i) for i in range(k)]
        new = [self.launch(shift * slower, session="now", order=2 * i + 1, **head) for i in range(k)]
        return base, new


def counts_alone(workload: Path) -> None:
    """Have the gate judge a workload by its counts, which no other load of this machine moves."""
    times = [key for key, metric in METRICS.items() if metric.role != "structure"]
    policy = "".join(f'{key} = "ignore"\n' for key in times)
    file = workload / "workload.toml"
    file.write_text(f"{file.read_text()}\n[policy]\n{policy}")
