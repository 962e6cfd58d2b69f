"""Runs to try rules on: drawn from a recording of `record.py`, or from simulated programs."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from gate_profiles import Program

from ai_prof.baselines import profiles as codec
from ai_prof.gate.model import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.gate.metrics import Backend
    from ai_prof.timeline.profile import Profile

BASELINE, CANDIDATE, LAUNCHES = 10, 3, 6
ITERATIONS, AUTOCORRELATION, ITERATION_SD = 60, 0.7, 0.02


@dataclass
class Draw:
    """What a rule sees: stored runs, new ones, and fresh launches of base and head; profiles by digest."""

    baseline: list[Run]
    candidate: list[Run]
    base: list[Run]
    head: list[Run]
    profiles: dict[str, Profile]
    backend: Backend = "cuda"


class Source(Protocol):
    """Where draws of one workload come from; `faults` names what was slowed."""

    name: str

    @property
    def faults(self) -> Sequence[str]: ...

    def draw(self, seed: int, fault: str | None) -> Draw:
        """One comparison."""


@dataclass
class Recorded:
    """One workload of a recording.

    Draws of one recording share runs. Where a fault has fewer than nine, the fresh launches of head take the
    candidate's along; where there are too few identical runs, base and head take stored ones.
    """

    name: str
    runs: dict[str, list[Run]]
    profiles: dict[str, Profile]
    backend: Backend = "cuda"

    @property
    def faults(self) -> list[str]:
        """Those with launches beside a candidate's: fresh ones have to be more than three to fail."""
        return sorted(fault for fault, runs in self.runs.items() if fault and len(runs) > CANDIDATE)

    def draw(self, seed: int, fault: str | None) -> Draw:
        rng = np.random.default_rng(seed)
        same = [self.runs[""][i] for i in rng.permutation(len(self.runs[""])).tolist()]
        slowed = [self.runs[fault or ""][i] for i in rng.permutation(len(self.runs[fault or ""])).tolist()]
        if fault is None:
            new, same = same[:CANDIDATE], same[CANDIDATE:]
            base, head = same[:LAUNCHES], same[LAUNCHES : 2 * LAUNCHES]
        else:
            new, other = slowed[:CANDIDATE], slowed[CANDIDATE:]
            head = other[:LAUNCHES] if len(other) >= LAUNCHES else [*new, *other][:LAUNCHES]
            base = same[:LAUNCHES]
        # Both sides of the fresh launches are of the stored runs where there are no others: alike, then.
        stored = same[::-1][:BASELINE]
        return Draw(stored, new, base, head, self.profiles, self.backend)


def arguments(text: str | None, *, folders: str) -> argparse.Namespace:
    """The command line of a script that makes tables of draws; `folders` says how many it takes."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    help_text = "of record.py" + ("; none: simulated" if folders == "*" else "")
    parser.add_argument("folders", nargs=folders, type=Path, metavar="DIR", help=help_text)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="put what is printed into docs/gate.md")
    return parser.parse_args()


def recorded(folders: Sequence[Path]) -> list[Recorded]:
    """The workloads of some recordings; runs under other load are faults of their own, named with `+load`."""
    found: dict[str, Recorded] = {}
    for folder in folders:
        path = folder / "profiles.npz"
        profiles = codec.decode(path.read_bytes(), path)
        for line in (folder / "runs.jsonl").read_text().splitlines():
            row = msgspec.json.decode(line)
            run = msgspec.convert(row["run"], Run)
            kind = (row.get("regress") or "") + ("+load" if row.get("load") else "")
            name = row["workload"]
            backend: Backend = "opencl" if name.startswith("cl_") else "cuda"
            mine = found.setdefault(name, Recorded(name, {"": []}, {}, backend))
            mine.profiles |= profiles
            if run.problem is None:
                mine.runs.setdefault(kind, []).append(run)
    return [each for _, each in sorted(found.items()) if len(each.runs[""]) >= BASELINE]


@dataclass
class Simulated:
    """A program of `gate_profiles`, with iterations that resemble each other."""

    name: str
    settings: dict[str, object]
    faults: Sequence[str] = (
        "start +50 us",
        "start +100 us",
        "middle +50 us",
        "middle +100 us",
        "kernels +3 %",
        "all +3 %",
    )
    cache: dict[str, Profile] = field(default_factory=dict)

    def draw(self, seed: int, fault: str | None) -> Draw:
        program = Program(seed, **self.settings)  # type: ignore[arg-type]
        self.cache = {}
        return Draw(
            baseline=[self.run(program, None, f"s{i // 3}") for i in range(BASELINE)],
            candidate=[self.run(program, fault, "now") for _ in range(CANDIDATE)],
            base=[self.run(program, None, "now") for _ in range(LAUNCHES)],
            head=[self.run(program, fault, "now") for _ in range(LAUNCHES)],
            profiles=self.cache,
        )

    def run(self, program: Program, fault: str | None, session: str) -> Run:
        place, _, size = (fault or "").partition(" +")
        at = {"start": 0, "middle": program.positions // 2}.get(place)
        delays = {at: float(size.split()[0])} if at is not None else {}
        profile = program.run(delays=delays)
        values = profile.values.copy()
        if place in {"kernels", "all"}:
            values[3] *= 1.03
        if place == "all":
            values[:3] += math.log(1.03)
        profile = replace(profile, values=values)
        self.cache[profile.digest()] = profile
        host = float(np.exp(values[1:3].astype(float).mean(axis=0)).sum())
        kernel = float(values[3].sum())
        middle = (host if program.launch_bound else max(host, kernel + 1.2 * program.positions)) / 1000
        lengths = (middle * np.exp(resembling(program.rng))).tolist()
        latency, kernel = float(np.median(lengths)), kernel / 1000
        return Run(
            workload=self.name,
            session=session,
            order=0,
            host="a",
            started="",
            iterations=ITERATIONS,
            iteration_ms=lengths,
            profile=profile.digest(),
            structure={"kernels": program.positions, "copies": 2, "copy_bytes": 4096, "syncs": 1},
            metrics={
                "iteration_ms": latency,
                "kernel_time_ms": kernel,
                "kernel_mean_us": 1000 * kernel / program.positions,
                "gap_ms": max(0.0, latency - kernel),
                "gap": max(0.0, 1 - kernel / latency),
                "kernel_busy": min(1.0, kernel / latency),
            },
        )


def resembling(rng: np.random.Generator) -> np.ndarray:
    """Ln lengths of iterations, each like the one before, around 0."""
    steps = rng.normal(0, ITERATION_SD, ITERATIONS)
    for i in range(1, ITERATIONS):
        steps[i] = AUTOCORRELATION * steps[i - 1] + math.sqrt(1 - AUTOCORRELATION**2) * steps[i]
    return steps


def simulated() -> list[Simulated]:
    """A decoder on a very uneven host, a training step on an uneven one, and both where hosts are alike."""
    decode = {"positions": 150, "launch_bound": True}
    train = {"positions": 400, "launch_bound": False, "backward": 0.5}
    return [
        Simulated("decode, hosts by 32 %", {**decode, "speed_sd": 0.32}),
        Simulated("train, hosts by 12 %", {**train, "speed_sd": 0.12}),
        Simulated("decode, hosts by 1 %", {**decode, "speed_sd": 0.01}),
    ]
