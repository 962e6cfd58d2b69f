from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_prof.timeline import intervals as iv

SIZE = 64
raw = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)


def make(pairs):
    return iv.union(np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64))


def bitmap(pairs):
    bits = np.zeros(SIZE, bool)
    for a, b in pairs:
        bits[a:b] = True
    return bits


def bits_of(intervals):
    return bitmap(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))


def assert_canonical(intervals):
    assert (intervals.start < intervals.end).all()
    assert (intervals.end[:-1] <= intervals.start[1:]).all()


@given(raw)
@settings(deadline=None)
def test_union_is_the_bitmap(pairs):
    found = make(pairs)
    assert_canonical(found)
    assert (found.end[:-1] < found.start[1:]).all()
    assert (bits_of(found) == bitmap(pairs)).all()
    assert iv.length(found) == bitmap(pairs).sum()


@given(raw, raw)
@settings(deadline=None)
def test_algebra_is_the_bitmaps(a, b):
    x, y = make(a), make(b)
    for found, expected in (
        (iv.intersect(x, y), bitmap(a) & bitmap(b)),
        (iv.subtract(x, y), bitmap(a) & ~bitmap(b)),
        (iv.merge(x, y), bitmap(a) | bitmap(b)),
    ):
        assert_canonical(found)
        assert (bits_of(found) == expected).all()


@given(raw, st.integers(0, SIZE), st.integers(0, SIZE))
@settings(deadline=None)
def test_clip_and_complement_share_a_window(pairs, low, high):
    low, high = min(low, high), max(low, high)
    window = bitmap([(low, high)])
    inside, outside = iv.clip(make(pairs), low, high), iv.complement(make(pairs), low, high)
    assert (bits_of(inside) == (bitmap(pairs) & window)).all()
    assert (bits_of(outside) == (~bitmap(pairs) & window)).all()
    assert iv.length(inside) + iv.length(outside) == high - low


@given(raw, raw)
@settings(deadline=None)
def test_pieces_name_the_interval_they_are_of(a, b):
    x, y = make(a), make(b)
    pieces, of = iv.intersect_pieces(x, y)
    assert (pieces.start >= x.start[of]).all()
    assert (pieces.end <= x.end[of]).all()


def test_lengths_stay_exact_beyond_float_precision():
    start = np.array([2**62], np.int64)
    assert iv.length(iv.union(start, start + 1)) == 1
