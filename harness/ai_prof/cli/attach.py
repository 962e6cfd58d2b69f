"""`ai-prof attach --pid PID`: capture programs that already run, and leave them as they were."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import TYPE_CHECKING

from ai_prof.cli.capture_options import (
    add_capture_options,
    add_stacks_option,
    capture_options,
    folder_made,
    output_folder,
)
from ai_prof.cli.ending import end_in_order
from ai_prof.cli.reading import read
from ai_prof.cli.run import tell
from ai_prof.collect.attach import Session, attach, size_of, stop, watch
from ai_prof.collect.control import State
from ai_prof.collect.stacks import Samplers
from ai_prof.collect.tree import cuda_processes
from ai_prof.errors import EnvironmentInvalidError, NothingToCompareError, UsageError
from ai_prof.say import say, write_error
from ai_prof.timeline.capture_findings import incomplete

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_LATE_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--pid", type=int, action="append", required=True, metavar="PID", help="a process; may be repeated"
    )
    parser.add_argument(
        "--tree",
        action="store_true",
        help="a PID is a launcher's: capture the processes under it that use CUDA",
    )
    add_stacks_option(parser, "each process too")
    parser.add_argument(
        "--duration",
        type=float,
        metavar="SECONDS",
        help="how long to record, from the attach on (default: until Ctrl-C or `ai-prof stop`)",
    )
    add_capture_options(parser)


def run(args: argparse.Namespace) -> int:
    """Attach, wait, summarise."""
    output = output_folder(args)
    if args.duration is not None and not 0 < args.duration <= 1e9:
        msg = f"--duration {args.duration:g} must be above 0, in seconds, and no more than 1e9"
        raise UsageError(msg)
    if os.getpid() in args.pid:
        raise UsageError(f"{os.getpid()} is this very command: name the process to capture")
    # The option's own word on the duration comes last.
    options = capture_options(args, os.environ)
    options |= {"AI_PROF_LEVEL": args.level, "AI_PROF_DURATION": str(args.duration or 0.0)}
    pids = cuda_processes(args.pid) if args.tree else list(dict.fromkeys(args.pid))
    with folder_made(output, new=args.output is None):
        return capture(pids, output, options, stacks=args.stacks)


def capture(pids: Sequence[int], output: Path, options: Mapping[str, str], *, stacks: bool) -> int:
    """Capture `pids` from now to the end of the window, Ctrl-C or `ai-prof stop`; the exit code."""
    end_in_order()
    with Samplers(pids if stacks else (), say) as samplers:
        sessions = attach(pids, output, options)
        try:
            names = ", ".join(str(session.process.pid) for session in sessions)
            seconds = float(options["AI_PROF_DURATION"]) or math.inf
            until = "" if seconds < math.inf else "; Ctrl-C or `ai-prof stop` ends it"
            say(f"attached to {names}; {pauses(sessions)}{until}")
            follow(sessions, seconds)
        except KeyboardInterrupt:
            say("stopping")
        finally:  # whatever ends us, no capture goes on without us
            stop(sessions)
        samplers.keep({session.process.pid: session.file(output) for session in sessions})
    return conclude(sessions, output)


def pauses(sessions: Sequence[Session]) -> str:
    """The longest time that a thread of a target was held."""
    longest = max(session.pause_s for session in sessions)
    return f"threads stood for {longest * 1e3:.1f} ms" if longest else "woken from standby, no thread stood"


def follow(sessions: Sequence[Session], seconds: float) -> None:
    """Wait for all to end, which they do after `seconds`; on a terminal show how long it has been.

    One that is late is no longer waited for here: to stop it has a limit, and tells why it does not end.
    """
    began = time.monotonic()
    for going in watch(sessions):
        if time.monotonic() - began > seconds + _LATE_SECONDS:
            break
        if sys.stderr.isatty():
            waiting = any(session.control.state == State.AWAITS_CUDA for session in going)
            what = "waiting for CUDA" if waiting else "recording"
            write_error(f"\rai-prof: {what}, {time.monotonic() - began:.0f} s ")
    if sys.stderr.isatty():
        write_error("\n")


def conclude(sessions: Sequence[Session], output: Path) -> int:
    """Tell what was recorded. Raises when a capture failed, lacks something, or nothing used CUDA."""
    told = [failure(session, output) for session in sessions]
    if failures := [each for each in told if each]:
        whole = [session for session, each in zip(sessions, told, strict=True) if not each]
        if any(session.file(output) for session in whole):
            failures.append(f"what the others recorded is in {output}")
        raise EnvironmentInvalidError("; ".join(failures))
    if not any(output.glob("*.aiprof")):
        msg = "no process used CUDA in that time: there is nothing to show"
        raise NothingToCompareError(msg)
    say(f"capture in {output}")
    trace = read(output)
    code = tell(trace, sys.stdout)
    if missing := incomplete(trace):
        raise EnvironmentInvalidError(f"the capture is incomplete: {'; '.join(missing)}")
    return code


def failure(session: Session, output: Path) -> str | None:
    """Why the capture of one process is not whole; None where it is, or where there was nothing to record."""
    page, pid = session.control.read(), session.process.pid
    if page.message:
        say(f"process {pid}: {page.message}")
    kept = None if session.path is None else size_of(session.path)
    if session.path is not None and kept == 0:
        session.path.unlink(missing_ok=True)
    if page.state == State.FAILED:
        return f"the capture of process {pid} failed"
    if session.path is not None and kept is None:
        return f"{session.path} was removed while it was recorded: nothing is left of it"
    if session.cut:
        file = session.file(output)
        left = f"what was recorded until then is in {file}" if file else "nothing was recorded until then"
        return f"process {pid} ran another program meanwhile, or closed what it did not open: {left}"
    if not page.state.over:
        say(f"process {pid} ended")
    return None
