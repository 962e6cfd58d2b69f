"""What changed between two captures of one workload, and whether it is a gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from ai_prof.errors import NothingToCompareError
from ai_prof.timeline.capture_findings import OF_CAPTURE
from ai_prof.timeline.causes import CAUSES
from ai_prof.timeline.device import device_timeline
from ai_prof.timeline.diff_kernels import KernelChange, compare_kernels
from ai_prof.timeline.diff_kind import Kind, are_strangers, kind_of, telling, told_strangers
from ai_prof.timeline.diff_syncs import SyncChange, compare_syncs
from ai_prof.timeline.evidence import RunEvidence, evidence_of, working_timelines
from ai_prof.timeline.findings import find
from ai_prof.timeline.operations import busy_devices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.timeline.device import DeviceTimeline
    from ai_prof.timeline.finding import Finding
    from ai_prof.trace.model import Trace

SCHEMA = "ai-prof/diff/1"
PARTS = ("kernels", "copies", *CAUSES)
_FEW = 5  # iterations: fewer say little
_WOBBLE = 0.01  # a count that is not the same in every iteration differs by more between the two


class Side(msgspec.Struct, frozen=True):
    """One of the two captures. Times are ms; `iterations` is 0 where none were found."""

    files: list[str]
    command: str
    devices: list[str]
    iterations: int
    median_ms: float | None
    p5_ms: float | None
    p95_ms: float | None


class Figure(msgspec.Struct, frozen=True):
    """`change` is after - before, `relative` is change / before; None where there is no value."""

    name: str
    before: float | None
    after: float | None
    change: float | None
    relative: float | None


class Part(msgspec.Struct, frozen=True):
    """What the device's time goes to: shares of the window, and ms per `Diff.unit`; means over devices.

    `kernels`, `copies` (alone) and the causes of gap add up to the whole.
    """

    name: str
    before_share: float
    after_share: float
    before_ms: float
    after_ms: float
    change_ms: float


class Count(msgspec.Struct, frozen=True):
    """A count per iteration: the most frequent one, `constant` if every iteration of both has its own.

    `threads`, which all kernels of an iteration together are launched with, is a mean.
    """

    name: str
    before: int
    after: int
    constant: bool


class FindingChange(msgspec.Struct, frozen=True):
    """A finding's severity before and after; None where it was not found.

    `lacking` names the captures, A or B, without some of the records that tell of it: that only the other
    one has the finding is then no change. `saves_ms` is the most that acting on it returns, of B or else A.
    """

    id: str
    before: str | None
    after: str | None
    lacking: list[str] = []
    saves_ms: float = 0.0


class Diff(msgspec.Struct, frozen=True):
    """What `ai-prof diff --json` prints. `unit` is what times and counts are per.

    `kind`: accelerated (busy up, iteration time down, and most of the time saved was not kernels at work),
    less-work (iteration time down in another way, and a count of WORK too), faster (so, for no less work),
    idle-filled (busy up alone, nothing gained), slower, unchanged, other-work (hardly a kernel in common, and
    other amounts of data copied), or unknown without iterations in both. `telling` is the count that changed
    most, of less work the one that fell most, of slower the one that rose most; None where none did.
    `syncs` is where an iteration synchronizes more or less often, if both were captured at one level.
    """

    schema: str
    a: Side
    b: Side
    kind: Kind
    within_spread: bool
    unit: Literal["iteration", "window"]
    figures: list[Figure]
    parts: list[Part]
    kernels: list[KernelChange]
    structure: list[Count]
    findings: list[FindingChange]
    cautions: list[str]
    telling: Count | None = None
    syncs: list[SyncChange] = []


def diff(a: Trace, b: Trace, floors: Mapping[str, tuple[float, float]]) -> Diff:
    """Compare two captures.

    `floors` maps names of figures to a relative and an absolute size that a change must exceed to matter.

    Raises:
        NothingToCompareError: one of them holds no GPU work.

    """
    timelines = _timelines(a, b)
    runs = evidence_of(a, timelines[0]), evidence_of(b, timelines[1])
    figures = [_figure(name, runs[0].metrics[name], runs[1].metrics[name]) for name in runs[0].metrics]
    sides = _side(a, timelines[0], runs[0]), _side(b, timelines[1], runs[1])
    by_iteration = timelines[0][0].window == "iterations"
    seen = (a, timelines[0]), (b, timelines[1])
    kernels = compare_kernels(*seen, by_iteration=by_iteration)
    structure = _structure(*timelines, runs) if by_iteration else []
    changed = [count for count in [*structure, *_threads(kernels)] if _changed(count)] if by_iteration else []
    parts = _parts(*timelines, by_iteration=by_iteration)
    by_name = {figure.name: figure for figure in figures}
    kind = kind_of(by_name, parts, changed, floors, strangers=are_strangers(kernels))
    return Diff(
        SCHEMA,
        *sides,
        kind=kind,
        within_spread=_within_spread(*sides),
        unit="iteration" if by_iteration else "window",
        figures=figures,
        parts=parts,
        kernels=kernels,
        structure=structure,
        findings=_findings(find(*seen[0]), find(*seen[1]), _lacking(a, b)),
        cautions=[*_strangers(kind, kernels), *_cautions((a, b), sides, runs)],
        telling=telling(kind, parts, changed),
        syncs=compare_syncs(*seen) if by_iteration and _header(a, "level") == _header(b, "level") else [],
    )


def _timelines(a: Trace, b: Trace) -> tuple[list[DeviceTimeline], list[DeviceTimeline]]:
    """Over iterations where both have some, else both from first start to last end."""
    found = working_timelines(a), working_timelines(b)
    for label, trace, timelines in zip("AB", (a, b), found, strict=True):
        if not timelines:
            files = ", ".join(trace.source.shown_files)
            raise NothingToCompareError(f"{label} ({files}) holds no GPU work: capture a run that does some")
    if all(timelines[0].window == "iterations" for timelines in found):
        return found
    return _spans(a), _spans(b)


def _spans(trace: Trace) -> list[DeviceTimeline]:
    return [device_timeline(trace, device, "span") for device in busy_devices(trace)]


def _side(trace: Trace, timelines: Sequence[DeviceTimeline], run: RunEvidence) -> Side:
    spread = np.percentile(run.iteration_ms, (50, 5, 95)).tolist() if run.iteration_ms else [None] * 3
    commands = [" ".join(process.command_line) for process in trace.processes if process.command_line]
    return Side(
        trace.source.shown_files,
        commands[0] if commands else "",
        [trace.devices[timeline.device].name for timeline in timelines],
        run.iterations,
        *spread,
    )


def _figure(name: str, before: float | None, after: float | None) -> Figure:
    if before is None or after is None:
        return Figure(name, before, after, None, None)
    change = after - before
    return Figure(name, before, after, change, change / before if before else None)


def _within_spread(a: Side, b: Side) -> bool:
    """Whether each side's median lies where the other's iterations commonly do."""
    if a.median_ms is None or b.median_ms is None:
        return False
    return _between(a.median_ms, b.p5_ms, b.p95_ms) and _between(b.median_ms, a.p5_ms, a.p95_ms)


def _between(value: float, low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low <= value <= high


def _parts(a: Sequence[DeviceTimeline], b: Sequence[DeviceTimeline], *, by_iteration: bool) -> list[Part]:
    shares_a, ms_a = _split(a, by_iteration=by_iteration)
    shares_b, ms_b = _split(b, by_iteration=by_iteration)
    return [
        Part(name, shares_a[i], shares_b[i], ms_a[i], ms_b[i], ms_b[i] - ms_a[i])
        for i, name in enumerate(PARTS)
    ]


def _split(timelines: Sequence[DeviceTimeline], *, by_iteration: bool) -> tuple[list[float], list[float]]:
    """Shares of the window and ms of each of PARTS, means over devices."""
    shares, times = [], []
    for timeline in timelines:
        busy = timeline.busy
        ns = np.array([busy.kernel, busy.copy_only, *timeline.causes.total().values()], float)
        shares.append(ns / busy.window)
        times.append(ns / (timeline.iterations_in_window if by_iteration else 1) / 1e6)
    return np.mean(shares, axis=0).tolist(), np.mean(times, axis=0).tolist()


def _structure(
    a: Sequence[DeviceTimeline], b: Sequence[DeviceTimeline], runs: tuple[RunEvidence, RunEvidence]
) -> list[Count]:
    before, after = _typical(a), _typical(b)
    return [
        Count(name, before[name], after[name], all(run.structure[name] is not None for run in runs))
        for name in before
    ]


def _typical(timelines: Sequence[DeviceTimeline]) -> dict[str, int]:
    each = [timeline.structure.typical() for timeline in timelines]
    return {name: sum(counts[name] for counts in each) for name in each[0]}


def _threads(kernels: Sequence[KernelChange]) -> list[Count]:
    """How large the launches of an iteration are together; nothing where a trace does not say."""
    sides = [[kernel.before for kernel in kernels], [kernel.after for kernel in kernels]]
    used = [[use for use in side if use] for side in sides]
    if not all(use.threads for side in used for use in side):
        return []
    before, after = (round(sum(use.count * use.threads for use in side)) for side in used)
    return [Count("threads", before, after, constant=False)]


def _changed(count: Count) -> bool:
    return abs(count.after - count.before) > (0 if count.constant else _WOBBLE * count.before)


def _lacking(a: Trace, b: Trace) -> list[str]:
    """Which of the two lack records: cut, lost, or of host calls that the other one has."""
    levels = [_header(trace, "level") for trace in (a, b)]
    return [
        label
        for label, trace, level in zip("AB", (a, b), levels, strict=True)
        if not trace.source.complete
        or any(loss.lost for loss in trace.source.losses.values())
        or (level == "kernel" and levels[0] != levels[1])
    ]


def _findings(before: list[Finding], after: list[Finding], lacking: list[str]) -> list[FindingChange]:
    """Findings that came, went or changed in severity; those of B first, in its ranking."""
    old, new = ({finding.id: finding for finding in found} for found in (before, after))
    changes = []
    for name in dict.fromkeys((*new, *old)):
        was, now = old.get(name), new.get(name)
        severities = [each.severity if each else None for each in (was, now)]
        if severities[0] != severities[1]:
            saves = next(each.saves_ms for each in (now, was) if each)
            without = [] if name in OF_CAPTURE else lacking
            changes.append(FindingChange(name, severities[0], severities[1], without, saves))
    return changes


def _strangers(kind: Kind, kernels: list[KernelChange]) -> list[str]:
    """Doubt that both are of one program, where the verdict does not."""
    if kind == "other-work" or not are_strangers(kernels):
        return []
    return [f"{told_strangers(kernels)}: these may be captures of different programs"]


def _cautions(
    traces: tuple[Trace, Trace], sides: tuple[Side, Side], runs: tuple[RunEvidence, RunEvidence]
) -> list[str]:
    """What makes the two hard to compare."""
    cautions = []
    if sorted(sides[0].devices) != sorted(sides[1].devices):
        cautions.append(f"A ran on {', '.join(sides[0].devices)}, B on {', '.join(sides[1].devices)}")
    for key, what in (("level", "causes of gaps"), ("graphs", "counts of kernels")):
        values = [_header(trace, key) for trace in traces]
        if values[0] != values[1]:
            cautions.append(
                f"A was captured with {key} {values[0]}, B with {values[1]}: {what} differ by that"
            )
    for label, side, run in zip("AB", sides, runs, strict=True):
        cautions += [f"{label}: {problem}" for problem in run.problems]
        if side.median_ms is not None and side.iterations < _FEW:
            cautions.append(f"{label} has no more than {side.iterations} iterations")
    return cautions


def _header(trace: Trace, key: str) -> str:
    values = {str(process.header[key]) for process in trace.processes if key in process.header}
    return ", ".join(sorted(values)) or "unknown"
