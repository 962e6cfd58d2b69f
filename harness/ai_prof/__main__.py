"""`python -m ai_prof` is `ai-prof`."""

from __future__ import annotations

from ai_prof.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
