"""Workloads as pytest items: one gate over all that were selected, each item its workload's verdict."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

import pytest

from ai_prof.cli.gate import recall, remember
from ai_prof.cli.gate_options import make_request
from ai_prof.cli.own_folder import make_own_folder
from ai_prof.errors import AiProfError, UsageError
from ai_prof.gate.conclude import CODES
from ai_prof.gate.model import BuildVerdict, Reason, WorkloadVerdict
from ai_prof.report.write import write_reports
from ai_prof.runs.gated import gate
from ai_prof.runs.stored import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERDICT = pytest.StashKey[tuple[BuildVerdict, "Path"]]()
ERROR = pytest.StashKey[AiProfError]()


class WorkloadFile(pytest.File):
    """A `workload.toml`."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item, named as the workload."""
        yield WorkloadItem.from_parent(self, name=self.path.parent.name)


class WorkloadItem(pytest.Item):
    """A workload to gate."""

    def runtest(self) -> None:
        """Fail where the gate would; skip where the workload cannot run."""
        build, _ = verdict_of(self.session)
        verdict = next((each for each in build.workloads if each.workload == self.name), None)
        if verdict is None:
            pytest.skip(f"not gated: it is no workload of {build.device}")
        if verdict.reason is Reason.SKIPPED:
            pytest.skip(verdict.why)
        if CODES[verdict.reason] != 0:
            raise GateError(verdict)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: None = None) -> str:  # type: ignore[override]
        """What the gate says, and where its report lies; no traceback of ours."""
        if isinstance(excinfo.value, GateError):
            _, page = self.session.stash[VERDICT]
            return f"{explained(excinfo.value.verdict)}\nreport: {page}"
        if isinstance(excinfo.value, AiProfError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands, and its name."""
        return self.path, 0, f"gate {self.name}"


class GateError(Exception):
    """A workload that does not pass."""

    def __init__(self, verdict: WorkloadVerdict) -> None:
        super().__init__(verdict.why)
        self.verdict = verdict


def verdict_of(session: pytest.Session) -> tuple[BuildVerdict, Path]:
    """The verdict over all selected workloads and its report's page; measured when first asked for.

    A gate that fails is made once as well: it would take its minutes again, and say the same.
    """
    if ERROR in session.stash:
        raise session.stash[ERROR]
    if VERDICT not in session.stash:
        try:
            session.stash[VERDICT] = _gated(
                [item for item in session.items if isinstance(item, WorkloadItem)]
            )
        except AiProfError as error:
            session.stash[ERROR] = error
            raise
    return session.stash[VERDICT]


def _gated(items: list[WorkloadItem]) -> tuple[BuildVerdict, Path]:
    names = [item.name for item in items]
    open_options = dict.fromkeys(("runs", "baselines", "python"))
    request, settings = make_request(Namespace(workload=names, device="auto", **open_options))
    outside = [item for item in items if item.path.parent.parent != request.workloads.resolve()]
    if outside:
        raise UsageError(
            f"{outside[0].path} is not in {request.workloads}: run pytest from the project's root"
        )
    reports = request.root / settings.report
    make_own_folder(reports, "set `report` in [tool.ai-prof]")
    make_own_folder(request.root / LOCAL, "run in a checkout of your own")
    with gate(request) as build:
        remember(request.root, build)
        return build, write_reports(build, reports / build.run_id, recall(request.root))


def explained(verdict: WorkloadVerdict) -> str:
    """The verdict in lines: what and why, then each count and metric that stands for it."""
    lines = [f"{verdict.workload}: {verdict.reason.value}: {verdict.why}"]
    grave = (Reason.REGRESSED, Reason.INCONCLUSIVE)
    lines += [f"  {change.name}: {change.baseline} -> {change.candidate}" for change in verdict.structure]
    lines += [f"  {cell.metric}: {cell.why}" for cell in verdict.cells if cell.reason in grave]
    return "\n".join([*lines, *(f"  note: {note}" for note in verdict.notes)])
