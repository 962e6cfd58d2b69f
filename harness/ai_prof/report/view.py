"""A verdict as every report shows it: sorted, named, with numbers as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_prof.errors import EXIT_USAGE
from ai_prof.gate.metrics import METRICS
from ai_prof.gate.model import BuildVerdict, Cell, Evidence, Reason, StructureChange, WorkloadVerdict
from ai_prof.report import cause, words
from ai_prof.report import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterable

FULL_STRENGTH_SESSIONS = 10
_REASON_RANK = {reason: rank for rank, reason in enumerate(words.REASONS)}
_EVIDENCE_RANK = {evidence: rank for rank, evidence in enumerate(words.EVIDENCE)}
_ONE_OTHER = "one session is stored, and sessions differ: refresh the baseline in more"
_BROKEN = frozenset({Reason.FAILED, Reason.INVALID_ENVIRONMENT, Reason.CAPTURE_INCOMPLETE})
# `iteration latency grew 41 % (3.10 -> 4.37 ms), floor 1 %`: the report shows all this in columns already.
_SAID = re.compile(
    r"^.* (?:grew|fell|did not change)[^()]* \([^()]*\)(?:: |, floor [^:;]*|$)"
    r"|^[\d,]+ (?:more|fewer) [^()]* per iteration \([^()]*\)(?:; |$)"
    r"|^kernel .* \([^()]* per iteration\)$"
)
_NOT_COMPARED = frozenset({Reason.NO_BASELINE, Reason.NO_GPU_WORK, Reason.INCOMPARABLE, Reason.SKIPPED})


@dataclass(frozen=True)
class Row:
    """One line of a report: a metric or a per-iteration count, all of it text."""

    workload: str
    key: str
    name: str
    before: str
    after: str
    change: str
    interval: str
    floor: str
    mde: str
    p: str
    evidence: Evidence
    reason: Reason
    why: str
    notes: tuple[str, ...]
    provisional: bool
    judged: bool
    beyond_floor: bool
    cut_up: bool
    size: float

    @property
    def rank(self) -> tuple[int, int, bool, float, str]:
        """The place in a report: by reason, then evidence, counts before kernels, then effect."""
        return (
            _REASON_RANK[self.reason],
            _EVIDENCE_RANK[self.evidence],
            self.is_kernel,
            -self.size,
            self.key,
        )

    @property
    def told(self) -> str:
        """The row's reason without the numbers that stand in its columns; empty where none is left."""
        return unsaid(self.why)

    @property
    def is_kernel(self) -> bool:
        """Whether the row counts the launches of one kernel."""
        return self.key.startswith(words.KERNEL)

    @property
    def by_place(self) -> bool:
        """Whether the row compares the places of an iteration, and has found none."""
        return self.key in METRICS and METRICS[self.key].role == "profile" and self.before == fmt.NOTHING

    @property
    def word(self) -> words.Word:
        """How the row's reason is shown."""
        if self.cut_up:
            return words.CUT_UP
        if self.reason is Reason.IMPROVED and self.evidence is Evidence.SCREEN:
            return words.FASTER
        if self.reason is Reason.PASS and self.by_place:
            return words.NO_PLACE
        if self.reason is Reason.PASS and not self.judged:
            return words.NOT_JUDGED
        if self.reason is Reason.PASS and self.beyond_floor:
            return words.NO_FINDING
        return words.REASONS[self.reason]

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        provisional = self.provisional and self.reason is Reason.REGRESSED
        return self.word.label + (", provisional" if provisional else "")

    @property
    def sureness(self) -> str:
        """The kind of evidence, with p where it has one."""
        kind = words.EVIDENCE[self.evidence][0]
        if self.p == fmt.NOTHING:
            return kind
        return f"{kind}, p {'' if self.p[0] == '<' else '= '}{self.p}"

    @property
    def sentence(self) -> str:
        """What changed, by how much and how sure, in one line."""
        return f"{fmt.shorten(self.name)} {self.change} ({self.before} to {self.after}; {self.sureness})"


@dataclass(frozen=True)
class Strength:
    """How much a stored baseline can carry."""

    label: str
    detail: str
    tone: str


def unsaid(why: str) -> str:
    """Return what a sentence of the gate adds to the numbers that a report shows in columns."""
    return fmt.typeset(_SAID.sub("", why, count=1)).strip(" ,:")


def metric_row(workload: str, cell: Cell) -> Row:
    """Return the row of one metric; that of a place of the iteration in us, by its own name."""
    unit = cell.unit
    p = fmt.probability(cell.p_adjusted)
    if cell.p_adjusted is None and cell.p is not None:
        p = f"{fmt.probability(cell.p)} uncorrected"
    place = cell.metric in METRICS and METRICS[cell.metric].role == "profile" and cell.baseline is not None
    scale, shown = (cell.baseline or 0.0, fmt.DELTA + unit) if place else (1.0, unit)
    named = words.place(cell.place) if place else ""
    return Row(
        workload=workload,
        key=cell.metric,
        name=named or words.metric(cell.metric),
        before=fmt.value(cell.baseline, unit),
        after=fmt.value(cell.candidate, unit),
        change=fmt.change(_times(cell.effect, scale), shown),
        interval=fmt.interval(_both(cell.interval, scale), shown),
        floor=fmt.threshold(_times(cell.floor, scale), shown),
        mde=fmt.threshold(_times(cell.mde, scale), shown),
        p=p,
        evidence=cell.evidence,
        reason=cell.reason,
        why=cell.why,
        notes=tuple(map(fmt.typeset, cell.notes)),
        provisional=cell.provisional,
        judged=cell.judged,
        beyond_floor=cell.floor is not None and abs(cell.effect or 0.0) > cell.floor,
        cut_up=_cut_up(cell),
        size=0.0 if place else abs(cell.effect or 0.0),
    )


