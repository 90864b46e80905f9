"""Checks of numbers: a boolean is no number here, unlike in Python."""

from __future__ import annotations

import re
from typing import TypeGuard

__all__ = ["DECIMAL", "DIGITS", "is_decimal", "is_number", "is_of", "is_whole", "whole_of"]

# A whole number as text, for patterns of JSON too; Python reads no more digits.
DIGITS = r"^-?(?:0|[1-9][0-9]{0,4299})\Z"
DECIMAL = b"0123456789.+-eE"  # characters of a decimal as text


def is_of(value: object, kinds: tuple[type, ...]) -> bool:
    """Check that a value is of one of several classes; a boolean is of `bool` alone."""
    return bool in kinds if isinstance(value, bool) else isinstance(value, kinds)


def is_whole(value: object) -> TypeGuard[int]:
    """Check for a whole number."""
    return is_of(value, (int,))


def is_number(value: object) -> TypeGuard[int | float]:
    """Check for a whole number or a float, which may be infinite or no number."""
    return is_of(value, (int, float))


def whole_of(value: object) -> int | None:
    """Return a whole number that was sent as a number or as a string of digits.

    Return None for anything else.
    """
    if type(value) is int:  # of nearly all rows
        return value
    if isinstance(value, str):
        return int(value) if re.match(DIGITS, value) else None
    return value if is_whole(value) else None


def is_decimal(text: str) -> bool:
    """Check a string that Python reads as a `Decimal` for other characters.

    Python also reads "1_0", " 10 ", digits of other scripts, "NaN" and "Infinity"; the result is False.
    """
    return not text.encode("ascii", "replace").translate(None, DECIMAL)
