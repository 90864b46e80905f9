"""Group of requests with a limit of its own: of a session, or of a process."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Any, Protocol

from attrs import define, field, frozen

__all__ = ["Aside", "Group", "Places"]


class _Waiter(Protocol):
    """Request of a group; see `chainapi.core.limits.lane.Waiter`."""

    number: int
    rank: float
    inside: bool


class Aside(Protocol):
    """Requests of a group that stand aside; see `chainapi.core.limits.ranks.Ranks`."""

    @property
    def lanes(self) -> Mapping[float, Any]:
        """The requests of each rank."""
        ...

    def add(self, waiter: Any) -> None:
        """Insert a request."""

    def first(self) -> Any:
        """Return the request with the next turn."""

    def best(self) -> Any:
        """Return the first request of the best rank."""

    def charge(self, waiter: Any) -> None:
        """Record the turn of a request."""

    def owed(self, rank: float) -> float:
        """Return the units for which a rank owes lower ones a part."""
        ...


@frozen
class Places:
    """Places in flight that processes divide equally.

    For requests of a rank, the processes that have requests of it or of a better one divide them. So a
    process whose requests are all of a lower rank takes no place from one with a better rank.

    Args:
        number: of all places.
        ranks: the best rank of each busy process, sorted.

    """

    number: float
    ranks: Sequence[float]

    def most(self, rank: float) -> float:
        """Return the places of a process for requests of a rank.

        Retries count as requests of the best rank.
        """
        if len(self.ranks) < 2:
            return inf
        processes = bisect_right(self.ranks, max(rank, self.ranks[0]))
        return inf if processes < 2 else ceil(self.number / processes)


@define(eq=False, repr=False)
class Group:
    """Group of requests with a limit of its own.

    The queue has as many of them as may leave; the others stand aside. So requests that cannot leave do not
    block others, and no forecast counts them. The floor of lower ranks holds among those aside too.

    Args:
        most: most requests in flight at once.
        paced: whether each request pays a ceiling at its turn, one at a time.
        places: places that the group shares with others; None for no further limit.

    """

    most: float = inf
    paced: bool = False
    places: Places | None = None
    in_flight: int = 0
    inside: int = 0  # requests in the queue, or paying
    ranks: Counter[float] = field(factory=Counter[float])  # of requests inside
    aside: Aside | None = None  # requests that stand aside

    def room(self, rank: float) -> bool:
        """Return whether there is room for one more request of a rank in the queue."""
        most = self.most if self.places is None else min(self.most, self.places.most(rank))
        return self.in_flight + self.inside < most and not (self.paced and self.inside)

    def enter(self, waiter: _Waiter) -> None:
        """Count a waiter in, and its turn before those that stand aside."""
        self._count(waiter, 1)
        if self.aside is not None:
            self.aside.charge(waiter)

    def leave(self, waiter: _Waiter) -> None:
        """Count a waiter out."""
        self._count(waiter, -1)

    def _count(self, waiter: _Waiter, number: int) -> None:
        waiter.inside = number > 0
        self.inside += number
        self.ranks[waiter.rank] += number
        if not self.ranks[waiter.rank]:
            del self.ranks[waiter.rank]

    def first(self) -> Any:
        """Return the waiter aside that has the next turn.

        None without any, and without room.
        """
        if self.aside is None or not self.room(-inf):
            return None
        first = self.aside.first()
        if first is None or self.room(first.rank):
            return first
        best = self.aside.best()  # a better rank may have more room
        return best if best is not None and self.room(best.rank) else None

    def displaceable(self, waiter: _Waiter) -> float | None:
        """Return the rank of requests inside that a waiter displaces; None without any.

        None also while another one is aside that comes before the waiter: it came when no waiter could make
        room, and keeps its turn.
        """
        worst = max(self.ranks, default=waiter.rank)
        best = None if self.aside is None else self.aside.best()
        before = best is not None and (best.rank, best.number) < (waiter.rank, waiter.number)
        return None if before or worst <= waiter.rank else worst