def _cut_up(cell: Cell) -> bool:
    """Whether this is a shorter kernel that counts as a regression."""
    worse = cell.reason in {Reason.REGRESSED, Reason.INCONCLUSIVE}
    return cell.metric == "kernel_mean_us" and worse and (cell.effect or 0.0) < 0


def _times(x: float | None, scale: float) -> float | None:
    return None if x is None else x * scale


def _both(bounds: tuple[float, float] | None, scale: float) -> tuple[float, float] | None:
    return None if bounds is None else (bounds[0] * scale, bounds[1] * scale)


def structure_row(workload: str, change: StructureChange, *, provisional: bool) -> Row:
    """Return the row of one per-iteration count or kernel that differs."""
    name = change.name
    before, after = change.baseline, change.candidate
    return Row(
        workload=workload,
        key=name,
        name=words.counted(name),
        before=fmt.count(before, name),
        after=fmt.count(after, name),
        change=fmt.count_change(before, after, name),
        interval=fmt.NOTHING,
        floor=fmt.NOTHING,
        mde=fmt.NOTHING,
        p=fmt.NOTHING,
        evidence=Evidence.STRUCTURE,
        reason=change.reason,
        why=change.why,
        notes=(),
        provisional=provisional,
        judged=True,
        beyond_floor=False,
        cut_up=False,
        size=abs(after - before) / max(before, 1),
    )


def metric_rows(workload: WorkloadVerdict) -> list[Row]:
    """Return the workload's metrics, by reason, evidence and effect."""
    return _sorted(metric_row(workload.workload, cell) for cell in workload.cells)


def structure_rows(workload: WorkloadVerdict) -> list[Row]:
    """Return the workload's changed counts before its changed kernels, each by reason and effect."""
    rows = _sorted(
        structure_row(workload.workload, change, provisional=workload.provisional)
        for change in workload.structure
    )
    return sorted(rows, key=lambda row: row.is_kernel)


def rows(workload: WorkloadVerdict) -> list[Row]:
    """Return every row of the workload, by reason, evidence and effect."""
    return _sorted([*structure_rows(workload), *metric_rows(workload)])


def leading(workload: WorkloadVerdict) -> list[Row]:
    """Return the rows that made the workload's verdict: latency first, others by evidence.

    Of another structure all that changed, counts before kernels by name. None where the workload was not
    judged or nothing changed.
    """
    if workload.reason is Reason.PASS:
        return []
    if workload.reason is Reason.STRUCTURE_CHANGED and workload.structure:
        return structure_rows(workload)
    made_it = [row for row in rows(workload) if row.reason is workload.reason]
    return sorted(made_it, key=lambda row: (row.key != "iteration_ms", _EVIDENCE_RANK[row.evidence]))


def word(workload: WorkloadVerdict) -> words.Word:
    """Return how the workload's reason is shown: a pass as that of its latency is."""
    if workload.reason is Reason.IMPROVED and workload.evidence in {Evidence.SCREEN, Evidence.NONE}:
        return words.FASTER
    latency = workload.cell("iteration_ms")
    if latency is not None and workload.reason is latency.reason is Reason.PASS:
        return metric_row(workload.workload, latency).word
    return words.REASONS[workload.reason]


def is_unchanged(workload: WorkloadVerdict) -> bool:
    """Whether the workload compared and nothing in it needs a reader."""
    return all(reason is Reason.PASS for reason in (workload.reason, *(row.reason for row in rows(workload))))


def ordered(workloads: Iterable[WorkloadVerdict]) -> list[WorkloadVerdict]:
    """Sort workloads by reason, then evidence, then the effect that each is headed by, then name.

    A latency that changed comes before counts alone, whose shares say nothing of time.
    """

    def key(workload: WorkloadVerdict) -> tuple[int, int, bool, float, str]:
        lead = leading(workload)
        slower = bool(lead) and lead[0].key == "iteration_ms"
        size = lead[0].size if lead else 0.0
        evidence = min(
            (_EVIDENCE_RANK[row.evidence] for row in lead), default=_EVIDENCE_RANK[workload.evidence]
        )
        return _REASON_RANK[workload.reason], evidence, not slower, -size, workload.workload

    return sorted(workloads, key=key)


