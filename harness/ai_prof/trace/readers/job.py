"""What the files of one job hold together, as other tools write them: each with its own ids and clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ai_prof.trace.model import Calls, Device, Kernels, Loss, Memory, Process, Ranges, Source, Syncs, Trace
from ai_prof.trace.tables import Names, make_tables

if TYPE_CHECKING:
    from pathlib import Path


class Job:
    """Adds file after file; ids of a file become positions in the tables of the whole."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self.names = Names()
        self.devices: list[Device] = []
        self.processes: list[Process] = []
        self.complete = True
        self.warnings: list[str] = []
        self.parts: dict[type, list[dict[str, Any]]] = {
            t: [] for t in (Kernels, Memory, Syncs, Calls, Ranges)
        }
        self._files: list[Path] = []
        self._epochs: list[int | None] = []
        self._losses: dict[str, Loss] = {}
        self._without_work: list[Path] = []

    def begin(self, path: Path, epoch_ns: int | None) -> None:
        """Begin a file; `epoch_ns` added to its times gives CLOCK_REALTIME, None where it does not say."""
        self._files.append(path)
        self._epochs.append(epoch_ns)

    def shift(self) -> int:
        """Ns to add to the times of the last file to have them on the first one's clock."""
        first, last = self._epochs[0], self._epochs[-1]
        if first is None or last is None:
            if len(self._epochs) > 1:
                self.warn("it states no epoch: its clock may differ from others")
            return 0
        return last - first

    def warn(self, text: str) -> None:
        """Say something of the last file."""
        self.warnings.append(f"{self._files[-1].name}: {text}")

    def count(self, kind: str, captured: int, invalid: int) -> None:
        """Count records of one kind, and those whose times cannot be."""
        self._losses[kind] = self._losses.get(kind, Loss()) + Loss(captured, invalid_time=invalid)

    def end(self, *, worked: bool) -> None:
        """End the last file, which may hold no device work."""
        if not worked:
            self._without_work.append(self._files[-1])

    def trace(self) -> Trace:
        """All of it."""
        if len(self._without_work) < len(self._files):
            none = [f"{path.name}: it holds no device work, unlike others" for path in self._without_work]
            self.warnings += none
        files = tuple(map(str, self._files))
        return Trace(
            source=Source(self._tool, files, self.complete, self._losses, tuple(self.warnings)),
            names=tuple(self.names),
            devices=tuple(self.devices),
            processes=tuple(self.processes),
            **make_tables(self.parts),
            realtime_offset_ns=self._epochs[0] if self._epochs else None,
        )
