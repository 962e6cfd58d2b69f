"""Signals that people end or suspend a command with: they wait while we have a thread of another process."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_PEOPLE = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip


@contextlib.contextmanager
def _masked(how: int) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(how, _OF_PEOPLE)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def held_off() -> contextlib.AbstractContextManager[None]:
    """Let them wait."""
    return _masked(signal.SIG_BLOCK)


def let_in() -> contextlib.AbstractContextManager[None]:
    """Within `held_off`: let those come that wait. Raises what their handlers raise."""
    return _masked(signal.SIG_UNBLOCK)
