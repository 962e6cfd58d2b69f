"""Sessions: the unit between which conditions change. A new boot or an hour's pause starts one."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ai_prof.gate.model import Run

PAUSE = timedelta(hours=1)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The id that the kernel drew at this boot."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def current(earlier: Iterable[Run], now: datetime, boot: str) -> str:
    """The session that a run at `now` (aware) belongs to, given all runs that were kept before.

    It is that of this boot's latest run, if that is less than an hour old, else a new one named
    "<UTC time>-<boot id prefix>". What other machines added meanwhile ends no session of this one.
    """
    ours = (run for run in earlier if run.session.endswith(f"-{boot[:8]}"))
    latest = max(ours, key=started, default=None)
    if latest is not None:
        pause = now - started(latest)
        if timedelta(0) <= pause < PAUSE:
            return latest.session
    return f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}-{boot[:8]}"


def joined(runs: Iterable[Run], kept: Sequence[Run], now: datetime, boot: str) -> list[Run]:
    """`runs`, in the session of those that were `kept` while they were made, by a build at the same time."""
    session = current(kept, now, boot)
    meanwhile = any(run.session == session for run in kept)
    return [msgspec.structs.replace(run, session=session) if meanwhile else run for run in runs]


def started(run: Run) -> datetime:
    """When a run started, aware."""
    return datetime.fromisoformat(run.started.replace("Z", "+00:00"))
