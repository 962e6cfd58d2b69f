"""What a person accepted: a wanted change counts as the new level until the baseline is refreshed.

A total is compared with the baseline moved by the accepted effect, on the scale of its test: what goes
beyond the accepted value by more than noise and floor is a regression again. Counts compare exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ai_prof.gate.metrics import METRICS, Rules
from ai_prof.gate.model import Acceptance, Reason
from ai_prof.gate.values import number, transformed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ai_prof.gate.comparison import Comparison
    from ai_prof.gate.model import Cell, Run, WorkloadVerdict
    from ai_prof.gate.profile_cells import Examined


class Accepted(NamedTuple):
    """An accepted total, and its comparison with the baseline as it was stored."""

    acceptance: Acceptance
    plain: Comparison


def accepted_totals(plain: Sequence[Comparison], accepted: Sequence[Acceptance]) -> dict[str, Accepted]:
    """The accepted ones of the comparisons, by metric."""
    by_metric = {each.metric: each for each in accepted if not each.place}
    return {
        item.metric.key: Accepted(by_metric[item.metric.key], item)
        for item in plain
        if item.metric.key in by_metric
    }


def moved(runs: Sequence[Run], accepted: Sequence[Acceptance], rules: Rules) -> list[Run]:
    """The runs as they would be with the accepted changes of totals in them, those without a place."""
    shifts: dict[str, float] = {}
    for each in accepted:
        metric = METRICS[each.metric]
        if metric.role == "total" and not each.place:
            floor = rules.floor(metric)
            shift = metric.y(each.new, floor) - metric.y(each.old, floor)
            shifts[metric.key] = shifts.get(metric.key, 0.0) + shift
    done = []
    for run in runs:
        values = dict(run.metrics)
        for key, shift in shifts.items():
            metric, floor = METRICS[key], rules.floor(METRICS[key])
            y = transformed(run, metric, floor)
            if y is not None:
                values[key] = metric.value(y + shift, floor)
        done.append(msgspec.structs.replace(run, metrics=values))
    return done


def not_in(base: Sequence[Acceptance], accepted: Sequence[Acceptance]) -> list[Acceptance]:
    """What of the accepted changes is not in `base` yet, the ones that a commit's own tree holds.

    A total of its runs moves by the rest alone. A count may grow up to a number, whatever it is at base.
    """
    had = {(each.metric, each.place): each.new for each in base if _is_total(each)}
    rest = [
        msgspec.structs.replace(each, old=had.get((each.metric, each.place), each.old)) for each in accepted
    ]
    return [each for each in rest if each.old != each.new]


def leave_out_places(seen: Examined, accepted: Sequence[Acceptance], rules: Rules) -> Examined:
    """The profile's findings without those that grew, at an accepted place, no further than accepted."""
    by_place = {(each.metric, each.place): each for each in accepted if each.place}
    cells, flagged = [], []
    findings = iter(seen.flagged)
    for cell in seen.cells:
        finding = next(findings) if cell.flagged else None
        each = by_place.get((cell.metric, cell.place))
        if finding is not None and each is not None and _no_further(cell, each, rules):
            why = f"{cell.why}: {note(each)}"
            cells.append(msgspec.structs.replace(cell, reason=Reason.ACCEPTED, flagged=False, why=why))
        else:
            cells.append(cell)
            flagged += [finding] if finding is not None else []
    return replace(seen, cells=cells, flagged=flagged)


def acceptable(workload: WorkloadVerdict, reasons: Collection[Reason]) -> dict[str, dict[str, object]]:
    """What of a judged workload may be accepted: of each key that is worse an `Acceptance`'s own fields."""
    rows: dict[str, dict[str, object]] = {
        change.name: {"metric": change.name, "from": change.baseline, "to": change.candidate}
        for change in workload.structure
        if change.reason in reasons and change.name in METRICS  # kernels by name are counted in `kernels`
    }
    for cell in workload.cells:
        if cell.reason in reasons and cell.baseline is not None and cell.candidate is not None:
            old, new = cell.baseline, cell.candidate
            for each in workload.accepted:
                if (each.metric, each.place) == (cell.metric, cell.place) and _is_total(each):
                    old, new = further(each, old, new)  # it was compared with what had been accepted
            rows[cell.metric] = {"metric": cell.metric, "from": old, "to": new, "place": cell.place}
    return rows


def _is_total(accepted: Acceptance) -> bool:
    return METRICS[accepted.metric].role == "total"


def further(honoured: Acceptance, old: float, new: float) -> tuple[float, float]:
    """From where to where a total goes in all that was honoured, and then went on from `old` to `new`."""
    metric = METRICS[honoured.metric]
    return honoured.old, metric.value(metric.y(honoured.new) + metric.y(new) - metric.y(old))


def note(accepted: Acceptance) -> str:
    """Who accepted what, and why: `accepted by ada, 4.00 to 4.40 ms (a larger model)`."""
    return f"accepted by {accepted.who}, {_values(accepted)} ({accepted.why})"


def beyond(accepted: Acceptance) -> str:
    """What a change that went further says."""
    return f"beyond what {accepted.who} accepted, {_values(accepted)}"


def _no_further(cell: Cell, accepted: Acceptance, rules: Rules) -> bool:
    floor = rules.floor(METRICS[cell.metric]).absolute
    grown = (cell.candidate or 0.0) - (cell.baseline or 0.0)
    return grown <= accepted.new - accepted.old + floor


def _values(accepted: Acceptance) -> str:
    metric = METRICS[accepted.metric]
    if metric.role == "structure":
        return f"{accepted.old:,.0f} to {accepted.new:,.0f}"
    old, new = number(metric, accepted.old), number(metric, accepted.new)
    unit = new[new.rindex(" ") :]
    return f"{old.removesuffix(unit)} to {new}"
