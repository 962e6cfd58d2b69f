"""One `.aiprof` file taken apart: header, strings, and the records of each type as one array."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from crc32c import crc32c

from ai_prof.errors import TraceError
from ai_prof.trace.readers.native_format import BLOCK_HEADER, MAGIC, MAJOR, PREAMBLE, RECORDS, BlockType
from ai_prof.trace.readers.native_records import Records

if TYPE_CHECKING:
    from pathlib import Path


class _Header(msgspec.Struct):
    """The types of the keys that this reader relies on."""

    capture_id: str | None = None
    host: str = ""
    boot_id: str | None = None
    container_id: str | None = None
    pid: int | None = None
    rank: int | None = None
    command_line: list[str] | None = None
    errors: list[str] | None = None
    warnings: list[str] | None = None


DEVICE_WORK = (BlockType.KERNEL, BlockType.MEMCPY, BlockType.MEMSET)
_AHEAD = {BlockType.DEVICE, BlockType.CLOCK}  # written before any block of other records
_IN_ORDER = frozenset(RECORDS) - _AHEAD
_CHECKED_FIELDS = 12  # bytes of a block's header that stand before its CRC
_FULL_BATCH = 256 << 10  # bytes; records of one kind are written when they are that many, else in a flush


@dataclass(frozen=True, slots=True)
class NativeFile:
    """What one file holds. `fault` says in words why reading ended before an END block, or is None.

    `flushed` is device work of the blocks up to the last flush, in which all kinds of records are written; a
    fault within the next one leaves some kinds behind others. `read` of `size` bytes could be read.
    """

    path: Path
    header: dict[str, Any]
    strings: dict[int, str] = field(default_factory=dict)
    records: dict[BlockType, Records] = field(default_factory=dict)
    fault: str | None = None
    flushed: dict[BlockType, Records] = field(default_factory=dict)
    read: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class _Block:
    type: int
    record_size: int
    count: int
    crc: int
    offset: int  # of the block's header

    @property
    def payload(self) -> slice:
        begin = self.offset + BLOCK_HEADER.itemsize
        return slice(begin, begin + self.record_size * self.count)

    @property
    def end(self) -> int:
        """Where the next block begins."""
        stop: int = self.payload.stop
        return stop + -stop % 8


def is_native(path: Path) -> bool:
    """Whether a file begins as a capture does; a file cut inside its magic counts."""
    with path.open("rb") as file:
        begin = file.read(len(MAGIC))
    return begin == MAGIC or (path.suffix == ".aiprof" and MAGIC.startswith(begin))


def read_header(path: Path) -> dict[str, Any]:
    """Only the header's JSON; {} for a file cut inside it.

    Raises:
        TraceError: not a capture file, another major version, or a damaged header.

    """
    with path.open("rb") as file:
        preamble = file.read(PREAMBLE.itemsize)
        wanted = struct.unpack_from("<I", preamble, 12)[0] if len(preamble) == PREAMBLE.itemsize else 0
        return _parse_header(path, preamble + file.read(wanted)) or {}


def read_file(path: Path) -> NativeFile:
    """Everything up to the last whole and undamaged block.

    Raises:
        TraceError: not a capture file, another major version, or a damaged header.

    """
    data = _map(path)
    header = _parse_header(path, data[: PREAMBLE.itemsize + _header_bytes(data)])
    if header is None:
        nothing = "it was cut inside its header: nothing in it can be read"
        return NativeFile(path, {}, fault=nothing, size=len(data))
    blocks, fault = _walk(data, PREAMBLE.itemsize + _header_bytes(data))
    bad = _first_damaged(data, blocks)
    if bad is not None:
        share = blocks[bad].offset / len(data)
        fault = (
            f"the block at byte {blocks[bad].offset} is damaged: what follows was not read; "
            f"{share:.1%} of the file could be"
        )
        blocks = blocks[:bad]
    strings: dict[int, str] = {}
    for block in blocks:
        if block.type == BlockType.STRING:
            strings.update(_parse_strings(bytes(data[block.payload])))
        elif block.type == BlockType.META:
            header.update(_parse_json(path, bytes(data[block.payload])))
    _check_types(path, header)
    records = {kind: _collect(path, data, blocks, kind) for kind in RECORDS}
    read = blocks[-1].end if blocks else 0
    whole = blocks[: _flushed(blocks, _type_at(data, read))]
    flushed = {kind: _collect(path, data, whole, kind) for kind in DEVICE_WORK}
    if fault and any(block.type in _IN_ORDER for block in blocks[len(whole) :]):
        fault += "; some kinds of records end before others"
    if fault is None and not len(records[BlockType.END]):
        fault = "it ended without closing: the program was killed, or the capture still runs"
    return NativeFile(path, header, strings, records, fault, flushed, read, len(data))


def _map(path: Path) -> memoryview:
    """The file's bytes, mapped."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _header_bytes(data: memoryview) -> int:
    if len(data) < PREAMBLE.itemsize:
        return 0
    return int(struct.unpack_from("<I", data, 12)[0])


