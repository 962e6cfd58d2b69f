"""The options that every verb which starts a capture shares."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.collect.environment import LEVELS

if TYPE_CHECKING:
    import argparse


def add_capture_options(parser: argparse.ArgumentParser) -> None:
    """Declare where and how much to record."""
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="folder of the capture (default: ai-prof-<UTC time>)"
    )
    parser.add_argument(
        "--level", choices=LEVELS, default="api", help="kernel: device work; api: also host calls (default)"
    )
    parser.add_argument(
        "--note",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="kept in the file, for example batch=32",
    )


def output_folder(args: argparse.Namespace) -> Path:
    """The folder to record into."""
    now = datetime.now(timezone.utc)
    return args.output or Path(f"ai-prof-{now:%Y%m%dT%H%M%SZ}")


def capture_options(args: argparse.Namespace) -> dict[str, str]:
    """The AI_PROF_* variables that the options stand for."""
    return {"AI_PROF_NOTE": ",".join(args.note)} if args.note else {}
