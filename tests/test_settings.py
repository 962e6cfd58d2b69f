from __future__ import annotations

import pytest

from ai_prof.cli.settings import Settings, load
from ai_prof.errors import UsageError


def test_without_a_table_the_defaults_stand(tmp_path):
    assert load(tmp_path) == Settings()
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nruns = 1\n")
    assert load(tmp_path) == Settings()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("runs = 2", "runs must be 3"),
        ("alpha = nan", "alpha"),
        ("budget-minutes = -1", "budget-minutes"),
        ("budget-minutes = nan", "budget-minutes"),
        ("fail-on = [11]", "fail-on"),
        ("run = 3", "run"),
        ('runs = "3"', "runs"),
        ("runs = ", "TOML"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path, line, named):
    (tmp_path / "pyproject.toml").write_text(f"[tool.ai-prof]\n{line}\n")
    with pytest.raises(UsageError, match=named):
        load(tmp_path)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "pyproject.toml").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)
