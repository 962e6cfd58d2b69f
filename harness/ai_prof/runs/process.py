"""Run a program to its end or to its timeout, and leave nothing of it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

GRACE_S = 2.0
KILL_S = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. `code` is negative for a signal, None where it was stopped at its timeout."""

    code: int | None
    seconds: float


def run(  # noqa: PLR0913 - each says something else about one program
    command: Sequence[str], *, folder: Path, env: Mapping[str, str], output: Path, timeout_s: float, mark: str
) -> Ended:
    """Run `command` in a session of its own, its stdout and stderr kept as files in `output`.

    `mark` is a KEY=VALUE of `env` that no other program has: what carries it is the program's own, also
    where it changed its group or lost its parent, and ends with it. Raises OSError where `command` cannot
    be started.
    """
    start = time.monotonic()
    with (output / "stdout.txt").open("wb") as stdout, (output / "stderr.txt").open("wb") as stderr:
        program = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    code = None
    try:
        code = program.wait(timeout_s)
        # Children may still be writing what they recorded.
        psutil.wait_procs(marked(mark), timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _end(program, mark)
    return Ended(code, time.monotonic() - start)


def _end(program: subprocess.Popen[bytes], mark: str) -> None:
    """Kill the program, its group and whatever carries its mark; again, for what was just being forked."""
    deadline = time.monotonic() + KILL_S
    while time.monotonic() < deadline:
        alive = marked(mark)
        running = program.poll() is None
        if running:
            alive += psutil.Process(program.pid).children(recursive=True)
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        if not running and not alive:
            return
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=0.2)


def marked(mark: str) -> list[psutil.Process]:
    """Every live process whose environment holds `mark`; those of other users cannot be ours."""
    key, _, value = mark.partition("=")
    # psutil gives None where an environment cannot be read.
    every = psutil.process_iter(["environ"])
    return [p for p in every if p.pid != os.getpid() and (p.info["environ"] or {}).get(key) == value]
