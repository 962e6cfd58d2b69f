"""JUnit XML: one case per workload x metric, and one per structure change."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from ai_prof.gate.model import Reason
from ai_prof.report import format as fmt
from ai_prof.report import provenance, view, words

if TYPE_CHECKING:
    from ai_prof.gate.model import BuildVerdict, WorkloadVerdict

OUTCOMES: dict[Reason, str] = {
    Reason.REGRESSED: "failure",
    Reason.INCONCLUSIVE: "error",
    Reason.FAILED: "error",
    Reason.INVALID_ENVIRONMENT: "error",
    Reason.CAPTURE_INCOMPLETE: "error",
    Reason.NO_BASELINE: "skipped",
    Reason.INCOMPARABLE: "skipped",
    Reason.SKIPPED: "skipped",
}
"""What a reason is in JUnit; the others are a passed case."""
WORKLOAD_CASE = "workload"
"""The case that carries a workload's own verdict where none of its rows does."""
MORE_CASE = "more"
"""The case that stands for those that had no room, with the gravest outcome of theirs."""
MAX_BYTES = 10_000_000
_RESERVE = 2000  # bytes for the ends of the document, and for what stands for workloads without room
_INDENT = 10  # bytes that an element's place in its own line takes
_NOTES = 20


def render(verdict: BuildVerdict, limit: int = MAX_BYTES) -> str:
    """Return the document, at most `limit` bytes of UTF-8; what has no room is one case, which counts it.

    Counts of cases, failures, errors and skips are on each suite and in all.
    """
    title, _ = view.headline(verdict)
    root = ET.Element("testsuites", name=_clean(f"ai-prof: {title}"))
    workloads = view.ordered(verdict.workloads)
    left = limit - _RESERVE
    suites: list[ET.Element] = []
    for workload in workloads:
        suite = _suite(verdict, workload)
        left -= 2 * _size(suite)  # what may stand for its rows takes less than what it has so far
        if left < 0:
            break
        suites.append(suite)
    for suite, workload in zip(suites, workloads, strict=False):
        left -= _fill(suite, workload, left)
    if rest := workloads[len(suites) :]:
        suites.append(ET.Element("testsuite", name=MORE_CASE))
        _more(suites[-1], MORE_CASE, rest[0].reason, fmt.plural(len(rest), "more workload"))
    for suite in suites:
        _count(suite)
    root.extend(suites)
    _count(root)
    ET.indent(root)
    # ElementTree's own declaration of a text names the locale's encoding; the file is written in UTF-8.
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(verdict: BuildVerdict, workload: WorkloadVerdict) -> ET.Element:
    """Return a workload's suite with what was measured, and its verdict where no row has it."""
    name = _clean(workload.workload)
    suite = ET.Element("testsuite", name=name, timestamp=_clean(verdict.started))
    properties = ET.SubElement(suite, "properties")
    stored = {"baseline sha256": str(workload.baseline.get("sha256") or "")}
    for key, value in [*provenance.facts(verdict), *((key, value) for key, value in stored.items() if value)]:
        ET.SubElement(properties, "property", name=key, value=_clean(value))
    told = any(row.reason is workload.reason for row in view.rows(workload))
    if workload.reason is not Reason.PASS and not told:
        case = ET.SubElement(suite, "testcase", classname=name, name=WORKLOAD_CASE)
        notes = "\n".join(map(fmt.typeset, workload.notes[:_NOTES]))
        _outcome(case, workload.reason, view.explanation(workload), notes)
    return suite


def _fill(suite: ET.Element, workload: WorkloadVerdict, room: int) -> int:
    """Add the rows that `room` bytes hold, the strongest first; return how many bytes they take."""
    name = _clean(workload.workload)
    rows = view.rows(workload)
    used = 0
    for place, row in enumerate(rows):
        case = _case(name, row)
        size = _size(case)
        if used + size > room:
            _more(suite, name, row.reason, fmt.plural(len(rows) - place, "more row"))
            break
        suite.append(case)
        used += size
    return used


def _size(element: ET.Element) -> int:
    """Return how many bytes an element takes, indented."""
    lines = 2 * sum(1 for _ in element.iter())
    return len(ET.tostring(element, encoding="unicode").encode()) + _INDENT * lines


def _more(suite: ET.Element, classname: str, reason: Reason, what: str) -> None:
    """Stand for what has no room; `reason` is that of the first left out, since the gravest come first."""
    case = ET.SubElement(suite, "testcase", classname=classname, name=MORE_CASE)
    _outcome(case, reason, f"{what} in report.json", "")


def _case(workload: str, row: view.Row) -> ET.Element:
    case = ET.Element("testcase", classname=workload, name=_clean(row.name))
    bounds = (("interval", row.interval), ("floor", row.floor), ("minimum detectable effect", row.mde))
    known = [f"{name} {value}" for name, value in bounds if value != fmt.NOTHING]
    lines = [row.sentence, row.told, *row.notes, ", ".join(known), f"verdict: {row.verdict}"]
    _outcome(case, row.reason, row.sentence, "\n".join(line for line in lines if line))
    return case


def _outcome(case: ET.Element, reason: Reason, message: str, detail: str) -> None:
    outcome = OUTCOMES.get(reason)
    if outcome is None:
        ET.SubElement(case, "system-out").text = _clean(detail or message)
        return
    mark = ET.SubElement(case, outcome, message=_clean(f"{words.REASONS[reason].label}: {message}"))
    if outcome != "skipped":
        mark.set("type", reason.value)
    mark.text = _clean(detail)


def _count(suite: ET.Element) -> None:
    cases = list(suite.iter("testcase"))
    suite.set("tests", str(len(cases)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(tag) is not None for case in cases)))


def _clean(text: str) -> str:
    return "\n".join(map(fmt.displayed, text.split("\n")))
