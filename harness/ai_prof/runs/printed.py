"""What a program printed last, which says best why it failed."""

from __future__ import annotations

import itertools
import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LAST_BYTES = 4096
_LONGEST = 400  # characters
_ERROR = re.compile(r"\berror: ", re.IGNORECASE)


def complaint(path: Path) -> str:
    """What a program said last: an exception of Python, else the last line of an error, or at all."""
    _, traceback, end = end_of(path).rpartition("Traceback (most recent call last):\n")
    message = itertools.dropwhile(lambda line: line.startswith(" "), end.splitlines() if traceback else ())
    if whole := textwrap.shorten(" ".join(message), _LONGEST):
        return whole
    errors = [line.strip() for line in end.splitlines() if _ERROR.search(line)]
    return _cut(errors[-1] if errors else last_line(path))


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} [...]"


def last_line(path: Path) -> str:
    """The last line with anything on it; empty where there is none."""
    lines = end_of(path).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def end_of(path: Path) -> str:
    """The last that was written to a file; nothing where there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_BYTES))
        return file.read().decode("utf-8", errors="replace")
