"""The `ai-prof` command: a table of verbs, one module each."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Protocol, cast

from ai_prof.errors import EXIT_FAULT, AiProfError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "run": "start a program under capture",
    "env": "print the environment that captures what is started in it",
    "summary": "say why the GPU idles, from a capture",
    "export": "write a capture as a timeline file",
    "gate": "run workloads under capture and compare them with their baselines",
    "baseline": "refresh or show stored baselines",
}


class Verb(Protocol):
    """What a module of this package offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's own arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit code."""


def load(verb: str) -> Verb:
    """Only the verb that was asked for: its libraries are not the others' start-up time."""
    return cast("Verb", importlib.import_module(f"ai_prof.cli.{verb}"))


def make_parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser, with the arguments of `verb` alone filled in."""
    parser = argparse.ArgumentParser(
        prog="ai-prof", description="Why is my GPU idle, and did this change make it slower?"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, text in VERBS.items():
        sub = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name == verb:
            load(name).add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = arguments[0] if arguments and arguments[0] in VERBS else None
    args = make_parser(verb).parse_args(arguments)
    try:
        return load(args.verb).run(args)
    except AiProfError as error:
        sys.stderr.write(f"ai-prof: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing of ours failed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 - the last resort, told as our own fault
        traceback.print_exc()
        sys.stderr.write(
            "ai-prof: this is a fault of ai-prof: please report it with the lines above and your command\n"
        )
        return EXIT_FAULT
