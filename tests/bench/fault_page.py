"""docs/faults.md, from the raw figures of the fault matrix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import doc_tables
import msgspec

from ai_prof.gate.model import Evidence, Reason
from ai_prof.report import cause, view, words
from ai_prof.report import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ai_prof.gate.model import BuildVerdict, WorkloadVerdict

HEAD = """\
# The fault matrix

Every workload with every fault of its own, through the whole gate: a stored baseline, three runs, and fresh
ones where the screen flagged. *Evidence* is what the verdict's first row stands on: an `exact count`, the
`screen` alone, or fresh runs, `confirmed` where these were of base and head, and `repeated` where, for a
first look, of head alone. *Runs* are those that were stored and those that were made. Written by `nox -s
faults` from `tests/bench/figures/faults.jsonl`, where a build is a line; each call goes on with what is
missing.

*Named first* says whether the first sentence that the report says of the workload names what the fault does
(`tests/bench/faults.toml` holds the words looked for). A build without a fault must pass. A delay of the host
that the device never feels is no regression, nor is another structure that takes no longer: the gate tells of
them, which counts as found. A *weaker* fault neither changes the structure nor adds 100 µs at one place of an
iteration or 2 % of kernel time, which the gate is there to find."""
NOTHING_YET = "Nothing was measured yet."
COLUMNS = ("workload", "fault", "verdict", "named first", "what is said first", "evidence", "runs", "minutes")
# What is to be tried again: no verdict came of it.
OPEN = frozenset({Reason.INCONCLUSIVE, Reason.INVALID_ENVIRONMENT, Reason.CAPTURE_INCOMPLETE, Reason.FAILED})
TOLD = frozenset({Reason.REGRESSED, Reason.STRUCTURE_CHANGED})  # whose sentences say what happened
LONGEST = 160


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One gated build of one workload: `fault` is NAME=STRENGTH, None for the build without one.

    `said` is what a reader of the report learns first, `warned` the places that it only warns of. `why` is
    the verdict's; of a pass, what became of kernel time, the size of a fault that slows kernels.
    `stored` runs of `sessions` were the baseline, `runs` were made. With `forked`, launches were forks of an
    interpreter that had imported the framework.
    """

    workload: str
    fault: str | None
    reason: Reason
    evidence: Evidence
    provisional: bool = False
    said: str = ""
    warned: list[str] = []
    why: str = ""
    sessions: int = 0
    stored: int = 0
    runs: int = 0
    seconds: float = 0.0
    started: str = ""
    commit: str | None = None
    machine_key: str = ""
    machine: str = ""
    forked: bool = False

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What a later attempt replaces."""
        return self.machine_key, self.workload, self.fault

    @property
    def done(self) -> bool:
        """Whether the gate came to a verdict."""
        return self.reason not in OPEN


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What the first sentence of a report has to say of a fault, by its name; regular expressions.

    `beneath` are each workload's faults, NAME=STRENGTH, that add less than the gate is there to find.
    """

    cause: dict[str, str]
    cause_of: dict[str, dict[str, str]] = {}
    beneath: dict[str, list[str]] = {}

    def weak(self, row: Row) -> bool:
        """Whether a build's fault adds less than the gate is there to find."""
        return row.fault in self.beneath.get(row.workload, ())

    def of(self, workload: str, fault: str) -> str:
        """The expression for a workload's fault."""
        return self.cause_of.get(workload, {}).get(fault) or self.cause[fault]

    def found(self, row: Row) -> bool:
        """Whether the gate did with the build what it should: pass it, or find its fault."""
        if row.fault is None:
            return row.reason in {Reason.PASS, Reason.IMPROVED}
        return row.reason in TOLD or bool(row.warned)

    def named(self, row: Row) -> bool:
        """Whether the fault was found, and what is said first names it; a warning names the host's place."""
        fault = (row.fault or "").partition("=")[0]
        return self.found(row) and (
            row.reason not in TOLD or bool(re.search(self.of(row.workload, fault), row.said))
        )


