"""Tables of scripts in Markdown pages: those of docs/gate.md stand between a pair of markers each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parents[2] / "docs" / "gate.md"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(name: str, text: str, page: Path = PAGE) -> None:
    """Replace what stands between `<!-- NAME -->` and `<!-- /NAME -->`; raises where that is not once."""
    old = page.read_text(encoding="utf-8")
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    new, count = marked.subn(lambda found: f"{found[1]}{text}\n{found[2]}", old)
    if count != 1:
        raise ValueError(f"{page}: has {count} places for {name}")
    page.write_text(new, encoding="utf-8")


def read(name: str, text: str) -> dict[str, list[list[str]]]:
    """The tables that `write` put under NAME into a page, by the line above each; a head and its rows."""
    between = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    found: dict[str, list[list[str]]] = {}
    title = ""
    for line in between[1].splitlines() if between else ():
        if not line.startswith("|"):
            title = line or title
        elif set(line) - set("|- "):
            found.setdefault(title, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def percent(hits: int, of: int) -> str:
    """A share in per cent: `0.3 %`, `97 %`, `100 %`."""
    share = 100 * hits / of
    return f"{share:.{1 if 0 < share < 10 else 0}f} %"
