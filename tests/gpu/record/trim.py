"""Makes a fixture for tests of a recorded capture: its first iterations, and nothing of the machine's paths.

Usage: python tests/gpu/record/trim.py RECORDED_FOLDER NAME ITERATIONS FOLDER
"""

from __future__ import annotations

import json
import lzma
import struct
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from crc32c import crc32c

from ai_prof.trace.readers.clocks import clock_map
from ai_prof.trace.readers.native_file import NativeFile, read_file
from ai_prof.trace.readers.native_format import BLOCK_HEADER, HOST_CLOCK, MAGIC, MAJOR, RECORDS, BlockType

_TIMED = (BlockType.KERNEL, BlockType.MEMCPY, BlockType.MEMSET, BlockType.SYNC, BlockType.CALL)
_LEFT_OUT = (BlockType.OVERHEAD, BlockType.SAMPLE, BlockType.RANGE)


def block(kind: BlockType, size: int, count: int, payload: bytes) -> bytes:
    """A block with its checksum."""
    fields = struct.pack("<III", kind, size, count)
    checksum = struct.pack("<I", crc32c(fields + payload))
    assert len(fields + checksum) == BLOCK_HEADER.itemsize
    return fields + checksum + payload + bytes(-len(payload) % 8)


def strings(file: NativeFile) -> bytes:
    """All names in one block."""
    payload = b""
    for key, text in file.strings.items():
        data = text.encode()
        payload += struct.pack("<II", key, len(data)) + data + bytes(-len(data) % 4)
    return block(BlockType.STRING, 1, len(payload), payload)


def trim(file: NativeFile, until: int, name: str) -> bytes:
    """The file's records that begin before `until` (CLOCK_MONOTONIC, ns)."""
    library = str(file.header.get("cupti_path", "")).rpartition("/")[2]
    header = {**file.header, "command_line": ["python3", name], "cupti_path": library}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    parts = [struct.pack("<8sHHIII", MAGIC, MAJOR, 0, len(text), crc32c(text), 0) + text, strings(file)]
    records = {kind: rows.rows() for kind, rows in file.records.items()}
    to_monotonic = clock_map(records[BlockType.CLOCK], HOST_CLOCK)
    assert to_monotonic is not None
    kept = {}
    for kind, rows in records.items():
        early = kind not in _TIMED or to_monotonic(rows["start"].astype(np.int64)) < until
        kept[kind] = rows[np.broadcast_to(early, len(rows))]
    losses = kept[BlockType.LOSS].copy()
    losses = losses[~np.isin(losses["type"], _LEFT_OUT)]
    for loss in losses:
        loss["captured"] = len(kept.get(BlockType(int(loss["type"])), ()))
    kept[BlockType.LOSS] = losses
    order = [kind for kind in RECORDS if kind in kept and kind not in _LEFT_OUT]  # END is the last
    parts += [block(k, RECORDS[k].itemsize, len(kept[k]), kept[k].tobytes()) for k in order if len(kept[k])]
    return b"".join(parts)


def main() -> None:
    """Trim one."""
    source, name, iterations, target = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    marks = json.loads((source / f"{name}.json").read_text())
    times = sorted(time for kind in marks["marks"].values() for time in kind)
    until = times[iterations] if iterations < len(times) else 1 << 62
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "capture.aiprof"
        path.write_bytes(lzma.decompress((source / f"{name}.aiprof.xz").read_bytes()))
        data = trim(read_file(path), until, name)
    marks["marks"] = {kind: [t for t in times if t < until] for kind, times in marks["marks"].items()}
    packed = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
    (target / f"{name}.aiprof.xz").write_bytes(packed)
    (target / f"{name}.json").write_text(json.dumps(marks) + "\n")
    print(f"{name:<20}{len(packed) / 1000:>8.0f} kB, {len(data) / 1e6:.1f} MB unpacked")


if __name__ == "__main__":
    main()
