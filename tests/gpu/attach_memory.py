"""What attaching again and again leaves in the memory of a PyTorch program, and what CUPTI alone does.

    python tests/gpu/attach_memory.py [--rounds 24]

A loop of CUDA graphs is attached to at level `api`, another at `kernel`, a third one where NVML is not found;
clients of CUPTI without ai-prof show what is CUPTI's own, and that it keeps some MB each time it is left with
work in flight. After each round it prints the parts of the memory that is there, and at the end how they have
grown since the fourth, mapping by mapping. Needs torch, a GPU and g++; two minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from attach_runs import PROGRAMS, Place, Steps
from resident import Resident

from ai_prof.collect.attach import attach, stop
from ai_prof.collect.control import State
from ai_prof.errors import AiProfError, EnvironmentInvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTLED = 4  # rounds: until then it grows in any case
WINDOW_S = 0.3
ALONE_S = 4.0
BEGIN_S = 30.0
NO_NVML = "attach, no NVML"
LEVELS = {"attach, api": "api", "attach, kernel": "kernel", NO_NVML: "api"}
CLIENTS = ("", "calls threads", "calls threads finalize", "busy", "busy settle")


def without_nvml(place: Place) -> dict[str, str]:
    """The variables of a program that finds a libnvidia-ml with nothing in it."""
    folder = place.path / "no-nvml"
    folder.mkdir()
    built = folder / "libnvidia-ml.so.1"
    subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", built], check=True)
    folders = [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, folders))}


def attach_once(pid: int, folder: Path, level: str) -> None:
    """Record a short window and keep nothing of it."""
    sessions = attach([pid], folder, {"AI_PROF_LEVEL": level})
    deadline = time.monotonic() + BEGIN_S
    while sessions[0].control.state != State.RECORDING and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(WINDOW_S)
    stop(sessions)
    if sessions[0].control.state != State.ENDED:
        raise EnvironmentInvalidError(f"no capture: {sessions[0].control.message}")
    shutil.rmtree(folder)


def watch(name: str, pid: int, rounds: int, take: Callable[[int], str]) -> Iterator[str]:
    """Take the rounds; a line for each, then what has grown."""
    seen: list[Resident] = []
    began = [time.monotonic()]
    for number in range(1, rounds + 1):
        told = take(number)
        seen.append(Resident.of(pid))
        began.append(time.monotonic())
        yield f"{name} {number:2}: {seen[-1]}{told}"
    first, last = seen[min(SETTLED, rounds) - 1], seen[-1]
    seconds = began[-1] - began[min(SETTLED, rounds)]
    yield f"{name}: from round {SETTLED} to {rounds}, {seconds:.0f} s: {last.since(first)}"
    yield from (f"  {line}" for line in last.changes(first))


def attached(name: str, steps: Steps, rounds: int) -> Iterator[str]:
    """The rounds of a program that is attached to, after a while without."""
    pid = steps.program.pid
    before = Resident.of(pid)
    time.sleep(ALONE_S)
    yield f"{name}: alone for {ALONE_S:.0f} s: {Resident.of(pid).since(before)}"

    def take(number: int) -> str:
        attach_once(pid, steps.place.path / f"{steps.name}-{number}", LEVELS[name])
        return ""

    yield from watch(name, pid, rounds, take)


def start_client(wishes: str) -> subprocess.Popen[str]:
    """A client of CUPTI's, which waits to be told to begin its rounds."""
    command = [sys.executable, str(PROGRAMS / "cupti_client.py"), *wishes.split()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def of_client(name: str, client: subprocess.Popen[str], rounds: int) -> Iterator[str]:
    """The rounds of a client of CUPTI's."""
    source, sink = client.stdin, client.stdout
    assert source is not None
    assert sink is not None

    def take(_: int) -> str:
        source.write("\n")
        source.flush()
        if not (line := sink.readline()):
            raise EnvironmentInvalidError(f"{name}: ended with {client.wait()}")
        recorded, free = line.split()
        return f", {int(recorded) >> 20} MB recorded so far, {free} buffers free"

    yield from watch(name, client.pid, rounds, take)


def show(lines: Iterator[str]) -> bool:
    """Print each as it comes, and what ends them early; whether nothing did."""
    try:
        for line in lines:
            print(line, flush=True)
    except (AiProfError, OSError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=24)
    rounds = parser.parse_args().rounds
    place = Place.make()
    started: dict[str, Steps] = {}
    clients: dict[str, subprocess.Popen[str]] = {}
    whole: list[bool] = []
    try:
        for number, name in enumerate(LEVELS):
            variables = without_nvml(place) if name == NO_NVML else {}
            started[name] = Steps(place, "decode", f"decode-{number}", variables=variables)
        for wishes in CLIENTS:
            clients[f"client, {wishes or 'kinds'}"] = start_client(wishes)
        for steps in started.values():
            steps.await_file("ready")
        for steps in started.values():
            steps.program.send_signal(signal.SIGSTOP)  # until it is its turn
        for name, steps in started.items():
            steps.program.send_signal(signal.SIGCONT)
            whole.append(show(attached(name, steps, rounds)))
            steps.kill()
        whole += [show(of_client(name, client, rounds)) for name, client in clients.items()]
    finally:
        for steps in started.values():
            steps.kill()
        for client in clients.values():
            client.kill()
            client.communicate()
        shutil.rmtree(place.path, ignore_errors=True)
    return 0 if all(whole) else 1


if __name__ == "__main__":
    sys.exit(main())
