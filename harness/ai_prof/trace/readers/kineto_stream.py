"""The events of a Chrome trace as Kineto writes it, batch by batch: memory is bounded by the batch.

The text is cut between two events and each piece decoded on its own. Where that fails, the events of the
piece are decoded one by one, and what is no JSON is skipped and counted.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
from zlib_ng import zlib_ng  # as zlib, in half its time

from ai_prof.errors import TraceError
from ai_prof.json_text import UNREADABLE
from ai_prof.trace.readers.kineto_events import Oddities, decode_array, decode_event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ai_prof.trace.readers.kineto_events import Event

GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 4 << 20
_AHEAD = 2  # chunks; with one alone, the thread that makes it waits for the GIL too often
_LIMIT = 16 << 20  # of one event, and of all that stands beside the events
_WINDOW = 1 << 16  # where the end of a piece is looked for first
_OVERLAP = 1 << 10  # more than stands between two events
_MERGE = 8  # pieces that one event may seem to consist of

_BOM = b"\xef\xbb\xbf"
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[|^(?:\xef\xbb\xbf)?\s*\[')
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:[{\[]|\Z)")
# Between two events: this text can't stand within a string, where its quotes would be escaped.
_BETWEEN = re.compile(rb'\}\s*,(?=\s*\{\s*"(?:ph|cat|name|ts|pid|tid|dur|args|bp|s)"\s*:)')
_NOT_FINITE = re.compile(rb":\s*[-+]?(?:inf|nan|Infinity|NaN)(?=\s*[,}])")


class EventStream:
    """Iterate once over the batches of events; then `metadata`, `oddities` and `warnings` are complete.

    Raises:
        TraceError: while iterating, if the file is no Chrome trace.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.complete = True
        self.oddities = Oddities()
        self._damaged = 0
        self._tail: bytes | None = None  # what follows the array, once its end was seen

    def __iter__(self) -> Iterator[list[Event]]:
        """Batches of the events of use, in the file's order."""
        chunks = _ahead(_chunks(self))
        head, rest = self._find_array(chunks)
        yield from self._events(rest, chunks)
        if self._damaged:
            self.complete = False
            self._warn(f"{self._damaged} damaged pieces are no JSON and were skipped")
        self._read_metadata(head)

    def lost(self, reason: str) -> None:
        """Note that some of the file could not be read."""
        self.complete = False
        self._warn(reason)

    def _warn(self, text: str) -> None:
        self.warnings.append(f"{self.path.name}: {text}")

    def _find_array(self, chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
        """What stands before the first event, bracket included, and the text behind that."""
        head = b""
        for chunk in chunks:
            head += chunk
            if not _JSON.match(head) or len(head) > _LIMIT:
                break
            found = _ARRAY.search(head)
            if found:
                return head[: found.end()], head[found.end() :]
        raise TraceError(f"{self.path} is no trace: it holds no JSON with traceEvents")

    def _events(self, text: bytes, chunks: Iterator[bytes]) -> Iterator[list[Event]]:
        pending = b""  # begins with an event and has no boundary in it
        for chunk in itertools.chain((text,), chunks):
            if self._tail is not None:
                self._tail = (self._tail + chunk)[:_LIMIT]
                continue
            piece, cut = chunk, _last_between(chunk, 0)
            if not cut:
                piece, pending, seen = pending + chunk, b"", max(len(pending) - _OVERLAP, 0)
                cut = _last_between(piece, seen)
            if cut:
                events, rest, tail = self._decode(
                    b"".join((b"[", pending, memoryview(piece)[: cut - 1], b"]"))
                )
                yield events
                if tail is not None:
                    self._tail = tail + piece[cut - 1 :]
                    continue
                pending = rest + piece[cut:]
            elif len(piece) > _LIMIT:
                self.lost(f"{_LIMIT >> 20} MiB of it hold no event: what follows is lost")
                return
            else:
                pending = piece
        if self._tail is None:
            yield self._last(pending)

    def _last(self, text: bytes) -> list[Event]:
        """The events of the last piece, with the array's end in it."""
        cut = _last_between(text, 0)
        events: list[Event] = []
        if cut:
            events, rest, tail = self._decode(b"[" + text[: cut - 1] + b"]")
            if tail is not None:
                self._tail = tail + text[cut - 1 :]
                return events
            text = rest + text[cut:]
        for candidate in (b"[" + text, _repaired(b"[" + text)):
            found = decode_array(candidate, self.oddities)
            if found is not None:
                more, self._tail = found
                return events + more
        self.lost("it was cut, or is damaged, before its end: what follows the last whole event is lost")
        found = decode_array(_repaired(b"[" + text.rstrip(b", \t\r\n") + b"]"), self.oddities)
        return events + (found[0] if found else [])

    def _decode(self, array: bytes) -> tuple[list[Event], bytes, bytes | None]:
        """An array of whole events, as far as their boundaries can be told without decoding.

        Gives the events, what may be the begin of another, and the tail: None unless the array ends there.
        """
        found = decode_array(array, self.oddities) or decode_array(_repaired(array), self.oddities)
        if found is not None:
            events, tail = found
            return events, b"", tail[:-1] if tail else None
        return *self._salvage(_repaired(array[1:-1])), None

    def _salvage(self, text: bytes) -> tuple[list[Event], bytes]:
        """Event by event; a false boundary within one is mended by decoding it with what follows."""
        cuts = [0, *(found.end() for found in _BETWEEN.finditer(text)), len(text) + 1]
        events: list[Event] = []
        at = 0
        while at < len(cuts) - 1:
            for until in range(at + 1, min(at + 1 + _MERGE, len(cuts))):
                try:
                    events += decode_event(text[cuts[at] : cuts[until] - 1], self.oddities)
                except UNREADABLE:
                    continue
                at = until
                break
            else:
                rest = text[cuts[at] :]
                if len(cuts) - 1 - at < _MERGE and len(rest) < _LIMIT:
                    return events, rest + b","
                self._damaged += 1
                at += 1
        return events, b""

    def _read_metadata(self, head: bytes) -> None:
        """All that stands beside the events; a list of events alone has nothing there."""
        if b"{" not in head:
            return
        head = head.removeprefix(_BOM) + b"]"
        for text in (head + (self._tail or b""), head + b"}"):
            found = _decode_object(text) or _decode_object(_repaired(text))
            if found:
                self.metadata = found
                return
        self.lost("what it says of devices and rank is damaged and was not read")


def _decode_object(text: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE:
        return None


def _repaired(text: bytes) -> bytes:
    """Without the two ways in which writers are known to leave JSON: not UTF-8, and numbers not finite."""
    return _NOT_FINITE.sub(b":0", text.decode("utf-8", "replace").encode())


def _last_between(text: bytes, low: int) -> int:
    """The last position from `low` behind the comma between two events; 0 without any."""
    for begin in (max(len(text) - _WINDOW, low), low):
        last = 0
        for found in _BETWEEN.finditer(text, begin):
            last = found.end()
        if last:
            return last
    return 0


def _ahead(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same chunks, made while those before them are in use: unpacking needs no GIL."""
    with ThreadPoolExecutor(1) as thread:
        coming = deque(thread.submit(next, chunks, b"") for _ in range(_AHEAD))
        while chunk := coming.popleft().result():
            coming.append(thread.submit(next, chunks, b""))
            yield chunk


def _chunks(stream: EventStream) -> Iterator[bytes]:
    """The text of a file, unpacked if it is gzip, in chunks of a bounded size."""
    with stream.path.open("rb") as file:
        begin = file.read(_CHUNK)
        if not begin.startswith(GZIP_MAGIC):
            while begin:
                yield begin
                begin = file.read(_CHUNK)
            return
        unpack = zlib_ng.decompressobj(wbits=31)
        packed = begin
        while True:
            try:
                text = unpack.decompress(packed, _CHUNK)
            except zlib_ng.error as error:
                stream.lost(f"its compressed data is damaged ({error}): the rest is lost")
                return
            if text:
                yield text
            if unpack.eof:
                packed = unpack.unused_data or file.read(_CHUNK)
                if not packed.startswith(GZIP_MAGIC):
                    return
                unpack = zlib_ng.decompressobj(wbits=31)
                continue
            packed = unpack.unconsumed_tail or file.read(_CHUNK)
            if not packed:
                stream.lost("it was cut: its compressed data has no end")
                return
