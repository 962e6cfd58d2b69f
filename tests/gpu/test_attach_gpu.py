"""`ai-prof attach` to programs on a real GPU that were started without any of our variables.

`pytest tests/gpu/test_attach_gpu.py -m gpu` takes about three minutes and prints a table last.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from attach_runs import Place, Steady, Steps, capture_of, launches_found
from resident import Resident

from ai_prof.collect.attach import attach, stop
from ai_prof.collect.control import State
from ai_prof.timeline.capture_findings import incomplete
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from ai_prof.trace.model import Trace

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

REFERENCE_STEPS = 2500
IDLE_SECONDS = 3.0


class Attached(NamedTuple):
    """One attach: when the command began and ended (CLOCK_MONOTONIC, ns), and what it recorded."""

    began: int
    ended: int
    stood_ms: float
    trace: Trace


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    made = Place.make()
    yield made
    shutil.rmtree(made.path, ignore_errors=True)


@pytest.fixture(scope="module")
def begin(place: Place) -> Iterator[Callable[..., Steps]]:
    """Starts programs; whatever happens, they are gone at the end."""
    started: list[Steps] = []

    def start(*words: object, **wishes: object) -> Steps:
        started.append(Steps(place, *words, **wishes))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for steps in started:
        steps.kill()


@pytest.fixture(scope="module")
def from_start(place: Place, begin: Callable[..., Steps]) -> dict[str, Steady]:
    """Device work a step of each kind, captured from the program's start; all at once, for time is short."""
    captured = {
        kind: begin(kind, f"{kind}-start", most=steps, capture=place.path / f"{kind}-start-capture")
        for kind, steps in {"train": 300, "decode": 5000, "jax": 5000}.items()
        if kind != "jax" or has_jax()
    }
    found = {"raw": Steady({6}, {5})}
    for kind, steps in captured.items():
        times, _ = steps.finish()
        found[kind] = Steady.of(open_trace(place.path / f"{kind}-start-capture"), times)
    return found


@pytest.fixture(scope="module")
def reference(begin: Callable[..., Steps], from_start: dict[str, Steady]) -> list[float]:
    """The losses of a training that nobody watched."""
    del from_start  # not beside those
    steps = begin("train", "reference", most=REFERENCE_STEPS)
    return steps.finish()[1]


@pytest.fixture(scope="module")
def training(begin: Callable[..., Steps], reference: list[float]) -> Steps:
    del reference  # before, so that nothing runs beside what is timed
    steps = begin("train", "training")
    steps.await_file("ready")
    return steps


@pytest.fixture(scope="module")
def runs(place: Place, training: Steps) -> list[Attached]:
    """Three attaches to the training in turn, with time beside them."""
    done = []
    for number, seconds in enumerate((10, 3, 3)):
        time.sleep(IDLE_SECONDS)
        done.append(attached(place, training, seconds, f"training-{number}"))
    time.sleep(IDLE_SECONDS)
    return done


@pytest.fixture(scope="module")
def stacked(place: Place, training: Steps, runs: list[Attached]) -> Attached:
    """One more, with the Python stacks sampled."""
    del runs
    if not (Path(sysconfig.get_path("scripts")) / "py-spy").is_file() and shutil.which("py-spy") is None:
        pytest.skip("no py-spy")
    done = attached(place, training, 3, "training-stacks", "--stacks")
    time.sleep(IDLE_SECONDS)
    return done


@pytest.fixture(scope="module")
def trained(training: Steps) -> tuple[npt.NDArray[np.int64], list[float]]:
    """Times and losses of the training's steps, when it has ended."""
    return training.end()


@pytest.fixture(scope="module")
def decoding(begin: Callable[..., Steps], training: Steps) -> Steps:
    del training
    steps = begin("decode", "decoding")
    steps.await_file("ready")
    return steps


def has_jax() -> bool:
    """With its CUDA part."""
    return any(importlib.util.find_spec(f"jax_cuda{major}_plugin") is not None for major in (12, 13))


def attached(place: Place, steps: Steps, seconds: float, name: str, *options: str) -> Attached:
    """Capture a program with our command from another process, as the same user."""
    began = time.monotonic_ns()
    folder = place.path / name
    words = ("attach", "--pid", steps.program.pid, "--duration", seconds, "--output", folder, *options)
    code, said = place.ai_prof(*words)
    ended = time.monotonic_ns()
    assert code == 0 or "the capture is incomplete" in said, said  # of which a row tells
    stood = re.search(r"threads stood for ([\d.]+) ms", said)
    assert stood is not None, said
    return Attached(began, ended, float(stood[1]), open_trace(folder))


