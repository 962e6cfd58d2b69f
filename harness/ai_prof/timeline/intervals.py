"""Sets of half-open intervals [start, end) of int64 ns, and their algebra, vectorised."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ai_prof.trace.model import I64


class Intervals(NamedTuple):
    """Sorted, disjoint, non-empty and not touching: (n,) starts and (n,) ends."""

    start: I64
    end: I64


EMPTY = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: I64, end: I64, hole: int = 0) -> Intervals:
    """The union of any intervals, holes of up to `hole` ns filled; empty ones (end <= start) add nothing."""
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if not len(start):
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.concatenate(([True], start[1:] > (reach[:-1] + hole if hole else reach[:-1])))
    return Intervals(start[opens], reach[np.concatenate((opens[1:], [True]))])


def length(intervals: Intervals) -> int:
    """Total length, ns."""
    return int((intervals.end - intervals.start).sum())


def lengths(pieces: Intervals, of: I64, count: int) -> I64:
    """The total length, ns, of the pieces of each of `count` intervals, as `intersect_pieces` gives them."""
    total = np.zeros(count, np.int64)
    np.add.at(total, of, pieces.end - pieces.start)
    return total


def clip(intervals: Intervals, low: int, high: int) -> Intervals:
    """What lies within [low, high)."""
    start, end = np.maximum(intervals.start, low), np.minimum(intervals.end, high)
    real = end > start
    return Intervals(start[real], end[real])


def complement(intervals: Intervals, low: int, high: int) -> Intervals:
    """What of [low, high) is not covered."""
    inside = clip(intervals, low, high)
    start = np.concatenate(([low], inside.end)).astype(np.int64)
    end = np.concatenate((inside.start, [high])).astype(np.int64)
    real = end > start
    return Intervals(start[real], end[real])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """What both cover."""
    piece, _ = intersect_pieces(a, b)
    return piece


def intersect_pieces(a: Intervals, b: Intervals) -> tuple[Intervals, I64]:
    """What both cover, and for each piece its position in `a`.

    `a` needs only be sorted and disjoint: its intervals may touch.
    """
    first = np.searchsorted(b.end, a.start, side="right")
    counts = np.maximum(np.searchsorted(b.start, a.end, side="left") - first, 0)
    of_a = np.repeat(np.arange(len(a.start)), counts)
    of_b = np.arange(len(of_a)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    pieces = Intervals(np.maximum(a.start[of_a], b.start[of_b]), np.minimum(a.end[of_a], b.end[of_b]))
    return pieces, of_a


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """What `a` covers and `b` does not."""
    if not len(a.start):
        return EMPTY
    return intersect(a, complement(b, int(a.start[0]), int(a.end[-1])))


def merge(a: Intervals, b: Intervals, hole: int = 0) -> Intervals:
    """What either covers, and holes of up to `hole` ns."""
    return union(np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end)), hole)
