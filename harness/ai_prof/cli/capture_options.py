"""The options that every verb which starts a capture shares."""

from __future__ import annotations

import contextlib
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.cli.own_folder import reason
from ai_prof.collect.environment import LEVELS
from ai_prof.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

WITHOUT_OPTION = tuple(
    f"AI_PROF_{name}"
    for name in ("BUFFER_MB", "DELAY", "DURATION", "GRAPHS", "ITERATIONS", "MAX_FILE_MB", "STEADY")
)


def add_capture_options(parser: argparse.ArgumentParser) -> None:
    """Declare where and how much to record."""
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="folder of the capture (default: ai-prof-<UTC time>)"
    )
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="api",
        help="kernel: device work and synchronizes; api: also host calls (default)",
    )
    parser.add_argument(
        "--note",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="kept in the file, for example batch=32; may be repeated",
    )


def add_stacks_option(parser: argparse.ArgumentParser, whose: str) -> None:
    """Declare that Python's stacks are sampled too, and in words `whose`."""
    parser.add_argument(
        "--stacks",
        action="store_true",
        help=f"sample the Python stacks of {whose}, and name the functions that gaps lie in "
        "(needs ai-prof[stacks])",
    )


def output_folder(args: argparse.Namespace) -> Path:
    """The folder to record into."""
    now = datetime.now(timezone.utc)
    return args.output or Path(f"ai-prof-{now:%Y%m%dT%H%M%SZ}")


@contextlib.contextmanager
def folder_made(output: Path, *, new: bool) -> Iterator[None]:
    """The folder to record into: one that was not there goes again where nothing was kept in it.

    It must not be there where it is `new`. Raises UsageError before a program runs whose capture could not
    be kept, or would mix with another.
    """
    try:
        made = not output.exists()
        output.mkdir(parents=True, exist_ok=not new)
        tempfile.TemporaryFile(dir=output).close()
    except OSError as error:
        raise UsageError(
            f"cannot record into {output}: {reason(output, error)}; name another folder with --output"
        ) from error
    if any(output.glob("*.aiprof")):
        raise UsageError(f"{output} already holds a capture: choose another --output")
    try:
        yield
    finally:
        if made:
            with contextlib.suppress(OSError):  # not empty: it holds the capture
                output.rmdir()


def capture_options(args: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The AI_PROF_* variables that the options stand for, and those of `environ` that have no option.

    Raises UsageError for a note without a key.
    """
    note = ",".join(args.note)
    for item in note.split(",") if note else ():
        key, equals, _ = item.partition("=")
        if not key or not equals:
            raise UsageError(f"--note {item} is not KEY=VALUE")
    kept = {name: environ[name] for name in WITHOUT_OPTION if name in environ}
    return kept | ({"AI_PROF_NOTE": note} if note else {})
