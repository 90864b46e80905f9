"""Remainders that responses reported, and costs of responses without one."""

from __future__ import annotations

from bisect import bisect_left
from math import inf

from attrs import define, field

__all__ = ["Remainders", "SilentCosts"]


@define(eq=False, repr=False)
class Remainders:
    """Remainders reported by responses, which overtake each other.

    Attributes:
        lows: arrival times and remainders, both ascending: one that a later response undercut is dropped.

    """

    lows: list[tuple[float, float]] = field(factory=list[tuple[float, float]])

    def add(self, sent: float, now: float, remaining: float) -> float:
        """Record a remainder, and return the lowest one reported since `sent`."""
        lows = self.lows
        while lows and lows[-1][1] >= remaining:
            lows.pop()
        lows.append((now, remaining))
        if len(lows) == 1:
            return remaining
        return lows[bisect_left(lows, (sent, -inf))][1]

    def prune(self, before: float) -> None:
        """Remove what was reported before the oldest request in flight was sent."""
        del self.lows[: bisect_left(self.lows, (before, -inf))]


@define(eq=False, repr=False)
class SilentCosts:
    """Costs of requests whose responses had no remainder, by arrival time."""

    costs: list[tuple[float, float]] = field(factory=list[tuple[float, float]])

    def add(self, now: float, cost: float) -> None:
        """Record a response without a remainder."""
        self.costs.append((now, cost))

    def since(self, sent: float) -> float:
        """Return the cost of those that arrived after a request was sent."""
        return sum(cost for _, cost in self.costs[bisect_left(self.costs, (sent, -inf)) :])

    def prune(self, before: float) -> None:
        """Remove those that arrived before the oldest request in flight was sent."""
        del self.costs[: bisect_left(self.costs, (before, -inf))]
