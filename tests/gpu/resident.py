"""What a process holds in memory: in parts, since a sum does not say whose it is, and mapping by mapping."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ai_prof.collect.procfs import Mapping, Process, parse_maps

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = ("RssAnon", "RssFile", "RssShmem")
HEAP_BYTES = 64 << 20  # of a thread's arena in glibc, which begins at a multiple of it


@dataclass(frozen=True)
class Resident:
    """The parts in kB, and the mappings, by address, with the kB of each that are there."""

    parts: dict[str, int]
    mappings: list[tuple[Mapping, int]]

    @classmethod
    def of(cls, pid: int) -> Resident:
        process = Process(pid)
        status = process.status()
        parts = {part: int(status[part].split()[0]) for part in PARTS}
        return cls(parts, list(parse_smaps(process.read("smaps"))))

    def __str__(self) -> str:
        megabytes = ", ".join(f"{part[3:].lower()} {kb / 1024:.2f}" for part, kb in self.parts.items())
        return f"{megabytes} MB, {len(self.mappings)} mappings"

    def since(self, before: Resident) -> str:
        """What has come to each part."""
        grown = {part: kb - before.parts[part] for part, kb in self.parts.items()}
        megabytes = ", ".join(f"{part[3:].lower()} {kb / 1024:+.2f}" for part, kb in grown.items())
        return f"{megabytes} MB, {len(self.mappings) - len(before.mappings):+d} mappings"

    def changes(self, before: Resident, most: int = 8) -> list[str]:
        """The mappings that have changed most, those of one name together.

        What was there is taken from the mapping that lies there now: neighbours are joined and cut apart.
        """
        changes: Counter[str] = Counter()
        known = list(before.mappings)
        for mapping, kb in self.mappings:
            while known and known[0][0].start < mapping.start:
                changes[f"gone: {name_of(known[0][0])}"] -= known.pop(0)[1]
            had = 0
            new = not (known and known[0][0].start < mapping.end)
            while known and known[0][0].start < mapping.end:
                had += known.pop(0)[1]
            changes[f"new: {name_of(mapping)}" if new else name_of(mapping)] += kb - had
        for mapping, kb in known:
            changes[f"gone: {name_of(mapping)}"] -= kb
        listed = sorted(changes.items(), key=lambda change: -abs(change[1]))[:most]
        return [f"{kb:+d} kB: {name}" for name, kb in listed if kb]


def parse_smaps(text: str) -> Iterator[tuple[Mapping, int]]:
    """The mappings in the text of /proc/PID/smaps, and how many kB of each are there."""
    head = ""
    for line in text.splitlines():
        if line[0].islower() or line[0].isdigit():  # an address; what follows it are fields
            head = line
        elif line.startswith("Rss:"):
            yield parse_maps(head)[0], int(line.split()[1])


def name_of(mapping: Mapping) -> str:
    """Its file and permissions; of one without a file, its size."""
    if mapping.path:
        return f"{mapping.path}, {mapping.permissions}"
    heap = mapping.start % HEAP_BYTES == 0 and mapping.permissions == "rw-p"
    what = "a thread's heap" if heap else "anonymous"
    return f"{what} of {(mapping.end - mapping.start) >> 10} kB, {mapping.permissions}"
