"""Records runs of the workloads on this machine as evidence for the gate: identical ones and slowed ones.

    python tests/bench/record.py --output DIR [--minutes 8] [--plan tests/bench/record.toml]

Every launch goes through the gate's own `run_program` and `read`, at level api. The plan's launches are made
in a random order, as many as fit in the time; captures are read at the end, when nothing is measured.
Workloads that need torch are forked from parents that have imported it (`forked.py` says what that changes),
unless the plan says `fresh`. Writes DIR/runs.jsonl, one launch a line in the order they were made, and
DIR/profiles.npz, their aligned profiles by digest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.baselines import profiles
from ai_prof.gate.model import Run
from ai_prof.runs import launch
from ai_prof.runs.workloads import find

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FORKED = Path(__file__).with_name("forked.py")
PARENTS = 4
LOAD = """
import numpy as np
x = np.zeros(1 << 21)
while True:
    x += 1.0
"""


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the plan."""

    workloads: list[str]
    count: int
    faults: tuple[str | None, ...] = (None,)
    load: int = 0
    fresh: bool = False


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One launch: what was asked for, what came of it. `parent` is the fork's, None for a fresh process."""

    workload: str
    regress: str | None = None
    load: int = 0
    parent: int | None = None
    seconds: float
    run: Run


class Step(msgspec.Struct, frozen=True):
    """One launch to make."""

    workload: str
    regress: str | None
    load: int
    fresh: bool


def steps(plan: list[Wanted], seed: int) -> list[Step]:
    """The plan's launches in random order, spread evenly, so that one cut short has some of everything."""
    rng = np.random.default_rng(seed)
    placed: list[tuple[float, Step]] = []
    for wanted in plan:
        for name in wanted.workloads:
            for fault in wanted.faults:
                at = (np.arange(wanted.count) + rng.random(wanted.count)) / wanted.count
                step = Step(name, fault, wanted.load, wanted.fresh)
                placed += [(float(when), step) for when in at]
    return [step for _, step in sorted(placed, key=lambda each: each[0])]


@contextlib.contextmanager
def parents(folder: Path, python: str, modules: list[str], count: int = PARENTS) -> Iterator[list[str]]:
    """Interpreters that stand for `python` and start programs out of parents that have the modules.

    What is no script, as `python -c`, is run by `python` itself.
    """
    made, servers = [], []
    try:
        for i in range(count):
            where = folder / f"parent{i}"
            servers.append(subprocess.Popen([python, str(FORKED), "serve", str(where), *modules]))
            script = folder / f"python{i}"
            fork = f'exec {python} -S -E {FORKED} run {where} "$@"'
            script.write_text(f'#!/bin/sh\ncase "$1" in -*) exec {python} "$@";; esac\n{fork}\n')
            script.chmod(0o755)
            made.append(str(script))
        while not all((folder / f"parent{i}.ready").exists() for i in range(count)):
            if any(server.poll() is not None for server in servers):
                sys.exit(f"a parent ended: {python} cannot import {' '.join(modules)}")
            time.sleep(0.1)
        yield made
    finally:
        for server in servers:
            server.kill()
            server.wait()


