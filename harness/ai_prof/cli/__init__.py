"""The `ai-prof` command: a table of verbs, one module each."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ai_prof.errors import EXIT_FAULT, AiProfError, EnvironmentInvalidError, UsageError
from ai_prof.say import say

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "run": "start a program under capture",
    "env": 'print what captures all that a shell starts from here on: eval "$(ai-prof env)"',
    "attach": "capture programs that already run",
    "stop": "end the capture of a program that was attached to",
    "status": "list the programs that are attached to",
    "summary": "say why the GPU idles, from a capture",
    "diff": "say what changed between two captures, and whether it is a gain",
    "export": "write a capture as a timeline for a viewer, or as tables",
    "doctor": "say whether a capture can work here, and what to do where it cannot",
    "gate": "run workloads under capture and compare them with their baselines",
    "accept": "let a change that the last gate reported be the new level until the next refresh",
    "baseline": "refresh or show stored baselines",
    "history": "show how what was measured changed over time, and at which commits",
    "bisect": "find the commit that made a workload slower",
    "init": "write what a repository needs to gate itself: an example, noxfile, settings, workflows",
    "report": "merge what the shards of a build measured into one verdict",
    "calibrate": "say how often the gate would fail builds without a change, from stored runs",
}


# What the machine refuses, whatever we do: no fault of ours.
REFUSALS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EACCES, errno.EPERM),
    errno.ENAMETOOLONG,
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


class _Version(argparse.Action):
    """Print the version of this installation."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it and end."""
        from importlib.metadata import version  # noqa: PLC0415 - it costs every other command milliseconds

        print(f"ai-prof {version('ai-prof')}")
        parser.exit()


class _VerbParser(argparse.ArgumentParser):
    """A verb's own parser; an argument that it does not know is answered with the verb's usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse what the command's parser hands on, and would else complain of with its own usage."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


def make_parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser, with the arguments of `verb` alone filled in."""
    parser = argparse.ArgumentParser(
        prog="ai-prof",
        allow_abbrev=False,  # a later option must not change what a script's word means
        description="Why is my GPU idle, and did this change make it slower?",
        epilog="`ai-prof VERB --help` explains a verb. Exit codes: 0 pass; 1 regression; 2 wrong usage, "
        "unreadable input, a refused refresh; 3 nothing to compare, no GPU work; 4 environment invalid, a "
        "workload failed, capture incomplete (of gate and attach; other verbs say so and go on); 5 flagged, "
        "not settled; 70 a fault of ai-prof. `ai-prof run` ends as a program that fails.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    verbs: argparse._SubParsersAction[argparse.ArgumentParser] = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, parser_class=_VerbParser
    )
    for name, text in VERBS.items():
        sub = add_verb(verbs, name, text)
        if name == verb:
            load(name).add_arguments(sub)
    return parser


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    """Add a verb: `text` in the list of them, and as a sentence in its own help."""
    description = f"{text[0].upper()}{text[1:]}."
    return verbs.add_parser(name, help=text, description=description, allow_abbrev=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    prepare_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = next((each for each in arguments if each in VERBS), None)
    try:
        args = make_parser(verb).parse_args(arguments)
        code = load(args.verb).run(args)
        flush_output()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output went away (`| head`). Not 0: what the verb was to find out stands open.
        discard_output()
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - the last resort, told as our own fault
        known = explained(error)
        if known is None:
            traceback.print_exc()
            say("this is a fault of ai-prof: please report it with the lines above and your command")
            return EXIT_FAULT
        say(str(known))
        return known.exit_code
    return code


def explained(error: Exception) -> AiProfError | None:
    """The error as one that the user can act on; None for a fault of ours."""
    if isinstance(error, AiProfError):
        return error
    if isinstance(error, MemoryError):
        return EnvironmentInvalidError("this machine has too little memory for it")
    if isinstance(error, OSError) and error.errno in REFUSALS:
        discard_output()
        return EnvironmentInvalidError(f"{error.filename or 'the output'}: {error.strerror}")
    if isinstance(error, FileNotFoundError) and not folder_is_there():
        return UsageError("the current folder was removed: change to one that is there")
    return None


def folder_is_there() -> bool:
    """Whether we are in a folder that still has a name."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def prepare_streams() -> None:
    """Let no name and no closed stream stop us: what a terminal cannot show is shown escaped."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us; what we start writes there too
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - as the call has it
            setattr(sys, name, os.fdopen(descriptor, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_output() -> None:
    """Write what is buffered; a reader that has gone takes nothing from the verb's code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Let what is still buffered for stdout go nowhere: Python would fail on it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
