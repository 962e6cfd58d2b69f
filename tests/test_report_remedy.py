"""The command that accepts a regression: ready in the reports, and only where it would not be refused."""

from __future__ import annotations

from html import unescape

import verdicts

from ai_prof.gate.model import Reason, StructureChange, WorkloadVerdict
from ai_prof.report import html, markdown, remedy

ALL = 'ai-prof accept torch_decode iteration_ms gap_ms gap kernel_busy --reason "..."'


def test_it_names_every_key_that_regressed_once() -> None:
    build = verdicts.mixed()
    commands = {each.workload: remedy.command(build, each) for each in build.workloads}
    # cl_tiny regressed, too, but against no baseline that lies anywhere.
    assert {name: command for name, command in commands.items() if command} == {"torch_decode": ALL}
    page = unescape(html.render(build))
    assert page.count(f"<code>{ALL}</code>") == 1
    assert markdown.render(build).count(f"<code>{ALL.replace('_', chr(92) + '_')}</code>") == 1


def test_counts_are_named() -> None:
    count = StructureChange(name="syncs", baseline=1, candidate=2, reason=Reason.REGRESSED)
    warned = StructureChange(name="kernels", baseline=1, candidate=2, reason=Reason.STRUCTURE_CHANGED)
    red: WorkloadVerdict = verdicts.workload("job", Reason.REGRESSED, structure=[count, warned])
    assert remedy.command(verdicts.build(red), red) == 'ai-prof accept job syncs --reason "..."'


def test_a_known_slowdown_is_not_to_be_accepted() -> None:
    build = verdicts.build(verdicts.regressed_by_time(), regress="slow")
    assert remedy.command(build, build.workloads[0]) == ""
    assert "ai-prof accept" not in markdown.render(build) + html.render(build)
