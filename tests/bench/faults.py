"""The fault matrix: every workload with every fault of its own, at two strengths, through the whole gate.

    python tests/bench/faults.py [--minutes 20] [--forked] [WORKLOAD...]

Makes the builds of `faults.toml` that have no verdict on this machine yet: those without a fault first, then
the usual strengths, then the weak ones. These are settled by fresh runs of head alone where the baseline is
of another commit, which takes a third of the time; last come those that were, anew with that commit as base,
what was missed or not named first ahead. What base settled is made anew where its report named something
else, since sentences change. HEAD is measured, in a checkout of its own, so that base can be run again; a
missing baseline is recorded by a workload's first build. The raw figures are written after each build,
docs/faults.md at the end: a call that is ended early loses one build, and the next one goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parent))
import fault_page
from record import parents

from ai_prof.baselines.files import write_file
from ai_prof.cli import settings
from ai_prof.errors import AiProfError
from ai_prof.gate.model import Evidence
from ai_prof.runs import base, checkout
from ai_prof.runs.gated import Request, gate, prepare
from ai_prof.runs.workloads import find

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ai_prof.runs.gated import Scene
    from ai_prof.runs.workloads import Workload

ROOT = Path(__file__).parents[2]
PLAN = Path(__file__).with_name("faults.toml")
RAW = Path(__file__).parent / "figures" / "faults.jsonl"
PAGE = ROOT / "docs" / "faults.md"
FORKED = "torch"  # what takes seconds to import


class Plan(fault_page.Words, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`faults.toml`."""

    strengths: dict[str, dict[str, list[float]]]


class Cell(NamedTuple):
    """A build to make."""

    workload: str
    fault: str | None


class Missing(NamedTuple):
    """The builds that were never made, and those to be made anew with base."""

    never: list[Cell]
    again: list[Cell]


def cells(plan: Plan, workloads: Iterable[Workload]) -> list[Cell]:
    """The builds of some workloads: without a fault, then by strength, the usual ones first.

    Of one strength, each workload's first faults come before any one's second: whatever time there is, it is
    shared out.
    """
    made: list[tuple[tuple[int, int], Cell]] = []
    for workload in workloads:
        made.append(((0, 0), Cell(workload.name, None)))
        for turn, (fault, strengths) in enumerate(plan.strengths.get(workload.name, {}).items()):
            made += [((i, turn), Cell(workload.name, f"{fault}={x:g}")) for i, x in enumerate(strengths, 1)]
    return [cell for _, cell in sorted(made, key=lambda each: each[0])]


def sizes(plan: Plan) -> Counter[str]:
    """How many builds each workload's matrix has."""
    return Counter(cell.workload for cell in cells(plan, find(ROOT / "workloads")))


def load(path: Path) -> list[fault_page.Row]:
    """The rows that were measured before."""
    if not path.exists():
        return []
    return msgspec.json.Decoder(fault_page.Row).decode_lines(path.read_bytes())


def save(path: Path, rows: Sequence[fault_page.Row]) -> None:
    """Write all rows, at once or not at all."""
    write_file(path, msgspec.json.Encoder().encode_lines(rows))


def head_checkout(root: Path, held: contextlib.ExitStack) -> Path:
    """A clean checkout of HEAD: what is written into `root` meanwhile makes base no other code.

    It stays until `held` is closed.
    """
    commit = checkout.inspect(root).commit
    if commit is None:
        sys.exit(f"{root} is not in git: base could not be run again")
    return base.worktree(root, commit, None, 0.0, held).root


def missing(plan: Plan, scene: Scene, rows: Iterable[fault_page.Row]) -> Missing:
    """The cells that can be run here and have no verdict of this kind of machine, or one of head alone.

    Of the latter those come first whose fault was not found, or not named first, and is not a weaker one.
    What base settled is made anew only where its fault was found and not named, never until it is found.
    """
    done = {row.key: row for row in fault_page.latest(rows) if row.done}
    made = [(done.get((scene.machine_key, *cell)), cell) for cell in cells(plan, scene.ready)]
    again = [(row, cell) for row, cell in made if row is not None and _better_settled(plan, row)]
    again.sort(key=lambda each: plan.named(each[0]) or plan.weak(each[0]))
    return Missing([cell for row, cell in made if row is None], [cell for _, cell in again])


