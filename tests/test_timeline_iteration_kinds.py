from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ai_prof.timeline.iteration_kinds import kinds


def lengths(*groups):
    return np.concatenate([np.linspace(0.98 * ns, 1.02 * ns, count) for ns, count in groups]).astype(np.int64)


def test_a_speed_that_changes_once_is_told_with_where_it_does():
    found = kinds(lengths((30_000_000, 24), (25_000_000, 14)))
    assert (found.count, found.long, found.turn, found.long_first) == (38, 24, 24, True)
    assert (round(found.long_ns, -3), round(found.short_ns, -3)) == (30_000_000, 25_000_000)


def test_every_tenth_is_another_kind():
    some = lengths((3_000_000, 100))
    some[9::10] = 6_000_000
    found = kinds(some)
    assert (found.long, found.long_ns, found.turn, found.long_first) == (10, 6_000_000, None, False)


@given(st.integers(2, 200), st.integers(0, 2**32))
def test_one_kind_with_noise_and_few_outliers_is_one(count, seed):
    rng = np.random.default_rng(seed)
    some = (1e7 * (1 + 0.01 * rng.standard_normal(count))).astype(np.int64)
    some[: min(2, count)] *= 5
    assert kinds(some) is None


def test_too_few_are_of_no_kind():
    assert kinds(np.zeros(0, np.int64)) is None
    assert kinds(np.array([1, 1, 5, 5])) is None
