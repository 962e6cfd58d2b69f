"""Writes a torch.profiler trace of any number of events, in the shares and the layout of a real one."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PER_LAUNCH = 10  # events that stand behind one kernel, in the shares of a real training trace
OPERATORS = ("aten::add", "aten::linear", "aten::addmm", "aten::empty_strided", "aten::copy_")
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::Functor_{}<float>, Array<char*, 3>>"


def event(head: str, begin: int, length: int | None, **args: object) -> str:
    """An event in Kineto's own layout; without a length it is an instant."""
    phase, duration = ("i", "") if length is None else ("X", f', "dur": {us(length)}')
    return (
        f'  {{\n    "ph": "{phase}", {head},\n    "ts": {us(begin)}{duration},\n'
        f'    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}\n  }}'
    )


def arrow(phase: str, number: int, begin: int, where: str) -> str:
    """One end of the arrow from a call to its kernel."""
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, {where}, "ts": {us(begin)},\n'
        '    "cat": "ac2g", "name": "ac2g"\n  }'
    )


def launch_events(number: int) -> Iterator[str]:
    """The PER_LAUNCH events of one kernel launch."""
    at = 1_419_247_332_972_313 + number * 20_000
    host, stream = '"pid": 4000, "tid": 4000', '"pid": 0, "tid": 7'
    ids: dict[str, object] = {"External id": number, "Ev Idx": number}
    for depth in range(3):
        head = f'"cat": "cpu_op", "name": "{OPERATORS[(number + depth) % len(OPERATORS)]}", {host}'
        yield event(head, at + depth * 1000, 15_000 - depth * 2000, **ids, **{"Sequence number": number})
    memory: dict[str, object] = {"Total Allocated": 5435638784, "Bytes": 5242880, "Addr": 139926520725504}
    yield event(
        f'"cat": "cpu_instant_event", "s": "t", "name": "[memory]", {host}', at + 3500, None, **memory
    )
    for name, begin in (("cudaStreamIsCapturing", at + 4000), ("cudaLaunchKernel", at + 7000)):
        head = f'"cat": "cuda_runtime", "name": "{name}", {host}'
        yield event(head, begin, 2500, cbid=211, correlation=2 * number + (begin > at + 4000))
    yield arrow("f", 2 * number, at + 4000, host)
    yield arrow("s", 2 * number + 1, at + 7000, host)
    work: dict[str, object] = {"device": 0, "context": 1, "stream": 7, "correlation": 2 * number + 1}
    work |= {"registers per thread": 16, "shared memory": 0, "blocks per SM": 0.3, "warps per SM": 1.2}
    work |= {"grid": [24, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 2}
    head = f'"cat": "kernel", "name": "{KERNEL.format(number % 40)}", {stream}'
    yield event(head, at + 12_000, 5000 + number % 9000, **ids, queued=0, **work)
    yield arrow("f", 2 * number + 1, at + 12_000, stream)


def us(ns: int) -> str:
    """Microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def write_trace(path: Path, events: int) -> None:
    """Write a trace of so many events."""
    with gzip.open(path, "wt", compresslevel=3) as file:
        file.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],\n'
            '  "distributedInfo": {"rank": 0}, "baseTimeNanoseconds": 1751410836000000000,\n'
            '  "traceEvents": [\n'
        )
        for number in range(events // PER_LAUNCH):
            file.write((",\n" if number else "") + ",\n".join(launch_events(number)))
        file.write("\n  ]\n}\n")