def median(times: npt.NDArray[np.int64], begin: float, end: float) -> float:
    inside = times[(times > begin) & (times < end)]
    assert len(inside) > 20
    return float(np.median(np.diff(inside))) / 1e6


def longest(times: npt.NDArray[np.int64], begin: float, end: float) -> float:
    first = max(int(np.searchsorted(times, begin)) - 1, 0)
    return float(np.diff(times[first : int(np.searchsorted(times, end)) + 1]).max()) / 1e6


def test_a_training_is_captured(place: Place, runs: list[Attached], row: Callable[..., None]) -> None:
    row("who attaches, and owns the targets", place.who)
    lacking = [why for run in runs for why in incomplete(run.trace)]
    row("train: what the captures lack", "; ".join(lacking) or "nothing", "nothing")
    for run in runs:
        assert launches_found(run.trace) > 0.99
        assert run.trace.source.complete


def test_the_stacks_are_seen(stacked: Attached, row: Callable[..., None]) -> None:
    stacks = stacked.trace.stacks
    assert stacks is not None, stacked.trace.source.warnings
    row("stacks: intervals, different stacks", f"{len(stacks.start)}, {len(stacks.frames)}")
    row("stacks: error of their clock, ms", f"{stacks.error_ns / 1e6:.1f}")
    assert any("steps.py" in frame for stack in stacks.frames for frame in stack)


def test_two_processes_at_once(
    place: Place, training: Steps, decoding: Steps, row: Callable[..., None]
) -> None:
    folder = place.path / "two"
    pids = [word for steps in (training, decoding) for word in ("--pid", steps.program.pid)]
    code, said = place.ai_prof("attach", *pids, "--duration", "3", "--output", folder)
    assert code == 0, said
    traces = [capture_of(folder, steps.program.pid) for steps in (training, decoding)]
    starts = [int(trace.kernels.start.min()) for trace in traces]
    ends = [int(trace.kernels.end.max()) for trace in traces]
    together = (min(ends) - max(starts)) / (max(ends) - min(starts))
    row("two processes at once: time recorded together", f"{together:.1%}")
    assert together > 0.5


@pytest.mark.parametrize("kind", ["decode", "jax", "raw"])
def test_other_programs_are_captured(
    kind: str,
    place: Place,
    begin: Callable[..., Steps],
    from_start: dict[str, Steady],
    row: Callable[..., None],
) -> None:
    if kind not in from_start:
        pytest.skip("no JAX on a GPU")
    if kind == "raw":
        built = ["nvcc", "-O2", str(place.path / "raw.cu"), "-o", str(place.path / "raw")]
        if shutil.which("nvcc") is None or subprocess.run(built, check=False).returncode != 0:
            pytest.skip("no nvcc")
    steps = begin(kind, f"{kind}-attached")
    steps.await_file("ready")
    run = attached(place, steps, 2, f"{kind}-capture")
    time.sleep(0.5)
    times, _ = steps.end()
    seen = Steady.of(run.trace, times)
    share = launches_found(run.trace)
    row(f"{kind}: device operations a step, attached", f"{seen}", f"{from_start[kind]}")
    row(f"{kind}: kernels with their launch recorded", f"{share:.2%}", "100%")
    longest_ms = longest(times, run.began, run.ended)
    step_ms = float(np.median(np.diff(times))) / 1e6
    row(
        f"{kind}: thread stood; longest step, ms",
        f"{run.stood_ms:.1f}; {longest_ms:.1f}",
        f"median {step_ms:.2f}",
    )
    assert seen.operations == from_start[kind].operations
    assert share > 0.99


def test_one_process_twenty_times(place: Place, decoding: Steps, row: Callable[..., None]) -> None:
    folder = place.path / "twenty"
    seen, grown, stood = [], [], []
    for number in range(20):
        sessions = attach([decoding.program.pid], folder / str(number), {"AI_PROF_LEVEL": "api"})
        deadline = time.monotonic() + 30
        while sessions[0].control.state != State.RECORDING and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        stop(sessions)
        assert sessions[0].control.state == State.ENDED, sessions[0].control.message
        stood.append(sessions[0].pause_s * 1e3)
        trace = open_trace(folder / str(number))
        seen.append(len(trace.kernels.start))
        assert launches_found(trace) > 0.9
        grown.append(Resident.of(decoding.program.pid))
    row("20 attaches to one process: fewest kernels", str(min(seen)), "> 0")
    row("20 attaches: a thread stood, median and longest ms", f"{np.median(stood):.1f}, {max(stood):.1f}")
    row("20 attaches: grown from the 4th on", grown[-1].since(grown[3]))
    assert min(seen) > 0


