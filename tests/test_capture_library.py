"""The built library: loadable on old systems, and harmless whatever happens in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from ai_prof.collect.autostart import library_path

LIBRARY = library_path()
NEWEST_GLIBC = (2, 28)
INITIALIZE = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).InitializeInjection())"

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="this installation has no native library")


def initialize(**variables: str) -> subprocess.CompletedProcess[str]:
    """The CUDA driver's call into the library, in a process without CUDA."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("AI_PROF_")}
    return subprocess.run(
        [sys.executable, "-c", INITIALIZE, str(LIBRARY)],
        env=bare | variables, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip


@pytest.fixture
def symbols() -> str:
    """The library's dynamic symbols, as binutils print them."""
    if shutil.which("objdump") is None:
        pytest.skip("no binutils")
    return subprocess.run(["objdump", "-T", str(LIBRARY)], capture_output=True, text=True, check=True).stdout


def test_no_symbol_is_newer_than_glibc_2_28(symbols: str) -> None:
    needed = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", symbols)}
    assert needed
    assert max(needed)[:2] <= NEWEST_GLIBC


def test_the_library_exports_its_ways_in_and_nothing_else(symbols: str) -> None:
    defined = {line.split()[-1] for line in symbols.splitlines() if " .text" in line}
    assert defined == {"InitializeInjection", "ai_prof_attach", "clGetLayerInfo", "clInitLayer"}


def test_an_exception_inside_is_said_and_the_program_goes_on() -> None:
    # More memory than an address space holds: std::bad_alloc, caught at the boundary.
    done = initialize(AI_PROF_ENABLE="1", AI_PROF_BUFFER_MB=str(1 << 29))
    assert done.stdout == "1\n"
    assert done.stderr.startswith("ai-prof: CUDA is not captured: a limit of the program's memory")
    assert done.stderr.count("\n") == 1


def test_a_message_that_nobody_reads_ends_no_program() -> None:
    mortal = "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL); "
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", mortal + INITIALIZE, str(LIBRARY)],
        env=os.environ | {"AI_PROF_ENABLE": "1", "AI_PROF_LEVEL": "all"},
        stdout=subprocess.PIPE, stderr=writer, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"1\n")
