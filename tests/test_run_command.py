"""`ai-prof run`: a program that ends before its work does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ai_prof.cli import main
from ai_prof.collect.autostart import library_path

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
    assert "kernels" in done.stdout


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_what_follows_the_program_is_its_own(dashes, tmp_path):
    program = tmp_path / "main.py"
    words = ["--output", "o", "--iterations", "3", "--", "x"]
    program.write_text(f"import sys; sys.exit(9 if sys.argv[1:] == {words} else 8)")
    assert (
        main(["run", "--output", str(tmp_path / "out"), *dashes, sys.executable, str(program), *words]) == 9
    )


def test_no_program_is_a_line_that_shows_how(capsys):
    for words in ([], ["--"]):
        assert main(["run", *words]) == 2
        assert "-- PROGRAM" in capsys.readouterr().err


def test_a_daemon_without_gpu_work_leaves_nothing(tmp_path):
    done = run(tmp_path, "pass")
    assert done.returncode == 3
    assert "nothing was captured" in done.stderr
