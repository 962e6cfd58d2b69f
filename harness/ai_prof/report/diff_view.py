"""Two captures side by side in words: what text and HTML, which typesets it, both show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_prof.gate.metrics import METRICS
from ai_prof.report import format as fmt
from ai_prof.report import words
from ai_prof.timeline import spoken
from ai_prof.timeline.advice import CAUSES, TITLES
from ai_prof.timeline.diff_kind import saved_by_kernels, told_strangers

if TYPE_CHECKING:
    from ai_prof.timeline.diff import Count, Diff, Figure, FindingChange, Part, Side
    from ai_prof.timeline.diff_kernels import KernelChange, KernelUse
    from ai_prof.timeline.diff_syncs import SyncChange

FLOORS = {key: (metric.floor.relative, metric.floor.absolute) for key, metric in METRICS.items()}
NOISE = (
    "each median lies within the spread of the other's iterations, so this may be chance; `ai-prof gate` "
    "repeats runs until it can tell"
)
_GAINS = dict.fromkeys(("accelerated", "less-work", "faster"), "good")
_TONES = {**_GAINS, "slower": "bad", "idle-filled": "warn", "other-work": "warn"}
_PARTS = {"kernels": "kernels at work", "copies": "copies alone"}
_LEADING = 3
_ANY_HAS = "hot-kernel"  # what any device at work has is no news


@dataclass(frozen=True)
class Row:
    """One line of a table: what it is, A, B and the change, as text; `whole` is a name that was cut."""

    name: str
    before: str
    after: str
    change: str
    tone: str = "pass"
    whole: str = ""


def tone(diff: Diff) -> str:
    """Return the colour of the verdict: none for what may be chance."""
    return "quiet" if diff.within_spread else _TONES.get(diff.kind, "quiet")


def headline(diff: Diff) -> str:
    """Return the verdict in a few words."""
    verdict = {
        "accelerated": "Real acceleration",
        "less-work": "Faster by less work",
        "faster": "Faster with no less work",
        "idle-filled": "Idle time filled, nothing gained",
        "slower": "Slower",
        "unchanged": "No change worth naming",
        "other-work": "Not the same work",
        "unknown": "Faster or slower is not known",
    }[diff.kind]
    return f"Perhaps {fmt.lower_first(verdict)}" if may_be_chance(diff) else verdict


def may_be_chance(diff: Diff) -> bool:
    """Whether a change is claimed that the spread of the iterations may explain."""
    return diff.within_spread and diff.kind not in {"unchanged", "other-work", "unknown"}


def sentence(diff: Diff) -> str:
    """Say what stands behind the headline."""
    busy = _pair(diff, "kernel_busy")
    if diff.kind == "unknown":
        return (
            "iterations were not found in both captures, so only shares of the time from the first operation "
            f"to the last compare: {busy}"
        )
    told = f"{_pair(diff, 'iteration_ms')}; {busy}"
    if diff.kind == "unchanged":
        return told
    means = {
        "accelerated": ": less of the time is idle",
        "less-work": f": {_less_work(diff)}",
        "faster": f": {_no_less_work(diff)}",
        "other-work": f": {told_strangers(diff.kernels)}, and they copy other amounts of data",
        "idle-filled": ": more work in the same time, and no iteration ends sooner",
    }.get(diff.kind, "")
    return f"{told}{means}" + (f"; {_telling(diff.telling)}" if diff.telling else "")


def reason(diff: Diff) -> str:
    """Name the parts of an iteration that changed most; empty where nothing did."""
    if diff.unit != "iteration":
        return ""
    parts = sorted(diff.parts, key=lambda part: -abs(part.change_ms))[:_LEADING]
    floor = _part_floor(diff)
    telling = [part for part in parts if abs(part.change_ms) > floor]
    return ", ".join(f"{part_name(part.name)} {_signed_ms(part.change_ms)}" for part in telling)


def syncs(diff: Diff) -> str:
    """Say where the further synchronizes of an iteration are, or the fewer; empty where it has as many."""
    delta = next((count.after - count.before for count in diff.structure if count.name == "syncs"), 0)
    places = [_site(site) for site in diff.syncs if (site.after - site.before) * delta > 0]
    if not places:
        return ""
    left = len(places) - _LEADING
    others = f" and {fmt.plural(left, 'other place')}" if left > 0 else ""
    each = f"{abs(delta):,} {'more' if delta > 0 else 'fewer'} synchronize{'s' * (abs(delta) > 1)}"
    return f"Each iteration has {each}: {', '.join(places[:_LEADING])}{others}"


def part_name(name: str) -> str:
    """Return the name of a part of the time: work, or a cause of gap."""
    return _PARTS.get(name) or f"idle: {CAUSES[name]}"


def part_rows(diff: Diff) -> list[Row]:
    """Return where the time goes, per iteration in ms or else as shares, without what neither side has."""
    floor = _part_floor(diff)
    return [_part(part, diff.unit, floor) for part in diff.parts if part.before_ms or part.after_ms]


def figure_rows(diff: Diff) -> list[Row]:
    """Return the gate's figures, in its order."""
    figures = {figure.name: figure for figure in diff.figures}
    return [_figure(figures[key]) for key in METRICS if key in figures]


