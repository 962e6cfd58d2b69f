"""Reading what `--input` names, as every verb that shows a capture does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.say import say
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from pathlib import Path

    from ai_prof.trace.model import Trace

LARGE = 20_000_000  # bytes; below them, nobody waits


def read(path: Path) -> Trace:
    """The trace at `path`, its warnings told; a large one is announced. Raises as `open_trace` does."""
    size = _size(path)
    if size >= LARGE:
        say(f"reading {path}, {size / 1e6:.0f} MB")
    trace = open_trace(path)
    for warning in trace.source.warnings:
        say(warning)
    return trace


def _size(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; 0 where that cannot be told, as the reader will."""
    try:
        return sum(file.stat().st_size for file in (path, *path.glob("*")) if file.is_file())
    except OSError:
        return 0
