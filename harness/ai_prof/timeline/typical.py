"""One iteration as it happened, small enough to keep and to draw: streams, gaps and the host as lanes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.bounds import Amount, Count
from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.gaps import calls_during, last_to_end, normalised_name
from ai_prof.timeline.syncs import host_syncs
from ai_prof.trace.model import CallKind, SyncKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.trace.model import I64, Trace

KINDS = ("stream", "gap", "calls", "waits")
LANES = 6  # streams with a lane of their own
STREAM_MARKS, GAP_MARKS, HOST_MARKS = 500, 250, 100  # two iterations of these are below 2,000
LONGEST = 20
_NAME = 160


class Lane(msgspec.Struct, frozen=True):
    """n marks of one kind; times are ns since the iteration's start, `name` positions in `Typical.names`.

    A mark stands for `count` operations that lie too close to be told apart, and bears the name of the
    longest; `ns` is the sum of their lengths, none where that was not stored. `kind` is stream, gap, calls or
    waits.
    """

    kind: str
    title: str
    start: list[Count]
    end: list[Count]
    name: list[Count]
    count: list[Count]
    ns: list[Count] = []

    def __post_init__(self) -> None:
        """Refuse, of a file, a lane that can't be drawn."""
        columns = (self.start, self.end, self.name, self.count, self.ns or self.start)
        if self.kind not in KINDS or len(set(map(len, columns))) > 1:
            raise ValueError("a lane of no kind, or of columns of different lengths")


class Wait(msgspec.Struct, frozen=True):
    """A gap between two operations (normalised names), its cause, and the host's longest calls meanwhile."""

    before: str
    after: str
    cause: str
    ns: Count
    calls_ms: dict[str, Amount]


class Typical(msgspec.Struct, frozen=True):
    """An iteration of `length` ns: the one whose length is nearest to the median of its kind."""

    length: Count
    names: list[str]
    lanes: list[Lane]
    waits: list[Wait]

    def __post_init__(self) -> None:
        """Refuse, of a file, lanes without marks, marks without a name and gaps without a cause."""
        for lane in self.lanes:
            if max(lane.name, default=len(self.names)) >= len(self.names):
                raise ValueError("a lane has no marks, or a mark no name")
            if lane.kind == "gap" and not {self.names[name] for name in lane.name} <= set(CAUSES):
                raise ValueError("a gap has no cause")


def typical(trace: Trace, timeline: DeviceTimeline, low: int, high: int) -> Typical:
    """What the device and its host did within [low, high)."""
    names: dict[str, int] = {}

    def number(name: str) -> int:
        return names.setdefault(cut_name(name), len(names))

    cut = _Cut(low, high, number)
    lanes = [*_streams(trace, timeline, cut), _gaps(timeline, cut), *_host(trace, timeline, cut)]
    waits = _waits(trace, timeline, low, high)
    return Typical(high - low, list(names), [lane for lane in lanes if lane.start], waits)


def cut_name(name: str) -> str:
    """A name as `Typical.names` holds it: of templates the first 160 characters."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


class _Cut:
    """Makes lanes of what lies within [low, high)."""

    def __init__(self, low: int, high: int, number: Callable[[str], int]) -> None:
        self.low, self.high, self.number = low, high, number

    def inside(self, start: I64, end: I64) -> I64:
        """Rows with some time inside."""
        return np.flatnonzero((end > self.low) & (start < self.high)).astype(np.int64)

    def lane(
        self, what: tuple[str, str], marks: tuple[I64, I64], name: Callable[[int], str], most: int
    ) -> Lane:
        """`what` is kind and title; of the marks' starts and ends, sorted by start; `name` names a row."""
        kind, title = what
        start, end = (np.clip(times, self.low, self.high) - self.low for times in marks)
        first = _groups(start, end, most, self.high - self.low)
        last = np.append(first[1:], len(start)) if len(start) else first
        groups = list(zip(first.tolist(), last.tolist(), strict=True))
        ends = [int(end[a:b].max()) for a, b in groups]
        rows = [self.number(name(a + int((end - start)[a:b].argmax()))) for a, b in groups]
        spent = np.concatenate(([0], np.cumsum(end - start)))
        ns = (spent[last] - spent[first]).tolist()
        return Lane(kind, title, start[first].tolist(), ends, rows, (last - first).tolist(), ns)


