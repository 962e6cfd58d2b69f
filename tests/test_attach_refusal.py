"""Why the kernel refused, told from /proc; what this machine can't be set to is faked."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from ai_prof.cli import main
from ai_prof.collect.memory import Memory
from ai_prof.collect.procfs import Process, parse_blocked, parse_maps
from ai_prof.collect.refusal import limit_reached, why_refused
from ai_prof.collect.target import examine
from ai_prof.errors import AttachRefusedError, NothingToCompareError

if TYPE_CHECKING:
    from pathlib import Path

ALL = "000001ffffffffff"


def fake_proc(root: Path, *, owner: int = 1000, tracer: int = 0, capabilities: str = "0", yama: int = 0,
              seccomp: int = 0) -> Process:  # fmt: skip
    thread = root / "7" / "task" / "7"
    thread.mkdir(parents=True)
    (root / "7" / "status").write_text(f"Name:\tx\nUid:\t{owner}\t{owner}\n")
    (thread / "status").write_text(f"TracerPid:\t{tracer}\n")
    (root / "self").mkdir()
    (root / "self" / "status").write_text(f"CapEff:\t{capabilities}\nSeccomp:\t{seccomp}\n")
    (root / "sys/kernel/yama").mkdir(parents=True)
    (root / "sys/kernel/yama/ptrace_scope").write_text(f"{yama}\n")
    return Process(7, root)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"tracer": 99}, ["process 99 traces it"]),
        ({"owner": 0}, ["belongs to user 0", "sudo ai-prof attach --pid 7", "SYS_PTRACE"]),
        ({"yama": 1}, ["ptrace_scope is 1", "sudo sysctl kernel.yama.ptrace_scope=0"]),
        ({"yama": 2}, ["ptrace_scope is 2", "sudo ai-prof attach --pid 7"]),
        ({"yama": 3, "capabilities": ALL}, ["ptrace_scope is 3", "until a reboot"]),
        ({"seccomp": 2, "capabilities": ALL}, ["seccomp filter", "--cap-add SYS_PTRACE"]),
        ({}, ["non-dumpable", "sudo ai-prof attach --pid 7"]),
        ({"capabilities": ALL}, ["security module or a user namespace"]),
    ],
)
def test_the_reason_and_the_remedy(facts: dict[str, object], words: list[str], tmp_path: Path) -> None:
    error = why_refused(fake_proc(tmp_path, **facts), user=1000)  # type: ignore[arg-type]
    assert error.exit_code == 4
    assert "\n" not in str(error)
    for word in words:
        assert word in str(error)


def test_who_wants_to_stop_is_not_told_to_attach(tmp_path: Path) -> None:
    told = str(why_refused(fake_proc(tmp_path, owner=0), "stop", user=1000))
    assert "cannot stop the capture of process 7" in told
    assert "run `sudo ai-prof stop --pid 7`" in told


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max locked memory         8388608              8388608              bytes
Max open files            9                    9                    files
Max address space         {space}            unlimited            bytes
"""


@pytest.mark.parametrize(
    ("files", "space", "locked_kb", "words"),
    [
        (3, "unlimited", 0, None),  # what does not lock its memory needs no room for it
        (3, "unlimited", 4000, "it locks its memory, and its limit of 8 MB .*ulimit -l"),
        (3, "20971520 ", 0, "its limit of 20 MB of address space .*ulimit -v"),
        (9, "unlimited", 0, "no file descriptor left of its 9 .*ulimit -n"),
    ],
)
def test_the_limit_that_leaves_no_room(
    files: int, space: str, locked_kb: int, words: str | None, tmp_path: Path
) -> None:
    process = fake_proc(tmp_path)
    (process.path / "status").write_text(f"VmSize:\t    9000 kB\nVmLck:\t    {locked_kb} kB\n")
    (process.path / "limits").write_text(LIMITS.format(space=space))
    (process.path / "fd").mkdir()
    for number in range(files):
        (process.path / "fd" / str(number)).touch()
    told = limit_reached(process)
    assert (told is None) if words is None else re.search(words, told or "")


def test_maps_and_calls_are_parsed() -> None:
    maps = parse_maps("7f00-7f10 r-xp 00001000 fe:00 12   /a b (deleted)\n8000-9000 rw-p 00000000 00:00 0\n")
    assert (maps[0].start, maps[0].end, maps[0].offset, maps[0].path) == (
        0x7F00,
        0x7F10,
        0x1000,
        "/a b (deleted)",
    )
    assert maps[1].path == ""
    blocked = parse_blocked("7 0x1 0x2 0x3 0x0 0x0 0x0 0x7ffe 0x7f00\n")
    assert blocked is not None
    assert (blocked.number, blocked.arguments[:3], blocked.stack) == (7, (1, 2, 3), 0x7FFE)
    assert parse_blocked("running\n") is None
    assert parse_blocked("-1 0x7ffe 0x7f00\n") is None


