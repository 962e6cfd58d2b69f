"""`ai-prof doctor`: can a capture work here, and what to do where it can't."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from ai_prof.collect.doctor import COMPILER, Check, capturable, examine, exit_code
from ai_prof.collect.doctor_facts import gather
from ai_prof.errors import EXIT_ENVIRONMENT, EXIT_PASS, UsageError
from ai_prof.json_text import for_people

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

DEFAULT_BUFFER_MB = "256"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="every check and fact, as JSON")
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="the interpreter to examine (default: ours)",
    )


def run(args: argparse.Namespace) -> int:
    """Print every check; 0 when a capture can work, 3 without a device, 4 when something blocks it."""
    python = shutil.which(args.python)
    if python is None:
        raise UsageError(f"--python {args.python} is no program: give the path of an interpreter")
    facts = gather(python, os.environ, buffer_bytes(os.environ.get("AI_PROF_BUFFER_MB")))
    checks = examine(facts)
    code = exit_code(checks)
    if args.json:
        answer = {"schema": "ai-prof/doctor/1", "exit_code": code, "checks": checks, "facts": facts}
        print(for_people(answer))
    else:
        print("\n".join(map(line, checks)))
        print(verdict(checks))
    return code


def verdict(checks: Sequence[Check]) -> str:
    """The last line, for the exit code that `exit_code` gives."""
    programs = capturable(checks)
    mute = "OpenCL" in programs and any(check.name == COMPILER for check in checks)
    but = ", once their kernels compile" if mute and len(programs) == 1 else ""
    return {
        EXIT_PASS: f"A capture of {' and '.join(programs)} programs can work here{but}.",
        EXIT_ENVIRONMENT: "A capture can't work here until what is blocked is mended.",
    }.get(exit_code(checks), "There is no device to capture.")


def buffer_bytes(megabytes: str | None) -> int:
    """The bound of a capture's buffers as AI_PROF_BUFFER_MB sets it."""
    text = megabytes or DEFAULT_BUFFER_MB
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise UsageError(f"AI_PROF_BUFFER_MB={text} is not valid: it takes a whole number from 1")
    return int(text) << 20


def line(check: Check) -> str:
    """One check for a terminal, its remedy below it."""
    text = f"{check.status:8}{check.name}: {check.text}"
    return f"{text}\n{'':8}-> {check.remedy}" if check.remedy else text
