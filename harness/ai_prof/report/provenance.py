"""What a verdict was measured on and against: badges, facts and environment, as text."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_prof.baselines import files
from ai_prof.gate.model import Reason
from ai_prof.report import conditions, view, words
from ai_prof.report import format as fmt
from ai_prof.report.conditions import Badge

if TYPE_CHECKING:
    from ai_prof.gate.model import BuildVerdict, Run


def badges(verdict: BuildVerdict) -> list[Badge]:
    """Return what qualifies the verdict at a glance: baselines' strength, a fault, a dirty tree."""
    shown = [
        Badge(f"baselines: {label} ({count})", tone, "; ".join(details))
        for (label, tone), count, details in _strengths(verdict)
    ]
    shown = [*_machine_badges(verdict), *shown, _calibration(verdict), *_losses(verdict)]
    shown += _conditions(verdict)
    if any(workload.provisional for workload in verdict.workloads):
        shown.append(Badge("provisional verdicts", "warn", "a young baseline: marked where it applies"))
    if verdict.dirty:
        shown.append(Badge("uncommitted changes", "warn", "the tree differs from the commit named"))
    if verdict.regress:
        asked = "a failure is what this run asked for"
        shown.insert(0, Badge(f"fault switched on: {verdict.regress}", "warn", asked))
    return shown


def disturbances(verdict: BuildVerdict) -> list[str]:
    """Say what disturbed the runs: throttling, others on the GPU or on most of a core of the host."""
    told = (badge for badge in _conditions(verdict) if badge.tone == "warn")
    return [f"{badge.text}: {badge.detail}" if badge.detail else badge.text for badge in told]


def _conditions(verdict: BuildVerdict) -> list[Badge]:
    return conditions.badges(_fresh_environments(verdict), int(verdict.machine.get("cores") or 0))


def _calibration(verdict: BuildVerdict) -> Badge:
    """When the gate was last tried on builds without a change, and how many failed."""
    last = verdict.calibration
    if last is None:
        return Badge("not calibrated", "quiet", "`ai-prof calibrate`: how often builds without a change fail")
    days = (_time(verdict.started) - _time(last.when)).days
    age = "today" if days == 0 else "at a time to come" if days < 0 else f"{fmt.plural(days, 'day')} ago"
    tone = "pass" if last.failed <= verdict.alpha * last.draws else "warn"
    told = f"{last.failed} of {last.draws:,} builds without a change failed"
    return Badge(f"calibrated {age}: {told}", tone, f"at most {100 * last.bound:.0f} % with 95 % confidence")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # which Python 3.10 does not read


def facts(verdict: BuildVerdict) -> list[tuple[str, str]]:
    """Return the run's identity: name and value."""
    commit = (verdict.commit or "")[:12] or "not in a repository"
    candidates = (
        ("Host", str(verdict.machine.get("host") or "")),
        ("Machine key", verdict.machine_key),
        ("Commit", commit + (" + uncommitted changes" if verdict.dirty else "")),
        ("Base", verdict.base or ""),
        ("Run", verdict.run_id),
        ("Started", fmt.moment(verdict.started)),
        ("Finished", fmt.moment(verdict.finished)),
        ("Exit code", str(verdict.exit_code)),
    )
    return [(name, value) for name, value in candidates if value]


def _machine_badges(verdict: BuildVerdict) -> list[Badge]:
    """The device, and its driver where it has one of its own."""
    shown = [Badge(_device(verdict), "quiet", verdict.machine_key)]
    driver = verdict.machine.get("driver") or {}
    if driver.get("version"):
        cuda = f", CUDA {driver['cuda']}" if driver.get("cuda") else ""
        shown.append(Badge(f"driver {driver['version']}{cuda}", "quiet"))
    return shown


def _losses(verdict: BuildVerdict) -> list[Badge]:
    """Whether the captures that were compared are whole."""
    runs = _fresh(verdict)
    lost = sum(run.problem is Reason.CAPTURE_INCOMPLETE for run in runs)
    if lost:
        return [Badge(f"records lost in {fmt.plural(lost, 'run')}", "broken", "none of them was compared")]
    return [Badge("no records lost", "pass")] if runs else []


def _device(verdict: BuildVerdict) -> str:
    """The device's own name where the machine's facts hold one."""
    listed = verdict.machine.get("gpus") or verdict.machine.get("opencl") or [{}]
    name = listed[0].get("name") or listed[0].get("device")
    return f"{name} ({verdict.device})" if name and name != verdict.device else verdict.device


def baselines(verdict: BuildVerdict) -> list[dict[str, str]]:
    """Return where each workload's baseline came from, in the reports' order."""
    return [
        {"workload": workload.workload, "strength": f"{strength.label}, {strength.detail}"}
        | {
            key: conditions.text(workload.baseline.get(key)) if workload.baseline.get(key) else fmt.NOTHING
            for key in ("recorded", "commit", "path", "sha256")
        }
        | {"place": fmt.shorten(files.place(Path(str(workload.baseline.get("path") or fmt.NOTHING))), 200)}
        for workload in view.ordered(verdict.workloads)
        for strength in [view.strength(workload)]
    ]


def machine(verdict: BuildVerdict) -> list[tuple[str, str]]:
    """Return the machine's facts, nested ones after what holds them."""
    return [(words.fact(name), conditions.text(value)) for name, value in conditions.flatten(verdict.machine)]


def environment(verdict: BuildVerdict) -> list[tuple[str, str, str]]:
    """Return each recorded condition with its values over baseline runs and over this build's runs."""
    stored = conditions.gather(run.environment for w in verdict.workloads for run in w.baseline_runs)
    fresh = conditions.gather(_fresh_environments(verdict))
    names = dict.fromkeys([*fresh, *stored])
    return [
        (words.fact(name), conditions.spread(stored.get(name, [])), conditions.spread(fresh.get(name, [])))
        for name in names
    ]


def _fresh_environments(verdict: BuildVerdict) -> list[dict[str, Any]]:
    return [run.environment for run in _fresh(verdict)]


def _fresh(verdict: BuildVerdict) -> list[Run]:
    """The runs that this build made."""
    return [
        run
        for workload in verdict.workloads
        for run in (*workload.candidate_runs, *workload.confirm_base, *workload.confirm_head)
    ]


def _strengths(verdict: BuildVerdict) -> list[tuple[tuple[str, str], int, list[str]]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for workload in verdict.workloads:
        strength = view.strength(workload)
        groups.setdefault((strength.label, strength.tone), []).append(
            f"{workload.workload}: {strength.detail}"
        )
    return [(key, len(details), details[:20]) for key, details in groups.items()]
