"""Order of a list's rows: the row at each position, in each pass over the list.

Positions, like rows, are counted from the oldest, 0, upwards. Rows change places within runs of `RUN` rows,
so that a page of a list of any length needs the order of its own run only. Rows that are added later stand at
the head, newest first.
"""

from __future__ import annotations

import math
from functools import lru_cache
from random import Random

from attrs import frozen

__all__ = ["RUN", "Arrangement"]

RUN = 10_000
SWAPPED = 0.25  # the chance that a row changes places with the next one, unless it has done so already
CACHED_RUNS = 64


@frozen
class Arrangement:
    """Order of the rows of one list.

    Attributes:
        seed: the order follows from it.
        order: "descending", "swapped", "shuffled" or "ascending", as in `Anomalies`.
        moved: share of rows that stand elsewhere in each pass but the first.
        size: number of rows that the list has at the beginning.

    """

    seed: str
    order: str
    moved: float
    size: int

    def rows(self, walk: int, span: tuple[int, int], within: tuple[int, float] = (0, math.inf)) -> list[int]:
        """Return the row numbers at the positions of `span`, oldest first, in a pass.

        The pass has the number `walk`. `within` is the part of the list that a query selects: the first row's
        number, where its positions begin, and the number after the last row.
        """
        start, stop = span
        moved = self.moved if walk else 0.0
        if self.order in ("descending", "ascending") and not moved:
            return list(range(start, stop))
        low, high = within
        rows: list[int] = []
        while start < min(stop, self.size):
            first = start - start % RUN
            behind = min(first + RUN, self.size)
            run = _run(self.seed, self.order, moved, walk if moved else 0, first, behind)
            inside = [row for row in run if low <= row < high]
            position = max(first, low)
            rows += inside[start - position : stop - position]
            start = behind
        return rows + list(range(max(start, self.size), stop))


@lru_cache(maxsize=CACHED_RUNS)
def _run(seed: str, order: str, moved: float, walk: int, first: int, behind: int) -> tuple[int, ...]:
    """Return the rows `first` to `behind - 1` in the order of a pass."""
    rows = list(range(first, behind))
    random = Random(f"{seed} order {first}")  # noqa: S311 - a simulation is to be repeatable, not secret
    if order == "shuffled":
        random.shuffle(rows)
    elif order == "swapped":
        _swap(rows, random)
    if not moved:
        return tuple(rows)
    random = Random(f"{seed} moved {first} {walk}")  # noqa: S311
    moving = [random.random() < moved for _ in rows]
    resting = [row for row, moves in zip(rows, moving, strict=True) if not moves]
    for row, moves in zip(rows, moving, strict=True):
        if moves:
            resting.insert(random.randrange(len(resting) + 1), row)
    return tuple(resting)


def _swap(rows: list[int], random: Random) -> None:
    index = 0
    while index < len(rows) - 1:
        if random.random() < SWAPPED:
            rows[index], rows[index + 1] = rows[index + 1], rows[index]
            index += 1
        index += 1
