"""`ai-prof summary --input CAPTURE`: why the GPU idles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.cli.reading import read
from ai_prof.cli.summary_text import render
from ai_prof.errors import EXIT_NOTHING, EXIT_PASS
from ai_prof.json_text import for_people
from ai_prof.say import say
from ai_prof.timeline.summary import summarise
from ai_prof.trace.open import ACCEPTED
from ai_prof.trace.writers.atomic import atomic_file

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--input", type=Path, required=True, metavar="PATH", help=ACCEPTED)
    parser.add_argument("--json", action="store_true", help="every figure, as JSON")
    parser.add_argument("--gaps", action="store_true", help="list the ten longest gaps of each device")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there instead of to the terminal")
    parser.add_argument(
        "--window",
        choices=["auto", "span"],
        default="auto",
        help="auto: whole iterations after warm-up where any are found; span: first start to last end",
    )


def run(args: argparse.Namespace) -> int:
    """Print the summary; 3 when the capture holds no GPU work."""
    trace = read(args.input)
    summary = summarise(trace, args.window)
    text = for_people(summary) if args.json else render(summary, gaps=args.gaps)
    if args.output:
        with atomic_file(args.output) as file:
            file.write(f"{text}\n".encode())
    else:
        print(text)
    if summary.reason:
        say(summary.reason)
        return EXIT_NOTHING
    return EXIT_PASS
