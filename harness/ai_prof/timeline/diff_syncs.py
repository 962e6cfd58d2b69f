"""Where the hosts of two captures wait for their devices: in which call, and after which operation."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from ai_prof.timeline.sync_sites import sync_sites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.trace.model import Trace

_LEAST = 0.5  # an iteration


class SyncChange(msgspec.Struct, frozen=True):
    """How often an iteration waits in one call; `follows` is the normalised name of what it waits after."""

    call: str
    follows: str
    before: float
    after: float


def compare_syncs(
    a: tuple[Trace, Sequence[DeviceTimeline]], b: tuple[Trace, Sequence[DeviceTimeline]]
) -> list[SyncChange]:
    """The places that an iteration waits in more or less often, the largest change first; means."""
    before, after = (_counts(*side) for side in (a, b))
    found = [SyncChange(*site, before.get(site, 0.0), after.get(site, 0.0)) for site in {**before, **after}]
    changed = [each for each in found if abs(each.after - each.before) >= _LEAST]
    return sorted(changed, key=lambda each: (-abs(each.after - each.before), each.call, each.follows))


def _counts(trace: Trace, timelines: Sequence[DeviceTimeline]) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], float] = defaultdict(float)
    for timeline in timelines:
        for site in sync_sites(trace, timeline):
            counts[site.call, site.after] += site.count
    return counts
