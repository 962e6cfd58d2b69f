"""`ai-prof status`: the programs that are attached to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.collect.attach import attached
from ai_prof.errors import EXIT_PASS
from ai_prof.json_text import for_people
from ai_prof.say import say, shown

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="a list of pid, state and output, as JSON")


def run(args: argparse.Namespace) -> int:
    """One line a process."""
    pages, strange = attached()
    found = [
        {
            "pid": pid,
            "state": page.state.name.lower().replace("_", " "),
            "output": page.settings.get("AI_PROF_OUTPUT", ""),
        }
        for pid, page in sorted(pages, key=lambda pair: pair[0])
    ]
    if strange:
        say(f"left out {strange} that another version of ai-prof attached to, or that only pretend to be")
    if args.json:
        print(for_people(found))
        return EXIT_PASS
    for each in found:
        print(shown("{pid}  {state}  {output}".format_map(each)))
    if not found:
        say("no process that we may look into is attached to")
    return EXIT_PASS
