"""PyTorch loops under a capture, a forked child each: importing torch takes longer than measuring.

A server on stdin and stdout. A line is {"variables": {...}, "profiler": null | "cuda" | "cpu+cuda" |
"cupti-python", "loops": ["tiny", "step"]}; the answer is {"tiny_us": N, "step_ms": N}, us an operation
and ms a training step, or {"error": TEXT}. The parent never touches CUDA; a child sets its variables first.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EVERY = 500
TINY = 20_000
STEPS = 15
WIDTH, ROWS, LAYERS = 8192, 4096, 4
TIMEOUT_S = 60
END_S = 5  # from the answer to the end of the process


def tiny_us(profiler: str | None) -> float:
    """Host time of an operation in a loop of tiny ones, with a synchronize every EVERY; us."""
    x = torch.zeros(16, device="cuda")

    def loop(count: int) -> None:
        for i in range(1, count + 1):
            x.add_(1)
            if i % EVERY == 0:
                torch.cuda.synchronize()

    return _timed(loop, TINY, 2000, profiler) * 1e6


def step_ms(profiler: str | None) -> float:
    """A training step that keeps the device busy all the time; ms."""
    on = {"device": "cuda", "dtype": torch.bfloat16}
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False, **on) for _ in range(LAYERS)))
    data = torch.randn(ROWS, WIDTH, **on)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def loop(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()

    return _timed(loop, STEPS, 3, profiler) * 1e3


def _timed(loop: Callable[[int], None], count: int, warm: int, profiler: str | None) -> float:
    """Seconds of one turn of the loop."""
    loop(warm)
    torch.cuda.synchronize()
    with profiling(profiler):
        loop(warm)
        start = time.perf_counter()
        loop(count)
        return (time.perf_counter() - start) / count


@contextlib.contextmanager
def profiling(name: str | None) -> Iterator[None]:
    """Another profiler of PyTorch programs, or none."""
    if name is None:
        yield
    elif name == "cupti-python":
        with _cupti_python():
            yield
    else:
        from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 - not for those without it

        activities = [ProfilerActivity.CUDA]
        if name == "cpu+cuda":
            activities.append(ProfilerActivity.CPU)
        with profile(activities=activities):
            yield


@contextlib.contextmanager
def _cupti_python() -> Iterator[None]:
    """NVIDIA's binding with the device kinds on, as its user guide records them."""
    from cupti import cupti  # noqa: PLC0415 - an optional package

    kinds = [
        cupti.ActivityKind.CONCURRENT_KERNEL,
        cupti.ActivityKind.MEMCPY,
        cupti.ActivityKind.SYNCHRONIZATION,
    ]
    cupti.activity_register_callbacks(lambda: (8 << 20, 0), lambda _activities: None)
    for kind in kinds:
        cupti.activity_enable(kind)
    try:
        yield
    finally:
        cupti.activity_flush_all(1)
        for kind in kinds:
            cupti.activity_disable(kind)


def child(wish: dict[str, Any], answer: int) -> None:
    """Measure what is wished for, write it to the descriptor `answer`, and end as a C program does."""
    try:
        os.environ.update(wish["variables"])
        loops = {"tiny": ("tiny_us", tiny_us), "step": ("step_ms", step_ms)}
        measured: dict[str, Any] = {}
        for name in wish["loops"]:
            key, measure = loops[name]
            measured[key] = measure(wish["profiler"])
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
        measured = {"error": f"{type(error).__name__}: {error}"}
    os.write(answer, json.dumps(measured).encode())
    os.close(answer)
    # Not sys.exit: the parent's own exit handlers are not the child's. A capture ends in C's.
    ctypes.CDLL(None).exit(0)


def measure(wish: dict[str, Any]) -> dict[str, Any]:
    """Fork a child for the wish, and wait for it; one that hangs is killed."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        child(wish, write)
    os.close(write)
    ready, _, _ = select.select([read], [], [], TIMEOUT_S)
    text = os.read(read, 1 << 16) if ready else b""
    os.close(read)
    deadline = time.monotonic() + END_S
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if not ready or time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            break
        time.sleep(0.002)
    return dict(json.loads(text)) if text else {"error": "the measurement hung or died"}


def main() -> None:
    """Answer wishes until stdin ends."""
    about = {"torch": torch.__version__, "cupti": _cupti(), "cupti_python": _installed("cupti")}
    sys.stdout.write(json.dumps(about) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(measure(json.loads(line))) + "\n")
        sys.stdout.flush()


def _cupti() -> str | None:
    """The libcupti that torch has brought into this process, and so into every child."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123 - a file without a size
        paths = [line.split(maxsplit=5)[-1].strip() for line in maps]
    return next((path for path in paths if "/libcupti.so" in path), None)


def _installed(name: str) -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - for this alone

    return find_spec(name) is not None


if __name__ == "__main__":
    main()
