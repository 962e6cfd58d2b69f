"""How often the gate fails simulated builds, without a change and with one, and what its profile finds.

Prints five tables: the totals through screen, flag and confirmation, the same where base can't be built
(`sim_totals.py`), both looks of the confirmation (`sim_looks.py`), the screen within one session
(`sim_session.py`), and the aligned profile (`sim_profile.py`). `--write` puts them into docs/gate.md. All
take more than an hour of one core.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
import doc_tables
import sim_looks
import sim_profile
import sim_session
import sim_totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def main() -> None:
    """Simulate, print, and write where asked."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--builds", type=int, default=1000, help="builds a setting without a change")
    parser.add_argument("--draws", type=int, default=100, help="comparisons of profiles a row")
    parser.add_argument("--only", choices=("totals", "weaker", "looks", "session", "profile"))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/gate.md")
    options = parser.parse_args()
    parts: dict[str, Callable[[], tuple[Sequence[str], Iterable[list[str]]]]] = {
        "totals": lambda: (sim_totals.HEAD, sim_totals.rows(options.builds)),
        "weaker": lambda: (sim_totals.HEAD_WEAKER, sim_totals.rows_weaker(options.builds)),
        "looks": lambda: (sim_looks.HEAD, sim_looks.rows(2 * options.builds)),
        "session": lambda: (sim_session.HEAD, sim_session.rows(options.builds)),
        "profile": lambda: (sim_profile.HEAD, sim_profile.rows(options.draws)),
    }
    for name, make in parts.items():
        if options.only in {None, name}:
            head, rows = make()
            made = []
            for row in rows:
                print(*(f"{cell:>16}" for cell in row), flush=True)
                made.append(row)
            text = doc_tables.table(head, made)
            print(text, flush=True)
            if options.write:
                doc_tables.write(f"table: {name}", text)


if __name__ == "__main__":
    main()
