"""Errors that a user can act on, each with the exit code it ends the command with."""

from __future__ import annotations

from typing import ClassVar

EXIT_PASS = 0
EXIT_REGRESSION = 1
EXIT_USAGE = 2
EXIT_NOTHING = 3
EXIT_ENVIRONMENT = 4
EXIT_UNSETTLED = 5
EXIT_FAULT = 70


class AiProfError(Exception):
    """What went wrong and what to do about it, in one line for the user."""

    exit_code: ClassVar[int] = EXIT_FAULT


class UsageError(AiProfError):
    """A wrong argument, an unreadable input, a process that does not exist."""

    exit_code: ClassVar[int] = EXIT_USAGE


class TraceError(UsageError):
    """A capture or trace file that cannot be read."""


class WorkloadError(UsageError):
    """A workload that does not exist, or whose `workload.toml` is wrong."""


class BaselineError(UsageError):
    """A baseline file that cannot be read, or a refresh that is refused."""


class NothingToCompareError(AiProfError):
    """No baseline, no usable device, or no GPU work."""

    exit_code: ClassVar[int] = EXIT_NOTHING


class EnvironmentInvalidError(AiProfError):
    """The machine, a workload or the capture was not fit to measure."""

    exit_code: ClassVar[int] = EXIT_ENVIRONMENT


class AttachRefusedError(EnvironmentInvalidError):
    """A process that cannot be attached to, and what would allow it."""
