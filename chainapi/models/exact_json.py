"""JSON values, decoded and encoded without rounding a number."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

import msgspec

from chainapi.errors import DecodeError
from chainapi.models.decode_errors import DECODING_ERRORS, TOO_DEEP

__all__ = [
    "EXACT",
    "ascii_json",
    "decode_leniently",
    "encode_json",
    "exact_number",
    "has_half_pair",
    "is_json",
    "json_list",
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


def json_list(values: Iterable[bytes | msgspec.Raw]) -> bytes:
    """Return JSON values as one JSON list."""
    return b"[" + b",".join(values) + b"]"


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
    """Return a JSON value as JSON, numbers with all their digits.

    Raises:
        DecodeError: it is nested too deeply.

    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:  # a lone surrogate has to be escaped
        return _encoded(value).encode()
    except RecursionError:
        raise DecodeError(TOO_DEEP) from None


def ascii_json(value: Any, indent: int | None = None) -> str:
    """Return a JSON value as ASCII JSON with all digits of its numbers.

    It has the layout of `json.dumps`.
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
    """Encode a value with a lone surrogate in it."""
    match value:
        case dict():
            fields = [f"{json.dumps(name)}:{_encoded(field)}" for name, field in value.items()]
            return f"{{{','.join(fields)}}}"
        case list():
            return f"[{','.join(map(_encoded, value))}]"
        case str():
            return json.dumps(value)
    return _ENCODER.encode(value).decode()
