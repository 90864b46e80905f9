"""History of an ordered list: the rows to count if its order breaks later."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct, field

from chainapi.core.paging.digests import DigestCounter
from chainapi.core.paging.order import Marks, Order, Rows, Run, listed
from chainapi.core.paging.rows import mark_digest, number_digest
from chainapi.core.private import Private

__all__ = ["OrderHistory", "Runs"]


class Runs(Private, Struct, eq=False, gc=False):
    """Runs: numbers as arithmetic runs, such as consecutive blocks or daily points.

    The number of runs is bounded. A span proves nothing about the rows in it once the order breaks; the runs
    list the numbers one by one.
    """

    LIMIT: ClassVar[int] = 1_024

    _runs: list[Run] | None = []

    @property
    def overflowed(self) -> bool:
        """Return whether the numbers took too many runs, and were dropped."""
        return self._runs is None

    def __iter__(self) -> Iterator[int]:
        for first, step, count in self._runs or ():
            for place in range(count):
                yield first + step * place

    def extend(self, numbers: Sequence[int], run: Run | None = None) -> None:
        """Add numbers in the order of their rows; `run` is their run, where they are one."""
        runs = self._runs
        if runs is None:
            return
        if run is not None:
            first, step, count = runs[-1] if runs else run
            if runs and step == run[1] and run[0] == first + step * count:
                runs[-1] = first, step, count + run[2]
                return
            runs.append(run)
        elif numbers:
            _append(runs, numbers)
        if len(runs) > self.LIMIT:
            self._runs = None


class OrderHistory(Private, Struct, eq=False, gc=False):
    """Rows given while a list kept its order.

    If the order breaks, no other record of them is left. Rows at the ends of spans are kept by their marks,
    because rows that come later may share their number. The others are kept by their numbers.
    """

    _given: Runs = field(default_factory=Runs)
    _met: Runs | None = None  # in this pass; None in the first one, where it would be the same
    _ends: Mapping[int, tuple[Marks, Marks]] = {}

    @property
    def later(self) -> bool:
        """Return whether this pass is a later one than the first."""
        return self._met is not None

    @property
    def overflowed(self) -> bool:
        """Return whether the numbers follow no pattern, and were dropped."""
        return self._given.overflowed or (self._met is not None and self._met.overflowed)

    def restart(self) -> None:
        """Begin another pass."""
        self._met = Runs()

    def extend(self, rows: Rows, stale: Collection[int]) -> None:
        """Add the rows of a page; the `stale` ones were given before, and are met again."""
        if stale:
            self._given.extend(rows.without(stale))
        else:
            self._given.extend(rows.numbers, rows.run)
        if self._met is not None:
            self._met.extend(rows.numbers, rows.run)

    def keep_ends(self, order: Order) -> None:
        """Copy the marks at the ends of spans before the order broke.

        They are as they were before the page that broke it.
        """
        self._ends = {number: (marks, met) for number, marks, met in order.ends()}

    def move_to(self, counter: DigestCounter) -> None:
        """Count the rows as given, and those that came in this pass as met."""
        for digest in self._digests(self._given, met=False):
            counter.give(digest)
        if self._met is not None:
            counter.restart()
            for digest in self._digests(self._met, met=True):
                counter.meet(digest)
        self._given, self._met, self._ends = Runs(), None, {}

    def _digests(self, numbers: Iterable[int], *, met: bool) -> Iterator[bytes]:
        for number in numbers:
            if number not in self._ends:
                yield number_digest(number)
        for number, marks in self._ends.items():
            for mark in listed(marks[met]):
                yield mark_digest(number, mark)


def _append(runs: list[Run], numbers: Sequence[int]) -> None:
    first, step, count = runs.pop() if runs else (numbers[0], 0, 0)
    for number in numbers:
        if count == 1:
            step, count = number - first, 2
        elif number == first + step * count:
            count += 1
        else:
            runs.append((first, step, count))
            first, step, count = number, 0, 1
    runs.append((first, step, count))
