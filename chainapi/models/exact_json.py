"""JSON values, decoded and encoded without rounding a number."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

import msgspec
from msgspec import Struct

from chainapi.models.decode_errors import DECODING_ERRORS

__all__ = [
    "EXACT",
    "ascii_json",
    "decode_leniently",
    "encode_json",
    "exact_number",
    "has_half_pair",
    "is_json",
]


def exact_number(digits: str) -> float | Decimal:
    """Return a number with a point or exponent as a float or a Decimal.

    It is a Decimal if a float would lose digits.

    Raises:
        ValueError: its exponent has more than 18 digits.

    """
    value = float(digits)
    # A float keeps 15 digits, unless it is too large or too small for its full precision.
    if len(digits) < 17 and 1e-290 < value < 1e300:
        return value
    try:
        number = Decimal(digits)
    except InvalidOperation:
        raise ValueError("Number out of range") from None
    return value if isfinite(value) and Decimal(repr(value)) == number else number


EXACT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=exact_number)


def decode_leniently(raw: bytes) -> Any:
    """Decode JSON that a decoder refused; return its text if it is not JSON.

    Lone surrogates stay, bytes that are not UTF-8 become U+FFFD, NaN and Infinity become strings.
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


def has_half_pair(raw: bytes) -> bool:
    """Check for half of a surrogate pair in JSON that a decoder refused.

    By its grammar it is JSON.
    """
    try:
        json.loads(raw.decode(), parse_int=len, parse_float=len, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def encode_json(value: Any) -> bytes:
    """Return a JSON value as JSON, numbers with all their digits."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, RecursionError):  # a lone surrogate has to be escaped
        return _encoded(value).encode()


def ascii_json(value: Any, indent: int | None = None) -> str:
    """Return a JSON value as ASCII JSON with all digits of its numbers.

    The layout is that of `json.dumps`.
    """
    try:
        return json.dumps(value, indent=indent)
    except RecursionError:
        text = encode_json(value).decode()
    except TypeError:  # a Decimal
        text = msgspec.json.format(encode_json(value), indent=indent or 0).decode()
    return re.sub(r"[^\x00-\x7f]", lambda char: json.dumps(char[0])[1:-1], text)


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def _encoded(value: Any) -> str:
    """Encode without recursion.

    From Python 3.12 on, decoders read deeper than the stack.
    """
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


class _Text(Struct, frozen=True):
    """Part of a string that is encoded already."""

    text: str


def _enclosed(opening: str, inner: Sequence[tuple[Any, ...]], closing: str) -> list[Any]:
    """Return the parts between two brackets, with commas, last part first."""
    parts: list[Any] = [_Text(closing)]
    for index, part in reversed(list(enumerate(inner))):
        parts += reversed(part)
        if index:
            parts.append(_Text(","))
    return [*parts, _Text(opening)]