class Load:
    """Processes that keep cores and memory busy while they are wanted."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []
        self.running = 0

    def set(self, count: int) -> None:
        while len(self.all) < count:
            self.all.append(subprocess.Popen([sys.executable, "-c", LOAD]))
            self.all[-1].send_signal(signal.SIGSTOP)
        if count != self.running:
            for i, process in enumerate(self.all):
                process.send_signal(signal.SIGCONT if i < count else signal.SIGSTOP)
            self.running = count
            time.sleep(0.3)

    def end(self) -> None:
        for process in self.all:
            process.kill()
            process.wait()


Made = tuple[Step, int | None, launch.Ended, float]  # with the parent, and the seconds it took


def record(options: argparse.Namespace, captures: Path) -> Iterator[Made]:
    """Make the launches until the time is up."""
    begun = time.monotonic()
    plan = msgspec.toml.decode(options.plan.read_bytes(), type=dict[str, list[Wanted]])["runs"]
    todo = steps(plan, options.seed)
    known = {workload.name: workload for workload in find(ROOT / "workloads")}
    modules = sorted({module for step in todo for module in known[step.workload].requires})
    session = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(2)}"
    load, works = Load(), False
    with parents(captures, options.python, modules) as forks:
        forking = forks
        try:
            for order, step in enumerate(todo):
                if time.monotonic() - begun > 60 * options.minutes:
                    print(f"time is up after {order} of {len(todo)} launches", flush=True)
                    return
                workload = known[step.workload]
                parent = order % PARENTS if forking and workload.requires and not step.fresh else None
                load.set(step.load)
                start = time.monotonic()
                job = launch.Job(
                    workload=workload,
                    side="candidate" if step.regress else "baseline",
                    python=options.python if parent is None else forking[parent],
                    capture=captures / f"{order:04}",
                    session=session,
                    order=order,
                    regress=step.regress,
                )
                ended = launch.run_program(job)
                seconds = round(time.monotonic() - start, 2)
                if parent is not None and not works:
                    works = works_forked(ended)
                    forking = forking if works else []
                yield step, parent, ended, seconds
        finally:
            load.end()


def works_forked(ended: launch.Ended) -> bool:
    """Whether a forked launch has left a whole capture; says so where it has not."""
    run = launch.read(ended)
    if run.problem is not None:
        print(f"forked launches fail ({run.detail}): the others are fresh processes", flush=True)
    return run.problem is None


def read(ended: launch.Ended) -> Run:
    """The run of a capture; the capture itself is removed, its profile stays."""
    run = launch.read(ended)
    for path in Path(str(run.capture)).glob("*.aiprof"):
        path.unlink()
    return run


def main() -> None:
    """Record, read, write, and print what came of it."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0, help="stop starting launches after so long")
    parser.add_argument("--plan", type=Path, default=Path(__file__).with_name("record.toml"))
    parser.add_argument("--python", default=shutil.which("python3"), help="the interpreter of the workloads")
    parser.add_argument("--seed", type=int, default=None, help="of the order; the time by default")
    options = parser.parse_args()
    options.seed = int(time.time()) if options.seed is None else options.seed
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = list(record(options, Path(folder)))
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            runs = list(pool.map(read, [ended for _, _, ended, _ in made]))
        found = launch.profiles_of(runs)
    rows = [
        Recorded(
            workload=step.workload, regress=step.regress, load=step.load, parent=parent, seconds=seconds,
            run=msgspec.structs.replace(run, capture=None),
        )
        for (step, parent, _, seconds), run in zip(made, runs, strict=True)
    ]  # fmt: skip
    (options.output / "runs.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))
    (options.output / "profiles.npz").write_bytes(profiles.encode(found.values()))
    show(rows)


def show(rows: list[Recorded]) -> None:
    """A line for each kind of launch: how many, how long, what failed."""
    kinds: dict[tuple[str, str, str], list[Recorded]] = {}
    for row in rows:
        how = "fresh" if row.parent is None else "forked"
        kinds.setdefault((row.workload, row.regress or "-", f"{how}, load {row.load}"), []).append(row)
    for key, mine in sorted(kinds.items()):
        good = [row.run.metrics["iteration_ms"] or 0.0 for row in mine if row.run.problem is None]
        bad = {row.run.detail for row in mine if row.run.problem is not None}
        spread = f"{min(good):8.3f} - {max(good):8.3f} ms" if good else ""
        seconds = sum(row.seconds for row in mine) / len(mine)
        what = f"{key[0]:13}{key[1]:15}{key[2]:17}{len(mine):4}{seconds:6.1f} s  {spread}"
        print(what, "; ".join(map(str, bad)))
    print(f"{len(rows)} launches, {sum(row.run.profile is not None for row in rows)} profiles")


if __name__ == "__main__":
    main()
