"""Launch one fresh process of a workload under capture, and make of it one run."""

from __future__ import annotations

import os
import signal
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np

from ai_prof.baselines import profiles
from ai_prof.bounds import Count
from ai_prof.collect.environment import capture_environment
from ai_prof.errors import TraceError
from ai_prof.gate.model import Reason, Run
from ai_prof.runs import process
from ai_prof.runs.environment import Moment, describe, observe
from ai_prof.runs.printed import complaint, last_line
from ai_prof.runs.workloads import Workload
from ai_prof.timeline.evidence import evidence
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ai_prof.timeline.profile import Profile
    from ai_prof.trace.model import Trace

BUSY_CORES = 0.5  # of other programs, from which on a hang may be theirs
PROFILE = "profile.npz"
KEPT_ITERATIONS = 5000  # of a run, for its quartiles, modes and plot
OWN_FAULTS = frozenset({Reason.FAILED, Reason.NO_GPU_WORK})  # launched again, it would end so again


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One launch: what to run, how, and what its run is filed under.

    `side` says whose code it is. `regress` must be a fault that the workload knows. `capture` is the
    folder of this launch alone, created by it; `python` the interpreter's path; `commit` and `dirty` say
    which code is measured.
    """

    workload: Workload
    side: Literal["baseline", "candidate", "base", "head"]
    python: str
    capture: Path
    session: str
    order: int
    regress: str | None = None
    iterations: int | None = None
    level: Literal["kernel", "api"] = "api"
    commit: str | None = None
    dirty: bool = False

    def command(self) -> list[str]:
        """The workload's command with its options; a leading `python` replaced by the interpreter."""
        program, *rest = self.workload.command
        command = [self.python if program == "python" else program, *rest]
        if self.regress is not None:
            command += ["--regress", self.regress]
        if self.iterations is not None:
            command += ["--iterations", str(self.iterations)]
        return command


class Ended(NamedTuple):
    """A launch that has ended and whose capture is still to be read. It left `left` processes running."""

    run: Run
    before: Moment
    after: Moment
    left: int


def launch(job: Job) -> Run:
    """Run a job to its end and read its capture. A run that failed says so in `problem` and `detail`.

    Raises EnvironmentInvalidError where nothing can be captured here at all.
    """
    return read(run_program(job))


def run_program(job: Job) -> Ended:
    """Run a job's program to its end under capture. Raises EnvironmentInvalidError as `launch` does."""
    job.capture.mkdir(parents=True, exist_ok=True)
    env = capture_environment(job.capture, job.level, _base_environment(job))
    started = datetime.now(timezone.utc)
    before = observe(job.workload.device)
    left, hung = 0, False
    try:
        ended = process.run(
            job.command(),
            folder=job.workload.folder,
            env=env,
            output=job.capture,
            timeout_s=job.workload.timeout_s,
        )
        failure, left = _failure(ended, job), ended.left
        hung = ended.code is None
    except OSError as error:
        failure = f"cannot start {error.filename or job.command()[0]}: {error.strerror or error}"
    after = observe(job.workload.device)
    environment = describe(before, after, None)
    if hung and (busy := environment["foreign_cores"]) >= BUSY_CORES:
        failure = f"{failure}; other programs kept {busy:.1f} cores busy meanwhile"
    run = Run(
        workload=job.workload.name,
        session=job.session,
        order=job.order,
        host=socket.gethostname(),
        started=started.isoformat(timespec="milliseconds"),  # no two runs of a workload have the same
        commit=job.commit,
        dirty=job.dirty,
        environment=environment,
        reported=_reported(job.capture / "stdout.txt"),
        capture=str(job.capture),
    )
    return Ended(run if failure is None else _failed(run, Reason.FAILED, failure), before, after, left)


def read(ended: Ended) -> Run:
    """The run with what its capture shows."""
    run = _read(ended.run, ended.before, ended.after)
    if run.problem is None or not ended.left:
        return run
    what = f"{ended.left} process{'es' if ended.left > 1 else ''}"
    left = f"it ended before {what} of its own, which had to be stopped: have it wait for all that it starts"
    return msgspec.structs.replace(run, detail=f"{run.detail}; {left}")


