"""Where the verbs print what rich lays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console

from ai_prof.report.format import printable
from ai_prof.say import logged

if TYPE_CHECKING:
    from rich.text import Text

_UNBROKEN = 10_000  # characters: what reads a pipe or a file wants a row on one line


class OutputConsole(Console):
    """Standard output. What stands in a name is no markup and steers no terminal.

    A reader that went away is no exit code 1, as rich has it: that is a regression.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)
        if not self.is_terminal:
            self.width = _UNBROKEN

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is printed, also within a table."""
        return super().render_str(logged(printable(text)), **options)

    def on_broken_pipe(self) -> None:
        """Let the command's own handler decide; called while the error is being handled."""
        raise  # noqa: PLE0704