APP = "1000-2000 r--p 00000000 fe:00 12 /app/train\n"
LIBC = "2000-3000 r-xp 00000000 fe:00 13 /usr/lib/x86_64-linux-gnu/libc.so.6\n"
MUSL = "2000-3000 r-xp 00000000 fe:00 13 /lib/ld-musl-x86_64.so.1\n"


@pytest.mark.parametrize(
    "case",  # maps, ELF class, status, machine and the words
    [
        (APP + LIBC, 1, "S (sleeping)", "x86_64", "it is a 32-bit program"),
        (APP + MUSL, 2, "S (sleeping)", "x86_64", "it runs on musl"),
        (APP, 2, "S (sleeping)", "x86_64", "it is statically linked"),
        ("", 2, "Z (zombie)", "x86_64", "it is a zombie"),
        (APP + LIBC, 2, "T (stopped)", "x86_64", "it is stopped: continue it first (`kill -CONT`)"),
        (APP + LIBC, 2, "t (tracing stop)", "x86_64", "a process that is not seen from here traces it"),
        (APP + LIBC, 2, "S\nx86_Thread_features:\tshstk", "x86_64", "it runs with a shadow stack"),
        (APP + LIBC, 2, "S (sleeping)", "x86_64", "its C library is not a glibc that is known"),
        (APP + LIBC, 2, "S (sleeping)", "aarch64", "only x86_64 is supported, this is aarch64"),
    ],
)
def test_a_kind_that_cannot_be_attached_to(
    case: tuple[str, int, str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps, elf_class, status, machine, words = case
    monkeypatch.setattr("platform.machine", lambda: machine)
    process = fake_proc(tmp_path)
    (process.path / "status").write_text(f"Name:\tx\nState:\t{status}\n")
    (process.path / "maps").write_text(maps)
    image = b"\x7fELF" + bytes([elf_class]) + bytes(49) + b"\x38"  # of no segments, 56 bytes each
    (process.path / "mem").write_bytes(bytes(0x1000) + image.ljust(0x1000, b"\0") * 2)
    with Memory(process) as memory, pytest.raises(AttachRefusedError) as error:
        examine(process, memory)
    assert f"cannot attach to process 7: {words}" in str(error.value)
    assert "\n" not in str(error.value)


OPENCL = "4000-5000 r-xp 00000000 fe:00 14 {}\n"
RUN_IT = "process 7 uses OpenCL.*`ai-prof run`"
CUDA = "5000-6000 r-xp 00000000 fe:00 15 /usr/lib/x86_64-linux-gnu/libcuda.so.550.54\n"


@pytest.mark.parametrize(
    ("maps", "error", "words"),
    [
        (APP + LIBC + OPENCL.format("/usr/lib/libOpenCL.so.1"), NothingToCompareError, RUN_IT),
        (APP + OPENCL.format("/v/pyopencl.libs/libOpenCL-83a5a7fd.so.1.0.0"), NothingToCompareError, RUN_IT),
        # It goes on to what else may be wrong.
        (APP + OPENCL.format("/usr/lib/libOpenCL.so.1") + CUDA, AttachRefusedError, "statically linked"),
    ],
)
def test_a_program_of_opencl_is_not_entered(
    maps: str, error: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    process = fake_proc(tmp_path)
    (process.path / "status").write_text("Name:\tx\nState:\tS (sleeping)\n")
    (process.path / "maps").write_text(maps)
    (process.path / "mem").write_bytes(bytes(0x1000) + b"\x7fELF\x02".ljust(0x1000, b"\0"))
    with Memory(process) as memory, pytest.raises(error, match=words):
        examine(process, memory)


@pytest.mark.parametrize("seconds", ["-3", "0", "nan", "inf"])
def test_a_duration_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "--pid", "7", "--duration", seconds]) == 2
    assert f"--duration {seconds} must be above 0" in capsys.readouterr().err


def test_the_command_itself_is_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "--pid", str(os.getpid())]) == 2
    assert "this very command" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("attach",), ("attach", "--tree"), ("stop",)])
def test_a_process_that_proc_hides(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hides(self: Process, name: str) -> str:
        raise PermissionError(1, "Operation not permitted", f"{self.path}/{name}")  # as hidepid=1 does

    monkeypatch.setattr(Process, "read", hides)
    assert main([*words, "--pid", str(os.getppid())]) == 4
    assert f"(mount option hidepid): run `sudo ai-prof {words[0]} --pid" in capsys.readouterr().err
