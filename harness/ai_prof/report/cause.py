"""What made an iteration longer, in sentences: by count, by cause of gap, and what regressions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.gate import acceptance
from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import Reason
from ai_prof.gate.structure import out_of_graphs
from ai_prof.report import format as fmt
from ai_prof.report import gaps, places, why_view, words
from ai_prof.report.words import MOSTLY, NEARLY_ALL, WAITS
from ai_prof.timeline import names
from ai_prof.timeline.causes import CAUSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.gate.model import Cell, StructureChange, Why, WorkloadVerdict

HOST_TOLD = 1.1  # a host this much slower or faster is worth a word
TELLING = 0.2  # a part is named from this share of the larger one on
APART = 0.1  # the median iteration is told beside the mean one where it grew otherwise
PAUSES = ("data", "host")  # causes of gaps in which the host does something else
KERNELS = frozenset({"kernel_time_ms", "kernel_mean_us", "kernel_profile"})
SITES = 3  # places of synchronizes that are named
_EXPLAINED = frozenset({Reason.REGRESSED, Reason.INCONCLUSIVE})
_NOUNS = {
    "kernels": ("kernel", "kernels"),
    "copies": ("copy", "copies"),
    "syncs": ("synchronize", "synchronizes"),
    "graph_launches": ("graph launch", "graph launches"),
}


def sentences(workload: WorkloadVerdict) -> list[str]:
    """Say what made an iteration longer, what its longer time goes to, then where; [] for a pass.

    First comes what an iteration does more, where that can be why, then the overlap that it costs: a
    synchronize keeps copies and kernels apart, and a pause of the host leaves them nothing to run beside. Of
    an iteration that takes no longer the place matters more, and where only a place failed, or only kernels,
    that does.
    """
    if workload.reason is Reason.STRUCTURE_CHANGED:
        return [said for said in [_counts(workload)] if said]
    if workload.reason not in _EXPLAINED:
        return []
    counts = _counts(workload)
    longer = _grown(workload)
    known = places.sentences(workload.explained, waits=not longer)
    changed = [said for said in known if said.split(":")[0] not in counts]
    time, overlap = [_time(workload)], [_overlap(workload)]
    where = time + changed if longer else changed + time
    rest = where + overlap if _paused(workload) else overlap + where
    alone = [_only_place(workload), _only_kernels(workload)]
    told = [counts, *alone, *rest] if _by_count(workload) else [*alone, *rest, counts]
    return [sentence for sentence in (*told, *_accepted(workload)) if sentence]


def _accepted(workload: WorkloadVerdict) -> list[str]:
    """Say of what went on from an accepted level where that is; of a total, base is shown moved there."""
    worse = {(cell.metric, cell.place): cell for cell in workload.cells if cell.reason in _EXPLAINED}
    grown = {change.name for change in workload.structure if change.reason in _EXPLAINED}
    told = []
    for each in workload.accepted:
        name, cell = words.metric(each.metric), worse.get((each.metric, each.place))
        if each.metric in grown:
            told.append(f"{name} go {acceptance.beyond(each)}.")
        if cell is not None and METRICS[each.metric].role == "total":
            level = f"base, moved as far, is taken as {fmt.value(cell.baseline, cell.unit)}"
            told.append(f"{name} goes {acceptance.beyond(each)}: {level}.")
    return told


def shared(workloads: Sequence[WorkloadVerdict]) -> str:
    """Say what several workloads that regressed have in common; empty where they differ, or for one alone."""
    kinds = {_kind(workload) for workload in workloads}
    return (
        f"All of them: {kinds.pop()}." if len(workloads) > 1 and len(kinds) == 1 and "" not in kinds else ""
    )


def _kind(workload: WorkloadVerdict) -> str:
    """Name what made a workload slower in a few words; empty where that is not known."""
    if out_of_graphs(workload.structure):
        return "no graph launches any more"
    if _by_count(workload):
        grown = {
            change.name: change.candidate / max(change.baseline, 1)
            for change in workload.structure
            if change.candidate > change.baseline and change.name in _NOUNS
        }
        return f"more {_NOUNS[max(grown, key=lambda name: grown[name])][1]} an iteration" if grown else ""
    pair = gaps.compared(workload)
    if pair is None:
        return ""
    grown = _growth(*pair)
    most = max(grown, key=lambda key: grown[key])
    if grown[most] < _least(pair[0]):
        return ""
    if most != gaps.WORK:
        return f"the device waits longer {WAITS[most]}"
    return "copies no longer run beside kernels" if _overlap(workload) else "the device works longer"


def _by_count(workload: WorkloadVerdict) -> bool:
    """Whether a count grew by half of the iteration's share or more: one that grew less cannot be why.

    A further synchronize can cost any time, and so can kernels that were launched as a graph.
    """
    pair = gaps.compared(workload)
    grown = (pair[1].iteration_ms / pair[0].iteration_ms - 1) / 2 if pair else 0.0
    return out_of_graphs(workload.structure) or any(
        change.name == "syncs" or change.candidate >= change.baseline * (1 + grown)
        for change in workload.structure
        if change.candidate > change.baseline and not change.name.startswith(words.KERNEL)
    )


def host_speed(workload: WorkloadVerdict) -> str:
    """Say how fast the host was where it was not as fast as over the baseline; empty else."""
    factor = workload.host_factor
    if factor is None or max(factor, 1 / factor) < HOST_TOLD:
        return ""
    how = f"{factor:.2g} times slower" if factor > 1 else f"{1 / factor:.2g} times faster"
    return (
        f"The processor ran this program's own code {how} than when the baseline was recorded. Rows about "
        "one place of the iteration are corrected for that; its latency and the other totals are not."
    )


def _overlap(workload: WorkloadVerdict) -> str:
    """Say that copies run less beside kernels, where the gate says that they do."""
    for cell in workload.cells:
        if cell.metric == "copy_compute_overlap" and cell.reason in _EXPLAINED:
            before, after = fmt.value(cell.baseline, cell.unit), fmt.value(cell.candidate, cell.unit)
            return f"Copies run beside kernels for {after} of their time instead of {before}."
    return ""


def _only_place(workload: WorkloadVerdict) -> str:
    """Name the place that failed, the one that grew most, where nothing else of the workload did."""
    worse = [cell for cell in workload.cells if cell.reason in _EXPLAINED]
    if not worse or not all(cell.place for cell in worse):
        return ""
    most = max(worse, key=lambda cell: (cell.candidate or 0.0) - (cell.baseline or 0.0))
    before, after = (why_view.time(value or 0.0) for value in (most.baseline, most.candidate))
    return f"{words.place(most.place)} grew from {before} to {after} an iteration{_felt(workload, most)}."


def _only_kernels(workload: WorkloadVerdict) -> str:
    """Tell the time in kernels where that alone failed: how long an iteration takes may be chance."""
    worse = {cell.metric: cell for cell in workload.cells if cell.reason in _EXPLAINED}
    cell = worse.get("kernel_time_ms")
    if cell is None or not worse.keys() <= KERNELS:
        return ""
    before, after = (fmt.value(value, cell.unit) for value in (cell.baseline, cell.candidate))
    return f"Kernels take {after} instead of {before} an iteration."


def _felt(workload: WorkloadVerdict, place: Cell) -> str:
    """Say that the device waits for a place of the host, and what the host does there where that is known."""
    if place.metric != "host_profile":
        return ""
    meanwhile, between = "", place.place.rpartition(" (")[0]
    for gap in workload.explained.gaps if workload.explained else ():
        if between == f"host time between {names.short(gap.before)} and {names.short(gap.after)}":
            meanwhile = places.meanwhile(gap)
    return f", and the device waits for it{meanwhile}"


def _paused(workload: WorkloadVerdict) -> bool:
    """Whether most of the longer time is a wait for a host that does something else."""
    pair = gaps.compared(workload)
    if pair is None:
        return False
    longer = pair[1].iteration_ms - pair[0].iteration_ms
    grown = _growth(*pair)
    pause = sum(grown[each] for each in PAUSES)
    return pause >= max(MOSTLY * longer, _least(pair[0]))


def _grown(workload: WorkloadVerdict) -> bool:
    """Whether an iteration takes longer: the median one, or the mean one by what matters."""
    if any(cell.metric == "iteration_ms" and cell.reason in _EXPLAINED for cell in workload.cells):
        return True
    pair = gaps.compared(workload)
    return pair is not None and pair[1].iteration_ms - pair[0].iteration_ms >= _least(pair[0])


def _time(workload: WorkloadVerdict) -> str:
    pair = gaps.compared(workload)
    if pair is None:
        return ""
    before, after = pair
    longer = after.iteration_ms - before.iteration_ms
    parts = _growth(before, after)
    work, waits = parts.pop(gaps.WORK), sum(parts.values())
    # A synchronize that was there before empties the queue before whatever else takes longer, and a pause of
    # the host that all the time goes to is worth more words than the synchronize that lets it be felt.
    more = any(change.name == "syncs" and change.candidate > change.baseline for change in workload.structure)
    paused = max(parts["host"], parts["data"]) >= NEARLY_ALL * waits
    drained = parts["sync"] + after.sync_shadow_ms - before.sync_shadow_ms if more and not paused else 0.0
    told = [(abs(waits), _waits(parts, drained)), (abs(work), _works(workload, work))]
    least = _least(before)
    latency = workload.cell("iteration_ms")
    if longer < least:
        return f"{_no_longer(latency)}{_part_that_grew({**parts, gaps.WORK: work}, least)}."
    ranked = sorted(told, reverse=True)
    parts_told = [text for size, text in ranked if size >= TELLING * ranked[0][0]]
    said = (", and " if "," in parts_told[0] else " and ").join(parts_told)
    return f"{_longer(latency, longer)} the device {said}."


def _growth(before: gaps.Split, after: gaps.Split) -> dict[str, float]:
    """Return the ms by which each part of the mean iteration grew."""
    return {key: after.parts.get(key, 0.0) - before.parts.get(key, 0.0) for key in (gaps.WORK, *CAUSES)}


def _longer(latency: Cell | None, longer: float) -> str:
    """Say how much longer an iteration takes in the mean, which has parts that add up: medians over runs.

    What the table calls latency is the median one, of confirmed rows a mean over all runs: on a noisy host it
    may differ, even in its direction, or not be shown to have changed. What may be chance is no sum of what
    follows, which may be sure.
    """
    shown = latency is not None and latency.reason in {Reason.REGRESSED, Reason.ACCEPTED}
    typical = (latency.candidate or 0.0) - (latency.baseline or 0.0) if latency else longer
    end = ":" if shown else ", which may be chance;"
    if abs(typical - longer) <= APART * longer if shown else typical >= 0:
        return f"{'An' if shown else 'The mean'} iteration takes {_ms(longer)} longer{end}"
    if shown and typical > 0:
        took = f"An iteration takes {_ms(typical)} longer"
        return f"{took}, the mean one of the runs in the middle {_ms(longer)}{end}"
    return (
        f"The mean iteration of the runs in the middle takes {_ms(longer)} longer, "
        f"the median one of all runs {_ms(abs(typical))} {_more(typical)}{end}"
    )


def _least(before: gaps.Split) -> float:
    """Return the ms by which an iteration must grow to matter."""
    floor = METRICS["iteration_ms"].floor
    return max(floor.absolute, floor.relative * before.iteration_ms)


def _no_longer(latency: Cell | None) -> str:
    """Say that the mean iteration is no longer, beside the median one where that is called worse."""
    if latency is None or latency.reason not in _EXPLAINED or latency.baseline is None:
        return "An iteration takes no longer"
    before, after = (fmt.value(value, latency.unit) for value in (latency.baseline, latency.candidate))
    return f"The median iteration takes {after} instead of {before}, the mean one no longer"


def _part_that_grew(parts: Mapping[str, float], least: float) -> str:
    """Name what the device spends more time on; a wait that only has another cause now is none that grew."""
    waits = sum(parts.values()) - parts[gaps.WORK]
    most = max(parts, key=lambda part: parts[part]) if waits >= least else gaps.WORK
    if parts[most] < least:
        return ""
    grown = f"{_ms(parts[most])} longer"
    return f", but the device {f'works {grown}' if most == gaps.WORK else f'waits {grown} {WAITS[most]}'}"


def _works(workload: WorkloadVerdict, work: float) -> str:
    """Say how much longer the device works, and whether at copies that now have a time of their own."""
    said = f"works {_ms(abs(work))} {_more(work)}"
    before, after = workload.explained.kernel_ms if workload.explained else (0.0, 0.0)
    apart = _overlap(workload) and after - before < (1 - MOSTLY) * work
    return f"{said}, at copies that ran beside kernels before" if apart else said


def _waits(parts: Mapping[str, float], drained: float) -> str:
    """Say how much longer the device waits, and what for: one cause in words, several as a list.

    `drained` of it is for further synchronizes and, whatever the host does then, in their shadow.
    """
    total = sum(parts.values())
    most = sorted(parts, key=lambda cause: -parts[cause] * total)
    said = f"waits {_ms(abs(total))} {_more(total)}"
    if total > 0 and drained >= MOSTLY * total:
        part = "" if drained >= NEARLY_ALL * total else f"{_ms(drained)} of it "
        return f"{said}, {part}because synchronizes emptied its queue"
    share = parts[most[0]] / total if total else 0.0
    if share >= NEARLY_ALL:
        return f"waits {_ms(abs(parts[most[0]]))} {_more(total)} {WAITS[most[0]]}"
    if share >= MOSTLY:
        return f"{said}, mostly {WAITS[most[0]]}"
    named = [f"{cause} {_ms(abs(parts[cause]))}" for cause in most[:3] if parts[cause] * total > 0]
    return f"{said} ({', '.join(named)})"


def _more(x: float) -> str:
    return "longer" if x > 0 else "less"


def _counts(workload: WorkloadVerdict) -> str:
    """What an iteration does more or less often: where it synchronizes, and the kernel that changed most."""
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
            where = _sites(workload.explained, delta) if change.name == "syncs" else ""
            if change.name == "graph_launches" and out_of_graphs(workload.structure):
                where = ": its kernels are launched one by one"
            told.append(f"{abs(delta):,} {'more' if delta > 0 else 'fewer'} {noun}{where}")
    if not told:
        return ""
    sentence = f"Each iteration has {', '.join(told)}"
    if kernels:
        _, most = max(kernels, key=lambda kernel: kernel[0])
        sentence += f"; {_often(most, workload.explained)}"
        if len(kernels) > 1:
            sentence += f", and {fmt.plural(len(kernels) - 1, 'other kernel')} changed in number"
    return f"{sentence}."


def _sites(why: Why | None, delta: int) -> str:
    """Where the further synchronizes are: the call, and the operation that it waits for."""
    named, left = [], abs(delta)
    for site in why.syncs if why else ():
        change = round(site.count[1] - site.count[0])
        if change * delta <= 0 or left <= 0:  # one that has moved is no further one
            continue
        after = f" after {fmt.operation(site.after, 60)}" if site.after else ""
        named.append(f"{site.call}{after} ({min(abs(change), left):,})")
        left -= abs(change)
    if not named:
        return ""
    if len(named) > SITES:
        return f": {', '.join(named[:SITES])} and {fmt.plural(len(named) - SITES, 'other place')}"
    if left > 0:  # each run has them after another operation
        named.append(f"elsewhere ({left:,})")
    return f": {', '.join(named)}"


def _often(change: StructureChange, why: Why | None) -> str:
    """How often a kernel runs now, and how long each time: work that is cut up is no more of it."""
    kernel = words.counted(change.name)
    often = fmt.plural(change.candidate, "time")
    said = f"{fmt.operation(kernel, 60)} runs {often} instead of {change.baseline:,}"
    for known in why.kernels if why else ():
        if known.name == kernel and known.before and known.after:
            means = (why_view.time(use.mean_us) for use in (known.after, known.before))
            return f"{said}, {' each instead of '.join(means)}"
    return said


def _ms(ms: float) -> str:
    return why_view.time(1e3 * ms)
