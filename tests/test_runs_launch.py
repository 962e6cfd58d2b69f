"""Launches of small programs: what a run says when a workload crashes, hangs, or does no GPU work.

And whole: a workload through pytest-benchmark, captured and read.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from aiprof_file import Program
from gate_runs import make_run
from msgspec.structs import replace

from ai_prof.collect.autostart import library_path
from ai_prof.errors import AiProfError, EnvironmentInvalidError
from ai_prof.gate.model import Reason
from ai_prof.runs import bench_workloads, measure
from ai_prof.runs.launch import Job, launch, with_evidence
from ai_prof.runs.workloads import find, load
from ai_prof.trace.open import open_trace

WORKLOADS = Path(__file__).parents[1] / "workloads"

pytestmark = pytest.mark.skipif(library_path() is None, reason="the native library is not built here")


def job(tmp_path, code, *, timeout_s=100.0, **options):
    folder = tmp_path / "fake"
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(code)
    (folder / "workload.toml").write_text(
        'schema = "ai-prof/workload/1"\ncommand = ["python", "main.py"]\ndevice = "opencl"\ngpus = 0\n'
        f'timeout_s = {timeout_s}\nfaults = ["slow"]\nenv = {{FAKE = "yes"}}\n'
    )
    return Job(
        workload=load(folder / "workload.toml"),
        side="candidate",
        python=sys.executable,
        capture=tmp_path / "capture",
        session="s",
        order=3,
        **options,
    )


def test_a_crash_says_its_last_line_and_code(tmp_path):
    run = launch(job(tmp_path, "raise ValueError('no such model')"))
    assert run.problem is Reason.FAILED
    assert run.detail == "exit code 1: ValueError: no such model"
    assert (run.workload, run.order, run.session, run.metrics) == ("fake", 3, "s", {})


def test_no_two_launches_begin_at_the_same_time(tmp_path):
    """A baseline knows its runs by that: builds of a session all count their launches from 0."""
    one = job(tmp_path, "")
    assert len({launch(one).started for _ in range(3)}) == 3


def test_the_whole_message_of_an_exception_is_told(tmp_path):
    run = launch(job(tmp_path, "raise ValueError('build failed\\n\\nerror: unknown CPU\\n(options: -I x)')"))
    assert run.detail == "exit code 1: ValueError: build failed error: unknown CPU (options: -I x)"


def test_of_a_usage_error_the_line_that_says_it_is_told(tmp_path):
    lines = "usage: it [-h]\\nit: error: unrecognized arguments: --fast\\n  rootdir: /somewhere"
    run = launch(job(tmp_path, f"import sys; sys.exit('{lines}')"))
    assert run.detail == "exit code 1: it: error: unrecognized arguments: --fast"


def test_a_line_without_end_is_cut(tmp_path):
    run = launch(job(tmp_path, "import sys; sys.exit('bad ' + 'x' * 2000)"))
    assert run.detail.startswith("exit code 1: bad xxx")
    assert run.detail.endswith("x [...]")
    assert len(run.detail) < 450


def test_a_fatal_signal_is_named(tmp_path):
    run = launch(job(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGABRT)"))
    assert (run.problem, run.detail) == (Reason.FAILED, "ended by SIGABRT")


def test_a_hang_is_stopped(tmp_path):
    run = launch(job(tmp_path, "import time; time.sleep(600)", timeout_s=1))
    assert run.problem is Reason.FAILED
    assert "still running after 1 s (timeout_s of its workload.toml)" in run.detail


def test_no_gpu_work(tmp_path):
    run = launch(job(tmp_path, "print('{\"iterations\": 4}')"))
    assert run.problem is Reason.NO_GPU_WORK
    assert "no device work" in run.detail
    assert run.reported == {"iterations": 4}


def test_of_very_many_iterations_a_run_carries_as_many_as_tell_all(tmp_path):
    """A baseline holds thirty runs, and is committed. That every tenth iteration logs can still be told."""
    program = Program()
    for i in range(10_001):
        program.iteration()
        program.launch("k", 100_000)
        program.synchronize()
        program.work(500_000 if i % 10 == 0 else 20_000)
    program.write(tmp_path)
    run = with_evidence(make_run(), open_trace(tmp_path))
    assert (run.iterations, len(run.iteration_ms)) == (10_001, 5_000)
    slow = sum(ms > 2 * run.metrics["iteration_ms"] for ms in run.iteration_ms)
    assert slow == pytest.approx(500, rel=0.2)


def test_a_program_that_is_not_there(tmp_path):
    run = launch(replace(job(tmp_path, ""), python="/nonexistent"))
    assert run.problem is Reason.FAILED
    assert "cannot start /nonexistent" in run.detail


def test_a_folder_that_is_gone_is_not_blamed_on_the_interpreter(tmp_path):
    one = job(tmp_path, "")
    shutil.rmtree(one.workload.folder)
    assert launch(one).detail == f"cannot start {one.workload.folder}: No such file or directory"


@pytest.mark.parametrize("count", ["9" * 3000, "-1", '"4"'])
def test_what_is_no_count_is_not_taken_for_one(tmp_path, count):
    one = job(tmp_path, f"print('{{\"iterations\": {count}}}')")
    (run,) = measure.measure(measure.Plan(jobs=[one], folder=tmp_path / "out"))
    assert (run.problem, run.reported) == (Reason.NO_GPU_WORK, None)


def test_the_program_sees_its_options_and_environment(tmp_path):
    code = "import os, sys; print(sys.argv[1:], os.environ['FAKE'], os.path.basename(os.getcwd()))"
    launch(job(tmp_path, code, regress="slow=2", iterations=7))
    said = (tmp_path / "capture" / "stdout.txt").read_text()
    assert said == "['--regress', 'slow=2', '--iterations', '7'] yes fake\n"


def test_a_foreign_injection_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/other/libother.so")
    plan = measure.Plan(jobs=[job(tmp_path, "open('ran', 'w')")], folder=tmp_path / "out")
    with pytest.raises(EnvironmentInvalidError, match="libother"):
        measure.measure(plan)
    assert not (tmp_path / "fake" / "ran").exists()


def test_a_side_ends_with_its_first_failure_and_runs_come_back_in_the_order_of_the_jobs(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.delenv("CI", raising=False)  # where progress is one line a workload
    first = job(tmp_path, "import sys; print(sys.argv[-1], file=sys.stderr); sys.exit(5)", iterations=1)
    sides = ["head", "base", "base", "head", "candidate"]
    jobs = [
        replace(first, order=i, side=side, iterations=i, capture=tmp_path / f"c{i}")
        for i, side in enumerate(sides)
    ]
    runs = measure.measure(measure.Plan(jobs=jobs, folder=tmp_path / "out", machine={"key": "k"}))
    assert [run.order for run in runs] == [0, 1, 4]
    again = " (not launched again)"
    assert [run.detail for run in runs] == [f"exit code 5: {end}" for end in (f"0{again}", f"1{again}", "4")]
    assert sorted(path.name for path in tmp_path.glob("c[0-9]")) == ["c0", "c1", "c4"]
    assert "fake (candidate), run 5/5" in capfd.readouterr().err
    report = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert report["machine_info"]["ai_prof"] == {"key": "k"}
    total = report["benchmarks"][0]["stats"]["total"]
    assert measure.durations(tmp_path / "out") == {"fake": pytest.approx(total / 3)}


def test_the_harness_obeys_no_project_of_the_caller(tmp_path, monkeypatch):
    (tmp_path / "conftest.py").write_text("raise RuntimeError('not yours')")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    plan = measure.Plan(jobs=[job(tmp_path, "")], folder=tmp_path / "out", progress=False)
    (run,) = measure.measure(plan)
    assert run.problem is Reason.NO_GPU_WORK


def test_a_workload_may_run_a_pytest_of_its_own(tmp_path):
    code = "import os; print([name for name in os.environ if name.startswith('PYTEST_')])"
    first = job(tmp_path, code)
    own = replace(first, workload=replace(first.workload, env={"PYTEST_ADDOPTS": "-q"}))
    jobs = [first, replace(own, side="base", order=4, capture=tmp_path / "own")]
    measure.measure(measure.Plan(jobs=jobs, folder=tmp_path / "out", progress=False))
    assert (tmp_path / "capture" / "stdout.txt").read_text() == "[]\n"
    assert (tmp_path / "own" / "stdout.txt").read_text() == "['PYTEST_ADDOPTS']\n"


def test_a_harness_that_breaks_says_where_to_look(tmp_path):
    plan = measure.Plan(jobs=[job(tmp_path, "")], folder=tmp_path / "out")
    (tmp_path / "capture").write_text("in the way")
    with pytest.raises(AiProfError, match=r"pytest\.log"):
        measure.measure(plan)


def test_a_disk_that_is_full_by_then_is_said(tmp_path, monkeypatch):
    plan = measure.Plan(jobs=[job(tmp_path, "")], folder=tmp_path / "out")
    (tmp_path / "capture").write_text("in the way")

    def full(**_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(measure.tempfile, "TemporaryFile", full)
    with pytest.raises(EnvironmentInvalidError, match="No space left on device; make room"):
        measure.measure(plan)


def test_a_disturbed_launch_is_made_again_and_then_invalid(tmp_path, monkeypatch):
    busy = {"foreign_gpu_processes": [7]}
    seen = iter([busy, {}, busy, busy, busy])
    base = launch(job(tmp_path, ""))

    def fake(one):
        return replace(base, problem=None, environment=next(seen), capture=str(one.capture))

    monkeypatch.setattr(bench_workloads, "launch", fake)
    again = bench_workloads.settled(job(tmp_path, ""), [], repeats=2)
    assert again.problem is None
    assert again.environment == {"repeated_for": [["other compute processes on the GPU: 7"]]}
    assert again.capture == str(tmp_path / "capture-again1")
    invalid = bench_workloads.settled(job(tmp_path, ""), [], repeats=2)
    assert invalid.problem is Reason.INVALID_ENVIRONMENT
    assert "other compute processes" in invalid.detail


def test_the_plugin_is_inert_elsewhere(tmp_path):
    (tmp_path / "test_other.py").write_text(
        "import sys\ndef test_it():\n    assert 'ai_prof.runs' not in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "ai_prof.pytest_plugin", str(tmp_path)]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = {"env": env, "cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    for more in ([], ["-p", "pytest_benchmark.plugin"]):
        done = subprocess.run([*command, *more], **options)  # noqa: PLW1510 - it is among the options
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workload", [w.name for w in find(WORKLOADS) if w.device == "opencl"])
def test_a_reference_workload_counts_as_the_program_does(tmp_path, workload):
    pytest.importorskip("pyopencl")
    (declared,) = [w for w in find(WORKLOADS) if w.name == workload]
    one = Job(
        workload=declared, side="candidate", python=sys.executable, capture=tmp_path / "capture", session="s",
        order=0, iterations=30,
    )  # fmt: skip
    (run,) = measure.measure(measure.Plan(jobs=[one], folder=tmp_path / "out"))
    assert run.problem is None, run.detail
    assert run.reported["iterations"] == 30
    # The first launches may differ from the steady state and the last iteration has no end.
    assert 27 <= run.iterations <= 30
    assert run.structure["kernels"] * 30 == run.reported["launches"]
    assert all(run.structure[count] is not None for count in declared.rules.promised)
    assert run.metrics["iteration_ms"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_workload_ends_with_whoever_measures_it(tmp_path, number):
    one = job(
        tmp_path, "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)", timeout_s=600
    )
    path = measure.save(measure.Plan(jobs=[one], folder=tmp_path))
    code = "import sys; from pathlib import Path; from ai_prof.runs.measure import load, measure"
    measuring = subprocess.Popen(
        [sys.executable, "-c", f"{code}; measure(load(Path(sys.argv[1])))", str(path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        pid = tmp_path / "fake" / "pid"
        wait_until(lambda: pid.exists() and pid.read_text(), 120)
        measuring.send_signal(number)
        said = measuring.communicate(timeout=120)[1]  # also what the harness's pytest says at its end
    finally:
        measuring.kill()  # it holds the host's lock, which every other test of this kind waits for
    assert "pytest_benchmark" not in said
    workload = int(pid.read_text())
    wait_until(lambda: not psutil.pid_exists(workload), 120)


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
