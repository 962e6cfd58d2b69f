"""One program under capture, for a test that asserts what it did on the GPU."""

from __future__ import annotations

import inspect
import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ai_prof.collect.environment import capture_environment
from ai_prof.errors import EnvironmentInvalidError, NothingToCompareError, UsageError
from ai_prof.runs import process
from ai_prof.runs.environment import lock_names
from ai_prof.runs.host_lock import host_lock
from ai_prof.runs.printed import end_of
from ai_prof.timeline import spoken
from ai_prof.timeline.capture_findings import incomplete
from ai_prof.timeline.summary import DeviceSummary, Summary, summarise
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ai_prof.gate.metrics import Backend

# Runs a function of a file in a process of its own. Its arguments come as JSON.
CALL = """
import importlib.util, json, sys
path, name, arguments = sys.argv[1:]
sys.path.insert(0, path.rpartition("/")[0])
spec = importlib.util.spec_from_file_location("under_capture", path)
module = importlib.util.module_from_spec(spec)
sys.modules["under_capture"] = module
spec.loader.exec_module(module)
getattr(module, name)(*json.loads(arguments))
"""
LAST_LINES = 20


@dataclass(frozen=True)
class GpuProfile:
    """What one process did on the GPU: its `summary`, what it printed, and the folder of its capture.

    The figures are those of the device that worked most, over whole iterations after warm-up where any were
    found, else from first start to last end; `docs/metrics.md` defines them.
    """

    summary: Summary
    stdout: str
    capture: Path

    @property
    def device(self) -> DeviceSummary:
        """Every figure of the device that worked most."""
        return max(self.summary.devices, key=lambda device: device.kernel_busy * device.window_ns)

    @property
    def kernel_busy(self) -> float:
        """Share of the window in which a kernel ran."""
        return self.device.kernel_busy

    @property
    def gap(self) -> float:
        """Share of the window in which neither a kernel nor a copy ran."""
        return self.device.gap

    @property
    def gap_causes(self) -> dict[str, float]:
        """The gap by cause, as shares of the window."""
        return self.device.gap_causes

    @property
    def kernel_mean_us(self) -> float:
        """Mean duration of a kernel, in us."""
        return self.device.kernel_mean_us

    @property
    def copy_compute_overlap(self) -> float | None:
        """Share of copy time hidden behind kernels; None without copies."""
        return self.device.copy_compute_overlap

    @property
    def iterations(self) -> int:
        """How many iterations were found."""
        return self.device.iterations.count

    @property
    def iteration_ms(self) -> float:
        """Median length of an iteration, in ms. Raises UsageError where no iterations were found."""
        self._need_iterations()
        return self.device.iterations.median_ms

    @property
    def structure(self) -> dict[str, int]:
        """Counts per iteration: kernels, copies, copy_bytes, syncs, graph_launches.

        Raises UsageError where no iterations were found.
        """
        self._need_iterations()
        return self.device.structure

    @property
    def tag(self) -> str | None:
        """What bounds the program: compute-, launch-, data-, copy-, sync- or communication-bound."""
        return self.summary.tag

    @property
    def findings(self) -> list[str]:
        """The ids of the findings, the gravest first."""
        return [finding.id for finding in self.summary.findings]

    def _need_iterations(self) -> None:
        if not self.device.iterations.count:
            raise UsageError("no iterations were found: repeat the step 20 times and more in the program")

    def __repr__(self) -> str:
        """What a failed assertion shows beside the value: pytest cuts what is longer than 240 characters."""
        device, found = self.device, self.device.iterations
        causes = sorted(device.gap_causes.items(), key=lambda item: -item[1])[:2]
        by_cause = ", ".join(f"{name} {100 * share:.1f} %" for name, share in causes if share >= 0.001)
        counts = ", ".join(f"{name} {count}" for name, count in device.structure.items() if count)
        parts = [
            f"busy {100 * device.kernel_busy:.1f} %, gap {100 * device.gap:.1f} % ({by_cause or 'none'})",
            f"{found.count} iterations of {spoken.time(found.median_ms)}, each {counts}"
            if found.count
            else "no iterations found",
            *(f"first: {name}" for name in self.findings[:1]),
        ]
        return f"<GPU profile: {'; '.join(parts)}>"


class Profiler:
    """Runs programs under capture, each in a process and a folder of its own; `tell` is told each profile."""

    def __init__(
        self, folder: Path, device: Backend, level: str, timeout_s: float, tell: Callable[[GpuProfile], None]
    ) -> None:
        self.folder, self.device, self.level, self.timeout_s = folder, device, level, timeout_s
        self._tell = tell
        self._numbers: Iterator[int] = itertools.count(1)

    def __call__(
        self,
        program: str | Path | Callable[..., object],
        *arguments: object,
        env: dict[str, str] | None = None,
    ) -> GpuProfile:
        """Run a command, or a function of a module by itself in a fresh Python; the profile of its capture.

        `program` is a command (`"python"` is this interpreter), or a function at the top of its module whose
        `arguments` JSON can hold. Raises EnvironmentInvalidError where it fails, hangs or loses records,
        NothingToCompareError where it does no GPU work, UsageError for a function that no fresh process can
        find.
        """
        __tracebackhide__ = True  # of pytest: the test's own line is what a reader looks for
        command = call(program, arguments) if callable(program) else [str(program), *map(str, arguments)]
        command[0] = sys.executable if command[0] == "python" else command[0]
        capture = self.folder / f"capture-{next(self._numbers)}"
        capture.mkdir(parents=True)
        variables = capture_environment(capture, self.level, {**os.environ, **(env or {})})
        with host_lock(lock_names(self.device)):
            try:
                ended = process.run(
                    command,
                    folder=Path.cwd(),
                    env=variables,
                    output=capture,
                    timeout_s=self.timeout_s,
                )
            except OSError as error:
                raise UsageError(f"cannot start {command[0]}: {error.strerror or error}") from error
        if ended.code != 0:
            how = (
                f"was still running after {self.timeout_s:g} s"
                if ended.code is None
                else f"ended with {ended.code}"
            )
            raise EnvironmentInvalidError(
                f"the program {how}; it said last:\n{_last(end_of(capture / 'stderr.txt'))}"
            )
        profile = read(capture)
        self._tell(profile)
        return profile


def read(capture: Path) -> GpuProfile:
    """The profile of a finished capture. Raises as `Profiler` does."""
    __tracebackhide__ = True
    if not any(capture.glob("*.aiprof")):
        raise NothingToCompareError("the program did no GPU work: nothing was captured")
    trace = open_trace(capture)
    if missing := incomplete(trace):
        raise EnvironmentInvalidError(f"the capture is incomplete: {'; '.join(missing)}")
    summary = summarise(trace)
    if not summary.devices:
        raise NothingToCompareError(summary.reason or "the program did no GPU work")
    return GpuProfile(summary, (capture / "stdout.txt").read_text("utf-8", errors="replace"), capture)


def call(function: Callable[..., Any], arguments: tuple[object, ...]) -> list[str]:
    """The command that calls a function in a fresh process."""
    name, path = getattr(function, "__qualname__", ""), inspect.getsourcefile(inspect.unwrap(function))
    if path is None or not name.isidentifier():
        raise UsageError(
            f"{function!r} is no function at the top of a module: a fresh process cannot find it"
        )
    try:
        text = msgspec.json.encode(arguments).decode()
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"the arguments of {name} are no JSON ({error}): let the function make them"
        ) from error
    return [sys.executable, "-c", CALL, str(Path(path).resolve()), name, text]


def _last(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-LAST_LINES:]) or "(nothing)"
