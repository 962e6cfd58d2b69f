"""`ai-prof status`: the programs that are attached to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from ai_prof.collect.attach import attached
from ai_prof.errors import EXIT_PASS

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="a list of pid, state and output, as JSON")


def run(args: argparse.Namespace) -> int:
    """One line a process."""
    found = [
        {
            "pid": pid,
            "state": control.state.name.lower().replace("_", " "),
            "output": control.settings().get("AI_PROF_OUTPUT", ""),
        }
        for pid, control in sorted(attached(), key=lambda pair: pair[0])
    ]
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
        return EXIT_PASS
    for each in found:
        print("{pid}  {state}  {output}".format_map(each))
    if not found:
        sys.stderr.write("ai-prof: no process that we may look into is attached to\n")
    return EXIT_PASS
