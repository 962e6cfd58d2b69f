"""What holds for every test."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from attach_targets import Target
    from one_measures import OneMeasures

# A busy machine is no fault of what is tested, and the same code passes or fails every time: examples that
# nobody has tried yet come with `--hypothesis-profile default`.
settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("steady")

# A shell that starts the tests in the background has SIGINT ignored, and nohup SIGHUP: programs that they
# start and end by these would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneMeasures:
    from one_measures import OneMeasures  # noqa: PLC0415 - only here is pytest-xdist needed

    return OneMeasures(config, log)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Target]]:
    """What starts programs to attach to."""
    from attach_targets import starting  # noqa: PLC0415 - it needs the native library

    with starting(tmp_path) as begin:
        yield begin


@pytest.fixture(scope="session")
def attachable() -> None:
    """Skips where the mocks are not built, or where what is no child of ours can't be attached to."""
    from attach_targets import mocks, ptrace_works  # noqa: PLC0415 - it needs the native library

    mocks()
    ptrace_works()


@pytest.fixture
def target(start: Callable[..., Target]) -> Target:
    """A program of CUDA that waits in poll."""
    return start()
