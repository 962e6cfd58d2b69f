"""Where the verbs print what rich lays out."""

from __future__ import annotations

from typing import Any

from rich.console import Console

_UNBROKEN = 10_000  # characters: what reads a pipe or a file wants a row on one line


class OutputConsole(Console):
    """Standard output. A reader that went away is no exit code 1, as rich has it: that is a regression."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not self.is_terminal:
            self.width = _UNBROKEN

    def on_broken_pipe(self) -> None:
        """Let the command's own handler decide; called while the error is being handled."""
        raise  # noqa: PLE0704
