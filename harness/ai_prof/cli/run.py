"""`ai-prof run -- CMD`: start a program under capture, then say what it did."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil

from ai_prof.cli.capture_options import (
    add_capture_options,
    add_stacks_option,
    capture_options,
    folder_made,
    output_folder,
)
from ai_prof.cli.reading import read
from ai_prof.cli.summary_text import render
from ai_prof.collect.attach import newest_file
from ai_prof.collect.environment import capture_environment
from ai_prof.collect.stacks import Samplers, find_py_spy, may_be_sampled_by
from ai_prof.errors import NothingToCompareError, TraceError, UsageError
from ai_prof.say import say
from ai_prof.timeline.operations import busy_devices
from ai_prof.timeline.summary import summarise
from ai_prof.trace.open import open_trace

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType
    from typing import TextIO

    from ai_prof.trace.model import Trace

FORK_S = 0.3
ANSWERED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PYTHON_STARTS_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture_options(parser)
    add_stacks_option(parser, "CMD too, not of what it starts (a launcher's workers: attach --tree)")
    parser.usage = "%(prog)s [options] [--] CMD ..."
    text = "the program and its arguments, all that follow are its own"
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD", help=text)


def run(args: argparse.Namespace) -> int:
    """Start, wait, summarise. The program's own code when that is not 0."""
    # argparse leaves the leading -- in, and with it any that are the program's own.
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("no program to run: ai-prof run --output DIR -- PROGRAM ARGUMENTS")
    output = output_folder(args)
    if args.stacks:
        find_py_spy()  # before anything is started
    env = capture_environment(output, args.level, os.environ, capture_options(args, os.environ))
    with folder_made(output, new=args.output is None):
        code = wait(command, env, output if args.stacks else None)
        if code == 0 and not any(output.glob("*.aiprof")):
            wait_for_rest(command[0], env)
        gone = not output.is_dir()
    if gone:
        say(f"{output} was removed meanwhile, with what was recorded: name another folder with --output")
        return code or UsageError.exit_code
    captured = any(output.glob("*.aiprof"))
    if code and not (captured and worked(output)):
        say(f"the program ended with exit code {code} before any device work was recorded")
    if captured:
        say(f"capture in {output}")
    if code:
        return code
    if not captured:
        raise NothingToCompareError(
            "nothing was captured: the program used no CUDA and no OpenCL device, "
            "or a line above says why its capture stayed off"
        )
    return tell(read(output), sys.stderr)  # standard output is the program's


def wait(command: list[str], env: dict[str, str], stacks: Path | None) -> int:
    """Run `command` to its end. A signal sent to us is the program's to answer.

    Its stacks are sampled, and kept beside its capture in the folder `stacks`, where that is given.
    """
    program: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def hand_on(number: int, _: FrameType | None) -> None:
        # Ctrl-C reaches the program through the terminal; SIGTERM and SIGHUP may come to us alone.
        if number == signal.SIGINT:
            return
        if program is None:
            early.append(number)
        else:
            program.send_signal(number)

    # What is ignored stays so, as under nohup: the program has it ignored, too.
    answered = [number for number in ANSWERED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, hand_on) for number in answered}
    try:
        program = _start(command, env, sampled=stacks is not None)
        for number in early:
            program.send_signal(number)
        code = program.wait() if stacks is None else _wait_sampled(program, stacks)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def _start(command: list[str], env: dict[str, str], *, sampled: bool) -> subprocess.Popen[bytes]:
    before_it_begins = may_be_sampled_by(os.getpid()) if sampled else None
    try:
        return subprocess.Popen(command, env=env, preexec_fn=before_it_begins)  # noqa: PLW1509 - one thread
    except OSError as error:
        msg = f"cannot start {command[0]}: {error.strerror}"
        raise UsageError(msg) from error


def _wait_sampled(program: subprocess.Popen[bytes], folder: Path) -> int:
    with Samplers([program.pid], say, _PYTHON_STARTS_S) as samplers:
        code = program.wait()
        samplers.keep({program.pid: newest_file(folder, program.pid)})
    return code


def wait_for_rest(name: str, env: dict[str, str]) -> None:
    """Wait for what the program left running, as one that becomes a daemon does: the work is theirs."""
    mark = f"AI_PROF_CAPTURE_ID={env['AI_PROF_CAPTURE_ID']}"
    with contextlib.suppress(KeyboardInterrupt):
        while rest := _left(mark):
            ids = ", ".join(str(process.pid) for process in rest)
            say(f"{name} ended and left {ids} running: waiting for them (Ctrl-C: read what there is)")
            psutil.wait_procs(rest)


def _left(mark: str) -> list[psutil.Process]:
    """What carries the mark. A second look finds what was being forked at the first."""
    found = _marked(mark)
    if not found:
        time.sleep(FORK_S)
        found = _marked(mark)
    return found


def _marked(mark: str) -> list[psutil.Process]:
    """Every live process whose environment holds `mark`; those of other users cannot be ours."""
    key, _, value = mark.partition("=")
    # psutil gives None where an environment cannot be read.
    every = psutil.process_iter(["environ"])
    return [p for p in every if p.pid != os.getpid() and (p.info["environ"] or {}).get(key) == value]


def worked(output: Path) -> bool:
    """Whether the capture in `output` holds device work; one that cannot be read may hold some."""
    try:
        return bool(busy_devices(open_trace(output)))
    except TraceError:
        return True


def tell(trace: Trace, to: TextIO) -> int:
    """Print the summary of a capture; the exit code."""
    summary = summarise(trace)
    print(render(summary), file=to)
    return 0 if summary.devices else NothingToCompareError.exit_code
