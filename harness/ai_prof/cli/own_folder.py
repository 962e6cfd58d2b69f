"""The folders that ai-prof makes in a project of its user."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from ai_prof.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def make_own_folder(folder: Path, remedy: str) -> None:
    """Make `folder`, which git ignores: to measure a tree must not make it dirty.

    Raises UsageError, with the remedy, before minutes are spent on runs that could not be kept.
    """
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / ".gitignore").write_text("*\n")
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; {remedy}") from error
