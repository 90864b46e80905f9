"""Cursor of a list: the number that shows a later walk which rows are new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any

from msgspec import Struct

__all__ = ["Cursor", "Trend", "trend_of"]


class Cursor(Struct, frozen=True, eq=False):
    """Number that grows with each new row, such as a block number or a time.

    Rows that come later have this number or a greater one. Rows may share it.

    Attributes:
        number: returns the number of a row, or None for a row that lacks it.
        since: name of the query parameter that bounds the number from below; None if the service has none.

    """

    number: Callable[[Any], int | None]
    since: str | None = None


class Trend(Enum):
    """Order in which rows have come so far, by their numbers.

    Equal numbers may follow each other.
    """

    LEVEL = "level"  # all rows have one number
    FALLING = "falling"
    RISING = "rising"
    MIXED = "mixed"

    def joined(self, other: Trend) -> Trend:
        """Return the order of rows that consist of some in this order and some in another."""
        if self is other or other is Trend.LEVEL:
            return self
        return other if self is Trend.LEVEL else Trend.MIXED


def trend_of(numbers: Sequence[int | None]) -> Trend:
    """Return the order of rows with these numbers.

    A row without a number has no place in any order.
    """
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return Trend.MIXED
    falls = any(above > below for above, below in pairwise(known))
    rises = any(above < below for above, below in pairwise(known))
    if falls and rises:
        return Trend.MIXED
    return Trend.FALLING if falls else Trend.RISING if rises else Trend.LEVEL
