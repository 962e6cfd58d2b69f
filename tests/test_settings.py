from __future__ import annotations

import os
from pathlib import Path

import pytest

from ai_prof.cli.settings import Settings, load
from ai_prof.errors import UsageError
from ai_prof.gate.metrics import METRICS, Floor, Rules


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
        ("run = 3", "unknown field `run`; there are: workloads, baselines, .*, budget-minutes"),
        ("floors.latency = {relative = 0.1}", "unknown metrics latency; there are: iteration_ms, "),
        ('policy.latency = "warn"', "unknown metrics latency; there are: iteration_ms, "),
        ("floors.iteration_ms = {rel = 1}", r"`\$.floors.iteration_ms`; there are: relative, absolute"),
        ("floors.iteration_ms = {relative = -1}", "floors of iteration_ms must be 0 or more"),
        ("floors.gap_ms = {absolute = inf}", "floors of gap_ms must be 0 or more"),
        ("floors.gap_ms = {relative = 1e308}", "what shall never fail has the policy warn"),
        ("floors.syncs = {absolute = 1}", "syncs takes no floor"),
        ('policy.syncs = "shout"', r"`\$.policy.syncs`: it takes fail or warn or ignore"),
        ('runs = "3"', "runs"),
        ("runs = ", "TOML"),
        (f"runs = {'[' * 20_000}", "TOML"),
        (r'report = "a\u0000"', r"`\$.report`"),
        (r'build = "make\u0000"', r"`\$.build`"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path, line, named):
    (tmp_path / "pyproject.toml").write_text(f"[tool.ai-prof]\n{line}\n")
    with pytest.raises(UsageError, match=named):
        load(tmp_path)


def test_the_projects_floors_hold_where_a_workload_has_none(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        "[tool.ai-prof]\nfloors.iteration_ms = {relative = 0.1}\nfloors.gap_ms = {absolute = 0.5}\n"
        'policy.syncs = "warn"\n'
    )
    settings = load(tmp_path)
    project = Rules(floors=settings.floors, policy=settings.policy)
    own = Rules(floors={"gap_ms": Floor(absolute=0.1)}, promised=("kernels",)).over(project)
    assert own.floor(METRICS["iteration_ms"]) == Floor(relative=0.1)
    assert own.floor(METRICS["gap_ms"]) == Floor(absolute=0.1)
    assert (own.policy_of("syncs"), own.policy_of("kernels"), own.promised) == ("warn", "fail", ("kernels",))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_file_that_cannot_be_read_is_told(tmp_path, make):
    make(tmp_path / "pyproject.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)
