"""Why a workload got slower: which kernels and which gaps of an iteration differ between two sides' runs."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import GapChange, Reason, SyncChange, Why, WorkloadVerdict
from ai_prof.gate.profile_align import align
from ai_prof.gate.values import run_profiles
from ai_prof.timeline.diff_kernels import KernelChange, KernelUse, changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_prof.timeline.profile import Profile
    from ai_prof.timeline.spent import GapUse, Spent
    from ai_prof.timeline.sync_sites import SyncUse
    from ai_prof.timeline.typical import Typical, Wait

KERNELS, GAPS, SYNCS = 40, 20, 20
LEAST_PLACES = 20  # submissions an iteration whose median is the host's speed
LEAST_GAP_US = 5.0  # what hardware takes between two kernels anyway
LEAST_SYNCS = 0.5  # an iteration


def explained(verdict: WorkloadVerdict, profiles: Mapping[str, Profile]) -> WorkloadVerdict:
    """The verdict with its host's speed, and why it regressed or may have, from its runs' profiles by digest.

    The fresh runs of base and head are compared where there are any; else all of the candidate's with the
    baseline's.
    """
    if not verdict.structure:  # what the host does more of is no matter of its speed
        factor = host_factor(
            run_profiles(verdict.baseline_runs, profiles), run_profiles(verdict.candidate_runs, profiles)
        )
        verdict = msgspec.structs.replace(verdict, host_factor=factor)
    if verdict.reason not in {Reason.REGRESSED, Reason.INCONCLUSIVE}:
        return verdict
    if verdict.confirm_base:
        sides, old, new = ("fresh base", "fresh head"), verdict.confirm_base, verdict.confirm_head
    else:
        sides, old = ("baseline", "candidate"), verdict.baseline_runs
        new = [*verdict.candidate_runs, *verdict.confirm_head]
    why = explain(run_profiles(old, profiles), run_profiles(new, profiles), sides)
    return msgspec.structs.replace(verdict, explained=why)


def host_factor(old: Sequence[Profile], new: Sequence[Profile]) -> float | None:
    """How much longer the host takes for the work that both sides share, 1.4 for 1.4 times.

    A median over positions, so that a delay at a few places does not count: the profile takes this factor
    out. None where there are too few of them to tell the two apart.
    """
    runs = align(old[-1], (*old, *new)) if old and new else None
    if runs is None:
        return None
    x = (runs.row("host_p10") + runs.row("host_p25")) / 2
    known = np.isfinite(x).all(axis=0)
    if known.sum() < LEAST_PLACES:
        return None
    longer = np.median(x[len(old) :, known], axis=0) - np.median(x[: len(old), known], axis=0)
    return float(np.exp(np.median(longer)))


def explain(old: Sequence[Profile], new: Sequence[Profile], sides: tuple[str, str]) -> Why | None:
    """Compare what both sides' runs spend a mean iteration on; None where a side has no profiles.

    Works where the two sides do different work, since kernels are matched by name, and gaps by the names of
    the operations on both sides of them. `sides` says whose runs these are.
    """
    if not old or not new:
        return None
    after = _typical(new)
    why = Why(sides=sides, before=_typical(old), after=after)
    mine, theirs = ([profile.spent for profile in side if profile.spent] for side in (old, new))
    if mine and theirs:
        why.kernels, why.kernel_ms = _kernels(mine, theirs)
        why.gaps = _gaps(mine, theirs, after)
        why.syncs = _syncs(mine, theirs)
    return why


def _typical(profiles: Sequence[Profile]) -> Typical | None:
    """The iteration to draw of the run in the middle, of those that kept one."""
    kept = sorted((p.typical for p in profiles if p.typical is not None), key=lambda each: each.length)
    return kept[len(kept) // 2] if kept else None


def _kernels(old: Sequence[Spent], new: Sequence[Spent]) -> tuple[list[KernelChange], tuple[float, float]]:
    """The kernels that changed, the largest change of time first, and the time of all of either side, ms."""
    found, total = [], [0.0, 0.0]
    for name in dict.fromkeys(name for run in (*old, *new) for name in run.kernels):
        uses = [[run.kernels.get(name) for run in side] for side in (old, new)]
        before, after = map(_use, uses)
        ms = [use.ms if use else 0.0 for use in (before, after)]
        total = [sum(pair) for pair in zip(total, ms, strict=True)]
        floor = METRICS["kernel_mean_us"].floor
        named = changes(before, after, by_iteration=True, floor=(floor.relative, floor.absolute))
        if not _apart(*uses):
            named = [change for change in named if change not in {"slower", "faster"}]
        if named:
            found.append(KernelChange(name, named, before, after, ms[1] - ms[0]))
    found.sort(key=lambda kernel: (-abs(kernel.change_ms), kernel.name))
    return found[:KERNELS], (total[0], total[1])


def _use(runs: Sequence[KernelUse | None]) -> KernelUse | None:
    """Medians over runs, of which some may lack the kernel; None where most do."""
    count, ms = (median(getattr(use, name) if use else 0.0 for use in runs) for name in ("count", "ms"))
    if not count:
        return None
    known = [use for use in runs if use]
    return KernelUse(count, 1e3 * ms / count, ms, median(use.threads for use in known), known[-1].example)


def _apart(old: Sequence[KernelUse | None], new: Sequence[KernelUse | None]) -> bool:
    """Whether the middle halves of both sides' runs lie apart: a kernel's mean differs beyond its spread."""
    low, high = sorted(
        (np.quantile([use.mean_us for use in side if use] or [0.0], (0.25, 0.75)) for side in (old, new)),
        key=lambda half: float(half[0]),
    )
    return bool(low[1] < high[0])


def _gaps(old: Sequence[Spent], new: Sequence[Spent], after: Typical | None) -> list[GapChange]:
    """The gaps that changed, the largest change first, with what the host did in them now."""
    mine, theirs = ([_by_pair(run) for run in side] for side in (old, new))
    waits: dict[tuple[str, str], Wait] = {}
    for wait in after.waits if after else ():
        waits.setdefault((wait.before, wait.after), wait)
    found = []
    for pair in dict.fromkeys(pair for run in (*mine, *theirs) for pair in run):
        sides = [[run.get(pair) for run in side] for side in (mine, theirs)]
        us = [median(sum(gap.us.values()) if gap else 0.0 for gap in side) for side in sides]
        if abs(us[1] - us[0]) >= LEAST_GAP_US:
            count = [median(gap.count if gap else 0.0 for gap in side) for side in sides]
            longer = sides[us[1] > us[0]]
            calls = waits[pair].calls_ms if pair in waits else {}
            shadow = median(gap.shadow_us if gap else 0.0 for gap in longer)
            change = GapChange(*pair, (count[0], count[1]), (us[0], us[1]), _causes(longer), calls, shadow)
            found.append(change)
    return sorted(found, key=lambda gap: (-abs(gap.change_us), gap.before, gap.after))[:GAPS]


def _syncs(old: Sequence[Spent], new: Sequence[Spent]) -> list[SyncChange]:
    """The synchronizes that an iteration has more or fewer of, the largest change first."""
    sides = [[_by_site(run.syncs) for run in side if run.syncs is not None] for side in (old, new)]
    if not all(sides):
        return []
    found = []
    for site in dict.fromkeys(site for side in sides for run in side for site in run):
        before, after = (median(run.get(site, 0.0) for run in side) for side in sides)
        if abs(after - before) >= LEAST_SYNCS:
            found.append(SyncChange(*site, (before, after)))
    return sorted(found, key=lambda each: (-abs(each.count[1] - each.count[0]), each.call, each.after))[
        :SYNCS
    ]


def _by_site(syncs: Sequence[SyncUse]) -> dict[tuple[str, str], float]:
    return {(each.call, each.after): each.count for each in syncs}


def _by_pair(run: Spent) -> Mapping[tuple[str, str], GapUse]:
    return {(gap.before, gap.after): gap for gap in run.gaps}


def _causes(runs: Sequence[GapUse | None]) -> dict[str, float]:
    """Us of each cause, the largest first: medians over runs, as the gap is, so no single run decides."""
    names = dict.fromkeys(cause for gap in runs if gap for cause in gap.us)
    us = {cause: median(gap.us.get(cause, 0.0) if gap else 0.0 for gap in runs) for cause in names}
    return dict(sorted(us.items(), key=lambda item: -item[1]))