def count_rows(diff: Diff) -> list[Row]:
    """Return the counts per iteration that differ."""
    return [_count(count) for count in diff.structure if count.before != count.after]


def kernel_rows(diff: Diff) -> list[Row]:
    """Return the kernels that changed, the largest change of time first; none that only matters little."""
    floor = _part_floor(diff) if diff.unit == "iteration" else 0.0
    changed = [
        kernel
        for kernel in diff.kernels
        if set(kernel.changes) - {"slower", "faster"} or (kernel.changes and abs(kernel.change_ms) > floor)
    ]
    return [_kernel(kernel, diff.unit) for kernel in changed]


def finding_lines(diff: Diff) -> list[str]:
    """Say which findings came, went or changed; notes about the captures are none."""
    return [
        _finding(f)
        for f in diff.findings
        if {f.before, f.after} - {"info", None} or (f.saves_ms > 0 and f.id != _ANY_HAS)
    ]


def side(side: Side) -> str:
    """Describe one capture: its program, device and iterations."""
    if side.median_ms is None:
        spread = "no iterations found"
    else:
        low, high = _value(side.p5_ms, "ms"), _value(side.p95_ms, "ms")
        spread = f"{fmt.plural(side.iterations, 'iteration')} of {_value(side.median_ms, 'ms')} "
        spread += f"(median; p5 {low}, p95 {high})"
    return f"{side.command or ', '.join(side.files)} on {', '.join(side.devices)}: {spread}"


def _less_work(diff: Diff) -> str:
    if saved_by_kernels(diff.parts):
        return "most of the time saved was kernels at work, there is less to do"
    return "the device is no busier, there is less to do"


def _no_less_work(diff: Diff) -> str:
    """Say what else there is that makes an iteration shorter."""
    if any(kernel.before is None or kernel.after is None for kernel in diff.kernels):
        return "other kernels do it"
    if diff.telling:
        return "the same kernels do it"
    return "the same operations, as many as before: they or the machine were faster"


def _site(site: SyncChange) -> str:
    after = f" after {fmt.operation(site.follows, 60)}" if site.follows else ""
    return f"{site.call}{after} ({f'{abs(site.after - site.before):,.1f}'.removesuffix('.0')})"


def _telling(count: Count) -> str:
    name = fmt.lower_first(words.counted("threads launched" if count.name == "threads" else count.name))
    return f"{name} {fmt.count(count.before, count.name)} → {fmt.count(count.after, count.name)}"


def _pair(diff: Diff, name: str) -> str:
    figure = next(f for f in diff.figures if f.name == name)
    row = _figure(figure)
    return f"{METRICS[name].label} {row.before} → {row.after} ({row.change})"


