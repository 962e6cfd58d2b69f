"""The records of an `.aiprof` file as numpy dtypes: the Python side of `capture/include/ai_prof/format.h`."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

MAGIC = b"AIPROF\r\n"
MAJOR = 1
NONE32 = 0xFFFFFFFF
NONE64 = 0xFFFFFFFFFFFFFFFF
HOST_CLOCK = 0xFFFFFFFE
END_ERROR = 5  # of an END block: what was asked for is not all there


class BlockType(IntEnum):
    """What the records of a block are."""

    STRING = 1
    DEVICE = 2
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    SYNC = 6
    CALL = 7
    OVERHEAD = 8
    RANGE = 9
    CLOCK = 10
    SAMPLE = 11
    LOSS = 12
    META = 13
    END = 14


class DeviceKind(IntEnum):
    """What drives a device."""

    CUDA = 1
    OPENCL = 2


PREAMBLE = np.dtype(
    [
        ("magic", "S8"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("header_bytes", "<u4"),
        ("header_crc", "<u4"),
        ("reserved", "<u4"),
    ]
)
BLOCK_HEADER = np.dtype([("type", "<u4"), ("record_size", "<u4"), ("count", "<u4"), ("crc", "<u4")])

PAGEABLE = 2  # of the flags of a copy

_MEMORY = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("device", "<u4"),
        ("context", "<u4"),
        ("stream", "<u4"),
        ("kind", "<u4"),
        ("correlation", "<u4"),
        ("graph", "<u4"),
        ("graph_node", "<u8"),
        ("bytes", "<u8"),
        ("peer", "<u4"),
        ("flags", "<u4"),
    ]
)

# Text blocks (STRING, META) have no record and stand outside this table.
RECORDS: dict[BlockType, np.dtype[np.void]] = {
    BlockType.DEVICE: np.dtype(
        [
            ("device", "<u4"),
            ("name", "<u4"),
            ("uuid", "u1", (16,)),
            ("memory_bytes", "<u8"),
            ("kind", "<u4"),
            ("units", "<u4"),
        ]
    ),
    BlockType.KERNEL: np.dtype(
        [
            ("start", "<i8"),
            ("end", "<i8"),
            ("device", "<u4"),
            ("context", "<u4"),
            ("stream", "<u4"),
            ("name", "<u4"),
            ("correlation", "<u4"),
            ("graph", "<u4"),
            ("graph_node", "<u8"),
            ("grid", "<u4", (3,)),
            ("block", "<u4", (3,)),
            ("registers", "<u4"),
            ("shared_bytes", "<u4"),
        ]
    ),
    BlockType.MEMCPY: _MEMORY,
    BlockType.MEMSET: _MEMORY,
    BlockType.SYNC: np.dtype(
        [
            ("start", "<i8"),
            ("end", "<i8"),
            ("kind", "<u4"),
            ("correlation", "<u4"),
            ("device", "<u4"),
            ("context", "<u4"),
            ("stream", "<u4"),
            ("thread", "<u4"),
        ]
    ),
    BlockType.CALL: np.dtype(
        [
            ("start", "<i8"),
            ("end", "<i8"),
            ("name", "<u4"),
            ("kind", "<u4"),
            ("thread", "<u4"),
            ("correlation", "<u4"),
            ("result", "<i4"),
            ("reserved", "<u4"),
        ]
    ),
    BlockType.OVERHEAD: np.dtype([("start", "<i8"), ("end", "<i8"), ("kind", "<u4"), ("thread", "<u4")]),
    BlockType.RANGE: np.dtype(
        [
            ("start", "<i8"),
            ("end", "<i8"),
            ("name", "<u4"),
            ("thread", "<u4"),
            ("domain", "<u4"),
            ("reserved", "<u4"),
        ]
    ),
    BlockType.CLOCK: np.dtype(
        [
            ("source", "<i8"),
            ("monotonic", "<i8"),
            ("realtime", "<i8"),
            ("clock", "<u4"),
            ("uncertainty", "<u4"),
        ]
    ),
    BlockType.SAMPLE: np.dtype(
        [
            ("time", "<i8"),
            ("device", "<u4"),
            ("gpu_utilization", "<u4"),
            ("memory_utilization", "<u4"),
            ("sm_clock", "<u4"),
            ("memory_clock", "<u4"),
            ("temperature", "<u4"),
            ("power", "<u4"),
            ("other_processes", "<u4"),
            ("throttle_reasons", "<u8"),
            ("memory_used", "<u8"),
            ("memory_total", "<u8"),
        ]
    ),
    BlockType.LOSS: np.dtype(
        [
            ("type", "<u4"),
            ("unfinished", "<u4"),
            ("captured", "<u8"),
            ("cupti_dropped", "<u8"),
            ("invalid_time", "<u8"),
            ("budget_dropped", "<u8"),
        ]
    ),
    BlockType.END: np.dtype([("monotonic", "<i8"), ("reason", "<u4"), ("reserved", "<u4")]),
}
