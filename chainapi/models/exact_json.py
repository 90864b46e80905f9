"""Plain JSON values, read and written without rounding a number."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

import msgspec
from attrs import frozen

from chainapi.models.decode_errors import DECODING_ERRORS

__all__ = ["EXACT", "ascii_json", "decode_leniently", "encode_json", "exact_number", "is_json"]


def exact_number(digits: str) -> float | Decimal:
    """Return a number with a point or exponent, a Decimal where a float loses digits.

    Raises:
        ValueError: its exponent has more than 18 digits.

    """
    value = float(digits)
    # 15 digits survive in every float that is neither too large nor too small for all of its precision.
    if len(digits) < 17 and 1e-290 < value < 1e300:
        return value
    try:
        number = Decimal(digits)
    except InvalidOperation:
        raise ValueError("Number out of range") from None
    return value if isfinite(value) and Decimal(repr(value)) == number else number


EXACT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=exact_number)


def decode_leniently(raw: bytes) -> Any:
    """Return the value of JSON that a decoder refused, or its text.

    Halves of characters stay halves, bytes that are no UTF-8 become U+FFFD, NaN and Infinity texts.
    """
    try:
        return EXACT.decode(raw)
    except DECODING_ERRORS:
        text = raw.decode("utf-8", "replace")
    try:
        return json.loads(text, parse_float=exact_number, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def is_json(body: bytes) -> bool:
    """Check whether a body is JSON by its grammar, even if decoders refuse it."""
    try:
        json.loads(body.decode("utf-8", "replace"), parse_int=len, parse_float=len)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def encode_json(value: Any) -> bytes:
    """Return a plain value as JSON, numbers with all their digits."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, RecursionError):  # only an escape can stand for half of a character
        return _encoded(value).encode()


def ascii_json(value: Any, indent: int | None = None) -> str:
    """Return a plain value as ASCII JSON, numbers with all digits, as `json.dumps`."""
    try:
        return json.dumps(value, indent=indent)
    except RecursionError:
        text = encode_json(value).decode()
    except TypeError:  # a Decimal
        text = msgspec.json.format(encode_json(value), indent=indent or 0).decode()
    return re.sub(r"[^\x00-\x7f]", lambda char: json.dumps(char[0])[1:-1], text)


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def _encoded(value: Any) -> str:
    """Return JSON without recursion: decoders of Python 3.12 and later read deeper than its stack is."""
    texts: list[str] = []
    waiting: list[Any] = [value]
    while waiting:
        match waiting.pop():
            case _Text(text):
                texts.append(text)
            case dict(fields):
                inner = [(_Text(f"{json.dumps(name)}:"), field) for name, field in fields.items()]
                waiting += _enclosed("{", inner, "}")
            case list(items):
                waiting += _enclosed("[", [(item,) for item in items], "]")
            case str(text):
                texts.append(json.dumps(text))
            case plain:
                texts.append(_ENCODER.encode(plain).decode())
    return "".join(texts)


@frozen
class _Text:
    """A part of JSON that is written already."""

    text: str


def _enclosed(opening: str, inner: Sequence[tuple[Any, ...]], closing: str) -> list[Any]:
    """Return what stands between brackets, commas between its parts, last part first."""
    parts: list[Any] = [_Text(closing)]
    for index, part in reversed(list(enumerate(inner))):
        parts += reversed(part)
        if index:
            parts.append(_Text(","))
    return [*parts, _Text(opening)]
