"""Bring the profiles of several runs to common positions."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ai_prof.timeline.profile import ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.gate.values import F64, I64
    from ai_prof.timeline.profile import Profile

LEAST_SHARE = 0.5  # with less than this in common, two iterations are not the same work


@dataclass(frozen=True, slots=True)
class Aligned:
    """R runs at the P positions that all share.

    `position` (P,) counts in the `reference`, whose names and threads hold; `values` is (5, R, P), row by
    row as in ROWS.
    """

    reference: Profile
    position: I64
    values: F64

    def row(self, name: str) -> F64:
        """One of ROWS, (R, P)."""
        return self.values[ROWS.index(name)]  # type: ignore[no-any-return]

    def only(self, chosen: npt.NDArray[np.bool_]) -> Aligned:
        """The same with some positions alone, given as (P,) flags."""
        return Aligned(self.reference, self.position[chosen], self.values[:, :, chosen])


def align(reference: Profile, profiles: Sequence[Profile]) -> Aligned | None:
    """The profiles at the positions of `reference` that all of them have; None where these are too few.

    Where a run's sequence differs, a position counts as shared only if the one before it is shared too:
    the time before it is measured from there.
    """
    shared = np.ones(len(reference.names), bool)
    rows = {}
    for profile in profiles:
        if profile.names not in rows:
            rows[profile.names] = _matched(reference.names, profile.names)
        shared &= rows[profile.names] >= 0
    if shared.sum() < LEAST_SHARE * len(shared):
        return None
    values = np.stack([profile.values[:, rows[profile.names][shared]] for profile in profiles], axis=1)
    return Aligned(reference, np.flatnonzero(shared).astype(np.int64), values.astype(np.float64))


def _matched(reference: tuple[str, ...], other: tuple[str, ...]) -> I64:
    """For each position of the reference the same work's position in `other`, -1 where it has none.

    Either may begin elsewhere in the cycle: an iteration begins after its longest pause, and a delay may move
    that. Where `other` begins as it does is tried first.
    """
    turned = _turned(reference, other)
    if turned is not None:
        return turned
    longest = SequenceMatcher(None, reference, other + other, autojunk=False).find_longest_match()
    ways = [_pieces(reference, other, shift) for shift in (0, (longest.b - longest.a) % len(other))]
    return max(ways, key=lambda found: int((found >= 0).sum()))


def _pieces(reference: tuple[str, ...], other: tuple[str, ...], shift: int) -> I64:
    """The same by the longest pieces in common, `other` begun `shift` positions later; without their first.

    The time before that one is measured from other work.
    """
    begun = other[shift:] + other[:shift]
    found = np.full(len(reference), -1, np.int64)
    for block in SequenceMatcher(None, reference, begun, autojunk=False).get_matching_blocks():
        whole = block.a == block.b == 0 and reference[-1] == begun[-1]
        at = np.arange(0 if whole else 1, block.size)
        found[block.a + at] = (block.b + at + shift) % len(other)
    return found


def _turned(reference: tuple[str, ...], other: tuple[str, ...]) -> I64 | None:
    """The same where both are one cycle, begun at any of its positions; None where they are not.

    An iteration begins after its longest pause, and a delay may move that.
    """
    if len(reference) != len(other):
        return None
    for shift in (i for i, name in enumerate(other) if name == reference[0]):
        if other[shift:] + other[:shift] == reference:
            return (np.arange(len(reference)) + shift) % len(reference)
    return None
