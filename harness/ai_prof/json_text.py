"""JSON of our own files: names in it that are no UTF-8, and what says that a file is none."""

from __future__ import annotations

from typing import Any

import msgspec

# Values nested beyond Python's own limit are damaged too, and an older msgspec leaves bad UTF-8 to the codec.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(value: object) -> bytes:
    r"""JSON of a value; bytes of a path that are no UTF-8, which it can't hold, are escaped: `caf\udce9`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)))


def for_people(value: object) -> str:
    """JSON of a value with a line for each part; in a log of GitHub's, no name in it is a command."""
    # Only a string can hold `##[`, which GitHub obeys anywhere in a line; escaped it means the same.
    return msgspec.json.format(encode(value), indent=1).decode().replace("##[", r"\u0023#[")


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(key): _escaped(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(each) for each in value]
    return value