def _read(run: Run, before: Moment, after: Moment) -> Run:
    if run.problem is not None or run.capture is None:
        return run
    try:
        trace = _trace(Path(run.capture))
    except TraceError as error:
        return _failed(run, Reason.CAPTURE_INCOMPLETE, str(error))
    if trace is None:
        return _failed(run, Reason.NO_GPU_WORK, "it did no device work: nothing was captured")
    run = msgspec.structs.replace(run, environment=describe(before, after, trace))
    return with_evidence(run, trace)


def with_evidence(run: Run, trace: Trace) -> Run:
    """`run` with what its trace shows, or with the problem that makes the trace worthless.

    Its aligned profile goes into a file in the capture's folder, and the run names it.
    """
    seen = evidence(trace, (run.reported or {}).get("iterations"))
    lost = any(loss.lost for loss in trace.source.losses.values())
    if seen.problems:
        return _failed(run, _problem(trace, lost=lost), "; ".join(seen.problems))
    if seen.profile is not None and run.capture is not None:
        Path(run.capture, PROFILE).write_bytes(profiles.encode([seen.profile]))
        run = msgspec.structs.replace(run, profile=seen.profile.digest())
    return msgspec.structs.replace(
        run,
        captured=_captured(trace),
        iterations=seen.iterations,
        metrics=dict(seen.metrics),
        structure=dict(seen.structure),
        kernels=seen.kernels,
        iteration_ms=_kept(seen.iteration_ms),
        gap_causes_ms=dict(seen.gap_causes_ms),
        sync_shadow_ms=seen.sync_shadow_ms,
    )


def _kept(iteration_ms: list[float]) -> list[float]:
    """The lengths of iterations that baselines and reports carry for each run, in order.

    Drawn by chance, always the same ones: every tenth may be one that logs.
    """
    if len(iteration_ms) <= KEPT_ITERATIONS:
        return iteration_ms
    drawn = np.random.default_rng(0).choice(len(iteration_ms), KEPT_ITERATIONS, replace=False)
    return [iteration_ms[i] for i in sorted(drawn)]


def _captured(trace: Trace) -> str:
    """How the processes of a capture were captured, as their files say; empty where they say nothing."""
    headers = [process.header for process in trace.processes]
    ways = {(str(h["level"]), str(h.get("graphs", "node"))) for h in headers if "level" in h}
    return " and ".join(f"{level}, graphs by {graphs}" for level, graphs in sorted(ways))


def profiles_of(runs: Iterable[Run]) -> dict[str, Profile]:
    """The aligned profiles of fresh runs, by digest, from their captures' folders."""
    found: dict[str, Profile] = {}
    for run in runs:
        if run.profile is not None and run.capture is not None:
            path = Path(run.capture, PROFILE)
            found |= profiles.decode(path.read_bytes(), path)
    return found


def _problem(trace: Trace, *, lost: bool) -> Reason:
    """What makes a trace with problems worthless: lost records before anything they may explain."""
    if lost or not trace.source.complete:
        return Reason.CAPTURE_INCOMPLETE
    return Reason.FAILED if len(trace.kernels.start) else Reason.NO_GPU_WORK


def _base_environment(job: Job) -> dict[str, str]:
    """The environment of the workload. GPUs are numbered as NVML numbers them, unless it says otherwise.

    Without pytest's variables, which are those of the pytest that launches it: a workload may run one itself.
    """
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **inherited, **job.workload.env}


def _failed(run: Run, problem: Reason, detail: str) -> Run:
    return msgspec.structs.replace(run, problem=problem, detail=detail)


def _failure(ended: process.Ended, job: Job) -> str | None:
    """Why the program is no run, in one line; None where it ended well."""
    if ended.code == 0:
        return None
    last = complaint(job.capture / "stderr.txt")
    if ended.code is None:
        what = (
            f"still running after {job.workload.timeout_s:g} s (timeout_s of its workload.toml): "
            "it was stopped with all its children"
        )
    elif ended.code < 0:
        what = f"ended by {_signal_name(-ended.code)}"
    else:
        what = f"exit code {ended.code}"
    return f"{what}: {last}" if last else what


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _trace(folder: Path) -> Trace | None:
    """The capture in `folder`; None where no process wrote one."""
    return open_trace(folder) if any(folder.glob("*.aiprof")) else None


def _reported(stdout: Path) -> dict[str, Count] | None:
    """The workload's own counts, where its last line is a JSON object of counts."""
    try:
        return msgspec.json.decode(last_line(stdout), type=dict[str, Count])
    except msgspec.DecodeError:
        return None
