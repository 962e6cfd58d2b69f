"""Files that are written at once or not at all, by one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.errors import BaselineError
from ai_prof.say import say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


PARTIAL = ".partial"  # how the name of a file ends that is being written


def place(path: Path) -> str:
    """A file as a reader in the project knows it: relative where it lies in the folder of the command."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, also for a pipe or a device in its place, which may never end."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        return file.read()


def write_file(path: Path, data: bytes) -> None:
    """Write a file at once, or not at all. Raises BaselineError where it cannot be written."""
    write_files({path: data})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write every file, each at once, or none of them. Raises BaselineError where one cannot be written."""
    with contextlib.ExitStack() as leftovers:
        staged = {path: _staged(path, data, leftovers) for path, data in contents.items()}
        for path, temporary in staged.items():
            with _told_of(path):
                os.replace(temporary, path)  # noqa: PTH105 - the one call whose atomicity is the point


def _staged(path: Path, data: bytes, leftovers: contextlib.ExitStack) -> Path:
    """A file beside `path` that holds `data`, on the disk; it goes with `leftovers` if it is still there."""
    with _told_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PARTIAL)
        leftovers.callback(_remove, Path(name))
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    return Path(name)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Tell an error of the system as one of `path`."""
    try:
        yield
    except OSError as error:
        raise BaselineError(
            f"{path}: cannot be written ({error.strerror}): check the folder's permissions and free space"
        ) from error


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Keep others out while the files of `folder` are read, changed and written; wait for them first.

    The folder itself is locked: a lock file would be one more file in a tree that is reviewed. It ends with
    the process, however that ends. Raises BaselineError where there can be no such folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BaselineError(
            f"{folder}: cannot be written ({error.strerror}): check the folder's permissions"
        ) from error
    try:
        try:
            _lock(descriptor, folder)
        except OSError as error:  # as NFS says of a folder
            say(f"{folder} cannot be locked ({error.strerror}): let nobody else write there now")
        for leftover in folder.glob(f".*{PARTIAL}"):  # of a writer that was killed
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def tidy(root: Path) -> None:
    """Remove what writers that were killed left in the folders of `root`."""
    for leftover in root.glob(f"*/.*{PARTIAL}"):
        with one_writer(leftover.parent):
            pass  # which removes it


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another one writes to {place(folder)}: waiting for its end")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
