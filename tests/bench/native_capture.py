"""Writes a capture of any number of records at level `api`, through the record table, block by block.

A thousand records are one training iteration of 20 ms: a copy of the batch, launches of 490 kernels on two
streams (eight layers of 61 names between others), seven more copies and two synchronizes, each with the host
call that asked for it.
"""

from __future__ import annotations

import json
import struct
from typing import IO, TYPE_CHECKING

import numpy as np
from crc32c import crc32c

from ai_prof.trace.model import CallKind, CopyKind, SyncKind
from ai_prof.trace.readers.native_format import HOST_CLOCK, MAGIC, MAJOR, NONE32, RECORDS, BlockType

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

PER_ITERATION = 1000  # records
LAUNCHES, COPIES, SYNCS = 490, 8, 2  # each with its call
ITERATION_NS = 20_000_000
BATCH = 64  # iterations made at once
PER_BLOCK = 4096  # records
NAMES = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize", "NVIDIA H200")
KERNELS = tuple(f"void gemm<float, {number}>(float const*, float*, int)" for number in range(500))
FIRST_KERNEL = 1 + len(NAMES)
LAYER = 61  # kernels


def write_capture(path: Path, records: int) -> None:
    """Write so many records, in thousands."""
    iterations = records // PER_ITERATION
    with path.open("wb") as file:
        _write_header(file)
        _write_block(file, BlockType.STRING, 1, _strings())
        _write_records(file, BlockType.DEVICE, _device())
        _write_records(file, BlockType.CLOCK, _clock(iterations * ITERATION_NS))
        for first in range(0, iterations, BATCH):
            for kind, rows in _iterations(first, min(BATCH, iterations - first)).items():
                for begin in range(0, len(rows), PER_BLOCK):
                    _write_records(file, kind, rows[begin : begin + PER_BLOCK])
        end = np.zeros(1, RECORDS[BlockType.END])
        end["reason"] = 1
        _write_records(file, BlockType.END, end)


def _iterations(first: int, count: int) -> dict[BlockType, npt.NDArray[np.void]]:
    """The records of some iterations: rows of `submissions` calls each, the last two synchronizes."""
    submissions = LAUNCHES + COPIES + SYNCS
    random = np.random.default_rng(first)
    slot = np.arange(submissions)
    copies, syncs = slot % LAYER == 0, slot >= submissions - SYNCS
    copies[-LAYER:] = False
    begin = 1_000_000_000 + (first + np.arange(count)[:, None]) * ITERATION_NS
    called = begin + slot * 30_000 + random.integers(0, 5_000, (count, submissions))
    correlation = (first + np.arange(count)[:, None]) * submissions + slot + 1
    calls = np.zeros((count, submissions), RECORDS[BlockType.CALL])
    calls["start"], calls["end"] = called, called + 6_000
    calls["name"] = np.where(syncs, 3, np.where(copies, 2, 1))
    calls["kind"] = np.where(syncs, CallKind.SYNC, np.where(copies, CallKind.COPY, CallKind.LAUNCH))
    calls["thread"], calls["correlation"] = 4711, correlation
    calls["end"][:, syncs] += 400_000
    work = {
        "start": called + 10_000,
        "correlation": correlation,
        "stream": np.broadcast_to(7 + slot % 2, called.shape),
    }
    shape = (count, submissions)
    kernels = _device_work(BlockType.KERNEL, work, ~copies & ~syncs, random.integers(2_000, 40_000, shape))
    kernels["name"] = FIRST_KERNEL + np.where((slot > 5) & (slot < 490), slot % LAYER, slot)[~copies & ~syncs]
    kernels["grid"], kernels["block"], kernels["registers"] = (132, 1, 1), (256, 1, 1), 64
    memory = _device_work(BlockType.MEMCPY, work, copies, random.integers(5_000, 20_000, shape))
    memory["kind"], memory["bytes"] = CopyKind.DEVICE_TO_DEVICE, 1 << 20
    memory["kind"][:, 0] = CopyKind.HOST_TO_DEVICE
    waits = np.zeros((count, SYNCS), RECORDS[BlockType.SYNC])
    waits["start"], waits["end"] = called[:, syncs] + 1_000, called[:, syncs] + 405_000
    waits["kind"], waits["correlation"], waits["thread"] = (
        SyncKind.STREAM_SYNCHRONIZE,
        correlation[:, syncs],
        NONE32,
    )
    waits["stream"] = 7
    tables = {
        BlockType.CALL: calls,
        BlockType.KERNEL: kernels,
        BlockType.MEMCPY: memory,
        BlockType.SYNC: waits,
    }
    return {kind: rows.reshape(-1) for kind, rows in tables.items()}


def _device_work(
    kind: BlockType,
    work: dict[str, npt.NDArray[np.int64]],
    chosen: npt.NDArray[np.bool_],
    length: npt.NDArray[np.int64],
) -> npt.NDArray[np.void]:
    rows = np.zeros((len(length), int(chosen.sum())), RECORDS[kind])
    for name, values in work.items():
        rows[name] = values[:, chosen]
    rows["end"] = rows["start"] + length[:, chosen]
    rows["context"] = 1
    return rows


def _write_header(file: IO[bytes]) -> None:
    text = json.dumps(
        {"capture_id": "bench", "host": "h", "pid": 4711, "command_line": ["train"], "level": "api"}
    ).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<8sHHIII", MAGIC, MAJOR, 0, len(text), crc32c(text), 0) + text)


def _strings() -> bytes:
    """All names, numbered from 1, as the payload of a block."""
    names = [name.encode() for name in (*NAMES, *KERNELS)]
    entries = [
        struct.pack("<II", number, len(name)) + name + bytes(-len(name) % 4)
        for number, name in enumerate(names, 1)
    ]
    return b"".join(entries)


def _device() -> npt.NDArray[np.void]:
    rows = np.zeros(1, RECORDS[BlockType.DEVICE])
    rows["name"], rows["kind"], rows["units"] = 4, 1, 132
    return rows


def _clock(until: int) -> npt.NDArray[np.void]:
    """A reading a second."""
    rows = np.zeros(until // 1_000_000_000 + 3, RECORDS[BlockType.CLOCK])
    rows["source"] = rows["monotonic"] = np.arange(len(rows)) * 1_000_000_000
    rows["realtime"] = rows["source"] + 1_700_000_000_000_000_000
    rows["clock"], rows["uncertainty"] = HOST_CLOCK, 100
    return rows


def _write_records(file: IO[bytes], kind: BlockType, rows: npt.NDArray[np.void]) -> None:
    _write_block(file, kind, rows.dtype.itemsize, rows.tobytes())


def _write_block(file: IO[bytes], kind: BlockType, record_size: int, payload: bytes) -> None:
    fields = struct.pack("<III", kind, record_size, len(payload) // record_size)
    file.write(fields + struct.pack("<I", crc32c(fields + payload)) + payload + bytes(-len(payload) % 8))
