"""A table of a TOML file as a struct. A mistake in it is one line that says what would be right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from ai_prof.gate.metrics import COUNTS, METRICS, Floor, Policy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T", bound=msgspec.Struct)

LARGEST_FLOOR = 1e6  # of any unit; what is much larger makes infinities


def convert(table: Mapping[str, Any], kind: type[T]) -> T:
    """The table as a `kind`. Raises ValueError, with the line, where it is none."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_explained(str(error), table, kind)) from error


def rule_mistakes(floors: Mapping[str, Floor], policy: Mapping[str, Policy]) -> Iterator[str]:
    """What no run can be judged by: each thing that is wrong with the rules."""
    if strange := sorted({*floors, *policy} - set(METRICS)):
        yield f"unknown metrics {', '.join(strange)}; there are: {', '.join(METRICS)}"
    for key, floor in floors.items():
        if not (0 <= floor.relative <= LARGEST_FLOOR and 0 <= floor.absolute <= LARGEST_FLOOR):
            yield (
                f"floors of {key} must be 0 or more, and {LARGEST_FLOOR:g} at most; "
                "what shall never fail has the policy warn or ignore"
            )
        if key in {metric.key for metric in COUNTS}:
            yield f"{key} takes no floor: counts are compared exactly, and only policy lets one change"


def _explained(error: str, table: Mapping[str, Any], kind: Any) -> str:
    """What msgspec says, with what it leaves out: the key below a table, and what is allowed."""
    found = re.search(r" - at `\$\.([\w-]+)(\[\.\.\.\])?", error)
    if found is not None:
        name, below = found.groups()
        kind = next(field.type for field in msgspec.structs.fields(kind) if field.encode_name == name)
        if below:
            kind = get_args(kind)[1]
            key = next(key for key, value in table[name].items() if not _fits(value, kind))
            error = error.replace(below, f".{key}", 1)
    if error.startswith("Invalid enum value"):
        error += f": it takes {' or '.join(get_args(kind))}"
    if error.startswith("Object contains unknown field"):
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        error += f"; there are: {', '.join(known)}"
    return error


def _fits(value: object, kind: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
