"""`ai-prof stop --pid PID`: end the capture of a program that was attached to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.cli import say
from ai_prof.collect.attach import stop_process
from ai_prof.errors import EXIT_PASS

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--pid", type=int, required=True, metavar="PID", help="the process")


def run(args: argparse.Namespace) -> int:
    """Stop it; 0 when its file is whole."""
    output = stop_process(args.pid)
    say(f"capture in {output}")
    return EXIT_PASS
