"""What a target has mapped is not what its paths name: files that were replaced since, or are only read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from attach_targets import Target, ai_prof, mocks

from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from pathlib import Path

WAITS = "print('up', flush=True)\nwhile True:\n    time.sleep(0.05)\n"
READS_LIBC = (
    "import mmap, os, time\n"
    "lines = [line.split() for line in open('/proc/self/maps') if line.endswith('/libc.so.6\\n')]\n"
    "read = mmap.mmap(os.open(lines[0][5], os.O_RDONLY), 0, prot=mmap.PROT_READ)\n"
)


pytestmark = pytest.mark.usefixtures("attachable")


def start(*words: str | Path, **variables: str) -> subprocess.Popen[str]:
    """A program, once it is up."""
    program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | variables)
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n"
    return program


def assert_attaches_and_goes_on(program: subprocess.Popen[str], output: Path) -> None:
    """An attach to it ends well, without CUDA, and the program does not end."""
    try:
        done = ai_prof("attach", "--pid", program.pid, "--duration", "0.2", "--output", output)
        assert done.returncode == 3, done.stderr
        assert "no process used CUDA" in done.stderr
        assert program.poll() is None
    finally:
        program.kill()
        program.communicate()


def test_a_c_library_that_is_also_read_as_a_file(tmp_path: Path) -> None:
    assert_attaches_and_goes_on(start(sys.executable, "-c", READS_LIBC + WAITS), tmp_path / "out")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_library_that_was_upgraded_since(tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    listed = subprocess.check_output(["ldd", mocks() / "attach_target"], text=True)
    for path in re.findall(r"(/\S+)", listed):
        shutil.copy(path, libraries)
    source = '#include <unistd.h>\nint main(void) { while (write(1, "up\\n", 3) == 3) sleep(600); }\n'
    loader = f"-Wl,--dynamic-linker={libraries / 'ld-linux-x86-64.so.2'}"
    built = ["cc", "-x", "c", "-", loader, "-o", libraries / "program"]
    subprocess.run(built, input=source, text=True, check=True)
    program = start(libraries / "program", LD_LIBRARY_PATH=str(libraries))
    shutil.rmtree(libraries)
    assert_attaches_and_goes_on(program, tmp_path / "out")


def test_a_libcupti_that_was_replaced_since(target: Target, tmp_path: Path) -> None:
    shutil.copy(target.libcupti, tmp_path / "other").replace(target.libcupti)
    (target.folder / "libcuda.so.1").unlink()
    done = ai_prof("attach", "--pid", target.pid, "--duration", "0.3", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "out").glob("*.aiprof")
    assert len(open_trace(file).kernels.start) > 0
    target.assert_goes_on()
    assert target.end() == 7


def test_a_thread_whose_name_is_cut_within_a_character(tmp_path: Path) -> None:
    name = "load-" + 6 * "\u00fc"  # the kernel takes 15 bytes
    rename = f"import ctypes, time\nctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)\n"
    assert_attaches_and_goes_on(start(sys.executable, "-c", rename + WAITS), tmp_path / "out")