def explanation(workload: WorkloadVerdict) -> str:
    """Return the workload's reason in plain language, in one line.

    What its time went to where that is known; else what the gate says, its leading row, or what the reason
    means.
    """
    told = cause.sentences(workload)
    if told:
        return " ".join(told[:2])
    said = unsaid_of(workload)
    lead = leading(workload)
    return said or (lead[0].sentence if lead else words.REASONS[workload.reason].meaning)


def unseen(workload: WorkloadVerdict, *only: str) -> str:
    """Return what could have been missed: changes below those that are found in 80 % of cases.

    Of every metric, or of `only` some. Empty where no test was made. Counts per iteration are compared
    exactly and miss nothing.
    """
    tested = [
        cell
        for cell in workload.cells
        if cell.metric in METRICS and METRICS[cell.metric].alone and (not only or cell.metric in only)
    ]
    parts = [
        f"{words.metric(cell.metric).lower()} worse by less than "
        f"{fmt.threshold(max(cell.mde, cell.floor or 0.0), cell.unit)}"
        for cell in tested
        if cell.mde is not None
    ]
    places = (("host_profile", "host time"), ("kernel_profile", "kernel time"))
    for key, what in places:
        found = next((cell for cell in tested if cell.metric == key), None)
        if found is not None and found.missed_us is not None:
            least, most = found.missed_us, found.missed_anywhere_us or 0.0
            some = f" ({most:,.0f} µs at some)" if most > least else ""
            parts.append(f"{what} at one place longer by less than {least:,.0f} µs{some}")
    said = f"could have missed: {', '.join(parts)}" if parts else ""
    return f"{said} ({_ONE_OTHER})" if said and _knows_one_other(workload) else said


def _knows_one_other(workload: WorkloadVerdict) -> bool:
    """Whether the verdict rests on a baseline of one session, which is not the candidate's."""
    stored, made = (
        {run.session for run in runs} for runs in (workload.baseline_runs, workload.candidate_runs)
    )
    return workload.provisional and stored.isdisjoint(made)


def unsaid_of(workload: WorkloadVerdict) -> str:
    """Return what the gate says of a workload beside the numbers of its rows."""
    if workload.reason is Reason.ACCEPTED:
        return fmt.typeset(workload.why)  # what was accepted needs the name of its metric
    parts = (unsaid(part) for part in workload.why.split("; "))
    return "; ".join(dict.fromkeys(part for part in parts if part))


def headline(verdict: BuildVerdict) -> tuple[str, str]:
    """Return the verdict in one line and its tone."""
    reasons = [w.reason for w in verdict.workloads if w.reason is not Reason.SKIPPED]
    total = fmt.plural(len(reasons), "workload")
    if verdict.exit_code == EXIT_USAGE:
        return "Not run: wrong input", "broken"
    for count, what, tone in (
        (reasons.count(Reason.REGRESSED), "regressed", "bad"),
        (sum(reason in _BROKEN for reason in reasons), "could not be measured", "broken"),
        (reasons.count(Reason.INCONCLUSIVE), "flagged but not settled", "warn"),
    ):
        if count:
            return f"{count} of {total} {what}", tone
    compared = sum(reason not in _NOT_COMPARED for reason in reasons)
    if compared == 0:
        return "Nothing was compared", "quiet"
    if compared < len(reasons):
        return f"{len(reasons) - compared} of {total} had nothing to compare", "warn"
    blind = sum(workload.unjudged for workload in verdict.workloads)
    told = f", {blind} of them not judged" if blind else ""
    skipped = len(verdict.workloads) - len(reasons)
    told += f", {skipped} skipped" if skipped else ""
    return f"Pass: no regression in {fmt.plural(compared, 'workload')}{told}", "pass"


def subline(verdict: BuildVerdict) -> str:
    """Return what all that regressed has in common; where nothing changed, what the gate's summary adds."""
    if not all(map(is_unchanged, verdict.workloads)):
        return cause.shared([each for each in verdict.workloads if each.reason is Reason.REGRESSED])
    return fmt.typeset(verdict.summary.removeprefix(headline(verdict)[0]).lstrip(": "))


def tally(verdict: BuildVerdict) -> list[tuple[words.Word, int]]:
    """Return how many workloads ended with each reason, in the reports' order."""
    shown = [word(workload) for workload in sorted(verdict.workloads, key=lambda w: _REASON_RANK[w.reason])]
    return [(each, shown.count(each)) for each in dict.fromkeys(shown)]


def strength(workload: WorkloadVerdict) -> Strength:
    """Return how strong the workload's baseline is, from its sessions and runs."""
    stored = workload.baseline
    sessions = stored.get("sessions")
    if not isinstance(sessions, int):
        sessions = len({run.session for run in workload.baseline_runs})
    runs = stored.get("runs")
    if not isinstance(runs, int):
        runs = len(workload.baseline_runs)
    if not sessions:
        return Strength("no baseline", "nothing stored", "quiet")
    detail = f"{fmt.plural(runs, 'run')} of {fmt.plural(sessions, 'session')}"
    if sessions >= FULL_STRENGTH_SESSIONS:
        return Strength("full strength", detail, "pass")
    if sessions >= 2:
        return Strength("growing", detail, "quiet")
    return Strength("provisional", detail, "warn")


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.rank)
