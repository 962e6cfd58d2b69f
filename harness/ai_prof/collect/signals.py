"""Signals that people end or suspend a command with: they wait while we have a thread of another process.

A mask would not do: threads of numpy's take what ours blocks, and Python answers it in ours all the same.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_PEOPLE = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip


@contextlib.contextmanager
def held_off() -> Iterator[None]:
    """Let them wait until the end of it. Raises what their handlers raise, then. What is ignored stays so."""
    if threading.current_thread() is not threading.main_thread():  # Python answers them in that alone
        yield
        return
    before = {number: signal.getsignal(number) for number in _OF_PEOPLE}
    answered = {n: handler for n, handler in before.items() if handler not in {signal.SIG_IGN, None}}
    came: list[int] = []
    try:
        for number in answered:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in answered.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)
