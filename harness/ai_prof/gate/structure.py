"""Compare what an iteration is made of, exactly: counts per iteration and its kernels, no p-value.

A count that was one number over all of the baseline's runs and is one number over all of the candidate's,
and another one, differs for real: one more synchronize is found from one run.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import msgspec

from ai_prof.gate import acceptance
from ai_prof.gate.metrics import COUNTS, Metric, Rules
from ai_prof.gate.model import Acceptance, Reason, Run, StructureChange
from ai_prof.gate.values import constant_count

if TYPE_CHECKING:
    from collections.abc import Sequence

DECISIVE_RUNS = 9
DECISIVE_SESSIONS = 3
MORE_ITERATIONS = 1.25  # times as many, in runs as much longer
UNEVEN = 1.25  # times as long as before is the mean iteration, of its own run's median one

_SINGULAR = {
    "kernels": "kernel",
    "copies": "copy",
    "copy_bytes": "byte copied",
    "syncs": "synchronize",
    "graph_launches": "graph launch",
}


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """What the totals say of the same runs, which may excuse a count that grew.

    `faster`: kernel time and latency both improved, by more than their floors over the whole of their
    intervals. `latency`: latency improved, and by a test.
    """

    faster: bool = False
    latency: bool = False


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """What the comparison found: `compared` counts of the table were constant on both sides.

    `warned` says what is no pass, though nothing that is tested got worse: which counts vary in the candidate
    though its `workload.toml` promises them constant, that a run has more iterations, and that some of them
    take much longer.
    """

    changes: list[StructureChange]
    compared: int
    notes: list[str] = []
    warned: list[str] = []

    @property
    def worse(self) -> list[StructureChange]:
        """The changes that fail a build."""
        return [change for change in self.changes if change.reason is Reason.REGRESSED]


def decisive(baseline: Sequence[Run]) -> bool:
    """Whether a baseline is broad enough for a difference to decide alone.

    Kernels are chosen by autotuning in each process, so a few runs of one session may agree by chance.
    """
    sessions = {run.session for run in baseline}
    return len(baseline) >= DECISIVE_RUNS and len(sessions) >= DECISIVE_SESSIONS


def compare(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    rules: Rules,
    speed: Speed,
    accepted: Sequence[Acceptance] = (),
) -> Structure:
    """Every count and kernel that is constant on both sides and differs."""
    wanted = {each.metric: each for each in accepted}
    changes: list[StructureChange] = []
    notes: list[str] = []
    compared = 0
    for metric in COUNTS:
        old, new = constant_count(baseline, metric), constant_count(candidate, metric)
        if old is None or new is None:
            notes += _not_exact(metric, baseline, candidate)
            continue
        compared += 1
        policy = rules.policy_of(metric.key)
        if old != new and policy != "ignore":
            change = _change(metric, old, new, policy == "warn", speed)
            changes.append(_as_accepted(change, wanted.get(metric.key)))
    if out_of_graphs(changes):
        changes = [_not_won(change) if change.name == "graph_launches" else change for change in changes]
    if rules.policy_of("kernels") != "ignore":
        changes += _kernels(baseline, candidate)
    warned = [*_broken_promises(candidate, rules), *_more_iterations(baseline, candidate)]
    if rules.policy_of("iteration_ms") != "ignore":
        warned += _uneven_iterations(baseline, candidate)
    return Structure(changes=changes, compared=compared, notes=notes, warned=warned)


def _more_iterations(baseline: Sequence[Run], candidate: Sequence[Run]) -> list[str]:
    """Say where runs got longer by iterations: a step done twice is two iterations as good as the one before.

    Of a run that goes on for a given time, a faster host makes more iterations, and no longer run.
    """
    old, new = ([run.iterations for run in side] for side in (baseline, candidate))
    if not old or not new:
        return []
    took = [_seconds(side) for side in (baseline, candidate)]
    more = min(new) >= MORE_ITERATIONS * max(old)
    if not more or not took[0] or took[1] < MORE_ITERATIONS * took[0]:
        return []
    had, has = (f"{statistics.median(side):,.0f}" for side in (old, new))
    longer = f"a run has {has} iterations and takes {took[1] / took[0]:.1f} times as long"
    return [
        f"{longer}, the baseline's has {had}: each is as before, and what is done twice would look like this"
    ]


def _uneven_iterations(baseline: Sequence[Run], candidate: Sequence[Run]) -> list[str]:
    """Say where fewer than half of the iterations got so much longer that the mean one did: no median tells.

    By each run's own median, since a host that is slower as a whole slows both alike.
    """
    old, new = ([share for run in side if (share := _unevenness(run))] for side in (baseline, candidate))
    if not old or not new or min(new) < UNEVEN * max(old):
        return []
    had, has = (f"{statistics.median(side):.2g}" for side in (old, new))
    longer = f"a run's mean one is {has} times as long as its median one, the baseline's {had}"
    return [f"some iterations take much longer: {longer}; medians don't show it"]


def _unevenness(run: Run) -> float:
    """How many times as long as the median iteration the mean one is; 0 where that is not known."""
    middle = statistics.median(run.iteration_ms) if run.iteration_ms else 0.0
    return statistics.fmean(run.iteration_ms) / middle if middle else 0.0


def _seconds(runs: Sequence[Run]) -> float:
    """How long all iterations of a run take; 0 where no run says."""
    took = [run.iterations * (run.metrics.get("iteration_ms") or 0.0) / 1e3 for run in runs]
    return statistics.median(took)


def _broken_promises(candidate: Sequence[Run], rules: Rules) -> list[str]:
    """Say which counts can't be compared, though they should. No refusal: no number could be accepted."""
    return [
        f"{metric.label} per iteration vary, though workload.toml promises them constant: "
        f"make them so again, or take `{metric.key}` out of its `structure`"
        for metric in COUNTS
        if metric.key in rules.promised
        and rules.policy_of(metric.key) != "ignore"
        and constant_count(candidate, metric) is None
    ]


