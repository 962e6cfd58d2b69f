"""What a build's verdict rests on, whole or by shards, and the verdict that follows from it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from ai_prof.errors import UsageError
from ai_prof.gate import decide
from ai_prof.gate.decide import Fresh
from ai_prof.gate.metrics import Rules
from ai_prof.gate.model import BuildVerdict, WorkloadVerdict
from ai_prof.gate.screen import Prior

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ai_prof.timeline.profile import Profile

# What all parts of one build have in common.
SHARED = ("device", "machine_key", "commit", "dirty", "base", "regress", "alpha", "version")


MOST = 10_000  # shards of a build


class Shard(msgspec.Struct, frozen=True):
    """Number `index` of `count`, from 1 on."""

    index: Annotated[int, msgspec.Meta(ge=1, le=MOST)]
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST)]

    def share(self, names: Iterable[str]) -> set[str]:
        """The workloads that are this shard's: every `count`-th by name."""
        return set(sorted(names)[self.index - 1 :: self.count])

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """`I/N` with 1 <= I <= N. Raises UsageError for anything else."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise UsageError(f"--shard {text} is no I/N with I from 1 to N: give 1/3, 2/3 and 3/3")
        return cls(int(index), int(count))


class Measured(msgspec.Struct, kw_only=True):
    """The workloads as the screen left them, and the fresh runs of those that it flagged.

    `build` holds the facts of the build with these verdicts; its exit code and summary are not known yet.
    `rules` are the workloads', `priors` the ones that the screen took. `names` are the workloads of the whole
    build, of which a shard measures some.
    """

    build: BuildVerdict
    names: tuple[str, ...] = ()
    fresh: dict[str, Fresh] = {}
    rules: dict[str, Rules] = {}
    priors: dict[str, Prior] = {}
    fail_on: tuple[int, ...] = decide.FAIL_ON


def conclude(parts: Sequence[Measured], profiles: Mapping[str, Profile]) -> BuildVerdict:
    """The verdict of the build whose parts these are: Holm's correction runs over the flagged of all.

    Raises UsageError where the parts are not of one build, or where two hold the same workload.
    """
    first = parts[0]
    for part in parts[1:]:
        _same_build(first, part)
    verdicts = sorted((v for part in parts for v in part.build.workloads), key=lambda v: v.workload)
    _once(verdicts)  # in one order, since Holm's correction breaks ties by it
    settled = decide.settle(
        verdicts,
        {name: fresh for part in parts for name, fresh in part.fresh.items()},
        rules={name: rules for part in parts for name, rules in part.rules.items()},
        priors=first.priors,
        alpha=first.build.alpha,
        profiles=profiles,
    )
    facts = {field: getattr(first.build, field) for field in (*SHARED, "machine", "calibration")}
    return decide.build(
        settled,
        fail_on=first.fail_on,
        run_id=min(part.build.run_id for part in parts),
        started=min(part.build.started for part in parts),
        finished=max(part.build.finished for part in parts),
        notes=list(dict.fromkeys(note for part in parts for note in part.build.notes)),
        **facts,
    )


def _same_build(one: Measured, other: Measured) -> None:
    for field in SHARED:
        values = [getattr(part.build, field) for part in (one, other)]
        if values[0] != values[1]:
            raise UsageError(f"shards of different builds: {field} is {values[0]} and {values[1]}")
    if one.names != other.names:
        odd = ", ".join(sorted({*one.names} ^ {*other.names}))
        raise UsageError(f"shards of different builds: one of them knows nothing of {odd}: gate all alike")
    if one.fail_on != other.fail_on or one.priors != other.priors:
        raise UsageError("shards of different builds: their settings or baselines differ")


def _once(verdicts: Sequence[WorkloadVerdict]) -> None:
    names = [verdict.workload for verdict in verdicts]
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise UsageError(f"two shards measured {', '.join(double)}: name each shard's folder once")
