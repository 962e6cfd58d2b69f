"""A row of findings beside the records: what an analysis adds to a written trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ai_prof.trace.model import I32, I64


@dataclass(frozen=True, slots=True)
class Track:
    """n spans of one device, of one kind such as "gaps"; times in ns on the trace's clock.

    `name` is (n,) positions in `names`; each of `values`, by name with its unit, is (n,).
    `words` are the names as people are told them, where those are for programs.
    """

    device: int
    title: str
    start: I64
    end: I64
    name: I32
    names: tuple[str, ...]
    values: dict[str, I64]
    words: tuple[str, ...] | None = None
