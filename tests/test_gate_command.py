"""What `ai-prof gate` says to wrong arguments, broken workloads and unusable baselines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from gate_runs import counts_alone

from ai_prof.cli import main

ROOT = Path(__file__).parents[1]
TOML = """schema = "ai-prof/workload/1"
command = ["python", "main.py"]
device = "opencl"
gpus = 0
requires = {requires}
timeout_s = {timeout}
faults = ["slow"]
"""
GPU_PROGRAM = f"""
import sys
import numpy as np, pyopencl as cl
sys.path.append({str(ROOT / "workloads")!r})
from pocl_cpu import teach
context = cl.create_some_context(interactive=False)
teach(context.devices[0])
queue = cl.CommandQueue(context)
program = cl.Program(context, "kernel void f(global float *x) {{ x[get_global_id(0)] += 1; }}").build()
kernel = cl.Kernel(program, "f")
x = np.zeros(1 << 16, np.float32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, x.nbytes)
for _ in range(20):
    cl.enqueue_copy(queue, buffer, x)
    for _ in range(5):
        kernel(queue, x.shape, None, buffer)
    cl.enqueue_copy(queue, x, buffer)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, entered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def add(
    project: Path, name: str, program: str, *, requires: str = '["pyopencl"]', timeout: float = 300
) -> None:
    folder = project / "workloads" / name
    folder.mkdir(parents=True)
    (folder / "main.py").write_text(program)
    (folder / "workload.toml").write_text(TOML.format(requires=requires, timeout=timeout))


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr that says what is wrong."""
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ai-prof: ")]
    return lines[-1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], "no workload named nowhere; there are: work"),
        (["--regress", "nothing"], "no workload knows the fault 'nothing'; there are: slow"),
        (["--regress", "slow=fast"], "a number above 0"),
        (["--runs", "1"], "must be 3 to 1000: a median needs 3"),
        (["--runs", f"{10**20}"], "must be 3 to 1000"),
        (["--python", "/no/python"], "/no/python"),
        (["--baselines", "/no/baselines"], "--baselines /no/baselines is no folder"),
    ],
)
def test_wrong_arguments(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    add(project, "work", GPU_PROGRAM)
    assert main(["gate", *arguments]) == 2
    assert expected in said(capsys)


def test_a_project_without_workloads(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate"]) == 2
    assert str(project / "workloads") in said(capsys)
    assert list(project.iterdir()) == []


def test_settings_that_cannot_be_used(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(project, "work", GPU_PROGRAM)
    (project / "pyproject.toml").write_text("[tool.ai-prof]\nalpah = 0.05\n")
    assert main(["gate"]) == 2
    assert "alpah" in said(capsys)


def test_an_interpreter_of_the_settings_is_not_blamed_on_the_option(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(project, "work", GPU_PROGRAM)
    (project / "pyproject.toml").write_text('[tool.ai-prof]\npython = "/nosuch"\n')
    assert main(["gate"]) == 2
    assert "[tool.ai-prof] in pyproject.toml: /nosuch is no Python" in said(capsys)


def test_what_is_missing_here_is_named_as_what_it_is(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(project, "work", GPU_PROGRAM, requires='["no_such_module"]')
    assert main(["gate"]) == 3
    message = said(capsys)
    assert "no workload can run here: work: " in message
    assert "has no module no_such_module: pip install no_such_module there" in message
    assert "device" not in message


def test_no_baseline_is_not_a_pass(project: Path) -> None:
    add(project, "work", GPU_PROGRAM)
    assert main(["gate"]) == 3
    assert not (project / ".ai-prof" / "baselines").exists()


def test_a_report_folder_that_cannot_be_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(project, "work", GPU_PROGRAM)
    (project / "file").write_text("kept")
    assert main(["gate", "--report", str(project / "file" / "reports")]) == 2
    assert "--report" in said(capsys)
    assert (project / "file").read_text() == "kept"


def failed(project: Path, code: int) -> str:
    """Why the one workload of a recording gate failed."""
    assert main(["gate", "--record"]) == code
    (report,) = (project / "reports").glob("*/report.json")
    (workload,) = json.loads(report.read_text())["workloads"]
    return str(workload["reason"]) + ": " + str(workload["why"])


def test_a_workload_that_crashes(project: Path) -> None:
    add(project, "work", "raise RuntimeError('broken on purpose')")
    why = failed(project, 4)
    assert "failed" in why
    assert "broken on purpose" in why
    assert not (project / ".ai-prof" / "baselines").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("streams", ["2> /dev/full", "2>&-", "2>&1 > verdict | true"])
def test_a_gate_goes_on_whoever_reads_its_progress(project: Path, streams: str) -> None:
    add(project, "work", "raise SystemExit(3)")
    command = [sys.executable, "-m", "ai_prof", "gate", "--record"]
    subprocess.run(["/bin/sh", "-c", f'"$@" {streams}', "sh", *command], check=False)
    (report,) = project.glob("reports/*/report.json")
    assert json.loads(report.read_text())["exit_code"] == 4


def test_a_launch_that_fails_once_is_told_and_nothing_else_of_it_is_run(project: Path) -> None:
    once = "import pathlib; seen = pathlib.Path('seen'); first = not seen.exists(); seen.touch()"
    add(project, "work", f"{once}\nif first: raise RuntimeError('broken once')\n{GPU_PROGRAM}")
    why = failed(project, 4)
    assert why.startswith("failed: no baseline was recorded: exit code 1: RuntimeError: broken once")
    assert not list((project / ".ai-prof" / "captures").glob("*/*candidate*"))


def test_a_workload_that_hangs_ends_with_all_its_children(project: Path) -> None:
    mark = f"sleep {time.monotonic_ns() % 10**6 + 10**6}"
    program = f"import subprocess; subprocess.Popen({mark.split()!r}, start_new_session=True).wait()"
    add(project, "work", program, timeout=1)
    hung = "still running after 1 s (timeout_s of its workload.toml): it was stopped with all its children"
    assert hung in failed(project, 4)
    assert len(list((project / ".ai-prof" / "captures").glob("*/*-work-*"))) == 1
    assert mark not in {" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])}


# A daemon, and more output than anybody should hold in memory, in one line. It seeks over what it would have
# printed: whoever reads that gets as many zeros, and no disk has to take them.
LEFT_BEHIND = """
import os, pathlib, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pathlib.Path("daemon").write_text(str(os.getpid()))
        while True:
            os.write(1, bytes(4096))
            time.sleep(0.1)
    os._exit(0)
