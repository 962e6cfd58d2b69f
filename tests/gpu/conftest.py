"""A table of figures, printed after everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = pytest.StashKey[list[tuple[str, str, str]]]()


@pytest.fixture(scope="session")
def row(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Adds a line: what was measured, the figure and what was wanted."""
    rows = request.config.stash.setdefault(ROWS, [])

    def add(what: str, figure: str, wanted: str = "") -> None:
        rows.append((what, figure, wanted))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for what, figure, wanted in config.stash.get(ROWS, []):
        terminalreporter.write_line(f"| {what:<62} | {figure:>28} | {wanted} |")
