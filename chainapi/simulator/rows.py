"""Rows of lists: a protocol of their sources, and the draw that they are computed from.

A list is numbered from its oldest row, 0, upwards: row 7 stays row 7 however many rows are added at the head,
and a list of a million rows costs nothing until it is asked for. Nothing is remembered between two calls.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

__all__ = ["Draw", "Row", "RowSource"]

Row = dict[str, object]


class RowSource(Protocol):
    """A list that grows at one end."""

    @property
    def size(self) -> int:
        """How many rows the list had at the beginning."""
        ...

    def __hash__(self) -> int: ...

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the rows `stop - 1` down to `start`, newest first."""
        ...


class Draw:
    """64 bytes for each whole number, the same ones for the same seed and names."""

    def __init__(self, seed: int, *names: object) -> None:
        self._begun = blake2b(repr((seed, *names)).encode())

    def __call__(self, number: int) -> bytes:
        """Return the bytes of `number`, which may be negative."""
        drawn = self._begun.copy()
        drawn.update(number.to_bytes(8, "little", signed=True))
        return drawn.digest()
