"""Why a workload got slower: which kernels and which gaps of an iteration differ between two sides' runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from ai_prof.gate.model import GapChange, Reason, Run, Why, WorkloadVerdict
from ai_prof.gate.profile_align import align
from ai_prof.timeline.diff_kernels import KernelChange, KernelUse, changes
from ai_prof.timeline.operations import KERNEL
from ai_prof.timeline.profile import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ai_prof.timeline.profile import Profile
    from ai_prof.timeline.typical import Typical, Wait

Key = TypeVar("Key")

KERNELS, GAPS = 40, 20
LEAST_PLACES = 20  # submissions an iteration whose median is the host's speed
LEAST_GAP_US = 5.0  # what hardware takes between two kernels anyway
_DEVICE, _GAP = ROWS.index("device_us"), ROWS.index("gap_us")


def explained(verdict: WorkloadVerdict, profiles: Mapping[str, Profile]) -> WorkloadVerdict:
    """The verdict with its host's speed, and why it regressed or may have, from its runs' profiles by digest.

    The fresh runs of base and head are compared where there are any; else all of the candidate's with the
    baseline's.
    """
    if not verdict.structure:  # what the host does more of is no matter of its speed
        factor = host_factor(_of(verdict.baseline_runs, profiles), _of(verdict.candidate_runs, profiles))
        verdict = msgspec.structs.replace(verdict, host_factor=factor)
    if verdict.reason not in {Reason.REGRESSED, Reason.INCONCLUSIVE}:
        return verdict
    if verdict.confirm_base:
        sides, old, new = ("fresh base", "fresh head"), verdict.confirm_base, verdict.confirm_head
    else:
        sides, old = ("baseline", "candidate"), verdict.baseline_runs
        new = [*verdict.candidate_runs, *verdict.confirm_head]
    why = explain(_of(old, profiles), _of(new, profiles), sides)
    return msgspec.structs.replace(verdict, explained=why)


def _of(runs: Sequence[Run], profiles: Mapping[str, Profile]) -> list[Profile]:
    return [profiles[run.profile] for run in runs if run.profile is not None and run.profile in profiles]


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
    """Compare aligned profiles, medians over each side's runs; None where a side has none.

    Works where the two sides do different work, since kernels are matched by name, and gaps by the names of
    the operations on both sides of them. `sides` says whose runs these are.
    """
    if not old or not new:
        return None
    before, after = _typical(old), _typical(new)
    return Why(
        sides=sides, kernels=_kernels(old, new), gaps=_gaps(old, new, after), before=before, after=after
    )


def _typical(profiles: Sequence[Profile]) -> Typical | None:
    """The iteration to draw of the run in the middle, of those that kept one."""
    kept = sorted((p.typical for p in profiles if p.typical is not None), key=lambda each: each.length)
    return kept[len(kept) // 2] if kept else None


def _kernels(old: Sequence[Profile], new: Sequence[Profile]) -> list[KernelChange]:
    """The kernels that changed, the largest change of time first."""
    before, after = _medians(old, _kernel_sums), _medians(new, _kernel_sums)
    found = []
    for name in before.keys() | after.keys():
        a, b = _use(before.get(name)), _use(after.get(name))
        if named := changes(a, b, by_iteration=True):
            delta = (b.ms if b else 0.0) - (a.ms if a else 0.0)
            found.append(KernelChange(name, named, a, b, delta))
    return sorted(found, key=lambda kernel: (-abs(kernel.change_ms), kernel.name))[:KERNELS]


def _use(total: tuple[float, float] | None) -> KernelUse | None:
    return KernelUse(total[0], total[1] / total[0], total[1] / 1e3) if total and total[0] else None


def _gaps(old: Sequence[Profile], new: Sequence[Profile], after: Typical | None) -> list[GapChange]:
    """The gaps that changed, the largest change first, with what the host did in them now."""
    mine, theirs = _medians(old, _gap_sums), _medians(new, _gap_sums)
    waits: dict[tuple[str, str], Wait] = {}
    for wait in after.waits if after else ():
        waits.setdefault((wait.before, wait.after), wait)
    found = []
    for pair in mine.keys() | theirs.keys():
        (count, us), (now, now_us) = mine.get(pair, (0, 0.0)), theirs.get(pair, (0, 0.0))
        if abs(now_us - us) >= LEAST_GAP_US:
            told = waits.get(pair)
            cause, calls = (told.cause, told.calls_ms) if told else ("", {})
            found.append(GapChange(*pair, (round(count), round(now)), (us, now_us), cause, calls))
    return sorted(found, key=lambda gap: (-abs(gap.change_us), gap.before, gap.after))[:GAPS]


def _kernel_sums(profile: Profile) -> Mapping[str, tuple[int, float]]:
    """How often each kernel runs in an iteration, and its time, us."""
    rows = [i for i, kind in enumerate(profile.kind.tolist()) if kind == KERNEL]
    return _sums([profile.names[i] for i in rows], [float(profile.values[_DEVICE, i]) for i in rows])


def _gap_sums(profile: Profile) -> Mapping[tuple[str, str], tuple[int, float]]:
    """The gaps between each two neighbours of an iteration; the first operation follows the last."""
    names = profile.names
    pairs = list(zip((names[-1], *names[:-1]), names, strict=True))
    return _sums(pairs, profile.values[_GAP].tolist())


def _sums(keys: Sequence[Key], us: Sequence[float]) -> dict[Key, tuple[int, float]]:
    total: dict[Key, float] = {}
    for key, value in zip(keys, us, strict=True):
        total[key] = total.get(key, 0.0) + value
    return {key: (count, total[key]) for key, count in Counter(keys).items()}


def _medians(
    profiles: Sequence[Profile], sums: Callable[[Profile], Mapping[Key, tuple[int, float]]]
) -> dict[Key, tuple[float, float]]:
    """Count and us of each key: medians over the profiles, of which some may lack it."""
    each = [sums(profile) for profile in profiles]
    keys = dict.fromkeys(key for found in each for key in found)
    return {
        key: (
            float(np.median([found.get(key, (0, 0.0))[0] for found in each])),
            float(np.median([found.get(key, (0, 0.0))[1] for found in each])),
        )
        for key in keys
    }
