"""Kernel names without what changes from run to run: addresses, tile sizes, autotuned suffixes."""

from __future__ import annotations

import re
from functools import lru_cache

# What a kernel computes with must stay in its name: half precision is another kernel.
_TYPE = r"(?<![A-Za-z])(?:b?fp?|bfloat|BFloat|float|half|u?int|[us]|tf|e4m|e5m)(?:4|8|16|32|64)(?![0-9])"
_NUMBERS = re.compile(rf"({_TYPE})|0x[0-9a-fA-F]+|[0-9]+")
_UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::")
_LAMBDA = re.compile(r"\{?lambda\([^()]*\)[^,>]*")
_SPACES = re.compile(r"\s+")


@lru_cache(maxsize=65536)
def normalise(name: str) -> str:
    """The name without argument list, and with `#` for every number that is not part of a type."""
    text = _LAMBDA.sub("lambda", _UNNAMED.sub("", _without_arguments(name)))
    text = _NUMBERS.sub(lambda match: match[1] or "#", text)
    return _SPACES.sub(" ", text).removeprefix("void ").strip()


def short(name: str, limit: int = 60) -> str:
    """A name to print: without arguments and template parameters, and cut to `limit`."""
    text = _without_arguments(name).removeprefix("void ").split("<", 1)[0].strip() or name
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _without_arguments(name: str) -> str:
    """Cut a demangled signature's parameter list: the last bracket group that ends the name."""
    if not name.endswith(")"):
        return name
    depth = 0
    for i in range(len(name) - 1, -1, -1):
        depth += (name[i] == ")") - (name[i] == "(")
        if not depth:
            return name[:i] or name
    return name
