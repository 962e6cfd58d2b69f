"""Programs started out of a parent that has imported their modules, as the recorder of runs starts them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("bench")))
import record

from ai_prof.runs.interpreter import interpreter, probe

FORKED = Path(__file__).with_name("bench") / "forked.py"
PROGRAM = """
import atexit, json, os, signal, sys
atexit.register(print, "ended well")
print(os.environ["MARK"], os.getcwd(), sys.argv[1:], "json.tool" in sys.modules)
if sys.argv[1] == "exit": sys.exit(7)
if sys.argv[1] == "die": os.kill(os.getpid(), signal.SIGKILL)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and sends descriptors over a socket")


@pytest.fixture
def server(tmp_path):
    where = tmp_path / "parent"
    with subprocess.Popen([sys.executable, FORKED, "serve", where, "json.tool"]) as parent:
        deadline = time.monotonic() + 120
        while not where.with_suffix(".ready").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        yield where
        parent.kill()


@pytest.mark.parametrize(("end", "code"), [("well", 0), ("exit", 7), ("die", -9)])
def test_a_fork_is_the_program_that_was_asked_for(server, tmp_path, end, code):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-S", "-E", FORKED, "run", server, program, end],
        env={"MARK": "ours"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    if end != "die":
        assert done.stdout.splitlines() == [f"ours {tmp_path} ['{end}'] True", "ended well"]


def test_an_interpreter_that_forks_passes_for_one(tmp_path):
    """The gate asks an interpreter what it has before it runs a workload with it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with record.parents(tmp_path, sys.executable, ["json.tool"], 1) as (fork,):
        assert interpreter(fork) == fork
        seen = probe(fork, ("json", "no_such_module"))
        assert seen is not None
        assert seen.missing == ("no_such_module",)
        done = subprocess.run([fork, program, "well"], env={"MARK": "ours"}, capture_output=True, check=True)
    assert done.stdout.splitlines()[-2].endswith(b"True")
