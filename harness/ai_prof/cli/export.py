"""`ai-prof export --input CAPTURE --format timeline --output FILE`: for a viewer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.errors import UsageError
from ai_prof.trace.open import ACCEPTED, open_trace
from ai_prof.trace.writers.timeline import write_timeline

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--input", type=Path, required=True, metavar="PATH", help=ACCEPTED)
    parser.add_argument(
        "--format",
        choices=["timeline"],
        default="timeline",
        help="timeline: Chrome trace JSON, for ui.perfetto.dev or chrome://tracing",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="ends in .json, or .json.gz to compress"
    )


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    if not args.output.name.endswith((".json", ".json.gz")):
        raise UsageError(f"{args.output}: a timeline is written to a .json or a .json.gz file")
    trace = open_trace(args.input)
    for warning in trace.source.warnings:
        sys.stderr.write(f"ai-prof: {warning}\n")
    write_timeline(trace, args.output)
    sys.stderr.write(f"ai-prof: wrote {args.output}: open it at https://ui.perfetto.dev\n")
    return 0
