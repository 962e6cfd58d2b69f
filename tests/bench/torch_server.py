"""Has PyTorch's loops measured by torch_loops.py, a process that forks a child for each measurement."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch_programs import Capture, LoopFailedError, Parts, bare_environment, variables

if TYPE_CHECKING:
    from collections.abc import Iterator

MEASURES = {"tiny": "tiny_us", "step": "step_ms"}  # of the loops


@dataclass(frozen=True)
class Watcher:
    """What PyTorch runs under: a capture or another profiler, and the loops that it runs."""

    capture: Capture
    profiler: str | None = None
    loops: tuple[str, ...] = ("tiny", "step")


class TorchServer:
    """The process, from its start to `close`."""

    def __init__(self, parts: Parts, python: str) -> None:
        self.process = subprocess.Popen(
            [python, str(Path(__file__).parent / "torch_loops.py")],
            env=bare_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            self.about = self._answer()
        except LoopFailedError:
            raise SystemExit("PyTorch does not start: see above, or leave it out: --without-torch") from None
        # The floor takes the libcupti that torch brings, as ours does by itself.
        self.parts = replace(parts, cupti=Path(self.about["cupti"] or parts.cupti))

    def measure(self, watcher: Watcher) -> dict[str, float]:
        """Measure the watcher's loops in a child, by measure. Raises LoopFailedError."""
        with tempfile.TemporaryDirectory() as folder:
            return self.record(watcher, Path(folder) / "capture")

    def record(self, watcher: Watcher, output: Path) -> dict[str, float]:
        """The same; what ai-prof captures of it goes to the folder `output`."""
        given = variables(watcher.capture, self.parts, output)
        given.pop("AI_PROF_CUPTI", None)
        wish = {"variables": given, "profiler": watcher.profiler, "loops": watcher.loops}
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # no answer comes then
            self.process.stdin.write(json.dumps(wish) + "\n")
            self.process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise LoopFailedError(answer["error"])
        return answer

    def can(self, watcher: Watcher) -> bool:
        """Whether the profiler works here; only of the one that is optional is it in question."""
        if watcher.profiler != "cupti-python":
            return True
        if not self.about["cupti_python"]:
            return False
        try:
            self.measure(replace(watcher, loops=("tiny",)))
        except LoopFailedError as error:
            sys.stderr.write(f"cupti-python is left out: {error}\n")
            return False
        return True

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(timeout=60)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise LoopFailedError("the process that forks PyTorch's loops has ended")
        return dict(json.loads(line))


@contextlib.contextmanager
def torch_server(parts: Parts, python: str, *, wanted: bool) -> Iterator[TorchServer | None]:
    """Start the server, and end it."""
    if not wanted:
        yield None
        return
    with contextlib.closing(TorchServer(parts, python)) as server:
        yield server
