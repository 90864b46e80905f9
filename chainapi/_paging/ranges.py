"""Ranges of a list: intervals of the number of its rows, and the rows of each.

A list that a start and an end bound can be walked as several ranges. Each range sends bounds that include its
interval whether the service counts them in or out, and drops the rows beyond the interval: so each row of the
list is in exactly one range.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["MAX_RANGES", "Interval", "Ranged", "Unit", "borders", "borders_at_multiples", "intervals"]

MAX_RANGES = 100_000

Unit: TypeAlias = Literal["blocks", "seconds", "days"]

_DAY = 86_400


class Interval(Struct, frozen=True):
    """Interval of numbers from `start` on, below `end`; None is an open end."""

    start: int | None = None
    end: int | None = None

    def owns(self, number: int) -> bool:
        """Check whether a number lies in the interval."""
        return (self.start is None or self.start <= number) and (self.end is None or number < self.end)

    def borders_on(self, number: int, grid: int = 1) -> bool:
        """Check whether a number beyond the interval may be sent for its bounds.

        That is one step of the `grid` below its start, or one above its end.
        """
        if self.start is not None and number < self.start:
            return number >= self.start - grid
        return self.end is None or number < self.end + grid


class Ranged(Struct, frozen=True):
    """Range parameters of a list, and the number of a row that they bound.

    Attributes:
        unit: what the parameters count: ``blocks``; ``seconds`` of Unix time; or ``days``, seconds that the
            service rounds down to 0:00 UTC, or whose rows are sums over a day.
        number: names of the row attribute with the number; the first that a row has counts.

    """

    unit: Unit
    number: tuple[str, ...]

    @property
    def start(self) -> str:
        """Name of the query parameter with the start."""
        return "startBlock" if self.unit == "blocks" else "startTimestamp"

    @property
    def end(self) -> str:
        """Name of the query parameter with the end."""
        return "endBlock" if self.unit == "blocks" else "endTimestamp"

    @property
    def grid(self) -> int:
        """Least distance of two borders, in the unit of the number."""
        return _DAY if self.unit == "days" else 1


def borders(oldest: int, newest: int, count: int, grid: int = 1) -> list[int]:
    """Return the borders of ranges of equal width.

    They cut the numbers from `oldest` to `newest` into `count` ranges, ascend, and are multiples of `grid`.
    There are fewer where the numbers do not suffice.
    """
    width = newest + 1 - oldest
    cuts = {(oldest + width * place // count) // grid * grid for place in range(1, count)}
    return sorted(cut for cut in cuts if oldest < cut <= newest)


def borders_at_multiples(oldest: int, newest: int, step: int) -> range:
    """Return the borders of ranges that are `step` wide: its multiples.

    They lie above `oldest`, and up to `newest`.
    """
    return range(oldest // step * step + step, newest + 1, step)


def intervals(cuts: Sequence[int], whole: Interval) -> list[Interval]:
    """Return the intervals between neighboring borders, from old to new.

    The outer ones end as `whole`: open if the query has the end that the caller passed.
    """
    return [Interval(start, end) for start, end in pairwise((whole.start, *cuts, whole.end))]