def _better_settled(plan: Plan, row: fault_page.Row) -> bool:
    """Whether a build is worth another, with base: it had none, or its report named something else."""
    unnamed = plan.found(row) and not plan.named(row) and not plan.weak(row)
    return row.evidence is Evidence.REPEATED or unnamed


def build(request: Request, cell: Cell, *, forked: bool) -> fault_page.Row:
    """Make one build; its row."""
    begun = time.monotonic()
    with gate(replace(request, names=(cell.workload,), regress=cell.fault)) as verdict:
        return fault_page.row_of(verdict, *cell, time.monotonic() - begun, forked=forked)


@contextlib.contextmanager
def forks(scene: Scene, *, wanted: bool) -> Iterator[dict[str, str]]:
    """By workload that imports the framework, an interpreter that forks programs out of one that has."""
    names = [workload.name for workload in scene.ready if wanted and FORKED in workload.requires]
    if not names:
        yield {}
        return
    python = scene.pythons[names[0]]
    with tempfile.TemporaryDirectory() as folder, parents(Path(folder), python, [FORKED], 1) as (fork,):
        yield dict.fromkeys(names, fork)


def run(request: Request, plan: Plan, raw: Path, minutes: float, *, forked: bool) -> None:
    """Make the builds that are missing, as many as fit into the minutes.

    None is begun that takes as long as one with the same fault did where that is more than is left.
    """
    end = time.monotonic() + 60 * minutes
    rows, scene = load(raw), prepare(request)
    never, again = missing(plan, scene, rows)
    todo = [*((cell, None) for cell in never), *((cell, request.build) for cell in again)]
    made: dict[tuple[str, str | None], float] = {}
    left = len(todo)
    with forks(scene, wanted=forked) as pythons:
        for cell, command in todo:
            kind = ((cell.fault or "").partition("=")[0], command)
            if time.monotonic() + made.get(kind, 0.0) >= end:
                continue
            python = pythons.get(cell.workload)
            this = replace(request, python=python or request.python, build=command)
            row = build(this, cell, forked=python is not None)
            made[kind] = max(made.get(kind, 0.0), row.seconds)
            rows.append(row)
            left -= 1
            save(raw, rows)
            what = f"{row.workload} {row.fault or 'without a fault'}: {row.reason.value}"
            print(f"{what}, {row.runs} runs, {row.seconds:.0f} s: {row.said or row.why}", flush=True)
    print(f"{left} of {len(todo)} builds are still missing", flush=True)


def measure(options: argparse.Namespace, plan: Plan, tree: Path) -> None:
    """Add what the minutes allow to the raw figures, of the code in `tree`."""
    request = Request(
        root=tree,
        workloads=tree / "workloads",
        baselines=tree / "baselines",
        names=tuple(options.workload),
        device=options.device,
        python=options.python,
        build=settings.load(tree).build,
        record=True,
    )
    try:
        run(request, plan, options.raw, options.minutes, forked=options.forked)
    except AiProfError as error:
        sys.exit(f"{error}")


def main() -> None:
    """Build what is missing, and write the page."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", nargs="*", help="default: all that can run here")
    parser.add_argument("--minutes", type=float, default=20.0, help="0 writes the page alone")
    parser.add_argument("--device", choices=("auto", "cuda", "opencl"), default="auto")
    parser.add_argument("--python", help="the interpreter of the workloads")
    parser.add_argument(
        "--forked", action="store_true", help=f"of what imports {FORKED}: saves seconds a launch"
    )
    parser.add_argument("--raw", type=Path, default=RAW, help="the file of raw figures to go on with")
    options = parser.parse_args()
    plan = msgspec.toml.decode(PLAN.read_bytes(), type=Plan)
    if options.minutes > 0:
        with contextlib.ExitStack() as held:
            measure(options, plan, head_checkout(ROOT, held))
    PAGE.write_text(fault_page.page(load(options.raw), plan, sizes(plan)), encoding="utf-8")


if __name__ == "__main__":
    main()
