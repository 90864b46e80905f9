"""Line of waiters, first come, first served; it knows the number before each one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

from attrs import define, field

__all__ = ["Line"]

SERVED = 32  # places of served waiters that are kept at least


class _Numbered(Protocol):
    """Waiter with a number of its own, higher than those of earlier waiters."""

    number: int


W = TypeVar("W", bound=_Numbered)


@define(eq=False, repr=False)
class Line(Generic[W]):
    """Waiters in the order of their numbers.

    A waiter joins at the end and leaves at the front in constant time. Anywhere else, others move up.
    """

    _numbers: list[int] = field(factory=list[int])
    _start: int = 0  # numbers of those in front, who left
    _waiters: dict[int, W] = field(factory=dict[int, W])

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[W]:
        return (self._waiters[number] for number in islice(self._numbers, self._start, None))

    def __reversed__(self) -> Iterator[W]:
        return (self._waiters[number] for number in islice(reversed(self._numbers), len(self)))

    def first(self) -> W | None:
        """Return the waiter that came first."""
        return self._waiters[self._numbers[self._start]] if self._waiters else None

    def add(self, waiter: W) -> None:
        """Insert a waiter by its number: one that had a grant before goes in front."""
        numbers, number = self._numbers, waiter.number
        if not numbers or numbers[-1] < number:
            numbers.append(number)
        elif self._start and number < numbers[self._start]:
            self._start -= 1
            numbers[self._start] = number
        else:
            insort(numbers, number, lo=self._start)
        self._waiters[number] = waiter

    def remove(self, waiter: W) -> None:
        """Remove a waiter of this line."""
        numbers, start, number = self._numbers, self._start, waiter.number
        del self._waiters[number]
        if numbers[start] != number:
            del numbers[bisect_left(numbers, number, lo=start)]
            return
        self._start = start + 1
        if not self._waiters or (start >= SERVED and 2 * start >= len(numbers)):
            del numbers[: self._start]
            self._start = 0

    def before(self, number: int) -> int:
        """Return the number of waiters that came before the one with a number."""
        return bisect_left(self._numbers, number, lo=self._start) - self._start
