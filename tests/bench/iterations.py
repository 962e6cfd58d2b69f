"""Prints how well iterations and gap causes agree with what the recorded programs say themselves.

Usage: python tests/bench/iterations.py FOLDER, of NAME.aiprof.xz and NAME.json, as tests/gpu/record
writes them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from recorded import APERIODIC, BARE, NOTABLE, PAIRS, Recorded, added_gap, load

from ai_prof.timeline.causes import CAUSES

TARGET_FOUND, TARGET_CAUSE = 0.99, 0.90


def print_iterations(captures: list[Recorded]) -> bool:
    """A line for each capture with markers, and the share of all."""
    print(
        f"{'capture':<20}{'marked':>7}{'found':>7}{'extra':>7}{'share':>8}{'confidence':>11}{'offset us':>11}"
    )
    marked = found = 0
    held = True
    for capture in captures:
        iterations = capture.timeline.iterations
        seen = f"{iterations.method} {iterations.count} at {iterations.confidence:.2f}"
        if capture.name in APERIODIC or (capture.name == BARE and iterations.method == "none"):
            held &= iterations.method == "none"
            print(f"{capture.name:<20}   none is right: {seen}")
            continue
        agreed = capture.agreement()
        marked, found = marked + agreed.marked, found + agreed.found
        held &= agreed.share >= TARGET_FOUND
        print(
            f"{capture.name:<20}{agreed.marked:>7}{agreed.found:>7}{agreed.extra:>7}{agreed.share:>8.1%}"
            f"{iterations.confidence:>6.2f}{agreed.offset_ns / 1000:>11.1f}"
        )
    print(f"all: {found} of {marked} boundaries, {found / max(marked, 1):.2%} (target {TARGET_FOUND:.0%})")
    return held


def print_causes(captures: dict[str, Recorded]) -> bool:
    """For each pair how much gap the fault adds to an iteration, and which share its causes take."""
    columns = (*CAUSES, "shadow")
    print(f"\n{'fault':<20}{'expected':<14}{'gap ms':>8}{'share':>8}  " + "".join(f"{c:>9}" for c in columns))
    held = True
    for base, fault, expected in PAIRS:
        if base not in captures or fault not in captures:
            continue
        added = added_gap(captures[base], captures[fault])
        if added["gap"] < NOTABLE * captures[base].timeline.iterations.median_ns / 1e6:
            print(f"{fault:<20}adds no gap ({added['gap']:.3f} ms)")
            continue
        share = sum(added[cause] for cause in expected) / added["gap"]
        held &= share >= TARGET_CAUSE and added["unknown"] == 0
        rest = "".join(f"{added[c]:>9.3f}" for c in columns)
        print(f"{fault:<20}{'+'.join(expected):<14}{added['gap']:>8.3f}{share:>8.1%}  {rest}")
    return held


def main() -> int:
    """Print both tables; 1 where a target is missed."""
    folder = Path(sys.argv[1])
    names = sorted(path.stem for path in folder.glob("*.json"))
    captures = {name: load(folder, name) for name in names}
    held = [print_iterations(list(captures.values())), print_causes(captures)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
