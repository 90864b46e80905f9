"""JSON Canonicalization Scheme (RFC 8785): one string for equal JSON values."""

from __future__ import annotations

import json
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn

__all__ = ["canonical_json"]


def canonical_json(text: bytes) -> bytes:
    """Return JSON without white space, with sorted names and plain numbers.

    Numbers are binary floats of 64 bits, as in JavaScript: larger whole numbers lose digits.

    Raises:
        ValueError: the text is no JSON, or a number in it is too large.
        RecursionError: it is nested too deeply.

    """
    value = json.loads(text.decode(), parse_int=float, parse_constant=_refuse)
    return _encoded(value).encode()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _encoded(value: Any) -> str:
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list):
        return f"[{','.join(map(_encoded, value))}]"
    if isinstance(value, dict):
        names = sorted(value, key=_utf16)
        return f"{{{','.join(f'{_text(name)}:{_encoded(value[name])}' for name in names)}}}"
    return _text(value)  # text, boolean, null


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _utf16(name: str) -> bytes:
    """Return a sort key: names are compared by their UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def _number(value: float) -> str:
    """Return a number as ECMAScript does (ECMA-262, Number::toString)."""
    if not isfinite(value):
        raise ValueError("a number is too large")
    if value == 0:
        return "0"
    # Arithmetic such as `normalize` would round to the precision of the caller's decimal context.
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    return "-" * sign + _placed(text.rstrip("0"), point)


def _placed(digits: str, point: int) -> str:
    """Return digits with the decimal point after `point` of them."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
