"""The memory of another process, and the symbols of the libraries in it.

Symbols are looked up in memory, not in files: the target's libraries may lie in another mount namespace.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from ai_prof.errors import UsageError

if TYPE_CHECKING:
    from ai_prof.collect.procfs import Process

_DYNAMIC = 2  # PT_DYNAMIC
_STRTAB, _SYMTAB, _GNU_HASH = 5, 6, 0x6FFFFEF5  # DT_*
_SYMBOL_BYTES = 24


class Memory:
    """Reads and writes /proc/PID/mem; the kernel allows it to whoever may ptrace the process."""

    def __init__(self, process: Process, *, write: bool = False) -> None:
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        try:
            self._descriptor = os.open(process.path / "mem", flags)
        except FileNotFoundError as error:
            msg = f"there is no process {process.pid}"
            raise UsageError(msg) from error

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def __enter__(self) -> Memory:  # noqa: PYI034 - Self is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes, fewer at the end of a mapping. Raises OSError where nothing is mapped."""
        return os.pread(self._descriptor, size, address)

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data`. Raises OSError where it cannot."""
        if os.pwrite(self._descriptor, data, address) != len(data):
            msg = f"no room for {len(data)} bytes at {address:#x}"
            raise OSError(msg)

    def words(self, address: int, count: int, kind: str = "Q") -> tuple[int, ...]:
        """`count` little-endian integers of the struct code `kind`."""
        size = struct.calcsize(f"<{kind}")
        return struct.unpack(f"<{count}{kind}", self.read(address, size * count))

    def text(self, address: int, most: int = 256) -> bytes:
        """The NUL-terminated string at `address`, cut at `most` bytes."""
        return self.read(address, most).partition(b"\0")[0]


def elf_class(memory: Memory, base: int) -> int:
    """32 or 64 for the ELF image at `base`; 0 for anything else."""
    head = memory.read(base, 5)
    return {1: 32, 2: 64}.get(head[4], 0) if head[:4] == b"\x7fELF" else 0


def _dynamic_section(memory: Memory, base: int) -> dict[int, int]:
    offset, entry_bytes, count = (
        memory.words(base + 32, 1)[0],
        memory.words(base + 54, 1, "H")[0],
        memory.words(base + 56, 1, "H")[0],
    )
    for at in range(base + offset, base + offset + entry_bytes * count, entry_bytes):
        if memory.words(at, 1, "I")[0] == _DYNAMIC:
            address, _, _, size = memory.words(at + 16, 4)
            words = memory.words(base + address, size // 8)
            return dict(zip(words[::2], words[1::2], strict=False))
    return {}


def _gnu_hash(name: bytes) -> int:
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def find_symbol(memory: Memory, base: int, name: str) -> tuple[int, int] | None:
    """Address and size of the symbol `name` that the ELF image loaded at `base` exports; None without it.

    Walks the image's GNU hash table (the layout that every glibc and linker of the last fifteen years uses).
    """
    table = _dynamic_section(memory, base)
    if not {_STRTAB, _SYMTAB, _GNU_HASH} <= set(table):
        return None

    def absolute(tag: int) -> int:  # the loader has made most of them absolute, not the vDSO's
        return table[tag] if table[tag] >= base else table[tag] + base

    hashes, symbols, strings = absolute(_GNU_HASH), absolute(_SYMTAB), absolute(_STRTAB)
    buckets, first, bloom, _ = memory.words(hashes, 4, "I")
    bucket_at = hashes + 16 + 8 * bloom
    chain_at = bucket_at + 4 * buckets
    wanted = name.encode()
    wanted_hash = _gnu_hash(wanted)
    index = memory.words(bucket_at + 4 * (wanted_hash % buckets), 1, "I")[0]
    while index >= first:
        found_hash = memory.words(chain_at + 4 * (index - first), 1, "I")[0]
        if found_hash | 1 == wanted_hash | 1:
            at = symbols + _SYMBOL_BYTES * index
            string, section = memory.words(at, 1, "I")[0], memory.words(at + 6, 1, "H")[0]
            value, size = memory.words(at + 8, 2)
            if section and memory.text(strings + string, len(wanted) + 1) == wanted:
                return base + value, size
        if found_hash & 1:
            return None
        index += 1
    return None
