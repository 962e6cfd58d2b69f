"""One capture at a time on a device, over all users and checkouts of a host."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.say import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Fixed, so that two users meet: a temporary folder of one's own would lock nothing.
FOLDER = Path("/tmp")  # noqa: S108


@contextmanager
def host_lock(devices: Sequence[str], folder: Path = FOLDER) -> Iterator[None]:
    """Hold the locks of `devices` (GPU UUIDs, or `cpu`); wait, and say so on stderr, while another does.

    Locks are taken in sorted order, so that two holders of several never wait for each other, and end
    with the process, however it ends.
    """
    with ExitStack() as held:
        for device in sorted(set(devices)):
            path = folder / f"ai-prof-{device}.lock"
            descriptor = _open(path)
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another capture holds {device} ({path}): waiting for its end")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _open(path: Path) -> int:
    """Open the lock file for reading, which is enough to lock it and works for another user's file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        # Two may get here at once: O_CREAT without O_EXCL gives both the same file.
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with suppress(PermissionError):  # whoever made it sees to it
            os.fchmod(descriptor, 0o644)  # whatever our umask: other users take the lock as well
        return descriptor
