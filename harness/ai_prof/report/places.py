"""What single kernels and gaps did that changed, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.report import format as fmt
from ai_prof.report import why_view, words
from ai_prof.timeline import spoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.gate.model import GapChange, Why
    from ai_prof.timeline.diff_kernels import KernelChange, KernelUse

OFTENER = 0.5  # an iteration
TIMES = 1.1  # a kernel this much longer is so many times as long
MANY = 3  # kernels that all got slower are summed up
TELLING = 0.2  # a kernel or gap is named from this share of the largest change on
OF_HOST = ("launch", "sync", "data", "host")  # causes of gaps that say what the host does
ALIKE = 0.02  # launches of as many threads, up to this share, are the same size


def sentences(why: Why | None, *, waits: bool = False) -> list[str]:
    """Say which kernels and gaps grew most, at most two sentences; none where that is not known.

    With `waits`, gaps say what the host does meanwhile: where no sentence does that says more.
    """
    if why is None:
        return []
    slower = [kernel for kernel in why.kernels if _takes_longer(kernel)]
    rest = [kernel for kernel in why.kernels if kernel not in slower] if len(slower) >= MANY else why.kernels
    found = [(gap.change_us, _waiting(gap) if waits else gap_sentence(gap)) for gap in why.gaps]
    found += [(1e3 * kernel.change_ms, kernel_sentence(kernel)) for kernel in rest]
    if len(slower) >= MANY:
        found.append((1e3 * sum(kernel.change_ms for kernel in slower), _slower(slower)))
    least = TELLING * max((abs(us) for us, _ in found), default=0.0)
    telling = sorted((us, sentence) for us, sentence in found if us > 0 and us >= least)
    return [sentence for _, sentence in telling[::-1][:2]]


def _takes_longer(kernel: KernelChange) -> bool:
    """Whether a kernel of both sides takes more of an iteration than is worth a row."""
    return bool(kernel.before and kernel.after) and 1e3 * kernel.change_ms >= why_view.LEAST_US


def _slower(kernels: Sequence[KernelChange]) -> str:
    """Sum up kernels that all take longer; the first changed most."""
    before = sum(kernel.before.ms for kernel in kernels if kernel.before)
    after = sum(kernel.after.ms for kernel in kernels if kernel.after)
    first = kernel_sentence(kernels[0]).replace(" an iteration", "")
    return f"{len(kernels):,} kernels take {_ms(after)} instead of {_ms(before)} an iteration; {first}"


def gap_sentence(gap: GapChange) -> str:
    """Name gaps that changed by their neighbours."""
    old, count = map(round, gap.count)
    what = "The gap" if max(old, count) <= 1 else f"The {count:,} gaps" if old in {0, count} else "The gaps"
    between = f"between {fmt.operation(gap.before, 60)} and {fmt.operation(gap.after, 60)}"
    if what == "The gaps":
        between += f" ({count:,}, before {old:,})"
    count = max(old, count)
    together = "" if count <= 1 else " in all"
    if not gap.us[0]:
        return f"{what} {between} {'is' if count <= 1 else 'are'} new: {why_view.time(gap.us[1])}{together}."
    verb = "grew" if gap.change_us > 0 else "shrank"
    return f"{what} {between} {verb} from {why_view.time(gap.us[0])} to {why_view.time(gap.us[1])}{together}."


def _waiting(gap: GapChange) -> str:
    """Name gaps with what the host does in them."""
    how = meanwhile(gap)
    return gap_sentence(gap).removesuffix(".") + (f",{how}." if how else ".")


def meanwhile(gap: GapChange) -> str:
    """Say what the host does in a gap, where that is one thing for most of it; empty else."""
    least = words.MOSTLY * sum(gap.causes.values())
    return "".join(f" {words.WAITS[each]}" for each in OF_HOST if gap.causes.get(each, 0.0) >= least > 0)


def kernel_sentence(kernel: KernelChange) -> str:
    """Name a kernel that changed, and whether its launches ask for more."""
    name, after = fmt.operation(kernel.name, 60), kernel.after
    if kernel.before is None and after is not None:
        often = fmt.plural(round(after.count), "execution") if after.count >= 1 else "now and then"
        return f"{name} is new: {often}, {_ms(after.ms)}."
    if kernel.before is None or after is None:
        return f"{name} is gone."
    taken = f"{_ms(after.ms)} instead of {_ms(kernel.before.ms)} an iteration"
    if abs(after.count - kernel.before.count) >= OFTENER:
        counts = (spoken.count(use.count) for use in (after, kernel.before))
        means = (why_view.time(use.mean_us) for use in (after, kernel.before))
        often, each = " times instead of ".join(counts), " each instead of ".join(means)
        return f"{name} runs {often}, {each}: {taken}{_size(kernel.before, after)}."
    times = after.ms / kernel.before.ms if kernel.before.ms else 0.0
    taken = f"{times:.3g} times as long, {taken}" if times >= TIMES else taken
    return f"{name} takes {taken}{_size(kernel.before, after)}."


def _size(before: KernelUse, after: KernelUse) -> str:
    """Say how the size of a kernel's launches changed, where that is known: what is larger is no slower."""
    if not (before.threads and after.threads):
        return ""
    times = after.threads / before.threads
    if abs(times - 1) <= ALIKE:
        return "" if abs(after.count - before.count) >= 1 else ", in launches of the same size"
    how = f"{times:.3g} times as many" if times > 1 else f"1/{1 / times:.3g} of the"
    return f", each launch with {how} threads"


def _ms(ms: float) -> str:
    return why_view.time(1e3 * ms)
