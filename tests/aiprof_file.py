"""Writes .aiprof files for tests, straight from FORMAT.md with `struct`: shares nothing with the reader."""

from __future__ import annotations

import json
import struct

(STRING, DEVICE, KERNEL, MEMCPY, MEMSET, SYNC, CALL, OVERHEAD, RANGE, CLOCK, SAMPLE, LOSS, META, END) = range(
    1, 15
)
NONE32 = 0xFFFFFFFF
HOST_CLOCK = 0xFFFFFFFE
HTOD, DTOH, DTOD = 1, 2, 3
EVENT_SYNC, STREAM_WAIT, STREAM_SYNC, CONTEXT_SYNC, BLOCKING_COPY = 1, 2, 3, 4, 5
LAUNCH, COPY, SYNC_CALL = 1, 2, 3

_TABLE = []
for _byte in range(256):
    _value = _byte
    for _ in range(8):
        _value = (_value >> 1) ^ (0x82F63B78 if _value & 1 else 0)
    _TABLE.append(_value)


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


class Capture:
    """Collects rows and gives the file's bytes. Ids are those of the file; times are as given."""

    def __init__(self, major: int = 1, **header: object) -> None:
        self.major = major
        self.header = {"capture_id": "c1", "host": "h", "pid": 100, "command_line": ["prog"], **header}
        self.rows: list[tuple[int, bytes]] = []
        self.counts: dict[int, int] = {}
        self.strings: dict[str, int] = {}

    def string(self, text: str) -> int:
        if text not in self.strings:
            key = self.strings[text] = len(self.strings)
            data = text.encode()
            self.rows.append((STRING, struct.pack("<II", key, len(data)) + data + bytes(-len(data) % 4)))
        return self.strings[text]

    def device(self, device: int = 0, name: str = "GPU", uuid: bytes = bytes(16), kind: int = 1) -> None:
        self.rows.append(
            (DEVICE, struct.pack("<II16sQII", device, self.string(name), uuid, 1 << 30, kind, 8))
        )

    def kernel(
        self,
        name,
        start,
        end,
        *,
        stream=7,
        correlation=0,
        device=0,
        graph=(0, 0),
        grid=(1, 1, 1),
        block=(1, 1, 1),
    ) -> None:
        self._count(KERNEL)
        self.rows.append(
            (
                KERNEL,
                struct.pack(
                    "<qqIIIIIIQ3I3III",
                    *(start, end, device, 1, stream, self.string(name), correlation, *graph),
                    *(*grid, *block, 32, 0),
                ),
            )
        )

    def memory(self, kind, start, end, *, size=0, stream=7, correlation=0, device=0, pageable=False) -> None:
        block = MEMSET if kind == 6 else MEMCPY
        self._count(block)
        values = (start, end, device, 1, stream, kind, correlation, 0, 0, size, NONE32, 2 * pageable)
        self.rows.append((block, struct.pack("<qqIIIIIIQQII", *values)))

    def sync(self, kind, start, end, *, stream=7, correlation=0, device=0, thread=1) -> None:
        self._count(SYNC)
        self.rows.append(
            (SYNC, struct.pack("<qqIIIIII", start, end, kind, correlation, device, 1, stream, thread))
        )

    def call(self, name, start, end, *, kind=LAUNCH, correlation=0, thread=1, result=0) -> None:
        self._count(CALL)
        values = (start, end, self.string(name), kind, thread, correlation, result, 0)
        self.rows.append((CALL, struct.pack("<qqIIIIiI", *values)))

    def range(self, name, start, end, thread=1) -> None:
        self._count(RANGE)
        self.rows.append((RANGE, struct.pack("<qqIIII", start, end, self.string(name), thread, NONE32, 0)))

    def clock(self, source, monotonic, realtime, clock=HOST_CLOCK, uncertainty=100) -> None:
        self.rows.append((CLOCK, struct.pack("<qqqII", source, monotonic, realtime, clock, uncertainty)))

    def sample(self, time, utilization, device=0, others=0, reasons=0) -> None:
        self._count(SAMPLE)
        values = (
            time,
            device,
            utilization,
            NONE32,
            1500,
            2600,
            50,
            300000,
            others,
            reasons,
            1 << 30,
            1 << 33,
        )
        self.rows.append((SAMPLE, struct.pack("<qIIIIIIIIQQQ", *values)))

    def loss(self, kind, captured, *, cupti=0, invalid=0, budget=0, unfinished=0) -> None:
        values = (kind, unfinished, captured, cupti, invalid, budget)
        self.rows.append((LOSS, struct.pack("<IIQQQQ", *values)))

    def meta(self, **values: object) -> None:
        self.rows.append((META, json.dumps(values).encode()))

    def blocks(self, *, closed: bool = True, reason: int = 1) -> list[bytes]:
        """Preamble with header, then the blocks: rows of one type that follow each other share one."""
        text = json.dumps(self.header).encode()
        text += b" " * (-len(text) % 8)
        parts = [struct.pack("<8sHHIII", b"AIPROF\r\n", self.major, 0, len(text), crc32c(text), 0) + text]
        run: list[bytes] = []
        for i, (kind, row) in enumerate(self.rows):
            run.append(row)
            last = i + 1 == len(self.rows) or self.rows[i + 1][0] != kind
            if last or kind == META:
                parts.append(_block(kind, run))
                run = []
        if closed:
            parts.append(_block(END, [struct.pack("<qII", 1, reason, 0)]))
        return parts

    def data(self, *, closed: bool = True, reason: int = 1) -> bytes:
        return b"".join(self.blocks(closed=closed, reason=reason))

    def write(self, folder, name="h-100-0.aiprof", *, closed=True, reason=1):
        path = folder / name
        path.write_bytes(self.data(closed=closed, reason=reason))
        return path

    def _count(self, kind: int) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1