while not os.path.exists("daemon"):
    time.sleep(0.01)
os.lseek(1, 1 << 30, os.SEEK_CUR)
os.write(1, b"x" * (1 << 20))
"""


def test_a_workload_that_leaves_a_daemon_and_a_gigabyte_of_output(project: Path) -> None:
    add(project, "work", LEFT_BEHIND)
    gate = subprocess.Popen([sys.executable, "-m", "ai_prof", "gate", "--record"])
    _, status, usage = os.wait4(gate.pid, 0)
    gate.returncode = os.waitstatus_to_exitcode(status)
    assert gate.returncode == 3
    assert usage.ru_maxrss < 512 << 10  # KiB: the most that any process of it had
    assert not psutil.pid_exists(int((project / "workloads" / "work" / "daemon").read_text()))
    assert sum(path.stat().st_size for path in project.rglob("*") if path.is_file()) < 32 << 20
    (report,) = (project / "reports").glob("*/report.json")
    (workload,) = json.loads(report.read_text())["workloads"]
    assert "no device work: nothing was captured; it ended before 1 process of its own" in workload["why"]
    assert "have it wait for all that it starts" in workload["why"]


def test_a_workload_that_does_no_gpu_work(project: Path) -> None:
    add(project, "work", "print('all done')")
    assert "no device work" in failed(project, 3)
    ours = {"workloads", "reports", ".ai-prof"}
    assert {path.name for path in project.iterdir()} == ours  # a gate leaves nothing else behind


def test_a_dirty_tree_is_not_refreshed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(project, "work", GPU_PROGRAM)
    subprocess.run(["git", "init", "-q"], check=True)
    assert main(["baseline", "refresh", "--reason", "test"]) == 2
    assert "uncommitted" in said(capsys)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a recorded baseline."""
    project = tmp_path_factory.mktemp("recorded")
    add(project, "work", GPU_PROGRAM)
    counts_alone(project / "workloads" / "work")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(project)
        assert main(["gate", "--record"]) == 0
    return project


def damaged(text: str, how: str) -> str:
    if how == "cut":
        return text[: len(text) // 2]
    if how == "newer":
        return text.replace("ai-prof/baseline/2", "ai-prof/baseline/3")
    if how == "foreign":
        return text.replace('"machine_key": "', '"machine_key": "other-')
    return "not a baseline"


UNUSABLE = {
    "corrupt": (2, "not valid JSON"),
    "cut": (2, "cut short"),
    "newer": (2, "schema version 3"),
    "foreign": (3, "other-"),
}


@pytest.mark.parametrize("how", UNUSABLE)
def test_an_unusable_baseline(
    recorded: Path, project: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    code, expected = UNUSABLE[how]
    shutil.copytree(recorded, project, dirs_exist_ok=True)
    (path,) = (project / ".ai-prof" / "baselines").rglob("work.json")
    path.write_text(damaged(path.read_text(), how))
    before = path.read_bytes()
    assert main(["gate", "--record"]) == code
    assert expected in said(capsys)
    assert path.read_bytes() == before
