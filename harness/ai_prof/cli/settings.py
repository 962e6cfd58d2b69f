"""`[tool.ai-prof]` of the project's pyproject.toml: the defaults of the gate's options."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from ai_prof.baselines.files import read_file
from ai_prof.errors import UsageError
from ai_prof.gate.decide import FAIL_ON
from ai_prof.gate.metrics import Floor, Policy, Rules
from ai_prof.gate.model import FilePath
from ai_prof.runs import workloads
from ai_prof.runs.tables import convert, rule_mistakes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


LEAST_RUNS, MOST_RUNS = 3, 1000


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Paths are relative to the folder of pyproject.toml."""

    workloads: FilePath = "workloads"
    baselines: FilePath = "baselines"
    report: FilePath = "reports"
    runs: int = 3
    alpha: float = 0.01
    fail_on: tuple[int, ...] = FAIL_ON
    budget_minutes: float = 20
    python: FilePath | None = None
    build: FilePath | None = None
    floors: dict[str, Floor] = {}
    policy: dict[str, Policy] = {}

    @property
    def rules(self) -> Rules:
        """What holds for a workload that says nothing itself."""
        return Rules(floors=self.floors, policy=self.policy)


def rules_of(names: Iterable[str], root: Path, settings: Settings) -> dict[str, Rules]:
    """The rules that the gate has for these workloads; for one that is not here, the project's.

    Raises WorkloadError where a `workload.toml` is wrong.
    """
    files = (root / settings.workloads).glob(f"*/{workloads.FILE}")
    own = {each.name: each.rules.over(settings.rules) for each in map(workloads.load, files)}
    return {name: own.get(name, settings.rules) for name in names}


def load(root: Path) -> Settings:
    """The settings of the project at `root`. Raises UsageError for a table that cannot be used."""
    path = root / "pyproject.toml"
    if not path.exists():
        return Settings()
    try:
        tool = tomllib.loads(read_file(path).decode()).get("tool", {})
        table = tool.get("ai-prof", {}) if isinstance(tool, dict) else {}
        settings = convert(table, Settings)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not valid TOML ({error}): mend it") from error
    except ValueError as error:
        raise UsageError(f"{path}: [tool.ai-prof]: {error}") from error
    wrong = next(_mistakes(settings), None)
    if wrong:
        raise UsageError(f"{path}: [tool.ai-prof]: {wrong}")
    return settings


def _mistakes(settings: Settings) -> Iterator[str]:
    """What types can't say: each thing that is wrong with the values."""
    for wrong, rule in (
        (not LEAST_RUNS <= settings.runs <= MOST_RUNS, f"runs must be {LEAST_RUNS} to {MOST_RUNS}"),
        (not 0 < settings.alpha < 1, "alpha must be between 0 and 1"),
        (not settings.budget_minutes >= 0, "budget-minutes must be 0 or more"),
        (not set(settings.fail_on) <= set(FAIL_ON), f"fail-on takes of {list(FAIL_ON)}"),
    ):
        if wrong:
            yield rule
    yield from rule_mistakes(settings.floors, settings.policy)
