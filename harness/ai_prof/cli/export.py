"""`ai-prof export --input CAPTURE --format FORMAT --output PATH`: for a viewer or a data frame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.cli.ending import end_in_order
from ai_prof.cli.reading import read
from ai_prof.errors import NothingToCompareError, UsageError
from ai_prof.say import say
from ai_prof.timeline.tracks import tracks
from ai_prof.trace.open import ACCEPTED
from ai_prof.trace.writers.csv_tables import write_csv
from ai_prof.trace.writers.parquet_tables import write_parquet
from ai_prof.trace.writers.timeline import write_timeline

if TYPE_CHECKING:
    import argparse

    from ai_prof.trace.model import Trace

_WRITERS = {"timeline": write_timeline, "csv": write_csv, "parquet": write_parquet}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--input", type=Path, required=True, metavar="PATH", help=ACCEPTED)
    parser.add_argument(
        "--format",
        choices=list(_WRITERS),
        default="timeline",
        help="timeline: Chrome trace JSON, for ui.perfetto.dev or chrome://tracing; csv, parquet: tables",
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="PATH",
        help="timeline: a file that ends in .json, or .json.gz to compress; csv, parquet: a new folder",
    )


def run(args: argparse.Namespace) -> int:
    """Write the file or the folder. Raises NothingToCompareError where not one record is there."""
    end_in_order()  # with the half of a file that was written by then
    timeline = args.format == "timeline"
    if timeline and not args.output.name.endswith((".json", ".json.gz")):
        raise UsageError(f"{args.output}: a timeline is written to a .json or a .json.gz file")
    trace = read(args.input)
    if not holds_records(trace):
        raise NothingToCompareError(f"no record could be read from {args.input}: nothing was written")
    _WRITERS[args.format](trace, args.output, tracks(trace))
    hint = ": open it at https://ui.perfetto.dev" if timeline else ""
    say(f"wrote {args.output}{hint}")
    return 0


def holds_records(trace: Trace) -> bool:
    """Whether there is anything to write but the names of what was recorded."""
    tables = (trace.kernels, trace.memory, trace.syncs, trace.calls, trace.ranges)
    return any(len(table.start) for table in tables) or len(trace.samples.time) > 0
