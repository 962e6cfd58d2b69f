"""`[tool.ai-prof]` of the project's pyproject.toml: the defaults of the gate's options."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from ai_prof.errors import UsageError
from ai_prof.gate.decide import FAIL_ON

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """Paths are relative to the folder of pyproject.toml."""

    workloads: str = "workloads"
    baselines: str = "baselines"
    report: str = "reports"
    runs: int = 3
    alpha: float = 0.01
    fail_on: tuple[int, ...] = FAIL_ON
    budget_minutes: float = 20
    python: str | None = None


def load(root: Path) -> Settings:
    """The settings of the project at `root`. Raises UsageError for a table that cannot be used."""
    path = root / "pyproject.toml"
    if not path.exists():
        return Settings()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("ai-prof", {})
        settings = msgspec.convert(table, Settings)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML ({error}): mend it") from error
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: [tool.ai-prof]: {error}") from error
    if settings.runs < 2 or not 0 < settings.alpha < 1:
        raise UsageError(f"{path}: [tool.ai-prof]: runs must be 2 or more and alpha between 0 and 1")
    return settings
