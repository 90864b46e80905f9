"""Rows of lists, numbered from the oldest row, 0, upwards.

Row 7 stays row 7 however many rows are added at the head, and a list of a million rows costs nothing until
a page is requested. No state is kept between two calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

from attrs import frozen
from msgspec.json import Encoder

__all__ = ["DAY", "Draw", "Fixed", "Row", "Rows", "Timed", "View", "encode"]

DAY = 86_400

Row: TypeAlias = dict[str, Any]

encode: Callable[[Any], bytes] = Encoder(decimal_format="number").encode


class Rows(ABC):
    """Rows of a list that grows at its head.

    `size` is the number of rows at the beginning. Sources are equal only if all their rows are: their pages
    are then encoded once.
    """

    __slots__ = ()

    size: int

    @abstractmethod
    def row(self, number: int) -> Any:
        """Return a row."""

    def rows(self, start: int, stop: int) -> list[Any]:
        """Return the rows `stop - 1` down to `start`, newest first."""
        return [self.row(number) for number in range(stop - 1, start - 1, -1)]


@frozen(cache_hash=True)
class Timed(Rows):
    """Rows of a list that gains one each `step` seconds.

    Attributes:
        size: number of rows at the beginning.
        epoch: Unix time in seconds, from which the newest of them is.
        step: seconds between two rows.

    """

    size: int
    epoch: int
    step: int

    def time(self, number: int) -> int:
        """Return the Unix time of a row."""
        return (self.epoch // self.step - (self.size - 1) + number) * self.step

    def first_at(self, time: int) -> int:
        """Return the number of the first row that is not older than a Unix time."""
        return self.size - 1 - self.epoch // self.step + -(-time // self.step)


class Fixed(Rows):
    """Rows that are there as they are, newest first."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self._rows = rows
        self.size: int = len(rows)

    def row(self, number: int) -> Any:
        """Return a row."""
        return self._rows[self.size - 1 - number]


@frozen
class View:
    """Part of a list that a query selects.

    Attributes:
        source: source of the rows.
        low: number of its first row.
        high: number after its last row; None for no bound.
        ascending: whether the oldest row comes first.
        page_fields: returns what a page holds besides its rows, from the number of rows that were added.

    """

    source: Rows
    low: int = 0
    high: int | None = None
    ascending: bool = False
    page_fields: Callable[[int], Row] = lambda added: {}

    def end(self, added: int) -> int:
        """Return the number after the newest row, when rows were added to the list."""
        size = self.source.size + added
        return size if self.high is None else min(size, self.high)


class Draw:
    """Random bytes: 64 for each whole number, derived from the seed and the names.

    It is equal to others with the same seed and names.
    """

    def __init__(self, seed: int, *names: object) -> None:
        self._key = repr((seed, *names)).encode()
        self._state = blake2b(self._key)

    def __call__(self, number: int) -> bytes:
        """Return the bytes of `number`, which may be negative."""
        drawn = self._state.copy()
        drawn.update(number.to_bytes(8, "little", signed=True))
        return drawn.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draw) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)
