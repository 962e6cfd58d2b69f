"""`ai-prof run`: a program that ends before its work does."""

from __future__ import annotations

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
time.sleep(1)
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


def run(tmp_path: Path, work: str) -> int:
    program = tmp_path / "daemon.py"
    program.write_text(DAEMON.format(work=work))
    return main(["run", "--output", str(tmp_path / "out"), "--", sys.executable, str(program)])


def test_what_becomes_a_daemon_is_waited_for(tmp_path, capsys):
    assert run(tmp_path, WORK) == 0
    said = capsys.readouterr()
    assert "running: waiting for them" in said.err
    assert "kernels" in said.out


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


def test_a_daemon_without_gpu_work_leaves_nothing(tmp_path, capsys):
    assert run(tmp_path, "pass") == 3
    assert "nothing was captured" in capsys.readouterr().err
