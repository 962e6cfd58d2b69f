"""What CUDA and HIP calls ask for, told from their names: the kinds that the capture gives its own calls."""

from __future__ import annotations

import re
from functools import lru_cache

from ai_prof.trace.model import CallKind, CopyKind, SyncKind

_API = r"^_*(?:cuda|cu|hip)_*"
_CALLS = [
    (re.compile(f"{_API}(?:{pattern})"), kind)
    for pattern, kind in (
        ("GraphLaunch", CallKind.GRAPH_LAUNCH),
        ("GraphInstantiate", CallKind.GRAPH_INSTANTIATE),
        (r"(?:Ext|Module|ExtModule)?Launch(?!HostFunc)", CallKind.LAUNCH),
        (r"\w*Synchronize", CallKind.SYNC),
        ("Memcpy", CallKind.COPY),
        (
            r"MallocHost|HostAlloc|HostMalloc|Mem(?:Alloc|Free)Host|MemHost|FreeHost|HostFree",
            CallKind.HOST_ALLOC,
        ),
        (r"Host(?:Reg|Unreg)ister", CallKind.HOST_ALLOC),
        (r"Malloc|ExtMalloc|MemAlloc|MemCreate", CallKind.ALLOC),
        (r"Free|MemFree|MemRelease", CallKind.FREE),
        (r"MemMap|MemUnmap|MemSetAccess|MemAddress", CallKind.MAP),
        (r"ModuleLoad|LibraryLoad|InitModule", CallKind.MODULE_LOAD),
    )
]
_SYNCS = (
    (re.compile(r"StreamSynchronize"), SyncKind.STREAM_SYNCHRONIZE),
    (re.compile(r"EventSynchronize"), SyncKind.EVENT_SYNCHRONIZE),
    (re.compile(r"(?:Device|Ctx|Thread|Context)Synchronize"), SyncKind.CONTEXT_SYNCHRONIZE),
)
_COPIES = (
    (re.compile(r"HtoD|HostToDevice"), CopyKind.HOST_TO_DEVICE),
    (re.compile(r"DtoH|DeviceToHost"), CopyKind.DEVICE_TO_HOST),
    (re.compile(r"DtoD|DeviceToDevice"), CopyKind.DEVICE_TO_DEVICE),
    (re.compile(r"PtoP|PeerToPeer"), CopyKind.PEER_TO_PEER),
    (re.compile(r"HtoH|HostToHost"), CopyKind.HOST_TO_HOST),
)


def call_kind(name: str) -> CallKind:
    """The kind of a host call, as `cudaLaunchKernel`, `cuMemcpyHtoDAsync_v2` or `hipFree`."""
    return next((kind for pattern, kind in _CALLS if pattern.match(name)), CallKind.OTHER)


def sync_kind(name: str) -> SyncKind:
    """What a synchronizing call waits for."""
    return next((kind for pattern, kind in _SYNCS if pattern.search(name)), SyncKind.UNKNOWN)


@lru_cache(maxsize=4096)
def copy_kind(name: str) -> CopyKind:
    """The direction of a copy, from `Memcpy HtoD (Pinned -> Device)` or `CopyHostToDevice`."""
    return next((kind for pattern, kind in _COPIES if pattern.search(name)), CopyKind.UNKNOWN)
