"""Write and read PNG files of 8-bit RGB whose rows are filtered by the row above: zlib and numpy alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RGB, UP = 2, 2


def encode(pixels: np.ndarray) -> bytes:
    """Return a file of `pixels`, uint8 of shape (height, width, 3)."""
    height, width, _ = pixels.shape
    rows = pixels.reshape(height, -1)
    above = np.vstack((np.zeros_like(rows[:1]), rows[:-1]))
    filtered = np.hstack((np.full((height, 1), UP, np.uint8), rows - above))
    header = struct.pack(">IIBBBBB", width, height, 8, RGB, 0, 0, 0)
    data = zlib.compress(filtered.tobytes(), 1)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def decode(file: bytes) -> np.ndarray:
    """Return the pixels of a file, uint8 of shape (height, width, 3). Raises ValueError for another kind."""
    if not file.startswith(SIGNATURE):
        raise ValueError("not a PNG file")
    chunks, at = {}, len(SIGNATURE)
    while at < len(file):
        size, name = struct.unpack_from(">I4s", file, at)
        body = file[at + 8 : at + 8 + size]
        if zlib.crc32(name + body) != struct.unpack_from(">I", file, at + 8 + size)[0]:
            raise ValueError(f"chunk {name.decode()} is damaged")
        chunks[name] = chunks.get(name, b"") + body
        at += 12 + size
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    if kind != [8, RGB, 0, 0, 0] or (rows[:, 0] != UP).any():
        raise ValueError("only 8-bit RGB with rows filtered by the one above is read")
    return np.add.accumulate(rows[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, 3)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
