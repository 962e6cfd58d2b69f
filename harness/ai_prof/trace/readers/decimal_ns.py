"""Decimal microseconds to int64 nanoseconds, digit by digit: a float holds no time since 1970 to the ns."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from ai_prof.trace.model import I64

INVALID = np.iinfo(np.int64).min
_LIMIT_US = np.iinfo(np.int64).max // 1000
_MOST_DIGITS = 18  # that any int64 can hold
_NO_NUMBER = b"9" * (_MOST_DIGITS + 1)
_DOT, _COMMA, _MINUS, _ZERO = b".,-0"


def nanoseconds(texts: Sequence[bytes | Raw]) -> I64:
    """The times of some JSON numbers in us; (n,). Digits below one ns are cut off.

    INVALID stands for what is no number, or one that int64 can't hold.
    """
    joined = b",".join(texts)
    if joined.translate(None, b"0123456789.,-"):
        joined = b",".join([_plain(bytes(text)) for text in texts])
    return _parse(joined + b",") if joined else np.zeros(0, np.int64)


def _plain(text: bytes) -> bytes:
    """A number with an exponent, or in a string, as digits; what is none as too many digits."""
    try:
        number = Decimal(text.strip(b'" ').decode("ascii", "replace"))
    except ArithmeticError:
        return _NO_NUMBER
    if number.is_finite() and number.adjusted() < -_MOST_DIGITS:
        return b"0"  # an exponent must not decide how long a text gets
    return f"{number:f}".encode() if number.is_finite() and number.adjusted() < _MOST_DIGITS else _NO_NUMBER


def _parse(joined: bytes) -> I64:
    """Numbers of digits, each ended by a comma."""
    text = np.frombuffer(joined, np.uint8)
    end = np.flatnonzero(text == _COMMA)
    start = np.concatenate(([0], end[:-1] + 1))
    dots = np.flatnonzero(text == _DOT)
    if _uniform(joined, start, end, dots):
        plain = np.fromstring(
            joined.replace(b".", b""), np.int64, sep=","
        )  # what is too large becomes the largest
        unit, limit = (1, _LIMIT_US * 1000) if len(dots) else (1000, _LIMIT_US)
        return np.where(plain < limit, plain * unit, INVALID)
    negative = text[start] == _MINUS
    whole_end = end.copy()
    whole_end[np.searchsorted(end, dots)] = dots
    digits = whole_end - start - negative
    whole = np.zeros(len(end), np.int64)
    for place in range(min(int(digits.max()), _MOST_DIGITS)):
        at = whole_end - 1 - place
        whole += np.where(place < digits, text[np.maximum(at, 0)].astype(np.int64) - _ZERO, 0) * 10**place
    fraction = np.zeros(len(end), np.int64)
    for place in range(3):
        at = whole_end + 1 + place
        digit = text[np.minimum(at, len(text) - 1)].astype(np.int64) - _ZERO
        fraction += np.where(at < end, digit, 0) * 10 ** (2 - place)
    bad = (digits < 1) | (digits > _MOST_DIGITS) | (whole >= _LIMIT_US)
    ns = np.where(bad, 0, whole) * 1000 + fraction
    return np.where(bad, INVALID, np.where(negative, -ns, ns))


def _uniform(joined: bytes, start: I64, end: I64, dots: I64) -> bool:
    """Whether all are without sign and of three decimals, as Kineto writes them, or all of none."""
    if b"-" in joined or len(dots) not in {0, len(end)}:
        return False
    decimals = 4 if len(dots) else 0  # with their dot
    length = end - start - decimals
    as_many = not decimals or bool((end - dots == decimals).all())
    return as_many and int(length.min()) >= 1 and int(length.max()) <= _MOST_DIGITS
