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


@pytest.mark.parametrize("value", [0, -1, 10**400, Level.HIGH])
def test_whole_numbers(value: int) -> None:
    """An int of any size and sign is a whole number, and so is a member of an IntEnum."""
    assert is_whole(value)
    assert is_number(value)
    assert whole_of(value) == value


@pytest.mark.parametrize("value", [True, False, None, "1", 1.0, [1]])
def test_no_whole_numbers(value: object) -> None:
    """Booleans, texts and floats are no whole numbers; only the float is a number."""
    assert not is_whole(value)
    assert is_number(value) is (value == 1.0 and isinstance(value, float))


@pytest.mark.parametrize("text", ["0", "-12", "1" + "0" * 4299])
def test_digits(text: str) -> None:
    """A text of digits is read up to Python's limit of 4,300."""
    assert whole_of(text) == int(text)


@pytest.mark.parametrize(
    "value", ["", "-", "01", "+1", "1.0", "1e3", " 1", "1\n", "1_0", "\u0661", "1" * 4301, True, 1.0, None]
)
def test_no_digits(value: object) -> None:
    """Other notations, digits of other scripts and longer texts are no whole numbers."""
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


@pytest.mark.parametrize("text", ["0", "-12", "1.50", "1e-7", "1E+3", "1" * 5_000])
def test_decimals(text: str) -> None:
    """Numbers with a sign, a point and an exponent are decimals."""
    assert is_decimal(text)


@pytest.mark.parametrize(
    "text", ["1_0", " 10 ", "10\n", "\u0661", "\uff11", "1\u00a0", "\ud800", "NaN", "inf"]
)
def test_no_decimals(text: str) -> None:
    """A string with an underscore, white space, a digit of another script or a word is no decimal."""
    assert not is_decimal(text)
