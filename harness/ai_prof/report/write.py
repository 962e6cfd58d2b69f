"""Write a verdict's reports into a folder: all of them or none."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ai_prof.errors import UsageError
from ai_prof.json_text import for_people
from ai_prof.report import history_plot, html, junit, markdown, terminal
from ai_prof.report.timelines import write_timelines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ai_prof.baselines.history import Point
    from ai_prof.gate.model import BuildVerdict


def write_reports(verdict: BuildVerdict, folder: Path, history: Sequence[Point] = ()) -> Path:
    """Write `index.html`, `report.json`, `report.md`, `comment.txt` and `junit.xml`; return the page's path.

    Everything is rendered and lies on the disk before the first old file is replaced, each atomically. Full
    timelines of what regressed lie beside them in `timelines/`, where the captures are still there. `history`
    are earlier builds' values, to draw.

    Raises:
        UsageError: the folder can't be made or written.

    """
    try:
        links = write_timelines(verdict, folder)
        beside = html.Beside(links, history_plot.of(history, verdict))
        contents = {
            "report.json": for_people(verdict).encode(),
            "report.md": markdown.render(verdict).encode(),
            "comment.txt": terminal.plain(verdict).encode(),
            "junit.xml": junit.render(verdict).encode(),
            "index.html": html.render(verdict, beside).encode(),
        }
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as staging:
            for name, content in contents.items():
                (Path(staging) / name).write_bytes(content)
            for name in contents:
                (Path(staging) / name).replace(folder / name)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"cannot write the report to {folder}: {reason}; name another folder with --report"
        ) from error
    return folder / "index.html"
