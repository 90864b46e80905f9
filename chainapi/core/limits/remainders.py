"""Remainders that responses reported: the lowest since a request was sent."""

from __future__ import annotations

from bisect import bisect_left
from math import inf

from attrs import define, field

__all__ = ["Remainders"]


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
