"""`ai-prof stop --pid PID`: end the capture of a program that was attached to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.collect.attach import stop_process
from ai_prof.collect.control import State
from ai_prof.errors import EXIT_PASS, EnvironmentInvalidError, NothingToCompareError
from ai_prof.say import say

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--pid", type=int, required=True, metavar="PID", help="the process")


def run(args: argparse.Namespace) -> int:
    """Stop it. Raises when its capture failed, or nothing used CUDA."""
    page = stop_process(args.pid)
    if page.message:
        say(f"process {args.pid}: {page.message}")
    if page.state == State.FAILED:
        raise EnvironmentInvalidError(f"the capture of process {args.pid} failed")
    if page.state == State.NO_CUDA:
        msg = f"process {args.pid} used no CUDA in that time: there is nothing to show"
        raise NothingToCompareError(msg)
    say(f"capture in {page.settings['AI_PROF_OUTPUT']}")
    return EXIT_PASS