def test_torch_profiler_in_the_target_afterwards(
    decoding: Steps, training: Steps, row: Callable[..., None]
) -> None:
    for steps in (training, decoding):
        seen = steps.profiled()
        row(f"torch.profiler in {steps.name} afterwards: kernels", str(seen["kernels"]), "> 0")
        row(f"torch.profiler in {steps.name} afterwards: launches", str(seen["launches"]), "> 0")
        assert seen["kernels"] > 0
        assert seen["told_apart"] == seen["launches"] > 0


def test_an_attach_after_torch_profiler_works_or_says_why_not(
    place: Place, decoding: Steps, row: Callable[..., None]
) -> None:
    """The profiler may keep CUPTI for the rest of the process."""
    folder = place.path / "after-profiler"
    pid = decoding.program.pid
    code, said = place.ai_prof("attach", "--pid", pid, "--duration", "1", "--output", folder)
    if code == 0:
        row("attach after torch.profiler: kernels", str(len(open_trace(folder).kernels.start)), "> 0")
        assert len(open_trace(folder).kernels.start) > 0
    else:
        row("attach after torch.profiler", "refused: CUPTI is held")
        assert code == 4, said
        assert "another tool holds CUPTI" in said
    decoding.end()


def test_the_training_was_not_disturbed(
    trained: tuple[npt.NDArray[np.int64], list[float]],
    runs: list[Attached],
    reference: list[float],
    from_start: dict[str, Steady],
    row: Callable[..., None],
) -> None:
    times, losses = trained
    bounds = [(int(r.trace.kernels.start.min()), int(r.trace.kernels.end.max())) for r in runs]
    idle_from = [int(times[20]), *(run.ended for run in runs)]
    idle_to = [*(run.began for run in runs), runs[-1].ended + int(IDLE_SECONDS * 1e9)]
    idle = [median(times, *pair) for pair in zip(idle_from, idle_to, strict=True)]
    during = [median(times, *pair) for pair in bounds]
    seen = [Steady.of(run.trace, times) for run in runs]
    row("train: device operations a step, attached", f"{seen[0]}", f"{from_start['train']}")
    row("train: step before the first attach, ms", f"{idle[0]:.3f}")
    row("train: during / beside, each attach", " ".join(
        f"{d / (a + b) * 2:.4f}" for d, a, b in zip(during, idle, idle[1:], strict=False)))  # fmt: skip
    after = [one / idle[0] for one in idle[1:]]
    row("train: after / before, each attach", " ".join(f"{ratio:.4f}" for ratio in after), "<= 1.02")
    for run, (first, last) in zip(runs, bounds, strict=True):
        entering = longest(times, run.began, first + 1e9)
        leaving = longest(times, last - 1e8, run.ended)
        row("train: thread stood; longest step entering, leaving, ms",
            f"{run.stood_ms:.1f}; {entering:.1f}, {leaving:.1f}", f"median {idle[0]:.1f}")  # fmt: skip
    compared = min(len(losses), len(reference))
    last_attached = int(np.searchsorted(times, runs[0].ended))
    row("train: losses equal to an undisturbed run's", f"{compared} steps", f"first attach: {last_attached}")
    assert losses[:compared] == reference[:compared]
    assert compared > int(np.searchsorted(times, bounds[0][0])) + 100
    assert all(one.operations == from_start["train"].operations for one in seen)
    assert np.median(after) <= 1.02


def test_what_sampling_the_stacks_costs(
    stacked: Attached, trained: tuple[npt.NDArray[np.int64], list[float]], row: Callable[..., None]
) -> None:
    kernels, times = stacked.trace.kernels, trained[0]
    during = median(times, int(kernels.start.min()), int(kernels.end.max()))
    beside = median(times, stacked.ended, stacked.ended + int(IDLE_SECONDS * 1e9))
    row("train: during with --stacks / beside", f"{during / beside:.4f}")
    assert during / beside < 1.5


def test_a_program_that_stands_by_is_woken(place: Place, row: Callable[..., None]) -> None:
    folder = place.path / "standby"
    folder.mkdir()
    folder.chmod(0o777)
    program = place.start(
        [sys.executable, place.path / "steps.py", "decode", folder], AI_PROF_ENABLE="standby"
    )
    try:
        deadline = time.monotonic() + 100
        while not (folder / "ready").exists() and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        words = ("attach", "--pid", program.pid, "--duration", "1", "--output", folder / "capture")
        code, said = place.ai_prof(*words)
        assert code == 0, said
        assert "no thread stood" in said
        trace = open_trace(folder / "capture")
        row("standby: kernels; with their launch recorded", f"{len(trace.kernels.start)}; "
            f"{launches_found(trace):.2%}", "100%")  # fmt: skip
        assert launches_found(trace) > 0.99
    finally:
        (folder / "stop").touch()
        program.communicate(timeout=60)
    assert program.returncode == 0
