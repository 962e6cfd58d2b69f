"""What has grown in a process, mapping by mapping, as the GPU checks tell it."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("gpu")))
from resident import Resident

from ai_prof.collect.procfs import Mapping

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


def held(*mappings):
    """Mappings of (start, end, kB there, path)."""
    listed = [(Mapping(start, end, "rw-p", 0, path), kb) for start, end, kb, path in mappings]
    return Resident({"RssAnon": sum(kb for _, kb in listed)}, listed)


def test_neighbours_that_are_joined_are_no_growth():
    before = held((0x10000, 0x12000, 8, ""), (0x12000, 0x14000, 4, ""), (0x20000, 0x21000, 4, "/lib/a"))
    after = held((0x10000, 0x14000, 12, ""), (0x20000, 0x22000, 8, "/lib/a"))
    assert after.changes(before) == ["+4 kB: /lib/a, rw-p"]
    assert after.since(before) == "anon +0.00 MB, -1 mappings"


def test_what_is_new_and_what_is_gone_are_told_apart():
    before = held((0x10000, 0x12000, 8, ""), (0x30000, 0x31000, 4, "/lib/b"))
    after = held((0x8000000, 0x9000000, 100, ""))
    assert after.changes(before) == [
        "+100 kB: new: a thread's heap of 16384 kB, rw-p",
        "-8 kB: gone: anonymous of 8 kB, rw-p",
        "-4 kB: gone: /lib/b, rw-p",
    ]


def test_a_process_is_looked_at_as_it_is():
    before = Resident.of(os.getpid())
    with mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"x" * len(memory))
        after = Resident.of(os.getpid())
        assert after.parts["RssAnon"] - before.parts["RssAnon"] > 30 << 10
        assert int(after.changes(before)[0].split()[0]) > 30 << 10
