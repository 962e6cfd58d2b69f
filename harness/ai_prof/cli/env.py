"""`eval "$(ai-prof env)"`: capture whatever is started from this shell."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from ai_prof.cli.capture_options import add_capture_options, capture_options, output_folder
from ai_prof.collect.environment import capture_environment

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print one `export` line for each variable that differs from the present environment."""
    output = output_folder(args)
    env = capture_environment(output, args.level, os.environ, capture_options(args, os.environ))
    # Each program started from the shell is a capture of its own unless the user shares one id.
    del env["AI_PROF_CAPTURE_ID"]
    for key, value in sorted(env.items()):
        if os.environ.get(key) != value:
            print(f"export {key}={shlex.quote(value)}")
    return 0
