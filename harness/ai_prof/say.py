"""What is told on stderr while something is under way; nothing of it ends for want of a reader."""

from __future__ import annotations

import os
import sys


def say(message: str) -> None:
    """One line on stderr, whatever names stand in the message."""
    write_error(f"ai-prof: {logged(shown(message))}\n")


def shown(text: str) -> str:
    """`text` as one line that steers no terminal, whatever names stand in it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def logged(text: str) -> str:
    """Break GitHub's older commands (`##[name]`), which it obeys anywhere in a line of a log."""
    return text.replace("##[", "# #[")


def write_error(text: str) -> None:
    """Write on stderr; where that is full or its reader has gone, nothing that is under way ends for it."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
