"""Folders that a long measurement will write to, made and tried before it begins."""

from __future__ import annotations

import contextlib
import tempfile
from typing import TYPE_CHECKING

from ai_prof.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

ROOM_BYTES = 1 << 20  # less than one build's files take


def make_own_folder(folder: Path, remedy: str) -> None:
    """Make `folder`, if it is new one that git ignores: to measure a tree must not make it dirty.

    Raises UsageError, with the remedy, before minutes are spent on runs that could not be kept.
    """
    new = not folder.exists()
    make_folder(folder, remedy)
    if new:
        (folder / ".gitignore").write_text("*\n")


def make_folder(folder: Path, remedy: str) -> None:
    """Make `folder` and see whether it takes files. Raises UsageError, with the remedy, where it does not."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM_BYTES))
    except OSError as error:
        if new:  # the next one that is made is to be new again
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise UsageError(f"cannot write to {folder}: {reason(folder, error)}; {remedy}") from error


def reason(folder: Path, error: OSError) -> str | None:
    """Why a folder can't be made or written; of a file in its place, the system says that it exists."""
    return "it is a file" if folder.is_file() else error.strerror
