"""`ai-prof run`: a program that ends before its work does, and one whose stacks are sampled."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ai_prof.cli import main
from ai_prof.collect.autostart import library_path
from ai_prof.trace.open import open_trace

TESTS = Path(__file__).parent
DAEMON = """
import os, pathlib, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
while not os.path.exists({go!r}):
    time.sleep(0.01)
{work}
"""
WORK = f"""
sys.path.append({str(TESTS)!r})
from aiprof_file import Program
p = Program(pid=os.getpid())
for _ in range(20):
    p.launch("k", 10_000)
p.write(pathlib.Path(os.environ["AI_PROF_OUTPUT"]))
"""
IS_WATCHED = """
import glob, os, time
def is_watched():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\\0")
        except OSError:
            continue
        if words[0].endswith(b"py-spy") and b"%d" % os.getpid() in words:
            return True
    return False
"""
# Its own steps are slow between two kernels that do nothing. It goes on until py-spy has seen some.
SAMPLED = f"""{IS_WATCHED}
import numpy as np, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
def log_slowly():
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
last = time.monotonic() + 60
while time.monotonic() < last:
    cl.enqueue_fill_buffer(queue, buffer, np.int32(1), 0, 4096).wait()
    log_slowly()
    if is_watched():
        last = min(last, time.monotonic() + 3)
"""
LAUNCHER = f"""{IS_WATCHED}
import pathlib, subprocess, sys
subprocess.run([sys.executable, "worker.py"], cwd=pathlib.Path(__file__).parent, check=True)
last = time.monotonic() + 60
while time.monotonic() < last and not is_watched():
    time.sleep(0.05)
time.sleep(3)
"""

pytestmark = pytest.mark.skipif(library_path() is None, reason="the native library is not built here")


def run(tmp_path: Path, work: str) -> subprocess.CompletedProcess[str]:
    """Run a daemon that does its work once it is waited for."""
    program, go = tmp_path / "daemon.py", tmp_path / "go"
    program.write_text(DAEMON.format(work=work, go=str(go)))
    words = ["run", "--output", str(tmp_path / "out"), "--", sys.executable, str(program)]
    command = [sys.executable, "-m", "ai_prof", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ours:
        assert ours.stderr is not None
        first = ours.stderr.readline()
        go.touch()
        out, rest = ours.communicate()
    assert "running: waiting for them" in first
    return subprocess.CompletedProcess(command, ours.returncode, out, rest)


def test_what_becomes_a_daemon_is_waited_for(tmp_path):
    done = run(tmp_path, WORK)
    assert done.returncode == 0, done.stderr
    assert "kernels" in done.stderr
    assert done.stdout == ""  # is the program's


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_what_follows_the_program_is_its_own(dashes, tmp_path):
    program = tmp_path / "main.py"
    words = ["--output", "o", "--iterations", "3", "--", "x"]
    program.write_text(f"import sys; sys.exit(9 if sys.argv[1:] == {words} else 8)")
    assert (
        main(["run", "--output", str(tmp_path / "out"), *dashes, sys.executable, str(program), *words]) == 9
    )


@pytest.mark.parametrize(
    ("work", "told"),
    [
        ("", True),
        ("import pyopencl as cl; cl.create_some_context(interactive=False)", True),
        (f"import os, pathlib\n{WORK}", False),
    ],
)
def test_a_program_that_fails_before_its_device_work_is_said_to(work, told, tmp_path, capfd):
    if "pyopencl" in work:
        pytest.importorskip("pyopencl")
    program = tmp_path / "main.py"
    program.write_text(f"import sys\n{work}\nsys.exit(9)")
    assert main(["run", "--output", str(tmp_path / "out"), "--", sys.executable, str(program)]) == 9
    said = "the program ended with exit code 9 before any device work was recorded"
    assert (said in capfd.readouterr().err) == told


@pytest.mark.parametrize("then", ["", "open(out, 'w').close()"])
@pytest.mark.parametrize(("code", "expected"), [(0, 2), (7, 7)])
def test_a_folder_that_was_removed_meanwhile_is_said_to(then, code, expected, tmp_path, capfd):
    out = str(tmp_path / "out")
    removes = f"out = {out!r}\nshutil.rmtree(out)\n{then}\nsys.exit({code})"
    program = f"import os, pathlib, shutil, sys{WORK}{removes}"
    assert main(["run", "--output", out, "--", sys.executable, "-c", program]) == expected
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"ai-prof: {out} was removed meanwhile")


def test_no_program_is_a_line_that_shows_how(capsys):
    for words in ([], ["--"]):
        assert main(["run", *words]) == 2
        assert "-- PROGRAM" in capsys.readouterr().err


def test_a_daemon_without_gpu_work_leaves_nothing(tmp_path):
    done = run(tmp_path, "pass")
    assert done.returncode == 3
    assert "nothing was captured" in done.stderr


def test_the_stacks_of_a_program_are_sampled(tmp_path, capfd):
    pytest.importorskip("pyopencl")
    program = tmp_path / "steps.py"
    program.write_text(SAMPLED)
    out = tmp_path / "out"
    assert main(["run", "--stacks", "--output", str(out), "--", sys.executable, str(program)]) == 0
    assert "no stacks" not in capfd.readouterr().err
    trace = open_trace(out)
    assert trace.stacks is not None
    assert trace.stacks.error_ns > 0
    seen = {frame for frames in trace.stacks.frames for frame in frames}
    assert any(frame.startswith("log_slowly (") for frame in seen)


def test_the_stacks_of_a_launchers_workers_are_said_to_be_missing(tmp_path, capfd):
    (tmp_path / "worker.py").write_text(f"import os, pathlib, sys\n{WORK}")
    program = tmp_path / "launcher.py"
    program.write_text(LAUNCHER)
    words = ["run", "--stacks", "--output", str(tmp_path / "out"), "--", sys.executable, str(program)]
    assert main(words) == 0
    assert "for the workers of a launcher: ai-prof attach --tree --stacks" in capfd.readouterr().err


def test_a_program_without_python_runs_without_stacks(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("ai_prof.cli.run._PYTHON_STARTS_S", 0.0)
    words = ["run", "--stacks", "--output", str(tmp_path / "out"), "--", "sleep", "2"]
    assert main(words) == 3
    assert "no stacks of process" in capfd.readouterr().err


def test_a_program_ends_as_it_would_where_its_stacks_have_no_room(tmp_path):
    code = "import time; time.sleep(2); print('to its end')"
    command = [sys.executable, "-m", "ai_prof", "run", "--stacks", "--output", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "to its end\n")
    assert "No usable temporary directory" in done.stderr
    assert "set TMPDIR" in done.stderr
