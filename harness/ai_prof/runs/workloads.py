"""Reference workloads: programs that know nothing of ai_prof, each with a `workload.toml` beside it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ai_prof.baselines import store
from ai_prof.baselines.files import read_file
from ai_prof.errors import WorkloadError
from ai_prof.gate.metrics import COUNTS, Backend, Floor, Policy, Rules
from ai_prof.runs.tables import convert, rule_mistakes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "workload.toml"
Schema = Literal["ai-prof/workload/1"]


class Declaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of a `workload.toml`."""

    schema: Schema
    command: tuple[str, ...]
    device: Backend
    gpus: int = 1
    requires: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    timeout_s: float = 300
    env: dict[str, str] = {}
    faults: tuple[str, ...] = ()
    structure: tuple[str, ...] = ()
    floors: dict[str, Floor] = {}
    policy: dict[str, Policy] = {}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One workload, as its `workload.toml` in `folder` declares it.

    `command` runs with `folder` as its working directory; a leading `python` in it stands for the chosen
    interpreter. `requires` names importable modules, `programs` commands on PATH.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    device: Backend
    gpus: int
    requires: tuple[str, ...]
    programs: tuple[str, ...]
    timeout_s: float
    env: dict[str, str]
    faults: tuple[str, ...]
    rules: Rules

    def regress(self, fault: str | None) -> str | None:
        """`fault` (NAME or NAME=STRENGTH) where this workload knows it; None where it is a control."""
        return fault if fault is not None and fault.partition("=")[0] in self.faults else None


def find(root: Path) -> list[Workload]:
    """Every workload in a folder of `root`, by name.

    Raises WorkloadError where `root` holds none, or where a `workload.toml` is wrong; PermissionError where a
    folder may hold one that we may not see: it would not be gated.
    """
    files = [folder / FILE for folder in sorted(root.glob("*")) if _is_there(folder / FILE)]
    if not files:
        raise WorkloadError(
            f"no workloads in {root}: expected NAME/{FILE} there: `ai-prof init` makes an example, "
            "`workloads` in [tool.ai-prof] names another folder"
        )
    return [load(file) for file in files]


def _is_there(file: Path) -> bool:
    """Whether there is such a file, of which `Path.exists` and globs may say no where they may not look."""
    try:
        file.stat()
    except PermissionError:
        raise
    except OSError:
        return False
    return True


def load(file: Path) -> Workload:
    """The workload that a `workload.toml` declares. Raises WorkloadError where it cannot be used."""
    name = file.parent.name
    if not name.isprintable() or name.endswith(store.RESERVED):
        raise WorkloadError(
            f"{file}: {name!r} can't be the name of a workload, which its files take: rename the folder to "
            f"printable UTF-8 that does not end with {' or '.join(store.RESERVED)}"
        )
    try:
        table = tomllib.loads(read_file(file).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{file}: cannot be read ({error}): mend it") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise WorkloadError(f"{file}: not valid TOML ({error}): mend it") from error
    try:
        declared = convert(table, Declaration)
    except ValueError as error:
        raise WorkloadError(f"{file}: {error}") from error
    wrong = next(_mistakes(declared), None)
    if wrong:
        raise WorkloadError(f"{file}: {wrong}")
    return Workload(
        name=name,
        folder=file.parent.resolve(),
        command=declared.command,
        device=declared.device,
        gpus=declared.gpus,
        requires=declared.requires,
        programs=declared.programs,
        timeout_s=declared.timeout_s,
        env=declared.env,
        faults=declared.faults,
        rules=Rules(floors=declared.floors, policy=declared.policy, promised=declared.structure),
    )


def select(workloads: Sequence[Workload], names: Sequence[str]) -> list[Workload]:
    """The named workloads, all where no name is given. Raises WorkloadError for an unknown name."""
    known = {workload.name: workload for workload in workloads}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise WorkloadError(f"no workload named {', '.join(unknown)}; there are: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)] if names else list(workloads)


def check_regress(workloads: Sequence[Workload], fault: str | None) -> None:
    """Raise WorkloadError where no workload knows `fault`, or where its strength is no positive number."""
    if fault is None:
        return
    name, equals, strength = fault.partition("=")
    known = sorted({each for workload in workloads for each in workload.faults})
    if name not in known:
        raise WorkloadError(f"no workload knows the fault {name!r}; there are: {', '.join(known) or 'none'}")
    if equals and not _is_positive(strength):
        raise WorkloadError(f"the strength of a fault is a number above 0, as in {name}=2, not {strength!r}")


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def _mistakes(declared: Declaration) -> Iterator[str]:
    """What types can't say: each thing that is wrong with the values, with the remedy."""
    if not declared.command or not declared.command[0]:
        yield "command is empty: give the program and its arguments"
    if not 0 < declared.timeout_s < math.inf:
        yield f"timeout_s must be above 0, not {declared.timeout_s:g}"
    if declared.gpus < 0 or (declared.device == "cuda" and declared.gpus == 0):
        yield f"gpus must be 1 or more for cuda and 0 or more for opencl, not {declared.gpus}"
    for module in declared.requires:
        if not all(part.isidentifier() for part in module.split(".")):
            yield f"requires names {module!r}, which is no importable module"
    for fault in declared.faults:
        if not fault or "=" in fault:
            yield f"faults names {fault!r}: a fault is a word without '='"
    yield from _mistakes_of_start(declared)
    yield from _mistakes_of_judging(declared)


def _mistakes_of_judging(declared: Declaration) -> Iterator[str]:
    """What no run can be judged by."""
    counts = [metric.key for metric in COUNTS]
    if strange := sorted(set(declared.structure) - set(counts)):
        yield f"structure names unknown counts {', '.join(strange)}; there are: {', '.join(counts)}"
    yield from rule_mistakes(declared.floors, declared.policy)


def _mistakes_of_start(declared: Declaration) -> Iterator[str]:
    """What no program can be started with."""
    if any("\0" in text for text in (*declared.command, *declared.env, *declared.env.values())):
        yield "command and env hold no NUL character"
    for name in declared.env:
        if not name or "=" in name:
            yield f"env names {name!r}, which is no variable"
        if name.startswith("AI_PROF_"):
            yield f"env sets {name}: the gate sets what a capture needs"
