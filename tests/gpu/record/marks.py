"""When a program began its iterations: by its own account, on CLOCK_MONOTONIC, apart from any trace."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_S = 4.0


class Marks:
    """Times in ns by kind of marker. Where a program has none, no iteration should be found."""

    def __init__(self) -> None:
        self.times: dict[str, list[int]] = {}

    def __call__(self, kind: str = "iteration") -> None:
        self.times.setdefault(kind, []).append(time.monotonic_ns())

    def steps(self, count: int) -> Iterator[int]:
        """0, 1, ... with a marker before each; ends early, seconds after the first, which may compile."""
        end = float("inf")
        for step in range(count):
            if step == 1:
                end = time.monotonic() + LIMIT_S
            if time.monotonic() > end:
                return
            self()
            yield step

    def write(self, path: Path, program: str) -> None:
        path.write_text(json.dumps({"program": program, "clock": "monotonic", "marks": self.times}))
