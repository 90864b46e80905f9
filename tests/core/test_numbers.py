"""Numbers of callers and services: no booleans, digits within Python's limit."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from chainapi.core.numbers import is_decimal, is_number, is_of, is_whole, whole_of

pytestmark = pytest.mark.rule


class Level(IntEnum):
    """A whole number with a name."""

    HIGH = 3


def test_whole_numbers() -> None:
    """An int of any size and an IntEnum are whole numbers, and texts of digits up to Python's limit."""
    for value in (0, -1, 10**400, Level.HIGH):
        assert is_whole(value)
        assert is_number(value)
        assert whole_of(value) == value
    for text in ("0", "-12", "1" + "0" * 4299):
        assert whole_of(text) == int(text)


def test_no_whole_numbers() -> None:
    """Booleans, texts and floats are no whole numbers, nor is any other notation; the float is a number."""
    others: tuple[object, ...] = (True, False, None, "1", 1.0, [1])
    for value in others:
        assert not is_whole(value)
        assert is_number(value) is isinstance(value, float)
    texts = ("", "-", "01", "+1", "1.0", "1e3", " 1", "1\n", "1_0", "\u0661", "1" * 4301)
    for value in (*texts, True, 1.0, None):
        assert whole_of(value) is None


def test_a_boolean_is_of_bool_alone() -> None:
    """A boolean argument needs a bool, also if several classes are allowed."""
    cases: list[tuple[Any, tuple[type, ...], bool]] = [
        (True, (int, str), False),
        (True, (int, bool), True),
        (1, (int, bool), True),
        (1, (bool,), False),
        (None, (int, type(None)), True),
    ]
    for value, kinds, expected in cases:
        assert is_of(value, kinds) is expected


def test_decimals() -> None:
    """Numbers with a sign, a point and an exponent are decimals; other texts, digits and words are not."""
    for text in ("0", "-12", "1.50", "1e-7", "1E+3", "1" * 5_000):
        assert is_decimal(text)
    for text in ("1_0", " 10 ", "10\n", "\u0661", "\uff11", "1\u00a0", "\ud800", "NaN", "inf"):
        assert not is_decimal(text)