def _figure(figure: Figure) -> Row:
    unit = METRICS[figure.name].unit
    change = figure.change if unit == fmt.RATIO else figure.relative
    return Row(
        words.metric(figure.name),
        _value(figure.before, unit),
        _value(figure.after, unit),
        fmt.change(change, unit),
        _figure_tone(figure),
    )


def _figure_tone(figure: Figure) -> str:
    relative, absolute = FLOORS[figure.name]
    change, worse = figure.change or 0.0, METRICS[figure.name].direction
    if abs(change) <= max(absolute, relative * abs(figure.before or 0.0)) or not worse:
        return "pass"
    return "bad" if change * worse > 0 else "good"


def _part_floor(diff: Diff) -> float:
    """Return the ms that a part must change by to matter to an iteration."""
    relative, absolute = FLOORS["iteration_ms"]
    return max(absolute, relative * sum(part.before_ms for part in diff.parts))


def _part(part: Part, unit: str, floor: float) -> Row:
    name = part_name(part.name)
    if unit == "iteration":
        worse = "pass" if abs(part.change_ms) <= floor else "bad" if part.change_ms > 0 else "good"
        return Row(name, _ms(part.before_ms), _ms(part.after_ms), _signed_ms(part.change_ms), worse)
    before, after = part.before_share, part.after_share
    change = fmt.change(after - before, fmt.RATIO)
    return Row(name, fmt.value(before, fmt.RATIO), fmt.value(after, fmt.RATIO), change)


def _count(count: Count) -> Row:
    name = words.counted(count.name) + ("" if count.constant else ", mostly")
    before, after = fmt.count(count.before, count.name), fmt.count(count.after, count.name)
    return Row(name, before, after, fmt.count_change(count.before, count.after, count.name))


def _kernel(kernel: KernelChange, unit: str) -> Row:
    change = _signed_ms(kernel.change_ms) if unit == "iteration" else ""
    marks = {"added": "warn", "slower": "bad", "faster": "good", "removed": "quiet"}
    colour = next((marks[c] for c in kernel.changes if c in marks), "pass")
    name = f"{', '.join(kernel.changes)}: {fmt.operation(kernel.name, 110)}"
    return Row(name, _use(kernel.before), _use(kernel.after), change, colour, kernel.name)


def _use(use: KernelUse | None) -> str:
    if use is None:
        return fmt.NOTHING
    return f"{spoken.count(use.count)} x {_value(use.mean_us, 'us')}"


def _finding(finding: FindingChange) -> str:
    title = TITLES[finding.id]
    who = " and ".join(finding.lacking)
    unknown = f", since {who} lack{'' if finding.lacking[1:] else 's'} records" if who else ""
    if finding.before is None:
        told = f"{title} ({finding.after})"
        return f"in B alone: {told}; whether it is new is not known{unknown}" if unknown else f"new: {told}"
    if finding.after is None:
        told = f"{title} ({finding.before})"
        return f"in A alone: {told}; whether it is gone is not known{unknown}" if unknown else f"gone: {told}"
    doubt = f"; perhaps no change{unknown}" if unknown else ""
    return f"{title}: {finding.before} → {finding.after}{doubt}"


def _signed_ms(ms: float) -> str:
    return ("-" if round(ms, 3) < 0 else "+") + _ms(abs(ms))


def _ms(ms: float) -> str:
    """Return a time to the microsecond, of a column whose times are all in ms: they add up."""
    return f"{ms:,.3f} ms"


def _value(x: float | None, unit: str) -> str:
    """Return a value as `fmt` writes it; a time in us below 1 ms and else in ms, as the summary does."""
    if x is None or unit not in {"ms", "us"}:
        return fmt.value(x, unit)
    ms = x if unit == "ms" else x / 1000
    return f"{fmt.number(ms * 1000)} us" if 0 < ms < 1 else f"{fmt.number(ms)} ms"
