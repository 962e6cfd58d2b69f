"""What an installed ai-prof whose capture is off adds to the start of a Python: from the start to its end.

Two bare virtual environments that differ in the package's start-up line, interleaved runs, minima. The bound
is 1 ms. Usage: python tests/bench/startup.py [ROUNDS]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from minima import added

LINE = Path(__file__).parents[2] / "capture" / "ai_prof.pth"


def environment(folder: Path, *, installed: bool) -> str:
    """Make a virtual environment; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    if installed:
        shutil.copy(LINE, site_packages)
    return str(folder / "bin" / "python")


def start_ms(python: str) -> float:
    """Time of a Python that does nothing; ms."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("AI_PROF_", "PYTHON"))}
    before = time.perf_counter()
    subprocess.run([python, "-c", "pass"], env=env, check=True)
    return (time.perf_counter() - before) * 1e3


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    times: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        pythons = {known: environment(Path(folder) / str(known), installed=known) for known in times}
        for _ in range(rounds):
            for installed, python in pythons.items():
                times[installed].append(start_ms(python))
    more, (low, high) = added(times[False], times[True])
    sys.stdout.write(
        f"a Python starts and ends in {min(times[False]):.2f} ms; with ai-prof installed and off "
        f"{more:+.3f} ms ({low:+.3f} to {high:+.3f}, {rounds} rounds)\n"
    )


if __name__ == "__main__":
    main()
