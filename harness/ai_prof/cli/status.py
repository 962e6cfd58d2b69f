"""`ai-prof status`: the programs that are attached to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ai_prof.collect.attach import attached
from ai_prof.errors import EXIT_PASS

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments: none."""
    del parser


def run(args: argparse.Namespace) -> int:
    """One line a process."""
    del args
    found = sorted(attached(), key=lambda pair: pair[0])
    for pid, control in found:
        state = control.state.name.lower().replace("_", " ")
        print(f"{pid}  {state}  {control.settings().get('AI_PROF_OUTPUT', '')}")
    if not found:
        sys.stderr.write("ai-prof: no process that we may look into is attached to\n")
    return EXIT_PASS
