"""Rows of lists: the protocol of their sources, and random bytes for each row.

A list is numbered from its oldest row, 0, upwards: row 7 stays row 7 however many rows are added at the head,
and a list of a million rows costs nothing until a page is requested. No state is kept between two calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from attrs import frozen
from msgspec.json import Encoder

__all__ = ["CachedDraw", "Draw", "EncodedRows", "Row", "RowSource", "View", "encode"]

Row = dict[str, object]

encode = Encoder(decimal_format="number").encode


class RowSource(Protocol):
    """Source of the rows of a list that grows at its head.

    Sources are equal only if all their rows are: their pages are then encoded once.
    """

    @property
    def size(self) -> int:
        """Number of rows that the list has at the beginning."""
        ...

    def __hash__(self) -> int: ...

    def rows(self, start: int, stop: int) -> list[Any]:
        """Return the rows `stop - 1` down to `start`, newest first."""
        ...

    def encoded(self, start: int, stop: int, *, ascending: bool) -> bytes:
        """Return the same rows as a JSON array, oldest first if `ascending`."""
        ...


class EncodedRows(ABC):
    """Base class of sources, which encodes their rows."""

    __slots__ = ()

    @abstractmethod
    def rows(self, start: int, stop: int) -> list[Any]:
        """Return the rows `stop - 1` down to `start`, newest first."""

    def encoded(self, start: int, stop: int, *, ascending: bool) -> bytes:
        """Return the same rows as a JSON array, oldest first if `ascending`."""
        rows = self.rows(start, stop)
        return encode(rows[::-1] if ascending else rows)


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

    source: RowSource
    low: int = 0
    high: int | None = None
    ascending: bool = False
    page_fields: Callable[[int], Row] = lambda added: {}


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

    def many(self, start: int, stop: int) -> list[bytes]:
        """Return the bytes of the numbers `start` to `stop - 1`, faster than one by one."""
        copy, drawn = self._state.copy, list[bytes]()
        for number in range(start, stop):
            state = copy()
            state.update(number.to_bytes(8, "little", signed=True))
            drawn.append(state.digest())
        return drawn

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draw) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class CachedDraw(Draw):
    """Random bytes, of which the numbers used last are kept, for all draws of a process."""

    def __call__(self, number: int) -> bytes:
        """Return the bytes of `number`, which may be negative."""
        return _cached(self, number)


@lru_cache(4_096)
def _cached(draw: CachedDraw, number: int) -> bytes:
    return Draw.__call__(draw, number)