def _block(kind: int, rows: list[bytes]) -> bytes:
    payload = b"".join(rows)
    text = kind in {STRING, META}
    fields = struct.pack("<III", kind, 1 if text else len(rows[0]), len(payload) if text else len(rows))
    return fields + struct.pack("<I", crc32c(fields + payload)) + payload + bytes(-len(payload) % 8)


class Program(Capture):
    """A simulated program: one host thread at a time, in-order streams, and every record of what it did."""

    LAUNCH_NS = 4_000
    LATENCY_NS = 2_000

    def __init__(self, *, calls: bool = True, **header: object) -> None:
        super().__init__(**header)
        self.calls = calls
        self.now = 1_000_000_000
        self.free: dict[int, int] = {}
        self.last = 0
        self.thread = 1
        self.starts: list[int] = []  # first device operation of each iteration
        self._marked = False
        self.device()
        self.clock(1, 1, 5)

    def iteration(self) -> None:
        """The next operation begins an iteration."""
        self._marked = True

    def work(self, ns: int) -> None:
        """The host computes."""
        self.now += ns

    def launch(self, name: str, ns: int, stream: int = 7, blocks: int = 1) -> None:
        start, end, correlation = self._enqueue("cudaLaunchKernel", LAUNCH, ns, stream)
        self.kernel(name, start, end, stream=stream, correlation=correlation, grid=(blocks, 1, 1))

    def graph_launch(self, names: list[str], ns: int, stream: int = 7) -> None:
        start, end, correlation = self._enqueue("cudaGraphLaunch", 9, ns * len(names), stream)
        for i, name in enumerate(names):
            begin = start + i * ns
            self.kernel(name, begin, begin + ns, stream=stream, correlation=correlation, graph=(1, 100 + i))
        assert begin + ns == end

    def copy(self, kind: int, ns: int, size: int = 1024, stream: int = 7, pageable: bool = False) -> None:
        start, end, correlation = self._enqueue("cudaMemcpyAsync", COPY, ns, stream)
        more = {"stream": stream, "correlation": correlation, "pageable": pageable}
        self.memory(kind, start, end, size=size, **more)

    def synchronize(self, stream: int = 7) -> None:
        begin = self.now
        self.now = max(self.now, self.free.get(stream, 0)) + 3_000
        self.last += 1
        if self.calls:
            self.call(
                "cudaStreamSynchronize",
                begin,
                self.now,
                kind=SYNC_CALL,
                correlation=self.last,
                thread=self.thread,
            )
        self.sync(STREAM_SYNC, begin, self.now, stream=stream, correlation=self.last, thread=self.thread)

    def _enqueue(self, name: str, kind: int, ns: int, stream: int) -> tuple[int, int, int]:
        begin = self.now
        self.now += self.LAUNCH_NS
        self.last += 1
        if self.calls:
            self.call(name, begin, self.now, kind=kind, correlation=self.last, thread=self.thread)
        start = max(self.now + self.LATENCY_NS, self.free.get(stream, 0))
        self.free[stream] = start + ns
        if self._marked:
            self.starts.append(start)
            self._marked = False
        return start, start + ns, self.last