def _not_exact(metric: Metric, baseline: Sequence[Run], candidate: Sequence[Run]) -> list[str]:
    """Say that a count varies and is left to the totals; nothing where a side never had it."""
    sides = []
    for side, runs in (("baseline", baseline), ("candidate", candidate)):
        seen = [run for run in runs if metric.key in run.structure]
        if not seen:
            return []
        if constant_count(seen, metric) is None:
            sides.append(side)
    where = " and ".join(sides) or "one run without it"
    return [f"{metric.label} per iteration vary ({where}): left to the statistics of the totals"]


def _change(metric: Metric, old: int, new: int, warns: bool, speed: Speed) -> StructureChange:  # noqa: FBT001
    size = abs(new - old)
    noun = _SINGULAR[metric.key] if size == 1 else metric.label
    why = f"{size:,} {'more' if new > old else 'fewer'} {noun} per iteration ({old:,} -> {new:,})"
    if new < old:
        reason = Reason.IMPROVED
    elif speed.faster:
        reason, why = Reason.STRUCTURE_CHANGED, f"{why}; kernel time and latency both improved"
    elif metric.key == "graph_launches" and old == 0 and speed.latency:
        # Work moved into graphs: kernels take as long as before, and their launches are what was saved.
        reason, why = Reason.STRUCTURE_CHANGED, f"{why}; latency improved"
    elif warns:
        reason, why = Reason.STRUCTURE_CHANGED, f"{why}; the policy only warns"
    else:
        reason = Reason.REGRESSED
    return StructureChange(name=metric.key, baseline=old, candidate=new, reason=reason, why=why)


def out_of_graphs(changes: Sequence[StructureChange]) -> bool:
    """Whether no graph is launched any more, for no fewer kernels: they are launched one by one.

    Fewer graphs than before may be larger ones.
    """
    no_graphs = any(each.name == "graph_launches" and not each.candidate for each in changes)
    fewer_kernels = any(each.name == "kernels" and each.candidate < each.baseline for each in changes)
    return no_graphs and not fewer_kernels


def _not_won(change: StructureChange) -> StructureChange:
    """Say of graph launches that are gone that this is no gain."""
    why = f"{change.why}: its kernels are launched one by one"
    return msgspec.structs.replace(change, reason=Reason.STRUCTURE_CHANGED, why=why)


def _as_accepted(change: StructureChange, accepted: Acceptance | None) -> StructureChange:
    """A count that grew no further than a person accepted is no regression."""
    if accepted is None or change.reason is not Reason.REGRESSED:
        return change
    if change.candidate <= accepted.new:
        why = f"{change.why}: {acceptance.note(accepted)}"
        return msgspec.structs.replace(change, reason=Reason.ACCEPTED, why=why)
    return msgspec.structs.replace(change, why=f"{change.why}, {acceptance.beyond(accepted)}")


def _kernels(baseline: Sequence[Run], candidate: Sequence[Run]) -> list[StructureChange]:
    """Name the kernels that were added, removed or changed in number; `kernels` itself judges them."""
    old, new = _multiset(baseline), _multiset(candidate)
    if old is None or new is None:
        return []
    changes = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, 0), new.get(name, 0)
        if before != after:
            verb = "added" if before == 0 else "removed" if after == 0 else "changed in number"
            changes.append(
                StructureChange(
                    name=f"kernel:{name}",
                    baseline=before,
                    candidate=after,
                    reason=Reason.STRUCTURE_CHANGED,
                    why=f"kernel {name} {verb} ({before} -> {after} per iteration)",
                )
            )
    return changes


def _multiset(runs: Sequence[Run]) -> dict[str, int] | None:
    """The kernels of one iteration, where every run has the same."""
    first = runs[0].kernels if runs else None
    return first if first is not None and all(run.kernels == first for run in runs) else None
