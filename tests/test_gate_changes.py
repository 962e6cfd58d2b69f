"""Change points of a history: where a level changes, and none where none does."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ai_prof.gate.changes import LEAST, change_points

SERIES = Path(__file__).resolve().parents[2] / "shared" / "series"


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("runs1", [1365019665]),
        ("runs5", []),
        ("tp5rss", [1372846906, 1373413365, 1373424974]),
    ],
)
def test_series_of_a_real_build_farm(name, times):
    path = SERIES / f"treeherder_{name}.json"
    if not path.exists():
        pytest.skip(f"the series recorded by others are not here: {path}")
    runs = sorted((run[2], run[3]) for run in json.loads(path.read_text())["test_runs"])
    found = change_points([value for _, value in runs])
    assert [runs[i][0] for i in found] == times


@pytest.mark.parametrize("size", [3.0, -3.0, 10.0])
def test_a_step_is_found_where_it_is(size):
    hits = 0
    for seed in range(40):
        values = np.random.default_rng(seed).normal(100, 1, 60)
        values[40:] += size
        found = change_points(values)
        hits += len(found) == 1 and abs(found[0] - 40) <= 1
    assert hits >= 36


def test_a_change_does_not_hide_the_next():
    values = np.random.default_rng(0).normal(100, 1, 90)
    values[30:] += 6
    values[60:] += 40
    assert change_points(values) == [30, 60]


def test_no_change_is_found_in_noise_of_any_kind():
    """Heavy tails, and two modes: the share of series with a change stays below alpha's bound."""
    alarms, draws = 0, 200
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        noise = rng.standard_t(3, 40) if seed % 2 else np.where(rng.random(40) < 0.5, 1.0, 1.7)
        alarms += bool(change_points(np.exp(0.01 * noise), alpha=0.05))
    assert stats.binomtest(alarms, draws, 0.05, alternative="greater").pvalue > 0.001


def test_nothing_and_constants_have_none():
    assert change_points([]) == []
    assert change_points([1.0] * 30) == []
    assert change_points([1.0] * 20 + [2.0] * 20) == [20]


def test_the_same_series_gives_the_same_answer():
    values = np.random.default_rng(5).normal(0, 1, 80)
    values[50:] += 2.5
    assert change_points(values) == change_points(values)


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        change_points([1.0, float("nan")])


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.floats(-1e6, 1e6), max_size=60),
    st.floats(0.001, 1000),
)
def test_neither_the_unit_nor_the_length_matters(values, factor):
    found = change_points(values)
    edges = [0, *found, len(values)]
    assert all(high - low >= LEAST for low, high in itertools.pairwise(edges) if found)
    series = np.round(np.array(values), 3)
    assert change_points(series) == change_points(series * 2.0 ** round(np.log2(factor)))
