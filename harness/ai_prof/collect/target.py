"""A process to attach to: what of it an injection needs, and why some are refused."""

from __future__ import annotations

import platform
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_prof.collect import x86_64 as cpu
from ai_prof.collect.memory import Memory, elf_class, find_symbol
from ai_prof.collect.refusal import traced
from ai_prof.errors import AttachRefusedError, NothingToCompareError, UsageError

if TYPE_CHECKING:
    from ai_prof.collect.procfs import Mapping, Process

LIBRARY = "ai-prof-library"  # the memfd that the library is loaded from
ENTRY = "ai_prof_attach"
_LOADED = "ai_prof_loaded"  # 1 once it may be called

_LIBC = re.compile(r"/libc(\.so\.6|-2\.\d+\.so)$")
_OWN = re.compile(rf"/memfd:{LIBRARY}|/libai_prof\.so$")
_LIBDL = re.compile(r"/libdl(\.so\.2|-2\.\d+\.so)$")
_LOADER = re.compile(r"/ld(-linux-x86-64\.so\.2|-2\.\d+\.so)$")
_ALLOCATOR = re.compile(r"/lib(tc|je|mi|hoard|snmalloc)[^/]*malloc[^/]*\.so|/lib(je|tc|mi)malloc")
_CUDA = re.compile(r"/libcuda\.so")
_OPENCL = re.compile(r"/libOpenCL(-[0-9a-f]+)?\.so")
_RTLD_DLOPEN = 0x80000000  # what __libc_dlopen_mode wants beside the mode


@dataclass(frozen=True)
class Target:
    """Addresses in a process that can be attached to."""

    process: Process
    restorer: int
    dlopen: int
    dlopen_flag: int
    loader_state: tuple[int, int]  # address and size of the loader's global state, locks included
    delicate: list[tuple[int, int]]  # code of allocators

    def is_delicate(self, address: int) -> bool:
        """Whether `address` lies in code that holds locks which dlopen may want."""
        return any(start <= address < end for start, end in self.delicate)


def _is_of(mapping: Mapping, pattern: re.Pattern[str]) -> bool:
    """Whether it is of a file that matches, which an upgrade may have replaced since."""
    return bool(pattern.search(mapping.path.removesuffix(" (deleted)")))


def base_of(maps: list[Mapping], pattern: re.Pattern[str]) -> int | None:
    """Where the image that matches is loaded; None where it is not.

    A file that is mapped only to be read, as symbolizers do, is no image: nothing of it runs.
    """
    base = None
    for mapping in maps:
        if not _is_of(mapping, pattern):
            continue
        if mapping.offset == 0:
            base = mapping.start
        if "x" in mapping.permissions:
            return base
    return None


def has_library(process: Process) -> bool:
    """Whether an image of our library is mapped, loaded or not; False once the process has ended."""
    try:
        return base_of(process.maps(), _OWN) is not None
    except UsageError:
        return False


def library_entry(process: Process, memory: Memory) -> int | None:
    """The address of the agent's entry; None where our library is not loaded.

    Raises AttachRefusedError while the loader is at it, as for an attach that was killed: what is called then
    is not linked yet.
    """
    base = base_of(process.maps(), _OWN)
    if base is None:
        return None
    try:
        entry, loaded = find_symbol(memory, base, ENTRY), find_symbol(memory, base, _LOADED)
        if entry and loaded and memory.read(loaded[0], 1) == b"\1":
            return entry[0]
    except (OSError, struct.error):  # not all of it is mapped
        pass
    raise _refuse(process, "its loader is still at the library of an attach before this one: try again")


def _refuse(process: Process, why: str) -> AttachRefusedError:
    return AttachRefusedError(f"cannot attach to process {process.pid}: {why}")


def _check_kind(process: Process, maps: list[Mapping], memory: Memory) -> None:
    machine = platform.machine()
    if machine != cpu.MACHINE:
        raise _refuse(process, f"only {cpu.MACHINE} is supported, this is {machine}: use `ai-prof run`")
    program = next((m for m in maps if m.offset == 0 and m.path.startswith("/")), None)
    if program is not None and elf_class(memory, program.start) == 32:
        raise _refuse(process, "it is a 32-bit program, and CUDA has none")
    if any("/ld-musl-" in m.path for m in maps):
        raise _refuse(process, "it runs on musl, for which there is no CUDA driver")
    if base_of(maps, _LIBC) is None:
        raise _refuse(process, "it is statically linked (no libc.so.6 in it): it can't load a library")
    if "shstk" in process.status().get("x86_Thread_features", ""):
        raise _refuse(process, "it runs with a shadow stack: start it with `ai-prof run`")


def _find_restorer(maps: list[Mapping], memory: Memory) -> int | None:
    for mapping in maps:
        if "x" in mapping.permissions and _is_of(mapping, _LIBC):
            at = memory.read(mapping.start, mapping.end - mapping.start).find(cpu.RESTORER)
            if at >= 0:
                return mapping.start + at
    return None


def _find_dlopen(maps: list[Mapping], memory: Memory) -> tuple[int, int] | None:
    for pattern, name, flag in (
        (_LIBC, "dlopen", 0),
        (_LIBDL, "dlopen", 0),
        (_LIBC, "__libc_dlopen_mode", _RTLD_DLOPEN),
    ):
        base = base_of(maps, pattern)
        found = find_symbol(memory, base, name) if base is not None else None
        if found:
            return found[0], flag
    return None


def _is_frozen(process: Process) -> bool:
    """Whether a freezer of cgroups holds it: of version 1 it sleeps like a disk, of version 2 in no call."""
    state, call = process.state(), process.blocked(process.pid)
    if state == "D":
        return call is not None and cpu.may_borrow(call.number, call.arguments)
    return state == "S" and process.waits_within() in {"do_freezer_trap", "get_signal"}


def why_halted(process: Process) -> str | None:
    """Why nothing in it runs, and what to do; None where something does."""
    if process.state() == "T":
        return "it is stopped: continue it first (`kill -CONT`)"
    if _is_frozen(process):
        return "it is frozen (a paused container, a cgroup's freezer): let it go on first"
    return None


def examine(process: Process, memory: Memory) -> Target:
    """All that is needed to attach. Raises AttachRefusedError where it can't be done, with the reason.

    Raises NothingToCompareError for a program of OpenCL, which only `ai-prof run` can record.
    """
    tracers = process.tracers()
    if tracers or process.state() == "t":
        raise traced(process, tracers)
    if why := why_halted(process):
        raise _refuse(process, why)
    maps = process.maps()
    if not maps:
        raise _refuse(process, "it is a zombie or a thread of the kernel")
    if any(_OPENCL.search(m.path) for m in maps) and not any(_CUDA.search(m.path) for m in maps):
        raise NothingToCompareError(
            f"process {process.pid} uses OpenCL, and attach captures CUDA: start it with `ai-prof run`"
        )
    _check_kind(process, maps, memory)
    restorer, dlopen = _find_restorer(maps, memory), _find_dlopen(maps, memory)
    loader = base_of(maps, _LOADER)
    loader_state = find_symbol(memory, loader, "_rtld_global") if loader is not None else None
    if restorer is None or dlopen is None or loader_state is None:
        raise _refuse(process, "its C library is not a glibc that is known: start it with `ai-prof run`")
    delicate = [(m.start, m.end) for m in maps if "x" in m.permissions and _ALLOCATOR.search(m.path)]
    return Target(process, restorer, *dlopen, loader_state, delicate)
