"""Kernel names without what changes from run to run: addresses, tile sizes, autotuned suffixes."""

from __future__ import annotations

import re
from functools import lru_cache

# What a kernel computes with must stay in its name: half precision is another kernel.
_TYPE = r"(?<![A-Za-z])(?:b?fp?|bfloat|BFloat|float|half|u?int|[us]|tf|e4m|e5m)(?:4|8|16|32|64)(?![0-9])"
_NUMBERS = re.compile(rf"({_TYPE})|0x[0-9a-fA-F]+|[0-9]+")
_UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::")
_LAMBDA = re.compile(r"\{?lambda\([^()]*\)(?:[^,>(]|\([^()]*\)|\()*")
_SPACES = re.compile(r"\s+")
# What of a template's name seldom tells two kernels apart, in the order in which it is left out.
_LEFT_OUT = (
    re.compile(r"\([^()]*\)|::(?:lambda|operator)\b"),  # argument lists of functions
    re.compile(r"\b(?:[A-Za-z_][\w#]*::)+"),  # namespaces
    re.compile(
        r"[aA]rray<char ?\*, [#\d]+(?:ul)?>|(?<=[< ])(?:[#\d]\w*|true|false)(?=[,>])"
    ),  # numbers and flags
    re.compile(r"(?<=<)(?:, *)+|(?:, *)+(?=[,>])| +(?=>)"),  # commas that are left
    re.compile(r"<>"),
)
_TEMPLATE = 1000  # characters of a name that are looked at
_SHORT = 60  # and that are printed


@lru_cache(maxsize=1 << 20)  # more than a capture has, each of which is asked for again and again
def normalise(name: str) -> str:
    """The name without argument list, and with `#` for every number that is not part of a type."""
    text = _NUMBERS.sub(lambda match: match[1] or "#", _named(name))
    return _SPACES.sub(" ", text).removeprefix("void ").strip()


def short(name: str) -> str:
    """A name to print: without arguments, of a template what tells it from others; cut to 60 characters.

    A library's kernels begin alike and end with what tells them apart: of one long word both ends stay.
    """
    text = _named(name).removeprefix("void ").strip()
    text = (telling(text) if "<" in text else text) or name
    if len(text) <= _SHORT:
        return text
    tail = 0 if "<" in text or " " in text else _SHORT // 3
    return f"{text[: _SHORT - tail - 3]}...{text[len(text) - tail :]}"


def telling(template: str) -> str:
    """The name without namespaces and without the arguments that tell no kernels apart.

    `at::reduce_kernel<512, at::Sum<float> >` is `reduce_kernel<Sum<float>>`.
    """
    text = _SPACES.sub(" ", template[:_TEMPLATE]).strip()
    for dull in _LEFT_OUT:
        text = dull.sub("", text)
    return text


def _named(name: str) -> str:
    """Without argument list, unnamed namespaces and the places of lambdas."""
    return _LAMBDA.sub("lambda", _UNNAMED.sub("", _without_arguments(name)))


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
