"""Runs a script of this tree in a git repository made of it, where the tree came without its history.

    python tests/gpu/in_repository.py REPOSITORY FIGURES SCRIPT [ARGUMENT...]

REPOSITORY is made where it is not there yet: a clone of dist/head.git, so that its commit is one that others
have, else of this tree in one commit. What the script keeps in tests/bench/figures
is copied to the folder FIGURES when it ends or is interrupted; its exit code is ours.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = ROOT / "dist" / "head.git"
WHO = ("-c", "user.name=tests", "-c", "user.email=tests@example.org")


def make(repository: Path) -> None:
    """A clone of HEAD, or the tree without what is built or hidden, in one commit."""
    if HEAD.exists():
        subprocess.run(["git", "clone", "-q", str(HEAD), str(repository)], check=True)
        return
    left_out = shutil.ignore_patterns(".*", "dist", "build", "reports", "__pycache__")
    shutil.copytree(ROOT, repository, ignore=left_out)
    shutil.copy(ROOT / ".gitignore", repository)
    for words in (("init", "-q"), ("add", "-A"), (*WHO, "commit", "-q", "-m", "this tree")):
        subprocess.run(["git", *words], cwd=repository, check=True)


def main() -> int:
    repository, kept = (Path(word).resolve() for word in sys.argv[1:3])
    if not repository.exists():
        make(repository)
    try:
        return subprocess.run([sys.executable, *sys.argv[3:]], cwd=repository, check=False).returncode
    finally:
        figures = repository / "tests" / "bench" / "figures"
        if figures.exists():
            shutil.copytree(figures, kept, dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
