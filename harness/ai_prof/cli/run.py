"""`ai-prof run -- CMD`: start a program under capture, then say what it did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from ai_prof.cli.capture_options import add_capture_options, capture_options, output_folder
from ai_prof.cli.summary_text import render
from ai_prof.collect.environment import capture_environment
from ai_prof.errors import NothingToCompareError, UsageError
from ai_prof.timeline.summary import summarise
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture_options(parser)
    parser.add_argument("command", nargs="+", metavar="CMD", help="the program and its arguments, after --")


def run(args: argparse.Namespace) -> int:
    """Start, wait, summarise. The program's own code when that is not 0."""
    output = output_folder(args)
    if list(output.glob("*.aiprof")):
        msg = f"{output} already holds a capture: choose another --output"
        raise UsageError(msg)
    env = capture_environment(output, args.level, os.environ, capture_options(args))
    code = wait(args.command, env)
    sys.stderr.write(f"ai-prof: capture in {output}\n" if output.is_dir() else "")
    if code:
        return code
    return tell(output)


def wait(command: list[str], env: dict[str, str]) -> int:
    """Run `command` to its end. A signal sent to us is the program's to answer."""
    try:
        program = subprocess.Popen(command, env=env)
    except OSError as error:
        msg = f"cannot start {command[0]}: {error.strerror}"
        raise UsageError(msg) from error
    # Ctrl-C reaches the program through the terminal; SIGTERM comes to us alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: program.send_signal(number))
    code = program.wait()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return 128 - code if code < 0 else code


def tell(output: Path) -> int:
    """Print the summary of the capture in `output`."""
    if not output.is_dir() or not list(output.glob("*.aiprof")):
        msg = "the program used no CUDA and no OpenCL device: there is nothing to show"
        raise NothingToCompareError(msg)
    summary = summarise(open_trace(output))
    print(render(summary))
    return 0 if summary.devices else NothingToCompareError.exit_code
