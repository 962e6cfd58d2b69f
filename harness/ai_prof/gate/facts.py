"""What files may say of a machine and of the conditions of a run, which are kept as they come.

Any fact may be there: a value, a list, or a table of facts. Those that are more than shown have a type.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from ai_prof.bounds import Amount, Count, Number

_Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Value = str | _Whole | float | bool | None
_Table = dict[str, _Value | list[_Value]]
_Member = _Value | list[_Value] | _Table
Fact = _Value | list[_Member] | dict[str, _Member]
Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""RFC 3339, with its zone."""


class Conditions(msgspec.Struct, frozen=True):
    """The conditions of a run that a report reads."""

    slowdowns: list[str] = []
    throttle_reasons: Count = 0
    foreign_cores: Amount = 0.0
    sm_clock_mhz: Number = 0.0


class Machine(msgspec.Struct, frozen=True):
    """The facts of a machine that a report reads."""

    cores: Count | None = None
    driver: dict[str, Any] | None = None
    gpus: list[dict[str, Any]] = []
    opencl: list[dict[str, Any]] = []


def check(facts: dict[str, Any], known: type[Conditions | Machine]) -> None:
    """Raise msgspec.ValidationError where they can't be what they are taken for."""
    msgspec.convert(facts, dict[str, Fact])
    msgspec.convert(facts, known)
