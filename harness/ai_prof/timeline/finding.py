"""One thing that is wrong, with its evidence and what to do about it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Severity = Literal["info", "warning", "critical"]


class Finding(msgspec.Struct, frozen=True):
    """`saves_ms` is the most time per iteration that acting on it could return, on one device."""

    id: str
    severity: Severity
    evidence: dict[str, Any]
    saves_ms: float
    actions: list[str]
