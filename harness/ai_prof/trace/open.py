"""Opens whatever `--input` names as a Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.errors import TraceError, UsageError
from ai_prof.trace.readers import native
from ai_prof.trace.readers.native_file import is_native, read_header

if TYPE_CHECKING:
    from pathlib import Path

    from ai_prof.trace.model import Trace

ACCEPTED = "a capture directory or a .aiprof file"


def open_trace(path: Path) -> Trace:
    """The Trace in a capture directory or a file.

    Raises:
        TraceError: nothing there that can be read.
        UsageError: no such path, or a directory that holds several captures.

    """
    try:
        if path.is_dir():
            return native.read(_one_capture(path))
        if not path.exists():
            raise UsageError(f"{path} does not exist: --input takes {ACCEPTED}")
        if not is_native(path):
            raise TraceError(f"{path} is no capture: --input takes {ACCEPTED}")
        return native.read([path])
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from None


def _one_capture(folder: Path) -> list[Path]:
    """The capture files of a folder, which must be of one capture."""
    files = sorted(folder.glob("*.aiprof"))
    if not files:
        raise TraceError(f"{folder} holds no .aiprof file: --input takes {ACCEPTED}")
    captures: dict[str, list[str]] = {}
    for file in files:
        header = read_header(file)
        if header:
            captures.setdefault(str(header.get("capture_id")), []).append(file.name)
    if len(captures) > 1:
        listed = "; ".join(f"{key}: {', '.join(names)}" for key, names in captures.items())
        raise UsageError(f"{folder} holds {len(captures)} captures, choose the files of one: {listed}")
    return files
