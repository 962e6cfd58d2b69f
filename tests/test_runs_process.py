"""A program ends with everything it started, however it ends and wherever its children went."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from ai_prof.runs import process


def start(tmp_path, code, timeout_s=100.0):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(code))
    return process.run(
        [sys.executable, str(program)],
        folder=tmp_path,
        env=os.environ,
        output=tmp_path,
        timeout_s=timeout_s,
    )


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def pids(tmp_path):
    file = tmp_path / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_output_and_code_are_kept(tmp_path):
    ended = start(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert (ended.code, ended.left) == (7, 0)
    assert (tmp_path / "stdout.txt").read_text() == "out\n"
    assert (tmp_path / "stderr.txt").read_text() == "err\n"


def test_of_much_output_the_end_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "KEPT_BYTES", 1000)
    start(tmp_path, "import sys; print('a' * 5000 + 'b' * 999); print('c' * 999, file=sys.stderr)")
    first, last = (tmp_path / "stdout.txt").read_text().splitlines()
    assert "5000 bytes were printed before this" in first
    assert last == "b" * 999
    assert (tmp_path / "stderr.txt").read_text() == "c" * 999 + "\n"


FLOOD = """
    import os, time

    os.write(1, b"a" * (4 << 20))
    os.write(1, b"b" * 1000)
    while 512 * os.fstat(1).st_blocks > 1 << 20:
        time.sleep(0.01)
"""


def test_a_flood_of_output_does_not_fill_the_disk_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "KEPT_BYTES", 1000)
    monkeypatch.setattr(process, "TICK_S", 0.05)
    assert start(tmp_path, FLOOD).code == 0
    first, last = (tmp_path / "stdout.txt").read_text().splitlines()
    assert f"{4 << 20} bytes were printed before this" in first
    assert last == "b" * 1000


def test_a_signal_is_a_negative_code(tmp_path):
    assert start(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").code == -11


FAMILY = """
    import os, subprocess, sys, time

    def note():
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")

    note()
    if os.fork() == 0:  # a child
        note()
        if os.fork() == 0:  # a grandchild in a group and session of its own
            os.setsid()
            note()
            if os.fork() == 0:  # and one that ignores polite signals
                import signal
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                note()
            time.sleep(600)
        time.sleep(600)
    if os.fork() == 0:  # a daemon: its parent ends at once, nothing links it to us
        os.setsid()
        if os.fork() == 0:
            note()
            subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])
        os._exit(0)
    while len(open("pids").read().split()) < 5:
        time.sleep(0.01)
"""


def test_a_hang_ends_with_its_whole_tree(tmp_path):
    for timeout_s in (2, 10, 50):  # until a busy machine has started them all
        (tmp_path / "pids").unlink(missing_ok=True)
        assert start(tmp_path, FAMILY + "\n    time.sleep(600)\n", timeout_s=timeout_s).code is None
        if len(pids(tmp_path)) == 5:
            break
    assert len(pids(tmp_path)) == 5
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_program_left_running_ends_with_it(tmp_path, code):
    ended = start(tmp_path, FAMILY + f"\n    os._exit({code})\n")
    assert ended.code == code
    assert ended.left >= 4
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


def test_a_daemon_is_left_although_its_parents_have_ended(tmp_path):
    code = """
        import os, time
        if os.fork() == 0:
            time.sleep(0.3)
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
    """
    assert start(tmp_path, code).left == 1


def test_a_child_without_the_environment_ends_too(tmp_path):
    code = """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
        open("pids", "w").write(str(child.pid))
    """
    assert start(tmp_path, code).code == 0
    deadline = time.monotonic() + 60
    while [pid for pid in pids(tmp_path) if alive(pid)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_daemon_that_cleared_its_environment_ends_and_leaves_no_zombie(tmp_path):
    code = """
        import os, sys, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                with open("pids", "w") as file:
                    file.write(str(os.getpid()))
                os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
            os._exit(0)
        os.wait()
        while not os.path.exists("pids") or not open("pids").read():
            time.sleep(0.01)
    """
    assert start(tmp_path, code).code == 0
    assert not [pid for pid in pids(tmp_path) if psutil.pid_exists(pid)]


def test_what_others_started_goes_on(tmp_path):
    others = [subprocess.Popen(["sleep", "600"], start_new_session=True)]

    def meanwhile() -> None:
        while not (tmp_path / "pids").exists():
            time.sleep(0.01)
        others.append(subprocess.Popen(["sleep", "600"]))

    thread = threading.Thread(target=meanwhile, daemon=True)
    thread.start()
    try:
        assert start(tmp_path, "import time; open('pids', 'w').close(); time.sleep(1)").code == 0
        thread.join()
        assert [each.poll() for each in others] == [None, None]
    finally:
        for each in others:
            each.kill()
            each.wait()


def test_a_program_that_cannot_start(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        process.run(
            ["/nonexistent/python"],
            folder=tmp_path,
            env={},
            output=tmp_path,
            timeout_s=1,
        )


CAUGHT = """
    import os, pathlib, signal, subprocess, sys
    from ai_prof.runs import process

    begin, told = subprocess.Popen, pathlib.Path("pids")

    def caught(command, **options):
        program = begin(command, **options)
        if command[0] == sys.executable:
            while not (told.exists() and told.read_text()):
                pass
            {how}
        return program

    subprocess.Popen = caught
    folder = pathlib.Path.cwd()
    code = "import os, time; open('pids', 'w').write(str(os.getpid())); time.sleep(1000)"
    process.run([sys.executable, "-c", code], folder=folder, env=os.environ, output=folder, timeout_s=100)
"""


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGKILL)", "raise KeyboardInterrupt"])
def test_a_program_ends_with_a_harness_that_ends_as_it_starts_it(tmp_path, how):
    """Before it could be told which group that is."""
    code = textwrap.dedent(CAUGHT).format(how=how)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode != 0
    (pid,) = pids(tmp_path)
    deadline = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