def _groups(start: I64, end: I64, most: int, length: int) -> I64:
    """The first row of each mark: every row where `most` allows, else short neighbours in one."""
    first = np.arange(len(start))
    closest = length / 2000
    while len(first) > most:
        short = end - start < closest
        joins = short[1:] & short[:-1] & (start[1:] - end[:-1] < closest)
        first = np.flatnonzero(np.concatenate(([True], ~joins)))
        closest *= 2
    return first


def _streams(trace: Trace, timeline: DeviceTimeline, cut: _Cut) -> list[Lane]:
    operations = timeline.operations
    rows = cut.inside(operations.start, operations.end)
    streams, counts = np.unique(operations.stream[rows], return_counts=True)
    busiest = streams[np.argsort(-counts, kind="stable")].tolist()
    shown, rest = sorted(busiest[:LANES]), busiest[LANES:]
    lanes = []
    for members in [*([stream] for stream in shown), *([rest] if rest else [])]:
        mine = rows[np.isin(operations.stream[rows], members)]
        title = f"stream {members[0]}" if members is not rest else f"{len(rest)} more"
        marks = (operations.start[mine], operations.end[mine])

        def name(row: int, mine: I64 = mine) -> str:
            return normalised_name(trace, operations, int(mine[row]))

        lanes.append(cut.lane(("stream", title), marks, name, STREAM_MARKS // (len(shown) + bool(rest))))
    return lanes


def _gaps(timeline: DeviceTimeline, cut: _Cut) -> Lane:
    gaps = timeline.busy.gaps
    rows = cut.inside(gaps.start, gaps.end)
    cause = timeline.causes.main()[rows]
    return cut.lane(
        ("gap", "gaps"), (gaps.start[rows], gaps.end[rows]), lambda row: CAUSES[int(cause[row])], GAP_MARKS
    )


def _host(trace: Trace, timeline: DeviceTimeline, cut: _Cut) -> list[Lane]:
    """The calls of the thread that launched most, and the waits of any."""
    calls, syncs, operations = trace.calls, trace.syncs, timeline.operations
    launched = cut.inside(operations.start, operations.end)
    threads = Counter(t for t in operations.thread[launched].tolist() if t >= 0)
    main = threads.most_common(1)[0][0] if threads else -1
    own = (calls.thread == main) & (calls.kind != CallKind.SYNC)
    rows = cut.inside(calls.start, calls.end)
    rows = rows[own[rows]]
    waits = host_syncs(trace, timeline.device, operations)
    waits = waits[cut.inside(syncs.start[waits], syncs.end[waits])]
    return [
        cut.lane(
            ("calls", "host calls"),
            (calls.start[rows], calls.end[rows]),
            lambda row: trace.names[calls.name[rows[row]]] if calls.name[rows[row]] >= 0 else "unknown call",
            HOST_MARKS,
        ),
        cut.lane(
            ("waits", "host waits"),
            (syncs.start[waits], syncs.end[waits]),
            lambda row: SyncKind(int(syncs.kind[waits[row]])).words,
            HOST_MARKS,
        ),
    ]


def _waits(trace: Trace, timeline: DeviceTimeline, low: int, high: int) -> list[Wait]:
    """The longest gaps that begin in [low, high), the longest first."""
    gaps, operations = timeline.busy.gaps, timeline.operations
    begin, stop = np.searchsorted(gaps.start, (low, high))
    rows = np.arange(begin, stop)
    rows = rows[np.argsort(gaps.start[rows] - gaps.end[rows], kind="stable")][:LONGEST]
    main = timeline.causes.main()
    found = []
    for row, before in zip(rows.tolist(), last_to_end(operations, gaps.start[rows]).tolist(), strict=True):
        after = int(timeline.causes.next_operation[row])
        start, end = int(gaps.start[row]), int(gaps.end[row])
        found.append(
            Wait(
                before=normalised_name(trace, operations, before),
                after=normalised_name(trace, operations, after),
                cause=CAUSES[main[row]],
                ns=end - start,
                calls_ms=calls_during(trace, int(operations.process[after]), start, end),
            )
        )
    return found
