"""The processes of a launcher that use CUDA: `torchrun` and its like start them, and use none themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ai_prof.collect.procfs import PROC, Process
from ai_prof.collect.refusal import why_not
from ai_prof.errors import NothingToCompareError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_CUDA = re.compile(r"/libcuda\.so")
_FORKED_NOT_EXECUTED = 0x40  # PF_FORKNOEXEC of the kernel's flags


def _stat(process: Process) -> tuple[int, int]:
    """Parent and flags from /proc/PID/stat; a name may hold spaces and parentheses."""
    words = process.read("stat").rpartition(")")[2].split()
    return int(words[1]), int(words[6])


def _look(process: Process) -> None:
    try:
        process.status()
    except PermissionError as error:
        raise why_not(process) from error


def family(root: int, proc: Path = PROC) -> list[int]:
    """`root` and all that it or its children started and that still run, parents first.

    Raises UsageError when there is no process `root`, AttachRefusedError when it is hidden from us.
    """
    _look(Process(root, proc))
    children: dict[int, list[int]] = {}
    for path in proc.iterdir():
        if path.name.isdigit():
            try:
                parent, _ = _stat(Process(int(path.name), proc))
            except (UsageError, PermissionError):  # it ended meanwhile, or is hidden from us
                continue
            children.setdefault(parent, []).append(int(path.name))
    found = [root]
    for pid in found:  # grows while we go
        found += sorted(children.get(pid, []))
    return found


def _has_cuda(process: Process) -> bool:
    try:
        return any(_CUDA.search(mapping.path) for mapping in process.maps())
    except PermissionError as error:
        raise why_not(process) from error


def _is_copy(process: Process) -> bool:
    """A fork of a process that has CUDA, as a loader's workers are: what it inherited it can't use."""
    parent, flags = _stat(process)
    if not flags & _FORKED_NOT_EXECUTED or not _has_cuda(Process(parent, process.proc)):
        return False
    names = (process.thread_name(thread) for thread in process.threads())
    return not any(name.startswith("cuda") for name in names)


def cuda_processes(roots: Sequence[int], proc: Path = PROC) -> list[int]:
    """The processes of these trees that have loaded CUDA's driver, each once, parents first.

    Raises UsageError when a root does not exist, AttachRefusedError where we may not look, and
    NothingToCompareError when there is none.
    """
    found = []
    for pid in dict.fromkeys(pid for root in roots for pid in family(root, proc)):
        process = Process(pid, proc)
        try:
            if _has_cuda(process) and not _is_copy(process):
                found.append(pid)
        except UsageError:  # it ended meanwhile
            continue
    if not found:
        names = ", ".join(map(str, roots))
        msg = (
            f"no process under {names} has loaded CUDA's driver: try again when the workers are up, and "
            "start a program of OpenCL with `ai-prof run`"
        )
        raise NothingToCompareError(msg)
    return found
