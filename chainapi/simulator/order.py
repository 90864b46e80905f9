"""The order of a list's rows: which row stands at which position, in each pass over the list.

Positions, like rows, are counted from the oldest, 0, upwards. Rows change places within runs of `RUN` rows,
so that the order of a list of any length is computed where a page is asked for. Rows that are added later
stand at the head, the newest first.
"""

from __future__ import annotations

import math
from functools import lru_cache
from random import Random

from chainapi.simulator.anomalies import Anomalies

__all__ = ["RUN", "arranged"]

RUN = 10_000
SWAPPED = 0.25  # the chance that a row changes places with the next one, unless it has done so already
KEPT = 64  # runs whose order is kept


def arranged(
    anomalies: Anomalies,
    seed: str,
    size: int,
    walk: int,
    span: tuple[int, int],
    within: tuple[int, float] = (0, math.inf),
) -> list[int]:
    """Return the numbers of the rows at the positions of `span`, the oldest first, in pass number `walk`.

    `size` is how many rows the list had at the beginning. Where a query asks for a part of the list, `within`
    is that part: the first row's number, and the number behind the last; positions begin at the former.
    """
    start, stop = span
    if anomalies.order in ("descending", "ascending") and not (anomalies.moved and walk):
        return list(range(start, stop))
    low, high = within
    rows: list[int] = []
    while start < min(stop, size):
        first = start - start % RUN
        behind = min(first + RUN, size)
        moved = anomalies.moved if walk else 0.0
        run = [
            row
            for row in _run(seed, anomalies.order, moved, walk if moved else 0, first, behind)
            if low <= row < high
        ]
        position = max(first, low)
        rows += run[start - position : stop - position]
        start = behind
    return rows + list(range(max(start, size), stop))


@lru_cache(maxsize=KEPT)
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
