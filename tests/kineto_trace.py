"""Builds torch.profiler traces for tests, event by event."""

from __future__ import annotations

import gzip
import json

LAUNCHES = 40


def event(cat, name, ts, dur, pid=7, tid=7, **args):  # noqa: PLR0917 - the fields in their order
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(ts, dur, name="k", stream=7, correlation=0, *, device=0, **args):
    args = {"device": device, "context": 1, "stream": stream, "correlation": correlation, **args}
    return event("kernel", name, ts, dur, device, stream, **args)


def launch(ts, dur, correlation, name="cudaLaunchKernel"):
    return event("cuda_runtime", name, ts, dur, cbid=211, correlation=correlation)


def training(launches=LAUNCHES):
    """Launches 100 us apart, each of a kernel of 60 us that starts 20 us later, and what stands between."""
    events = []
    for i in range(launches):
        at = 1000 + 100 * i
        events += [
            event("cpu_op", 'aten::"add"', at, 30.5, **{"Ev Idx": i, "Input Dims": [[2, 3], []]}),
            launch(at, 5, i + 1),
            {"ph": "s", "id": i + 1, "pid": 7, "tid": 7, "ts": at, "cat": "ac2g", "name": "ac2g"},
            kernel(at + 20, 60, f"void gemm<{i % 3}, {{lambda()#1}}>()", correlation=i + 1),
            {
                "ph": "f",
                "id": i + 1,
                "pid": 0,
                "tid": 7,
                "ts": at + 20,
                "cat": "ac2g",
                "name": "ac2g",
                "bp": "e",
            },
        ]
    return events


def document(events, **fields):
    properties = [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}]
    return {"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events, **fields}


def write(path, content):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