def _parse_header(path: Path, begin: bytes | memoryview) -> dict[str, Any] | None:
    """The header's JSON; None when the file ends inside it."""
    begin = bytes(begin)
    if begin[: len(MAGIC)] != MAGIC[: len(begin)]:
        raise TraceError(f"{path} is not a capture file: it does not begin with the magic of .aiprof")
    if len(begin) < PREAMBLE.itemsize:
        return None
    major, minor, size, crc = struct.unpack_from("<HHII", begin, len(MAGIC))
    if major != MAJOR:
        raise TraceError(
            f"{path} has format {major}.{minor}, and this ai-prof reads {MAJOR}.x: "
            "read it with the ai-prof that wrote it"
        )
    text = begin[PREAMBLE.itemsize :]
    if len(text) < size:
        return None
    if crc32c(text) != crc:
        raise TraceError(f"{path} has a damaged header (its CRC is wrong): capture again")
    header = _parse_json(path, text)
    _check_types(path, header)
    return header


def _check_types(path: Path, header: dict[str, Any]) -> None:
    try:
        msgspec.convert(header, _Header)
    except msgspec.ValidationError as error:
        raise TraceError(f"{path} has a header that cannot be read ({error}): capture again") from None


def _parse_json(path: Path, text: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise TraceError(f"{path} holds JSON that cannot be read ({error}): capture again") from None


def _walk(data: memoryview, offset: int) -> tuple[list[_Block], str | None]:
    """All blocks that are whole, and what is wrong with the file's end."""
    blocks: list[_Block] = []
    cut = "it was cut: the last {} bytes are no whole block and were not read"
    while offset < len(data):
        if offset + BLOCK_HEADER.itemsize > len(data):
            return blocks, cut.format(len(data) - offset)
        kind, record_size, count, crc = struct.unpack_from("<IIII", data, offset)
        if not kind:  # as in what a crashed file system leaves: nothing but zeros
            return blocks, f"no block begins at byte {offset}: what follows was not read"
        block = _Block(kind, record_size, count, crc, offset)
        if block.end > len(data):
            return blocks, cut.format(len(data) - offset)
        blocks.append(block)
        if block.type == BlockType.END:
            break
        offset = block.end
    return blocks, None


def _type_at(data: memoryview, offset: int) -> int:
    """The type of the block that begins there, whole or not; 0 at the file's end."""
    return int(struct.unpack_from("<I", data, offset)[0]) if offset + 4 <= len(data) else 0


def _flushed(blocks: list[_Block], following: int) -> int:
    """How many of the blocks reach up to the end of the last flush; `following` is the type of the next one.

    A flush writes the records of all kinds that wait, in the order of their types, and ends where the types
    rise no further. Between two of them, only blocks of a full batch are written. What is
    written ahead of either tells nothing.
    """
    following = following if following not in _AHEAD else 0
    for number in range(len(blocks) - 1, -1, -1):
        block = blocks[number]
        if block.type not in _IN_ORDER:
            continue
        if following <= block.type and block.record_size * block.count < _FULL_BATCH:
            return number + 1
        following = block.type
    return 0


def _first_damaged(data: memoryview, blocks: list[_Block]) -> int | None:
    """Position of the first block whose CRC does not fit."""
    for number, block in enumerate(blocks):
        fields = crc32c(data[block.offset : block.offset + _CHECKED_FIELDS])
        if crc32c(data[block.payload], fields) != block.crc:
            return number
    return None


def _parse_strings(text: bytes) -> dict[int, str]:
    """The entries {u32 id, u32 bytes, UTF-8, zeros to a multiple of 4} of one block."""
    strings = {}
    offset = 0
    while offset + 8 <= len(text):
        key, size = struct.unpack_from("<II", text, offset)
        strings[key] = text[offset + 8 : offset + 8 + size].decode("utf-8", "replace")
        offset += 8 + size + -size % 4
    return strings


def _collect(path: Path, data: memoryview, blocks: list[_Block], kind: BlockType) -> Records:
    """All records of one type, in the file's order."""
    dtype = RECORDS[kind]
    parts = []
    for block in blocks:
        if block.type != kind:
            continue
        if block.record_size != dtype.itemsize:
            raise TraceError(
                f"{path} has {kind.name} records of {block.record_size} bytes instead of {dtype.itemsize}: "
                "read it with the ai-prof that wrote it"
            )
        parts.append(np.frombuffer(data[block.payload], dtype))
    return Records(dtype, parts)
