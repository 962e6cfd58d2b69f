"""Control pages that are not ours: whoever may make a memfd can give it our name and any content."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from attach_targets import ai_prof
from hypothesis import given
from hypothesis import strategies as st

from ai_prof.collect.control import (
    Control,
    SpoiledPageError,
    State,
    find_control,
    pack_settings,
    parse_page,
)
from ai_prof.collect.procfs import Process
from ai_prof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd is Linux's")

OURS = b"AI_PROF_OUTPUT=/out\0AI_PROF_NOTE=a=b\0"
PRETEND = """
import os, sys, time
page = os.memfd_create("ai-prof-control")
content = bytes.fromhex(sys.argv[1])
content = content[:16] + os.getpid().to_bytes(4, "little") + content[20:] if len(content) > 20 else content
os.pwrite(page, content, 0)
print("up", flush=True)
while sys.argv[2:]:
    os.ftruncate(page, 0)
    os.pwrite(page, content, 0)
time.sleep(600)
"""


def page(
    settings: bytes = OURS, *, state: int = 3, size: int | None = None, magic: bytes = b"AIPCTL01"
) -> bytes:
    size = len(settings) if size is None else size
    head = struct.pack("<8sIIiI", magic, 0, state, 7, size)
    return (head.ljust(512, b"\0") + settings).ljust(4096, b"\0")


@pytest.fixture
def pretend() -> Iterator[Callable[..., int]]:
    """Starts programs with a page of the given content; their ids."""
    programs = []

    def begin(content: bytes, *, shrinks: bool = False) -> int:
        words = [sys.executable, "-c", PRETEND, content.hex(), *(["shrinks"] if shrinks else [])]
        program = subprocess.Popen(words, stdout=subprocess.PIPE)
        programs.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        return program.pid

    yield begin
    for program in programs:
        program.kill()
        program.communicate()


def test_a_page_is_read_as_it_was_written() -> None:
    found = parse_page(page())
    assert (found.state, found.pid, found.message) == (State.RECORDING, 7, "")
    assert found.settings == {"AI_PROF_OUTPUT": "/out", "AI_PROF_NOTE": "a=b"}


SPOILED = {
    "state": page(state=99),
    "no equals sign": page(b"xxxxxxxx\0"),
    "not UTF-8": page(b"AI_PROF_OUTPUT=\xff\xfe\0"),
    "too long": page(size=0xFFFFFFFF),
    "short": page()[:100],
    "another version": page(magic=b"AIPCTL02"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_page_is_no_page(name: str) -> None:
    with pytest.raises(SpoiledPageError, match="damaged, or of another version"):
        parse_page(SPOILED[name])


@given(st.binary(max_size=5000), st.booleans())
def test_any_bytes_are_a_page_or_spoiled(content: bytes, ours: bool) -> None:
    with contextlib.suppress(SpoiledPageError):
        found = parse_page((page()[:8] + content).ljust(4096, b"\0") if ours else content)
        assert found.state in State


@given(st.dictionaries(st.from_regex(r"[A-Z_]+", fullmatch=True), st.text().filter(lambda t: "\0" not in t)))
def test_settings_come_back(settings: dict[str, str]) -> None:
    try:
        packed = pack_settings(settings)
    except UsageError:  # too long, or half a character
        return
    assert parse_page(page(packed)).settings == settings


@pytest.mark.parametrize("name", [*SPOILED, "no output"])
def test_status_and_stop_leave_out_what_is_not_ours(name: str, pretend: Callable[..., int]) -> None:
    content = SPOILED.get(name) or page(b"A=b\0")
    pid = pretend(content)
    listed = ai_prof("status", "--json")
    assert listed.returncode == 0
    assert pid not in {each["pid"] for each in json.loads(listed.stdout)}
    assert "left out" in listed.stderr
    stopped = ai_prof("stop", "--pid", pid)
    assert stopped.returncode == 2
    assert f"process {pid} is not attached to" in stopped.stderr


def test_a_page_that_shrinks_ends_no_command(pretend: Callable[..., int]) -> None:
    pretend(page(), shrinks=True)
    for _ in range(5):
        assert ai_prof("status").returncode == 0


def test_what_a_page_says_steers_no_terminal(pretend: Callable[..., int]) -> None:
    output = "/out/\x1b[31mred\nfake 1  recording  /x"
    pid = pretend(page(f"AI_PROF_OUTPUT={output}\0".encode()))
    listed = ai_prof("status")
    assert f"{pid}  recording  /out/\\x1b[31mred\\nfake 1" in listed.stdout
    assert {"pid": pid, "state": "recording", "output": output} in json.loads(
        ai_prof("status", "--json").stdout
    )


def test_a_page_of_another_user_is_not_ours() -> None:
    descriptor = os.memfd_create("ai-prof-control")
    os.pwrite(descriptor, page()[:16] + struct.pack("<i", os.getpid()) + page()[20:], 0)
    control = Control(descriptor, Process(os.getpid()).path / "fd" / str(descriptor))
    assert find_control(Process(os.getpid())) is not None
    assert control.served(Process(os.getpid()))
    if os.geteuid() != 0:
        pytest.skip("only root can give it away")
    os.fchown(descriptor, 65534, 65534)
    assert find_control(Process(os.getpid())) is None


def descriptors(pid: int) -> set[str]:
    return {path.name for path in (Process(pid).path / "fd").iterdir()}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--note", "a=" + "x" * 5000), "too long: shorten --note or --output"),
        (("--note", "a=\udcff"), "--note and --output must be UTF-8"),
        (("--output", "ai-prof-\udcff"), "--note and --output must be UTF-8"),
    ],
)
def test_settings_that_no_page_can_hold(words: tuple[str, str], told: str) -> None:
    # A shell that waits for its input has nothing open any more that it was loaded from.
    waiting = ["sh", "-c", "echo ready; read -r line"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        before = descriptors(shell.pid)
        done = ai_prof("attach", "--pid", shell.pid, *words)
        assert done.returncode == 2
        assert told in done.stderr
        assert descriptors(shell.pid) == before
