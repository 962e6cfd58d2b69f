"""Opens whatever `--input` names as a Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.errors import TraceError, UsageError
from ai_prof.trace.readers import kineto, native, nsys
from ai_prof.trace.readers.native_file import is_native, read_header
from ai_prof.trace.readers.stacks import with_stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ai_prof.trace.model import Trace

ACCEPTED = (
    "a capture directory or .aiprof file, a torch.profiler trace (.json or .json.gz; a folder of them is "
    "one job), or a Nsight Systems SQLite export"
)
_BEGINS: tuple[tuple[tuple[bytes, ...], Callable[[Sequence[Path]], Trace]], ...] = (
    ((b"\x1f\x8b", b"{", b"["), kineto.read),
    ((b"SQLite format 3\0",), nsys.read),
)
_SUFFIXES: tuple[tuple[str, Callable[[Sequence[Path]], Trace]], ...] = (
    (".json", kineto.read),
    (".json.gz", kineto.read),
    (".sqlite", nsys.read),
)


def open_trace(path: Path) -> Trace:
    """The Trace in a capture directory or a file; files are known by their content, not their names.

    Raises:
        TraceError: nothing there that can be read.
        UsageError: no such path, or a directory that holds several captures.

    """
    try:
        if path.is_dir():
            return _open_folder(path)
        if not path.exists():
            raise UsageError(f"{path} does not exist: name {ACCEPTED}")
        return _reader(path)([path])
    except OSError as error:
        which = error.filename or path
        raise TraceError(f"{which} cannot be read: {error.strerror or error}") from None


def _native(files: Sequence[Path]) -> Trace:
    """A capture of ours, with the stacks sampled beside it."""
    return with_stacks(native.read(files))


def _reader(path: Path) -> Callable[[Sequence[Path]], Trace]:
    """The reader of a file."""
    if not path.is_file():
        raise TraceError(f"{path} is a device or a pipe: write it to a file first")
    if is_native(path):
        return _native
    with path.open("rb") as file:
        begin = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    for begins, read in _BEGINS:
        if begin.startswith(begins):
            return read
    if path.suffix in {".nsys-rep", ".qdrep"}:
        raise TraceError(
            f"{path} is a report of Nsight Systems: export it first with "
            f"`nsys export --type sqlite {path.name}`"
        )
    raise TraceError(f"{path} is no capture: name {ACCEPTED}")


def _open_folder(folder: Path) -> Trace:
    """The capture or the job in a folder; a capture's own files stand before others."""
    next(folder.iterdir(), None)  # raises where the folder cannot be listed and glob would find nothing
    captures = sorted(folder.glob("*.aiprof"))
    for file in captures:
        if not file.is_file():
            raise TraceError(f"{file} is no file: take it out of {folder}")
    if captures:
        return _native(_one_capture(folder, captures))
    found: dict[Callable[[Sequence[Path]], Trace], list[Path]] = {}
    for suffix, read in _SUFFIXES:
        files = sorted(folder.glob(f"*{suffix}"))
        if files:
            found.setdefault(read, []).extend(files)
    if not found:
        raise TraceError(f"{folder} holds no .aiprof file and no other trace: name {ACCEPTED}")
    if len(found) > 1:
        names = ", ".join(file.name for files in found.values() for file in files)
        raise UsageError(f"{folder} holds traces of different formats, choose one: {names}")
    ((read, files),) = found.items()
    return read(files)


def _one_capture(folder: Path, files: list[Path]) -> list[Path]:
    """The capture files of a folder, which must be of one capture."""
    captures: dict[str, list[str]] = {}
    for file in files:
        header = read_header(file)
        if header:
            captures.setdefault(str(header.get("capture_id")), []).append(file.name)
    if len(captures) > 1:
        listed = "; ".join(f"{key}: {', '.join(names)}" for key, names in captures.items())
        raise UsageError(f"{folder} holds {len(captures)} captures, choose the files of one: {listed}")
    return files
