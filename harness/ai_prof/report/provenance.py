"""What a verdict was measured on and against: badges, facts and environment, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ai_prof.report import format as fmt
from ai_prof.report import view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ai_prof.gate.model import BuildVerdict

_SHOWN_VALUES = 6


@dataclass(frozen=True)
class Badge:
    """A short fact with a tone; `detail` is read on hover."""

    text: str
    tone: str
    detail: str = ""


def badges(verdict: BuildVerdict) -> list[Badge]:
    """Return what qualifies the verdict at a glance: baselines' strength, a fault, a dirty tree."""
    shown = [
        Badge(f"baselines: {label} ({count})", tone, "; ".join(details))
        for (label, tone), count, details in _strengths(verdict)
    ]
    if any(workload.provisional for workload in verdict.workloads):
        shown.append(Badge("provisional verdicts", "warn", "a young baseline: marked where it applies"))
    if verdict.dirty:
        shown.append(Badge("uncommitted changes", "warn", "the tree differs from the commit named"))
    if verdict.regress:
        shown.append(
            Badge(f"fault switched on: {verdict.regress}", "warn", "a failure is what this run asked for")
        )
    return shown


def facts(verdict: BuildVerdict) -> list[tuple[str, str]]:
    """Return the run's identity: name and value."""
    commit = verdict.commit or "not in a repository"
    candidates = (
        ("Device", verdict.device),
        ("Machine key", verdict.machine_key),
        ("Commit", commit + (" + uncommitted changes" if verdict.dirty else "")),
        ("Base", verdict.base or ""),
        ("Run", verdict.run_id),
        ("Started", verdict.started),
        ("Finished", verdict.finished),
        ("Exit code", str(verdict.exit_code)),
    )
    return [(name, value) for name, value in candidates if value]


def flatten(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested facts as dotted names and text, in their own order."""
    lines: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += flatten(value, f"{prefix}{name}.")
        else:
            lines.append((f"{prefix}{name}", _text(value)))
    return lines


def baselines(verdict: BuildVerdict) -> list[dict[str, str]]:
    """Return where each workload's baseline came from, in the reports' order."""
    return [
        {"workload": workload.workload, "strength": f"{strength.label}, {strength.detail}"}
        | {
            key: _text(workload.baseline.get(key)) if workload.baseline.get(key) else fmt.NOTHING
            for key in ("recorded", "commit", "path", "sha256")
        }
        for workload in view.ordered(verdict.workloads)
        for strength in [view.strength(workload)]
    ]


def environment(verdict: BuildVerdict) -> list[tuple[str, str, str]]:
    """Return each recorded condition with its values over baseline runs and over this build's runs."""
    stored: dict[str, list[Any]] = {}
    fresh: dict[str, list[Any]] = {}
    for workload in verdict.workloads:
        _collect(stored, (run.environment for run in workload.baseline_runs))
        runs = (*workload.candidate_runs, *workload.confirm_base, *workload.confirm_head)
        _collect(fresh, (run.environment for run in runs))
    names = dict.fromkeys([*fresh, *stored])
    return [(name, _spread(stored.get(name, [])), _spread(fresh.get(name, []))) for name in names]


def _strengths(verdict: BuildVerdict) -> list[tuple[tuple[str, str], int, list[str]]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for workload in verdict.workloads:
        strength = view.strength(workload)
        groups.setdefault((strength.label, strength.tone), []).append(
            f"{workload.workload}: {strength.detail}"
        )
    return [(key, len(details), details[:20]) for key, details in groups.items()]


def _collect(into: dict[str, list[Any]], environments: Iterable[Mapping[str, Any]]) -> None:
    for facts in environments:
        for name, value in facts.items():
            into.setdefault(name, []).append(value)


def _spread(values: list[Any]) -> str:
    """Return numbers as a range, anything else as the distinct values."""
    if not values:
        return fmt.NOTHING
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        low, high = min(values), max(values)
        return fmt.number(low) if low == high else f"{fmt.number(low)} to {fmt.number(high)}"
    texts = list(dict.fromkeys(_text(value) for value in values))
    rest = len(texts) - _SHOWN_VALUES
    return "; ".join(texts[:_SHOWN_VALUES]) + (f" and {rest} more" if rest > 0 else "")


def _text(value: Any) -> str:
    if value is None:
        return fmt.NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items()) or "none"
    return fmt.shorten(str(value), 200)
