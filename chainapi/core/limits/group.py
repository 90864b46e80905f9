"""Group of requests with a limit of its own: a session, or a process of a shared quota."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

from attrs import define, field

from chainapi.core.limits.lane import Waiter
from chainapi.core.limits.ranks import Ranks

__all__ = ["Group"]


@define(eq=False, repr=False)
class Group:
    """Group of requests with a limit of its own.

    The queue has as many of them as may leave; the others stand aside. So requests that cannot leave do not
    block others, and no forecast counts them. The floor of lower ranks holds among those aside too.

    Args:
        most: most requests in flight at once.
        paced: whether each request pays a ceiling at its turn, one at a time.

    """

    most: float = inf
    paced: bool = False
    in_flight: int = 0
    inside: int = 0  # requests in the queue, or paying
    ranks: Counter[float] = field(factory=Counter[float])  # of requests inside
    aside: Ranks[Any] | None = None  # requests that stand aside

    @property
    def room(self) -> bool:
        """Room for one more request in the queue."""
        return self.in_flight + self.inside < self.most and not (self.paced and self.inside)

    def enter(self, waiter: Waiter) -> None:
        """Count a waiter in, and its turn before those that stand aside."""
        self._count(waiter, 1)
        if self.aside is not None:
            self.aside.charge(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Count a waiter out."""
        self._count(waiter, -1)

    def _count(self, waiter: Waiter, number: int) -> None:
        waiter.inside = number > 0
        self.inside += number
        self.ranks[waiter.rank] += number
        if not self.ranks[waiter.rank]:
            del self.ranks[waiter.rank]

    def first(self) -> Any:
        """Return the waiter aside that has the next turn; None without any."""
        return None if self.aside is None else self.aside.first()

    def displaceable(self, waiter: Waiter) -> float | None:
        """Return the rank of requests inside that a waiter displaces; None without any.

        None also while another one is aside that comes before the waiter: it came when no waiter could make
        room, and keeps its turn.
        """
        worst = max(self.ranks, default=waiter.rank)
        best = None if self.aside is None else self.aside.best()
        before = best is not None and (best.rank, best.number) < (waiter.rank, waiter.number)
        return None if before or worst <= waiter.rank else worst
