"""The summary as a few lines for people: the cause first, then what to do, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ai_prof.report.format import plural, printable
from ai_prof.timeline import spoken
from ai_prof.timeline.advice import CAUSES, TITLES
from ai_prof.timeline.names import short

if TYPE_CHECKING:
    from ai_prof.timeline.finding import Finding
    from ai_prof.timeline.gaps import LongGap
    from ai_prof.timeline.summary import DeviceSummary, Summary

_FINDINGS = 3
_NAMED = 3  # causes, kernels
_NOTABLE = 0.001  # shares of the time below this are not worth a word


def render(summary: Summary, *, gaps: bool = False) -> str:
    """Ten lines or so for one device, six more for each further one; with `gaps` the longest ones of each."""
    acting = [f for f in summary.findings if f.saves_ms > 0 or f.severity != "info"]
    steps = _steps(summary, acting[:_FINDINGS])
    notes = [f"Mind that {TITLES[f.id]}. {f.actions[0]}" for f in summary.findings if f not in acting]
    complete = summary.source.complete
    lines = [line for device in summary.devices for line in _device(device, complete=complete)]
    listed = [line for device in summary.devices for line in _gap_table(device)] if gaps else []
    if len(acting) > _FINDINGS:
        notes.append(f"More in --json: {plural(len(acting) - _FINDINGS, 'smaller finding')}.")
    if summary.tag:
        notes.append(f"For a scheduler: {summary.tag}.")
    # A name may hold whatever a terminal obeys.
    return "\n".join(printable(" ".join(line.split("\n"))) for line in (*lines, *steps, *notes, *listed))


def _device(device: DeviceSummary, *, complete: bool) -> list[str]:
    """Of an incomplete capture, what is missing may have been lost."""
    rank = "" if device.rank is None else f" (rank {device.rank})"
    named, copies = _causes(device), _copies(device, complete=complete)
    idle = f"idle {device.gap:.1%} of the time" + (f": {named}" if named else "")
    healthy = f"{device.kernel_busy:.1%} (healthy above 85%), idle {device.gap:.1%} (healthy below 15%)"
    return [
        f"{_named(device)}{rank} is {idle}.",
        f"  At work {healthy}, copying alone {device.copy_only:.1%}.",
        f"  {_window(device)}",
        f"  {_kernels(device, complete=complete)}",
        *_top_kernels(device),
        f"  {copies}; {plural(device.streams, 'stream')}; {_waits(device, complete=complete)}.",
        *(f"  The longest gap: {_gap(gap)}." for gap in device.longest_gaps[:1]),
    ]


def _named(device: DeviceSummary) -> str:
    """Its number, and its name where the trace has one."""
    numbered = f"Device {device.device}"
    return numbered if device.name == numbered.lower() else f"{numbered} {device.name}"


def _causes(device: DeviceSummary) -> str:
    """The leading causes of gap, and what the others add up to; one other is named as well."""
    causes = sorted(device.gap_causes.items(), key=lambda item: -item[1])
    notable = [(CAUSES[cause], share) for cause, share in causes if share >= _NOTABLE]
    leading = notable if len(notable) == _NAMED + 1 else notable[:_NAMED]
    others = device.gap - sum(share for _, share in leading)
    if others >= _NOTABLE and leading:
        leading = [*leading, ("others", others)]
    return ", ".join(f"{name} {share:.1%}" for name, share in leading)


def _gap_table(device: DeviceSummary) -> list[str]:
    """Each of the longest gaps on a line."""
    title = f"Longest gaps of device {device.device}:"
    return [title, *(f"  {_gap(gap)}" for gap in device.longest_gaps)] if device.longest_gaps else []


def _gap(gap: LongGap) -> str:
    """How long, why, where, between what, and what the host called meanwhile."""
    text = f"{spoken.time(gap.length_ms)}, {CAUSES[gap.cause]}"
    if gap.iteration is not None and gap.place is not None:
        starting = gap.iteration + round(gap.place)  # a gap at an iteration's end delays the next
        begins = gap.placement == "start"
        text += f", {f'where iteration {starting} starts' if begins else f'in iteration {gap.iteration}'}"
        text += "" if begins else f" at {gap.place:.0%}"
    text += f", between {gap.before or 'the start'} and {gap.after}"
    calls = ", ".join(f"{name} {spoken.time(ms)}" for name, ms in gap.calls_ms.items())
    text += f"; calls: {calls}" if calls else ""
    return f"{text}; in {gap.frames[0].frames[-1]}" if gap.frames else text


def _window(device: DeviceSummary) -> str:
    found = device.iterations
    if device.window == "span":
        return f"Seen over {spoken.time(device.window_ns / 1e6)}, from the first operation to the last."
    sure = "" if found.confidence == 1 else f", found with confidence {found.confidence:.0%}"
    spread = f" (median; p5 {spoken.time(found.p5_ms)}, p95 {spoken.time(found.p95_ms)})"
    counted, left_out = _counted(device)
    spread = spread if _used(device) > 1 else ""
    return f"Seen over {counted} of {spoken.time(found.median_ms)}{spread}{sure}{left_out}."


def _counted(device: DeviceSummary) -> tuple[str, str]:
    """Of how many iterations the figures are, and which are not among them."""
    count, used = device.iterations.count, _used(device)
    warm_up = len(device.iterations.boundaries_ns) - 1 - used
    left = [f"{warm_up} of warm-up"] if warm_up else []
    left += ["the last, which nothing ends"] if used + warm_up < count else []
    if not left:
        return plural(count, "iteration"), ""
    return f"{used:,} of {plural(count, 'iteration')}", f", without {' and '.join(left)}"


def _kernels(device: DeviceSummary, *, complete: bool) -> str:
    if not device.kernel_count:
        return "No kernels ran." if complete else "No kernels could be read."
    spread = f"median {_us(device.kernel_p50_us)}, p95 {_us(device.kernel_p95_us)}"
    mean = f"of {_us(device.kernel_mean_us)} on average (healthy above 50 us; {spread})"
    return f"{plural(device.kernel_count, 'kernel')} {mean}, {device.tiny_kernel_share:.0%} under 20 us."


def _top_kernels(device: DeviceSummary) -> list[str]:
    """A line for those that take most time, unless there is but one."""
    if len(device.top_kernels) < 2:
        return []
    told = ", ".join(
        f"{short(kernel.name)} {kernel.share:.0%} ({kernel.count:,} of {_us(kernel.mean_us)})"
        for kernel in device.top_kernels[:_NAMED]
    )
    return [f"  Most of their time: {told}."]


def _copies(device: DeviceSummary, *, complete: bool) -> str:
    if device.copy_compute_overlap is None:
        return "No copies" if complete else "No copies could be read"
    healthy = " (healthy above 80%)" if device.copy_only >= 0.01 else ""
    return f"Copies hide behind kernels for {device.copy_compute_overlap:.0%} of their time{healthy}"


def _waits(device: DeviceSummary, *, complete: bool) -> str:
    count, whole = device.sync_count, device.window == "iterations"
    if not count:
        copies = device.gap_causes["sync"] >= _NOTABLE
        where = "could be read" if not complete else "in these iterations" if whole else "were recorded"
        return "the host waits in blocking copies" if copies else f"no synchronizes {where}"
    waits = "the host waits for the device"
    if not whole:
        return f"{waits} {_times(count)}"
    usual, used = device.structure["syncs"], _used(device)
    if usual and abs(count - usual * used) <= usual:  # one may lie on either side of the window's edges
        return f"{waits} {_times(usual)} an iteration"
    if 2 * count >= used:
        return f"{waits} {spoken.count(count / used, 3)} times an iteration on average"
    return f"{waits} {_times(count)} in all, about once in {used / count:.0f} iterations"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _steps(summary: Summary, findings: list[Finding]) -> list[str]:
    """One line each; a remedy that was named already gives way to the next."""
    iteration_ms = _iteration_ms(summary)
    lines: list[str] = []
    named: set[str] = set()
    for number, finding in enumerate(findings, 1):
        action = next((a for a in finding.actions if a not in named), finding.actions[0])
        named.add(action)
        title = _where(summary, finding) + _title(finding)
        lines.append(f"{number}. {title}{_saves(finding, iteration_ms)}. {action}")
    return lines


def _where(summary: Summary, finding: Finding) -> str:
    """Which of several ranks, or of several devices without ranks, a finding is about."""
    position = finding.evidence.get("device")
    if finding.id == "late-rank" or position is None:
        return ""
    ranks = [rank.rank for rank in summary.ranks if rank.device == position]
    if ranks:
        return f"Rank {ranks[0]}: "
    return f"Device {summary.devices[position].device}: " if len(summary.devices) > 1 else ""


def _title(finding: Finding) -> str:
    title = _capital(TITLES[finding.id])
    say = _SAID.get(finding.id)
    return say(title, finding.evidence) if say else title


def _hot_kernel(title: str, seen: dict[str, Any]) -> str:
    return f"{title} is {seen['kernel']}, {seen['share_of_kernel_time']:.0%} of the kernel time"


def _late_rank(_: str, seen: dict[str, Any]) -> str:
    last = f"last at {seen['last_share']:.0%} of the collectives"
    return f"Rank {seen['rank']} comes late to communication ({last}), and the others wait for it"


def _gap_data(title: str, seen: dict[str, Any]) -> str:
    return f"{title} at the start of iterations" if seen["placement"]["start"] > 0.5 else title


def _code_loads(_: str, seen: dict[str, Any]) -> str:
    times = f"{spoken.time(seen['with_ms'])} instead of {spoken.time(seen['without_ms'])}"
    return f"Code is loaded in {seen['share']:.0%} of iterations, which take {times}"


def _small_kernels(title: str, seen: dict[str, Any]) -> str:
    often = seen["most_often"]
    count = f"{spoken.count(often['per_iteration'])} of {spoken.count(seen['kernels_per_iteration'])}"
    each = " an iteration" if seen["iterations"] > 1 else ""  # of a single one nothing tells what is in it
    return f"{title}, most of all {often['kernel']} of {_us(often['mean_us'])} ({count}{each})"


_SAID = {
    "hot-kernel": _hot_kernel,
    "late-rank": _late_rank,
    "gap-data": _gap_data,
    "code-loads": _code_loads,
    "small-kernels": _small_kernels,
}


def _saves(finding: Finding, iteration_ms: float) -> str:
    if not finding.saves_ms:
        return "" if finding.severity == "info" else f" ({finding.severity})"
    worth = f"{'takes' if finding.id == 'hot-kernel' else 'worth up to'} {spoken.time(finding.saves_ms)}"
    if finding.saves_ms <= iteration_ms:  # kernels side by side sum up to more, and no share of it then
        worth += f" of the mean iteration's {spoken.time(iteration_ms)}"
    return f" ({worth})" if finding.severity == "info" else f" ({finding.severity}, {worth})"


def _iteration_ms(summary: Summary) -> float:
    """The longest mean iteration of a device, since savings are means; 0 without iterations."""
    return max((_mean_ms(d) for d in summary.devices if d.window == "iterations"), default=0.0)


def _mean_ms(device: DeviceSummary) -> float:
    """The window by the iterations in it."""
    return device.window_ns / _used(device) / 1e6


def _used(device: DeviceSummary) -> int:
    """Iterations in the window, which ends where the last one starts."""
    starts = device.iterations.boundaries_ns
    return sum(start >= starts[-1] - device.window_ns for start in starts) - 1


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _us(us: float) -> str:
    return spoken.time(us / 1000)
