"""Why the kernel refused to let us into a process, and the exact remedy, in one line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ai_prof.errors import AttachRefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ai_prof.collect.procfs import Process
    from ai_prof.errors import AiProfError

_CAP_SYS_PTRACE = 19
_SPARE_BYTES = 16 << 20  # of address space and of locked memory: the library and the stack of its thread
_SPARE_DESCRIPTORS = 1  # what the loader opens beside the library's own
_VERBS = {"attach": "attach to", "stop": "stop the capture of"}
_CONTAINER = "in a container add the capability SYS_PTRACE (--cap-add SYS_PTRACE)"


def _own(proc: Path, name: str) -> str:
    for line in (proc / "self" / "status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return "0"


def _yama(proc: Path) -> int:
    path = proc / "sys" / "kernel" / "yama" / "ptrace_scope"
    return int(path.read_text()) if path.exists() else 0


def _as_root(process: Process, verb: str) -> str:
    return f"sudo ai-prof {verb} --pid {process.pid}"


def _refused(process: Process, verb: str, why: str) -> AttachRefusedError:
    return AttachRefusedError(f"cannot {_VERBS[verb]} process {process.pid}: {why}")


def why_refused(process: Process, verb: str = "attach", user: int | None = None) -> AttachRefusedError:
    """The reason for an EPERM or EACCES of ptrace or of a file of `process`; `user` is ours.

    `verb` is the command that is to be run in another way: attach or stop.
    """
    user = os.geteuid() if user is None else user
    command = _as_root(process, verb)
    status = process.status()
    owner = int(status.get("Uid", "0").split()[0])
    capable = bool(int(_own(process.proc, "CapEff"), 16) >> _CAP_SYS_PTRACE & 1)
    scope = _yama(process.proc)
    if tracers := process.tracers():
        return traced(process, tracers)
    if scope == 3:
        why = "kernel.yama.ptrace_scope is 3, which forbids it to everyone until a reboot: use `ai-prof run`"
    elif not capable and owner != user:
        why = f"it belongs to user {owner}: run `{command}`, or as that user; {_CONTAINER}"
    elif not capable and scope == 2:
        why = f"kernel.yama.ptrace_scope is 2: run `{command}`; {_CONTAINER}"
    elif not capable and scope == 1:
        why = (
            f"kernel.yama.ptrace_scope is 1: run `{command}`, or allow it until the next boot with "
            f"`sudo sysctl kernel.yama.ptrace_scope=0`; {_CONTAINER}"
        )
    elif _own(process.proc, "Seccomp") == "2":
        why = f"a seccomp filter forbids ptrace here: {_CONTAINER}, or run without that filter"
    elif not capable:
        why = f"it has made itself non-dumpable or has more rights than we: run `{command}`; {_CONTAINER}"
    else:
        why = "the kernel's security module or a user namespace forbids it: run it on the host, as root"
    return _refused(process, verb, why)


def traced(process: Process, tracers: set[int]) -> AttachRefusedError:
    """What to say of a target that others trace; `tracers` is empty where they are not seen from here."""
    who = f"process {min(tracers)}" if tracers else "a process that is not seen from here"
    why = f"{who} traces it already (a debugger or another attach): end that first"
    return _refused(process, "attach", why)


def ended_meanwhile(process: Process) -> UsageError:
    """What to say of a target that is no more."""
    return UsageError(f"process {process.pid} ended while it was being attached to")


def why_not(process: Process, verb: str = "attach") -> AiProfError:
    """The reason for an EPERM or EACCES, as `why_refused`: the kernel refuses what ends just now, too."""
    if not process.has_memory():
        return ended_meanwhile(process)
    try:
        return why_refused(process, verb)
    except PermissionError:
        command = _as_root(process, verb)
        why = f"/proc shows nothing of it (mount option hidepid): run `{command}`, or as its user"
        return _refused(process, verb, why)


def limit_reached(process: Process) -> str | None:
    """A limit of `process` that leaves no room for our library and its thread; None where none does."""
    limits = process.limits()
    files = limits.get("Max open files")
    if files is not None and len(list((process.path / "fd").iterdir())) + _SPARE_DESCRIPTORS > files:
        return f"it has no file descriptor left of its {files} (ulimit -n)"
    space = limits.get("Max address space")
    status = process.status()
    if space is not None and _memory(status, "VmSize") + _SPARE_BYTES > space:
        return f"its limit of {space >> 20} MB of address space leaves our library no room (ulimit -v)"
    locked, most = _memory(status, "VmLck"), limits.get("Max locked memory")
    if locked and most is not None and locked + _SPARE_BYTES > most:
        return f"it locks its memory, and its limit of {most >> 20} MB leaves our library no room (ulimit -l)"
    return None


def _memory(status: Mapping[str, str], name: str) -> int:
    """Bytes that /proc/PID/status says in kB."""
    return int(status.get(name, "0").split()[0]) << 10
