"""Adds a session to the baselines of a repository on this machine's GPUs, then gates the code against them.

    python tests/gpu/baselines.py OUT [WORKLOAD...]

By the commands that a user has, in the working folder. OUT gets the baselines and the gate's report. Ends
with the gate's exit code, or that of a refresh that was refused.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

AI_PROF = (sys.executable, "-m", "ai_prof")
REASON = "the reference workloads on another start of the machine"


def timed(name: str, *words: str) -> int:
    """The exit code of a command of ai-prof, once its time is printed."""
    begun = time.monotonic()
    code = subprocess.run([*AI_PROF, *words], check=False).returncode
    print(f"{name}: exit {code} after {time.monotonic() - begun:.0f} s", flush=True)
    return code


def main() -> int:
    out, names = Path(sys.argv[1]), sys.argv[2:]
    code = timed("refresh", "baseline", "refresh", "--reason", REASON, *names)
    if not code:
        code = timed("gate", "gate", "--report", str(out / "reports"), *names)
    if Path("baselines").exists():
        shutil.copytree("baselines", out / "baselines")
    return code


if __name__ == "__main__":
    sys.exit(main())
