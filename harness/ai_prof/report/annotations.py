"""GitHub annotations: workflow commands that put each finding on the run's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_prof.gate.model import Reason
from ai_prof.report import format as fmt
from ai_prof.report import view, words

if TYPE_CHECKING:
    from ai_prof.gate.model import BuildVerdict

MOST = 10
"""GitHub shows ten errors and ten warnings of a step."""
_LEVELS = {"bad": "error", "broken": "error", "warn": "warning"}


def render(verdict: BuildVerdict) -> str:
    """Return one `::error` or `::warning` line per workload that needs a reader, the strongest first."""
    lines: dict[str, list[str]] = {"error": [], "warning": []}
    for workload in view.ordered(verdict.workloads):
        word = words.REASONS[workload.reason]
        level = _LEVELS.get(word.tone)
        if level is None or len(lines[level]) == MOST:
            continue
        lead = view.leading(workload)
        sentence = view.explanation(workload)
        if lead and workload.reason is Reason.REGRESSED and lead[0].sentence != sentence:
            sentence = f"{lead[0].sentence}. {sentence}"
        title = _property(f"ai-prof: {workload.workload} {word.label}")
        lines[level].append(f"::{level} title={title}::{_data(sentence)}\n")
    return "".join(lines["error"] + lines["warning"])


def _data(text: str) -> str:
    plain = fmt.printable(fmt.shorten(text, 400))
    return plain.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
