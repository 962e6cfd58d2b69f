"""Makes profiles of runs as a noisy host gives them: a speed of its own in every run, and heavy tails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from gate_runs import make_run

from ai_prof.timeline.operations import KERNEL
from ai_prof.timeline.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.gate.model import Run
    from ai_prof.gate.profile import Aspect, Compared, Finding

FLOORS: dict[Aspect, float] = {"host": 20.0, "host_slow": 20.0, "kernel": 20.0}


@dataclass
class Program:
    """A program's iteration: P positions of which `backward` (a share) is launched by a second thread.

    `speed_sd` is the spread of ln host speed from run to run, most of it common to both threads. `noise` is
    the spread of a position's own time around that, with Student's t of 4 degrees of freedom. `submits` are
    the positions that a call of their own submits; all, where it is empty.
    """

    seed: int
    positions: int
    speed_sd: float
    backward: float = 0.0
    launch_bound: bool = True
    noise: float = 0.025
    submits: tuple[int, ...] = ()
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        rng = self.rng = np.random.default_rng(self.seed)
        p = self.positions
        self.host = np.log(rng.lognormal(np.log(18), 0.5, p))
        slow = rng.choice(p, max(3, p // 50), replace=False)
        self.host[slow] += rng.uniform(1.5, 3.0, len(slow))
        self.host[0] = np.log(100 if self.launch_bound else 400)  # what a program does between iterations
        self.follows = rng.normal(1.0, 0.12, p)
        self.device = np.log(rng.lognormal(np.log(5 if self.launch_bound else 40), 0.8, p))
        self.thread = np.zeros(p, np.int8)
        self.thread[int(p * (1 - self.backward)) : p - p // 10] = 1 if self.backward else 0
        self.roles = rng.integers(0, p // 6, p)

    def run(self, *, speed: float | None = None, delays: dict[int, float] | None = None) -> Profile:
        """One run. `speed` is its ln host speed (drawn by default), `delays` us of the host by position."""
        rng, p = self.rng, self.positions
        common = rng.normal(0, self.speed_sd) if speed is None else speed
        threads = common + rng.normal(0, 0.25 * self.speed_sd, 2)
        own = self.noise * rng.standard_t(4, p) + self.noise * rng.normal(0, 0.5, p // 6)[self.roles]
        middle = self.host + self.follows * threads[self.thread] + own
        added = np.zeros(p)
        for position, us in (delays or {}).items():
            added[position] += us
        quantiles = [
            np.log(np.exp(middle + shift + rng.normal(0, 0.4 * self.noise, p)) + added)
            for shift in (-0.08, -0.04, 0.12)
        ]
        nodes = np.setdiff1d(np.arange(p), self.submits) if self.submits else np.zeros(0, int)
        device = np.exp(self.device + rng.normal(0, 0.003) + rng.normal(0, 0.01, p))
        idle = np.maximum(np.exp(middle) + added - device, 1.0) if self.launch_bound else np.full(p, 1.2)
        idle[nodes] = 1.0
        host = np.array(quantiles)
        host[:, nodes] = np.nan
        return Profile(
            names=tuple(f"kernel_{role}" for role in self.roles.tolist()),
            kind=np.full(p, KERNEL, np.int8),
            thread=self.thread,
            values=np.vstack((host, device, idle)).astype(np.float32),
        )

    def runs(self, count: int, **how: object) -> list[Profile]:
        """Several runs, alike."""
        return [self.run(**how) for _ in range(count)]  # type: ignore[arg-type]


def decode(seed: int, speed_sd: float = 0.32) -> Program:
    """150 small kernels that the host launches from one thread, on a host of very uneven speed."""
    return Program(seed, 150, speed_sd)


def train(seed: int, speed_sd: float = 0.12) -> Program:
    """400 larger kernels, the backward pass launched by a thread of its own; the host is ahead."""
    return Program(seed, 400, speed_sd, backward=0.5, launch_bound=False)


def graph(seed: int, submits: tuple[int, ...] = (0, 1, 2, 59), speed_sd: float = 0.12) -> Program:
    """60 small kernels, most of them a graph's; the first place outweighs the other submissions."""
    return Program(seed, 60, speed_sd, submits=submits)


def findings(results: Sequence[Compared], aspect: Aspect = "host") -> list[Finding]:
    return [result.finding for result in results if result.aspect == aspect and result.finding]


def runs_with(profiles: Sequence[Profile], **fields: Any) -> list[Run]:
    return [make_run(order=i, profile=p.digest(), **fields) for i, p in enumerate(profiles)]


def by_digest(*profiles: Profile) -> dict[str, Profile]:
    return {profile.digest(): profile for profile in profiles}
