"""Where the verbs print what rich lays out."""

from __future__ import annotations

from rich.console import Console


class OutputConsole(Console):
    """Standard output. A reader that went away is no exit code 1, as rich has it: that is a regression."""

    def on_broken_pipe(self) -> None:
        """Let the command's own handler decide; called while the error is being handled."""
        raise  # noqa: PLE0704
