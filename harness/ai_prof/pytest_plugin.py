"""The pytest plugin: inert in every pytest but the one that `runs.measure` starts with `--ai-prof-plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the one option."""
    parser.getgroup("ai-prof").addoption(
        "--ai-prof-plan", type=Path, default=None, metavar="FILE", help="launches to make, written by ai-prof"
    )


@pytest.hookimpl(optionalhook=True)  # unknown where pytest-benchmark is switched off
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Keep the plan's facts of the machine beside pytest-benchmark's own."""
    path = config.getoption("ai_prof_plan")
    if path is not None:
        from ai_prof.runs.measure import load  # noqa: PLC0415 - other projects' pytest never pays for it

        machine_info["ai_prof"] = load(path).machine
