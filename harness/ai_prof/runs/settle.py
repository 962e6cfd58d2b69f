"""Fresh runs for what was flagged: of base and head where base can be run, else of head again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ai_prof.baselines import accepted, store
from ai_prof.gate import confirm
from ai_prof.gate.decide import Fresh
from ai_prof.runs.base import SHOWN, BaseError, Bases, Side
from ai_prof.runs.bench import Bench, Budget
from ai_prof.runs.checkout import git
from ai_prof.runs.stored import LOCAL
from ai_prof.say import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ai_prof.gate.model import Acceptance, WorkloadVerdict
    from ai_prof.runs.stored import Stored
    from ai_prof.runs.workloads import Workload

    LeftOpen = Callable[[WorkloadVerdict, Fresh], bool]


@dataclass(frozen=True, kw_only=True)
class Settler:
    """Makes the fresh runs of a build. `against` is the commit to compare with, None for each baseline's.

    `recorded` are the workloads whose baseline this build has measured itself.
    `family` is how many workloads of the whole build may be flagged, where this is a shard of it.
    `own_baselines` is the checkout's folder of baselines, where base's tree has its own.
    """

    bench: Bench
    bases: Bases
    workloads: Mapping[str, Workload]
    stored: Mapping[str, Stored]
    against: str | None
    runs: int
    alpha: float
    minutes: float
    recorded: frozenset[str] = frozenset()
    family: int | None = None
    own_baselines: Path | None = None
    notes: list[str] = field(default_factory=list)

    def fresh(self, flagged: Sequence[WorkloadVerdict], left_open: LeftOpen) -> dict[str, Fresh]:
        """The fresh runs of the flagged workloads, in the order given, as far as the budget goes.

        More are made of those that `left_open` says their first ones leave open, where those that come after
        keep time for theirs.

        What the budget was spent on stands in `notes`, why a workload could not be settled in its verdict's.
        Building base is no part of it.
        """
        plan = confirm.plan(self.family or len(flagged), self.alpha)
        bases = [self._base(verdict) for verdict in flagged]
        budget = Budget(self.minutes)
        made = {}
        for i, (verdict, base) in enumerate(zip(flagged, bases, strict=True)):
            launch_s = (self.bench.seconds.get(each.workload, 0.0) for each in flagged[i + 1 :])
            budget.kept_s = 2 * plan.launches * sum(launch_s)
            made[verdict.workload] = self._one(verdict, base, plan, budget, left_open)
        if self.bases.build is None and any(self._elsewhere(base) for base in bases):
            self.notes.append(
                "`build` in [tool.ai-prof] is not set: "
                "what base's workloads import from an installed package was this tree's"
            )
        took = f"{budget.spent_s / 60:.1f} of {self.minutes:g} minutes"
        self.notes.append(f"settling by fresh runs took {took}")
        return made

    def of_same_code(self, verdict: WorkloadVerdict) -> bool:
        """Whether base would be this very tree, run in the same way: then nothing can be settled."""
        fault = self.bench.regress and self.workloads[verdict.workload].regress(self.bench.regress)
        if verdict.drift or self.against or fault:
            return False
        own = verdict.workload in self.recorded  # also of a tree that no commit names
        return own or self.bench.checkout.is_exactly(self._commit(verdict))

    def _one(
        self,
        verdict: WorkloadVerdict,
        base: Side | BaseError,
        plan: confirm.Plan,
        budget: Budget,
        left_open: LeftOpen,
    ) -> Fresh:
        """The fresh runs of one workload; its verdict notes why there are none or too few."""
        name = verdict.workload
        workload = self.workloads[name]
        spent = f"not settled: the budget of {self.minutes:g} minutes was spent"
        if isinstance(base, BaseError):
            return self._again(verdict, str(base), spent, budget)
        try:
            self._say(f"{name}: {2 * plan.launches} fresh runs of {_named(base)} and of this tree settle it")
            at_base = self._accepted_at(base, name)
            fresh = self.bench.against_base(
                workload,
                base,
                plan,
                budget,
                lambda made: left_open(verdict, msgspec.structs.replace(made, accepted_at_base=at_base)),
            )
        except BaseError as error:
            return self._again(verdict, str(error), spent, budget)
        failed = any(run.problem is not None for run in fresh.head)
        if len(fresh.head) < plan.launches and not failed:
            verdict.notes.append(spent)
        if self._elsewhere(base) and base.workload.folder == workload.folder:
            self.notes.append(
                f"{name}: {_named(base)} has no such workload, so this tree's was run on both sides: "
                "what it does by itself could not differ"
            )
        return msgspec.structs.replace(fresh, accepted_at_base=at_base)

    def _accepted_at(self, base: Side, name: str) -> list[Acceptance]:
        """What was accepted of the stored baseline and is in base's code.

        That is what lies in base's own tree, and what was measured at base or before it.
        """
        if name not in self.stored:
            return []
        stored = self.stored[name]
        known = [*accepted.every(stored.path, stored.baseline), *stored.accepted]
        local = stored.path.is_relative_to(self.bases.head.root / LOCAL)
        has = [each for each in known if self._measured_in(base, each, local=local)]
        root = self.bases.head.root.resolve()
        folder = self.own_baselines.resolve() if self.own_baselines is not None else None
        if folder is not None and folder.is_relative_to(root):
            own = base.checkout.root / folder.relative_to(root)
            has += accepted.every(store.path_of(own, stored.path.parent.name, name), stored.baseline)
        return accepted.latest(sorted(has, key=lambda each: each.when))

    def _measured_in(self, base: Side, change: Acceptance, *, local: bool) -> bool:
        """Whether an accepted change is in base's commit, by the commit that it was measured at.

        Of a `local` baseline, whose acceptances are in no tree, all that comes after uncommitted changes is
        taken to have them: rather is a wanted change red again than what came since unseen.
        """
        commit = base.checkout.commit
        if commit is None or change.commit is None:
            return False
        if change.dirty and (change.commit == commit or not local):
            return False
        before = ("merge-base", "--is-ancestor", "--end-of-options", change.commit, commit)
        return git(self.bases.head.root, *before) is not None

    def _again(self, verdict: WorkloadVerdict, no_base: str, spent: str, budget: Budget) -> Fresh:
        """More runs of the candidate, where base cannot be run and there is a baseline to compare with."""
        name = verdict.workload
        if name not in self.stored:
            verdict.notes.append(f"base could not be run: {no_base}")
        elif self.runs * self.bench.seconds[name] > budget.left_s:
            verdict.notes.append(spent)
        else:
            why = no_base if verdict.drift else f"base could not be run ({no_base})"
            self._say(f"{name}: {why}; {self.runs} fresh runs of this tree settle it")
            fresh = self.bench.again(self.workloads[name], self.runs)
            return msgspec.structs.replace(fresh, no_base=no_base)
        return Fresh()

    def _elsewhere(self, base: Side | BaseError) -> bool:
        return isinstance(base, Side) and base.checkout.root != self.bases.head.root

    def _commit(self, verdict: WorkloadVerdict) -> str | None:
        """The commit that a flagged workload is settled against; None where it is of none."""
        return self.against or self.stored[verdict.workload].commit

    def _base(self, verdict: WorkloadVerdict) -> Side | BaseError:
        """The other side, built; or why there is none to run."""
        workload = self.workloads[verdict.workload]
        if verdict.drift:
            return BaseError("it drifted from the anchor's stored runs")
        commit = self._commit(verdict)
        if commit is None:
            return BaseError("its baseline was recorded with uncommitted changes, or outside of git")
        named = self.against is not None or self.bench.checkout.is_exactly(commit)
        if not named and self.bases.build is None:
            # What the workload imports from elsewhere would be head's: no difference would be found.
            why = (
                f"set `build` in [tool.ai-prof] to have the baseline's commit {commit[:SHOWN]} built, "
                'to "true" where nothing is'
            )
            return BaseError(why)
        try:
            return self.bases.side(workload, commit)
        except BaseError as error:
            return error

    @staticmethod
    def _say(line: str) -> None:
        say(f"{line}")


def _named(base: Side) -> str:
    return "base" if base.checkout.commit is None else f"base ({base.checkout.commit[:SHOWN]})"
