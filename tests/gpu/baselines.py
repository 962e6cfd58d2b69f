"""Adds a session to the baselines of a repository on this machine's GPUs.

    python tests/gpu/baselines.py OUT [WORKLOAD...]

By the command that a user has, in the working folder. OUT gets the baselines. Ends with the command's exit
code.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

REASON = "the reference workloads on another start of the machine"


def main() -> int:
    out, names = Path(sys.argv[1]), sys.argv[2:]
    refresh = (sys.executable, "-m", "ai_prof", "baseline", "refresh", "--reason", REASON, *names)
    code = subprocess.run(refresh, check=False).returncode
    if Path("baselines").exists():
        shutil.copytree("baselines", out / "baselines")
    return code


if __name__ == "__main__":
    sys.exit(main())
