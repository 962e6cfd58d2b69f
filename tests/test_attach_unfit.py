"""Programs that can't be attached to: the reason is told, and they go on as before; with a mock of CUDA."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from attach_targets import Target, ai_prof, until

from ai_prof.collect import borrow
from ai_prof.collect.attach import attach
from ai_prof.collect.autostart import INJECTION, library_path
from ai_prof.collect.control import find_control
from ai_prof.collect.procfs import Process
from ai_prof.errors import AttachRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("attachable")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_thread_that_loads_a_library_is_not_borrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in an initializer, with the loader's lock: ours would be loaded in the middle of another."""
    source = tmp_path / "slow.c"
    source.write_text(
        "#include <unistd.h>\n__attribute__((constructor)) static void slow(void) {\n"
        '  if (write(1, "up\\n", 3) == 3) sleep(600);\n}\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", tmp_path / "libslow.so"], check=True)
    script = f"import ctypes; ctypes.CDLL({str(tmp_path / 'libslow.so')!r})"
    program = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"
        monkeypatch.setattr(borrow, "FIND_SECONDS", 0.5)
        with pytest.raises(AttachRefusedError, match="no thread to borrow"):
            attach([program.pid], tmp_path / "out", {})
        assert program.poll() is None
    finally:
        program.kill()
        program.communicate()


def test_a_busy_program_has_no_thread_to_borrow(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(wait="none", launches=0)
    done = ai_prof("attach", "--pid", target.pid, "--output", tmp_path / "out")
    assert done.returncode == 4
    assert "no thread to borrow within 5 s" in done.stderr
    target.assert_goes_on()
    assert target.end() == 7


def test_a_program_whose_cupti_is_held_is_refused(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start(variables={"MOCK_CUPTI_IS_HELD": "1"})
    done = ai_prof("attach", "--pid", target.pid, "--duration", "1", "--output", tmp_path / "out")
    assert done.returncode == 4
    assert "another tool holds CUPTI in this process (torch.profiler" in done.stderr
    assert not (tmp_path / "out").exists()
    target.assert_goes_on()
    assert target.end() == 7


def test_what_others_recorded_is_told_of_where_one_fails(
    start: Callable[..., Target], tmp_path: Path
) -> None:
    held, good, also = start(variables={"MOCK_CUPTI_IS_HELD": "1"}), start(), start(cuda=False)
    pids = [word for target in (held, good, also) for word in ("--pid", target.pid)]
    done = ai_prof("attach", *pids, "--duration", "1", "--output", tmp_path / "out")
    assert done.returncode == 4
    told = f"the capture of process {held.pid} failed; what the others recorded is in {tmp_path / 'out'}"
    assert told in done.stderr
    assert [path.name.split("-")[-2] for path in (tmp_path / "out").iterdir()] == [str(good.pid)]


def test_a_stopped_program_is_refused_and_stays_so(start: Callable[..., Target], tmp_path: Path) -> None:
    target = start()
    target.program.send_signal(signal.SIGSTOP)
    assert until(lambda: target.process.status()["State"][0] == "T")
    done = ai_prof("attach", "--pid", target.pid, "--output", tmp_path / "out")
    assert done.returncode == 4
    assert "kill -CONT" in done.stderr
    target.program.send_signal(signal.SIGCONT)
    target.assert_goes_on()


def test_one_refusal_lets_go_of_all(start: Callable[..., Target], tmp_path: Path) -> None:
    good, busy = start(), start(wait="none", launches=0)
    done = ai_prof("attach", "--pid", good.pid, "--pid", busy.pid, "--output", tmp_path / "out")
    assert done.returncode == 4
    assert not (tmp_path / "out").exists()
    assert until(lambda: find_control(good.process) is None)
    good.assert_goes_on()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("flags", ["-static", "-static-pie"])
def test_a_static_program_is_refused(flags: str, tmp_path: Path) -> None:
    source = tmp_path / "static.c"
    source.write_text("#include <unistd.h>\nint main(void) { for (;;) sleep(1); }\n")
    built = subprocess.run(["cc", flags, source, "-o", tmp_path / "static"], capture_output=True, check=False)
    if built.returncode:
        pytest.skip("no static libc")
    program = subprocess.Popen([tmp_path / "static"])
    try:
        done = ai_prof("attach", "--pid", program.pid, "--output", tmp_path / "out")
        assert done.returncode == 4
        assert "statically linked" in done.stderr
        assert Process(program.pid).alive()
    finally:
        program.kill()
        program.wait()


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit")
@pytest.mark.parametrize("mode", ["1", "standby"])
def test_a_program_that_may_write_no_file_goes_on(
    mode: str, start: Callable[..., Target], tmp_path: Path
) -> None:
    output = {"AI_PROF_ENABLE": mode, "AI_PROF_OUTPUT": str(tmp_path / "out")}
    variables = output | {INJECTION: str(library_path())}
    target = start(under=("prlimit", "--fsize=0"), variables=variables)
    target.assert_goes_on()  # not ended by a signal, not even for the message, which is a write too
    assert target.end() == 7


def test_no_such_process(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for verb in (("attach", "--output", tmp_path / "out"), ("stop",)):
        done = ai_prof(*verb, "--pid", gone.pid)
        assert done.returncode == 2
        assert f"no process {gone.pid}" in done.stderr
