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


def render(verdict: BuildVerdict) -> str:
    """Return the document; counts of cases, failures, errors and skips are on each suite and in all."""
    title, _ = view.headline(verdict)
    root = ET.Element("testsuites", name=_clean(f"ai-prof: {title}"))
    for workload in view.ordered(verdict.workloads):
        _suite(root, verdict, workload)
    _count(root)
    ET.indent(root)
    # ElementTree's own declaration of a text names the locale's encoding; the file is written in UTF-8.
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, verdict: BuildVerdict, workload: WorkloadVerdict) -> None:
    name = _clean(workload.workload)
    suite = ET.SubElement(root, "testsuite", name=name, timestamp=_clean(verdict.started))
    properties = ET.SubElement(suite, "properties")
    stored = {"baseline sha256": str(workload.baseline.get("sha256") or "")}
    for key, value in [*provenance.facts(verdict), *((key, value) for key, value in stored.items() if value)]:
        ET.SubElement(properties, "property", name=key, value=_clean(value))
    rows = view.rows(workload)
    for row in rows:
        _case(suite, name, row)
    if workload.reason is not Reason.PASS and all(row.reason is not workload.reason for row in rows):
        case = ET.SubElement(suite, "testcase", classname=name, name=WORKLOAD_CASE)
        _outcome(
            case, workload.reason, view.explanation(workload), "\n".join(map(fmt.typeset, workload.notes))
        )
    _count(suite)


def _case(suite: ET.Element, workload: str, row: view.Row) -> None:
    case = ET.SubElement(suite, "testcase", classname=workload, name=_clean(row.name))
    bounds = (("interval", row.interval), ("floor", row.floor), ("minimum detectable effect", row.mde))
    known = [f"{name} {value}" for name, value in bounds if value != fmt.NOTHING]
    lines = [row.sentence, row.told, *row.notes, ", ".join(known), f"verdict: {row.verdict}"]
    _outcome(case, row.reason, row.sentence, "\n".join(line for line in lines if line))


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
