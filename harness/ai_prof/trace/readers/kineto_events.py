"""What is used of the events of a Kineto trace, decoded many at a time.

Each category is a type of its own to the decoder, and those that nobody needs are types without fields: it
steps over such an event without making anything of it. Text that doesn't suit these types (an event without
a category, args that are no object, a name that is not UTF-8) is decoded a second time, taking nothing for
granted.
"""

from __future__ import annotations

import functools
import operator
import re
from dataclasses import dataclass, field
from enum import Enum
from itertools import compress
from typing import TYPE_CHECKING, Any

import msgspec

from ai_prof.json_text import UNREADABLE
from ai_prof.trace.model import SyncKind

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOST = "\ufffd"  # stands for what is not UTF-8
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_AFTER_ARRAY = re.compile(rb'\s*(?:,\s*"|\}\s*\Z|\Z)')


class Kind(Enum):
    """What an event is a record of; the value names it among the losses."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    SYNC = "sync"
    CALL = "call"
    RANGE = "range"
    OPERATOR = "operator"  # of interest only where it is a ProfilerStep, as until PyTorch 1.10


CATEGORIES = {
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "Memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "Memset": Kind.MEMSET,
    "cuda_sync": Kind.SYNC,
    "cuda_runtime": Kind.CALL,
    "cuda_driver": Kind.CALL,
    "hip_runtime": Kind.CALL,
    "hip_driver": Kind.CALL,
    "xpu_runtime": Kind.CALL,
    "xpu_driver": Kind.CALL,
    "Runtime": Kind.CALL,
    "user_annotation": Kind.RANGE,
    "Operator": Kind.OPERATOR,
}
HOST = {Kind.CALL, Kind.RANGE, Kind.OPERATOR}
# The host's own work, arrows between events, what repeats on the device side what the host said, and the
# findings in timelines of our own.
UNUSED = frozenset(
    {
        "",
        "Trace",
        "ac2g",
        "async",
        "async_cpu_to_gpu",
        "async_gpu",
        "cpu_instant_event",
        "cpu_op",
        "cuda_event",
        "cuda_profiler_range",
        "external_correlation",
        "forward_backward",
        "fwdbwd",
        "gaps",
        "gpu_user_annotation",
        "iterations",
        "overhead",
        "python_function",
    }
)


SYNCS = {
    "Unknown Sync": SyncKind.UNKNOWN,
    "Event Sync": SyncKind.EVENT_SYNCHRONIZE,
    "Stream Wait Event": SyncKind.STREAM_WAIT_EVENT,
    "Stream Sync": SyncKind.STREAM_SYNCHRONIZE,
    "Context Sync": SyncKind.CONTEXT_SYNCHRONIZE,
    "Blocking Copy": SyncKind.BLOCKING_COPY,  # in timelines of our own
}


class HostArgs(msgspec.Struct, gc=False, frozen=True):
    """What is used of the args of a call. Writers put all sorts there, so nothing is taken for granted."""

    correlation: Any = 0


class Args(HostArgs, gc=False, frozen=True):
    """What is used of the args of device work and synchronizes."""

    device: Any = None
    context: Any = -1
    stream: Any = None
    bytes: Any = 0
    kind: Any = ""
    sync_kind: Any = msgspec.field(default="", name="cuda_sync_kind")
    grid: msgspec.Raw = msgspec.Raw(b"[0,0,0]")  # the few that differ are decoded once
    block: msgspec.Raw = msgspec.Raw(b"[0,0,0]")
    registers: Any = msgspec.field(default=0, name="registers per thread")
    shared_bytes: Any = msgspec.field(default=0, name="shared memory")
    graph: Any = msgspec.field(default=0, name="graph id")
    graph_node: Any = msgspec.field(default=0, name="graph node id")


class Event(msgspec.Struct, gc=False):
    """What is used of one event; times stay decimal text. Its type says of which category it is."""

    name: str = ""
    ts: msgspec.Raw = msgspec.Raw(b"-1")
    dur: msgspec.Raw = msgspec.Raw(b"-1")
    pid: Any = -1
    tid: Any = -1


class HostEvent(Event, gc=False):
    """A call or a range."""

    args: HostArgs = HostArgs()


class DeviceEvent(Event, gc=False):
    """Work of a device, or a synchronize."""

    args: Args = Args()


@dataclass(slots=True)
class Oddities:
    """What was met beside the usual: categories that are not known, and names that had to be mended."""

    categories: set[str] = field(default_factory=set)
    mended_names: int = 0


class _Odd(msgspec.Struct, gc=False):
    """An event of which nothing is known."""

    cat: str = ""
    name: msgspec.Raw = msgspec.Raw(b'""')
    ts: msgspec.Raw = msgspec.Raw(b"-1")
    dur: msgspec.Raw = msgspec.Raw(b"-1")
    pid: msgspec.Raw = msgspec.Raw(b"-1")
    tid: msgspec.Raw = msgspec.Raw(b"-1")
    args: msgspec.Raw = msgspec.Raw(b"{}")


TYPES: dict[str, type[Any]] = {  # of HostEvent or DeviceEvent
    category: msgspec.defstruct(
        f"Event_{category}",
        [],
        bases=(HostEvent if kind in HOST else DeviceEvent,),
        tag_field="cat",
        tag=category,
        gc=False,
    )
    for category, kind in CATEGORIES.items()
}
_SKIPPED = tuple(
    msgspec.defstruct(f"Skipped_{category}", [], tag_field="cat", tag=category, gc=False)
    for category in sorted(UNUSED)
)
_USED = frozenset(TYPES.values())
_ANY_EVENT: Any = functools.reduce(operator.or_, (*TYPES.values(), *_SKIPPED))
_EVENTS: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[_ANY_EVENT])
_ODD_EVENTS = msgspec.json.Decoder(list[_Odd])
_ODD_EVENT = msgspec.json.Decoder(_Odd)
_ARGS = msgspec.json.Decoder(Args)


def decode_array(text: bytes, oddities: Oddities) -> tuple[list[Event], bytes] | None:
    """The events of use in a JSON array, and what follows the array; None where it is no JSON."""
    found = _decode(_EVENTS, text)
    if found is not None:
        events, rest = found
        return list(compress(events, map(_USED.__contains__, map(type, events)))), rest
    found = _decode(_ODD_EVENTS, text)
    return None if found is None else (list(_known(found[0], oddities)), found[1])


def decode_event(text: bytes, oddities: Oddities) -> list[Event]:
    """One event, or none where it is of no use.

    Raises:
        UNREADABLE: it is no JSON.

    """
    return list(_known([_ODD_EVENT.decode(text)], oddities))


def _decode(decoder: msgspec.json.Decoder[list[Any]], text: bytes) -> tuple[list[Any], bytes] | None:
    try:
        return decoder.decode(text), b""
    except UNREADABLE as error:
        trailing = _TRAILING.search(str(error))
    if not trailing:
        return None
    end = int(trailing[1]) - 1
    if not _AFTER_ARRAY.match(text, end):
        return None  # a stray bracket
    return decoder.decode(text[:end]), text[end:]


def _known(events: Iterable[_Odd], oddities: Oddities) -> Iterable[Event]:
    """The events of use, with a default for each value that cannot be read."""
    for event in events:
        known = TYPES.get(event.cat)
        if known is None:
            if event.cat not in UNUSED:
                oddities.categories.add(event.cat)
            continue
        name = _value(event.name, None)
        if not isinstance(name, str):
            name = _mended(event.name)
            oddities.mended_names += _LOST in name
        try:
            args = _ARGS.decode(event.args)
        except UNREADABLE:
            args = Args()
        yield known(name, event.ts, event.dur, _value(event.pid, -1), _value(event.tid, -1), args)


def _value(raw: msgspec.Raw, default: Any) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return default


def _mended(raw: msgspec.Raw) -> str:
    """A name that is not UTF-8, or no string at all."""
    try:
        return str(msgspec.json.decode(bytes(raw).decode("utf-8", "replace")))
    except UNREADABLE:
        return _LOST
