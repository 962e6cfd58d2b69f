"""What made an iteration longer, in sentences: by cause of gap, by count, by kernel and by place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import Reason
from ai_prof.report import format as fmt
from ai_prof.report import gaps, why_view, words

if TYPE_CHECKING:
    from ai_prof.gate.model import GapChange, WorkloadVerdict
    from ai_prof.timeline.diff_kernels import KernelChange

TELLING = 0.2  # a part, kernel or gap is named from this share of the change on
_EXPLAINED = frozenset({Reason.REGRESSED, Reason.INCONCLUSIVE})
_WAITS = {
    "launch": "while the host issues calls",
    "sync": "while the host is blocked in a synchronize or a blocking copy",
    "data": "while the host prepares input",
    "host": "while the host is busy outside the GPU API",
    "wait": "for another stream or an event",
    "device": "between operations that are queued",
    "unknown": "for a reason that was not recorded",
}
_NOUNS = {
    "kernels": ("kernel", "kernels"),
    "copies": ("copy", "copies"),
    "syncs": ("synchronize", "synchronizes"),
    "graph_launches": ("graph launch", "graph launches"),
}


def sentences(workload: WorkloadVerdict) -> list[str]:
    """Say what an iteration does more, then what it spends its longer time on, then where; [] for a pass."""
    if workload.reason not in _EXPLAINED:
        return []
    told = [_counts(workload), _time(workload), *_places(workload)]
    return [sentence for sentence in told if sentence]


def _time(workload: WorkloadVerdict) -> str:
    pair = gaps.compared(gaps.splits(workload))
    if pair is None:
        return ""
    before, after = pair
    longer = after.iteration_ms - before.iteration_ms
    floor = METRICS["iteration_ms"].floor
    if abs(longer) < max(floor.absolute, floor.relative * before.iteration_ms):
        return "An iteration takes as long as before."
    parts = {
        key: after.parts.get(key, 0.0) - before.parts.get(key, 0.0) for key in (gaps.WORK, *words.CAUSES)
    }
    least = TELLING * max(abs(longer), *map(abs, parts.values()))
    telling = sorted((key for key in parts if abs(parts[key]) >= least > 0), key=lambda key: -abs(parts[key]))
    if not telling:
        return ""
    said = " and ".join(_part(key, parts[key]) for key in telling[:3])
    verb = "longer" if longer > 0 else "shorter"
    return f"An iteration takes {_ms(abs(longer))} {verb}: {said}."


def _part(key: str, ms: float) -> str:
    more = "longer" if ms > 0 else "shorter"
    if key == gaps.WORK:
        return f"the GPU works {_ms(abs(ms))} {more}"
    return f"the GPU waits {_ms(abs(ms))} {more} {_WAITS[key]}"


def _counts(workload: WorkloadVerdict) -> str:
    """What an iteration does more or less often, with the kernel that does."""
    told, kernels = [], []
    for change in workload.structure:
        delta = change.candidate - change.baseline
        if change.name.startswith(words.KERNEL):
            kernels.append((abs(delta), change))
        elif change.name == "copy_bytes":
            more = "more" if delta > 0 else "less"
            told.append(f"{fmt.count(abs(delta), 'copy_bytes')} {more} copied")
        else:
            noun = _NOUNS[change.name][abs(delta) != 1]
            told.append(f"{abs(delta):,} {'more' if delta > 0 else 'fewer'} {noun}")
    if not told:
        return ""
    sentence = f"Each iteration has {', '.join(told)}"
    if kernels:
        _, most = max(kernels, key=lambda kernel: kernel[0])
        name = fmt.shorten(words.counted(most.name), 60)
        sentence += f"; {name} runs {most.candidate:,} times instead of {most.baseline:,}"
    return f"{sentence}."


def _places(workload: WorkloadVerdict) -> list[str]:
    why = workload.explained
    if why is None:
        return []
    us = [abs(gap.change_us) for gap in why.gaps] + [1e3 * abs(kernel.change_ms) for kernel in why.kernels]
    least = TELLING * max(us, default=0.0)
    found = [(-abs(gap.change_us), gap_sentence(gap)) for gap in why.gaps if gap.change_us >= least]
    found += [
        (-1e3 * abs(kernel.change_ms), kernel_sentence(kernel))
        for kernel in why.kernels
        if 1e3 * kernel.change_ms >= least
    ]
    return [sentence for _, sentence in sorted(found)[:2]]


def gap_sentence(gap: GapChange) -> str:
    """Name a gap that changed by its neighbours."""
    count = gap.count[1] or gap.count[0]
    what = "The gap" if count == 1 else f"The {count:,} gaps"
    between = f"between {fmt.shorten(gap.before, 48)} and {fmt.shorten(gap.after, 48)}"
    verb = "grew" if gap.change_us > 0 else "shrank"
    return f"{what} {between} {verb} from {why_view.time(gap.us[0])} to {why_view.time(gap.us[1])}."


def kernel_sentence(kernel: KernelChange) -> str:
    """Name a kernel that changed."""
    name, after = fmt.shorten(kernel.name, 60), kernel.after
    if kernel.before is None and after is not None:
        return f"{name} is new: {fmt.plural(round(after.count), 'execution')}, {_ms(after.ms)}."
    if kernel.before is None or after is None:
        return f"{name} is gone."
    return f"{name} takes {_ms(after.ms)} instead of {_ms(kernel.before.ms)} an iteration."


def _ms(ms: float) -> str:
    return why_view.time(1e3 * ms)