def row_of(verdict: BuildVerdict, workload: str, fault: str | None, seconds: float, *, forked: bool) -> Row:
    """What is kept of a build of one workload."""
    (one,) = (each for each in verdict.workloads if each.workload == workload)
    lead = view.leading(one)
    told = [*cause.sentences(one)[:1], *(row.sentence for row in lead[:1])]
    return Row(
        workload=workload,
        fault=fault,
        reason=one.reason,
        evidence=lead[0].evidence if lead else one.evidence,
        provisional=one.provisional,
        said=told[0] if told else "",
        warned=[cell.place for cell in one.cells if "warning" in cell.notes],
        why=_kernel_time(one) if one.reason is Reason.PASS else one.why,
        sessions=int(one.baseline.get("sessions") or 0),
        stored=len(one.baseline_runs),
        runs=len(one.candidate_runs) + len(one.confirm_base) + len(one.confirm_head),
        seconds=round(seconds, 1),
        started=verdict.started,
        commit=verdict.commit,
        machine_key=verdict.machine_key,
        machine=_machine(verdict.machine),
        forked=forked,
    )


def _kernel_time(one: WorkloadVerdict) -> str:
    return next((cell.why for cell in one.cells if cell.metric == "kernel_time_ms"), one.why)


def _machine(facts: dict[str, Any]) -> str:
    """The device, its driver and the processor."""
    device = (facts.get("gpus") or facts.get("opencl") or [{}])[0]
    driver = facts.get("driver") or {}
    said = [
        str(device.get("name") or device.get("device") or "an unknown device"),
        f"driver {driver['version']}"
        if driver.get("version")
        else str(device.get("version") or "").split("  ")[0],
        f"{facts.get('cores')} cores of {facts.get('cpu')}",
    ]
    return "; ".join(text for text in said if text)


def latest(rows: Iterable[Row]) -> list[Row]:
    """The last attempt at each cell."""
    return list({row.key: row for row in rows}.values())


def page(rows: Iterable[Row], known: Words, planned: Mapping[str, int]) -> str:
    """The whole page, a section for each kind of machine; `planned` is the size of each workload's matrix."""
    parts = [HEAD]
    kept = latest(rows)
    for key in dict.fromkeys(row.machine_key for row in kept):
        mine = [row for row in kept if row.machine_key == key]
        mine.sort(key=lambda row: (row.workload, row.fault is not None, row.fault))
        parts += [f"## {mine[0].machine}", summary(mine, known, planned)]
        parts.append(doc_tables.table(COLUMNS, [cells(row, known) for row in mine]))
    return "\n\n".join(parts if kept else [*parts, NOTHING_YET]) + "\n"


def summary(rows: Sequence[Row], known: Words, planned: Mapping[str, int]) -> str:
    """What a machine's rows come to, in sentences."""
    faulty = [row for row in rows if row.fault is not None and row.done]
    strong, weak = ([row for row in faulty if known.weak(row) is is_weak] for is_weak in (False, True))
    plain = [row for row in rows if row.fault is None and row.done]
    found, named = (sum(map(judge, strong)) for judge in (known.found, known.named))
    alarms = sum(not known.found(row) for row in plain)
    commits = sorted({(row.commit or "no commit")[:12] for row in rows})
    days = sorted({row.started[:10] for row in rows})
    forked = sum(row.forked for row in rows)
    wanted = sum(planned.get(name, 0) for name in {row.workload for row in rows})
    minutes, runs = sum(row.seconds for row in rows) / 60, sum(row.runs for row in rows)
    said = [
        f"{found} of {fmt.plural(len(strong), 'build')} with a fault were found, {named} named first;",
        f"{sum(map(known.found, weak))} of {len(weak)} with a weaker one were found;",
        f"{alarms} of {len(plain)} without one failed.",
        f"{len(faulty) + len(plain)} of {wanted} builds have a verdict,",
        f"in {minutes:.0f} minutes and {runs:,} runs.",
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}, commit {', '.join(commits)}.",
    ]
    if forked:
        said.append(f"In {forked}, launches were forks of an interpreter that had imported the framework.")
    return " ".join(said)


def cells(row: Row, known: Words) -> list[str]:
    """A row of the table."""
    label = words.REASONS[row.reason].label + (", provisional" if row.provisional else "")
    if row.warned and row.reason is not Reason.REGRESSED:
        label += ", with a warning"
    told = row.said or "; ".join(row.warned) or (row.why if row.fault or not row.done else "")
    judge = known.found if row.fault is None else known.named
    return [
        row.workload,
        (row.fault or "none") + (" (weaker)" if known.weak(row) else ""),
        label,
        "–" if not row.done else ("yes" if row.fault else "") if judge(row) else "**no**",  # noqa: RUF001
        fmt.shorten(told, LONGEST).replace("|", "\\|"),
        words.EVIDENCE[row.evidence][0],
        f"{row.stored} + {row.runs}",
        f"{row.seconds / 60:.1f}",
    ]
