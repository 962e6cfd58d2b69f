"""Measure: a schedule of launches through pytest-benchmark, in a pytest of its own.

pytest-benchmark brings the harness's bookkeeping: the machine's facts, the commit, and a JSON that its own
tools read. One benchmark stands for one workload, one round for one launch in a fresh process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from ai_prof.collect.environment import capture_environment
from ai_prof.errors import AiProfError, EnvironmentInvalidError
from ai_prof.gate.model import Run
from ai_prof.runs.environment import lock_names
from ai_prof.runs.host_lock import host_lock
from ai_prof.runs.launch import OWN_FAULTS, Job

COLLECTOR = Path(__file__).with_name("bench_workloads.py")
RESULTS = "benchmark.json"
ROOM_BYTES = 1 << 20


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to launch, in this order within each workload; workloads follow one another.

    `folder` receives the plan, pytest's log and `benchmark.json`. `repeats` bounds how often a launch that
    the environment disturbed is made again. `machine` is kept in the JSON's machine_info. `earlier` are the
    runs made before, by side: conditions are compared with theirs. `after` launches of the last workload may
    follow in plans to come, and `seconds` are what a launch of a workload takes, where that is known.
    """

    jobs: list[Job]
    folder: Path
    repeats: int = 2
    machine: dict[str, Any] = {}
    earlier: dict[str, list[Run]] = {}
    progress: bool = True
    after: int = 0
    seconds: dict[str, float] = {}

    def by_workload(self) -> dict[str, list[Job]]:
        """The jobs of each workload, in order."""
        groups: dict[str, list[Job]] = {}
        for job in self.jobs:
            groups.setdefault(job.workload.name, []).append(job)
        return groups


def save(plan: Plan) -> Path:
    """Write the plan where the collector reads it."""
    path = plan.folder / "plan.json"
    path.write_text(json.dumps(msgspec.to_builtins(plan, enc_hook=str)))  # it takes paths that are no UTF-8
    return path


def load(path: Path) -> Plan:
    """The plan in a file that `save` wrote."""
    return msgspec.convert(json.loads(path.read_text()), Plan, dec_hook=lambda kind, value: kind(value))


def measure(plan: Plan) -> list[Run]:
    """Make the launches of the plan; the runs in the order of its jobs, failed ones among them.

    A workload's side ends with its first launch that fails by itself.

    Raises EnvironmentInvalidError where nothing can be captured here, AiProfError where the harness
    itself fails.
    """
    if not plan.jobs:
        return []
    plan.folder.mkdir(parents=True, exist_ok=True)
    capture_environment(plan.folder, "kernel", os.environ)  # says at once what every launch would say
    path = save(plan)
    devices = {name for job in plan.jobs for name in lock_names(job.workload.device)}
    with host_lock(sorted(devices)):
        _run_pytest(path)
    # The benchmarks go workload by workload; the caller's order is that of the jobs.
    made = {run.order: run for run in _results(plan.folder / RESULTS)}
    ended = {
        (job.workload.name, job.side)
        for job in plan.jobs
        if job.order in made and made[job.order].problem in OWN_FAULTS
    }
    if any(job.order not in made and (job.workload.name, job.side) not in ended for job in plan.jobs):
        raise AiProfError(f"the harness lost runs: see {path.with_name('pytest.log')}")
    return [made[job.order] for job in plan.jobs if job.order in made]


def _run_pytest(plan: Path) -> None:
    """Run the collector. Its stderr, where progress goes, is ours; what pytest prints goes to a log."""
    folder = plan.parent
    settings = folder / "pytest.ini"
    settings.write_text("[pytest]\n")  # this pytest is ours: no project's settings apply to it
    command = [
        sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(folder), "--noconftest",
        "-p", "no:cacheprovider", "-p", "pytest_benchmark.plugin", "-p", "ai_prof.pytest_plugin", "-s",
        "--ai-prof-plan", str(plan), f"--benchmark-json={folder / RESULTS}", "--benchmark-enable",
        "--benchmark-quiet", f"--benchmark-storage=file://{folder}",  # by default it makes one where we are
        str(COLLECTOR),
    ]  # fmt: skip
    ours = {key for key in os.environ if key.startswith(("PYTEST_", "AI_PROF_"))} - {"AI_PROF_CUPTI"}
    env = {key: value for key, value in os.environ.items() if key not in ours}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    log = folder / "pytest.log"
    with log.open("wb") as stdout:
        # In a session of its own, pytest gets no Ctrl-C. It holds on to our end of its stdin: however we
        # end, that closes, and pytest ends its workload with everything of it.
        pytest = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stdout, env=env, start_new_session=True
        )
        with pytest:
            code = pytest.wait()
    if code:
        _check_room(folder)
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else "no output"
        raise AiProfError(f"the harness's pytest ended with {code} ({last}): see {log}")


def _check_room(folder: Path) -> None:
    """Raise EnvironmentInvalidError where `folder` takes no files any more: then that is what broke us."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM_BYTES))
    except OSError as error:
        raise EnvironmentInvalidError(
            f"cannot write to {folder} any more: {error.strerror}; make room and gate again"
        ) from error


def _results(path: Path) -> list[Run]:
    """The runs, workload by workload, from the benchmark JSON."""
    report = json.loads(path.read_text())
    return [
        run for each in report["benchmarks"] for run in msgspec.convert(each["extra_info"]["runs"], list[Run])
    ]


def durations(folder: Path) -> dict[str, float]:
    """The mean seconds of a launch, by workload, of what was measured with `folder`; no waiting in it."""
    report = json.loads((folder / RESULTS).read_text())
    # A round whose launch was not made took no time.
    return {
        each["extra_info"]["workload"]: each["stats"]["total"] / len(each["extra_info"]["runs"])
        for each in report["benchmarks"]
    }
