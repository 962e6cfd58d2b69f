"""Baseline files of older schema versions, brought to the present one as plain JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 2


def migrated(head: dict[str, Any], version: int) -> dict[str, Any]:
    """The contents of a file of `version`, at most VERSION, as one of VERSION says them."""
    for step in range(version, VERSION):
        head = STEPS[step](head)
    return {**head, "schema": f"ai-prof/baseline/{VERSION}"}


def _log_and_anchor(head: dict[str, Any]) -> dict[str, Any]:
    """Version 1 kept the last origin alone, and had no anchor: the next refresh pins one."""
    sessions = len({run.get("session") for run in head.get("runs", [])})
    entry = {**head.get("origin", {}), "sessions": sessions, "runs": len(head.get("runs", []))}
    return {**head, "log": [entry], "anchor": None}


STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _log_and_anchor}
