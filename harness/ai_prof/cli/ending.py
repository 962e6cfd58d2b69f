"""How a command that has started others ends: with all of them, whatever signal ends it."""

from __future__ import annotations

import signal


def end_in_order() -> None:
    """Let a closed terminal and a plain `kill` end us as Ctrl-C does; what `nohup` ignores stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
