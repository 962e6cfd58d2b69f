"""The Trace: everything a capture recorded, as columns.

All times are int64 nanoseconds on one clock, CLOCK_MONOTONIC of the host for native captures.
`device` columns hold positions in `Trace.devices`, `name` columns positions in `Trace.names`,
`process` columns positions in `Trace.processes`; -1 stands for "unknown" in every id column.
`correlation` joins device work and synchronizes to the host call that asked for them and is unique in
the whole trace; 0 means that there is none. Rows of every table are sorted by start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

_TELLING = 0.1  # share of the files' bytes


class _Kind(IntEnum):
    """What a record is of."""

    @property
    def words(self) -> str:
        """Its name for people: `host to device`."""
        return self.name.lower().replace("_", " ")


class CopyKind(_Kind):
    """Direction of a copy; SET is a memset."""

    UNKNOWN = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    PEER_TO_PEER = 4
    HOST_TO_HOST = 5
    SET = 6


class SyncKind(_Kind):
    """What waited for what. STREAM_WAIT_EVENT holds back a stream and not the host."""

    UNKNOWN = 0
    EVENT_SYNCHRONIZE = 1
    STREAM_WAIT_EVENT = 2
    STREAM_SYNCHRONIZE = 3
    CONTEXT_SYNCHRONIZE = 4
    BLOCKING_COPY = 5


class CallKind(_Kind):
    """What a host call asks of the driver."""

    OTHER = 0
    LAUNCH = 1
    COPY = 2
    SYNC = 3
    ALLOC = 4
    FREE = 5
    HOST_ALLOC = 6
    MODULE_LOAD = 7
    GRAPH_INSTANTIATE = 8
    GRAPH_LAUNCH = 9
    MAP = 10


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of one kind: kept, and lost in each of three ways.

    `unfinished` is no loss: work in flight when the capture ended, outside of what was asked for.
    """

    captured: int = 0
    cupti_dropped: int = 0
    invalid_time: int = 0
    budget_dropped: int = 0
    unfinished: int = 0

    def __add__(self, other: Loss) -> Loss:
        """Those of both."""
        return Loss(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    @property
    def lost(self) -> int:
        """All that is missing."""
        return self.cupti_dropped + self.invalid_time + self.budget_dropped


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or OpenCL device. `ordinal` is the id its process used; `uuid` is hex or None."""

    ordinal: int
    name: str
    uuid: str | None = None
    memory_bytes: int = 0
    kind: str = "cuda"
    units: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the capture. `header` is the file's own JSON with later META keys merged in.

    Where its file is cut or damaged, records of some kinds are missing after `known_until` (ns).
    """

    pid: int
    host: str
    command_line: tuple[str, ...] = ()
    rank: int | None = None
    header: dict[str, Any] = field(default_factory=dict)
    known_until: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Where the trace came from. `complete` is False for a cut or unclosed file; `warnings` says so.

    `read` is the share of the files' bytes that could be read, where that is known.
    """

    format: str
    files: tuple[str, ...]
    complete: bool = True
    losses: dict[str, Loss] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    read: float = 1.0

    @property
    def mostly_lost(self) -> bool:
        """Whether what could be read is too little to say anything of the rest."""
        return self.read < _TELLING

    @property
    def shown_files(self) -> list[str]:
        """The files' names to print or store: what is no UTF-8 in them is escaped."""
        return [file.encode("utf-8", "backslashreplace").decode() for file in self.files]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernel executions, n rows; grid and block are (n, 3)."""

    start: I64
    end: I64
    device: I32
    process: I32
    context: I64
    stream: I64
    name: I32
    correlation: I64
    graph: I64
    graph_node: I64
    grid: I32
    block: I32
    registers: I32
    shared_bytes: I32


@dataclass(frozen=True, slots=True)
class Memory:
    """Copies and memsets (kind SET), n rows; `pageable` is 1 where the host's side is known to be, else 0."""

    start: I64
    end: I64
    device: I32
    process: I32
    context: I64
    stream: I64
    kind: I32
    correlation: I64
    graph: I64
    graph_node: I64
    bytes: I64
    pageable: I32


@dataclass(frozen=True, slots=True)
class Syncs:
    """Host synchronizations and stream waits, n rows. Not GPU work."""

    start: I64
    end: I64
    device: I32
    process: I32
    stream: I64
    thread: I64
    kind: I32
    correlation: I64


@dataclass(frozen=True, slots=True)
class Calls:
    """Host calls into the driver or runtime, n rows."""

    start: I64
    end: I64
    process: I32
    thread: I64
    name: I32
    kind: I32
    correlation: I64
    result: I32


@dataclass(frozen=True, slots=True)
class Ranges:
    """NVTX ranges and framework steps, n rows."""

    start: I64
    end: I64
    process: I32
    thread: I64
    name: I32


@dataclass(frozen=True, slots=True)
class Samples:
    """NVML readings, n rows; -1 where the card does not report the field."""

    time: I64
    device: I32
    process: I32
    gpu_utilization: I64
    memory_utilization: I64
    sm_clock_mhz: I64
    memory_clock_mhz: I64
    temperature_c: I64
    power_mw: I64
    other_processes: I64
    throttle_reasons: I64
    memory_used: I64
    memory_total: I64


@dataclass(frozen=True, slots=True)
class Stacks:
    """Sampled Python stacks, n rows: a thread stood in `frames[stack]`, the outermost first.

    Times may be off by `error_ns`, and by the time between two samples.
    """

    start: I64
    end: I64
    process: I32
    thread: I64
    stack: I32
    frames: tuple[tuple[str, ...], ...]
    error_ns: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole capture. `realtime_offset_ns` added to a time gives CLOCK_REALTIME; None if unknown."""

    source: Source
    names: tuple[str, ...]
    devices: tuple[Device, ...]
    processes: tuple[Process, ...]
    kernels: Kernels
    memory: Memory
    syncs: Syncs
    calls: Calls
    ranges: Ranges
    samples: Samples
    realtime_offset_ns: int | None = None
    stacks: Stacks | None = None
