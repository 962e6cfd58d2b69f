"""Writes a file, or a folder of files, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ai_prof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends well; else `path` stays as it was.

    A link's target is replaced, not the link; a device or a pipe (/dev/stdout) is written to as it is.

    Raises:
        UsageError: the folder is missing or cannot be written to.

    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))  # unlike Path.resolve, takes a loop of links
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that becomes `path` when the block ends well; `path` must not exist, or be empty.

    Raises:
        UsageError: it holds something already, or its parent cannot be written to.

    """
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path} exists already and is not an empty folder: name a new one")
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as name:
            staging = Path(name) / "new"
            staging.mkdir()
            yield staging
            staging.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
