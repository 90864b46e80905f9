"""Remainders that responses reported: the lowest since a request was sent."""

from __future__ import annotations

from bisect import bisect_left
from math import inf

from attrs import define, field

__all__ = ["Remainders"]

MOST = 64  # remainders kept before old ones are removed


@define(eq=False, repr=False)
class Remainders:
    """Remainders reported by responses, which overtake each other.

    Units come back only after a response reported fewer, so each remainder that a later response undercut
    is dropped: arrival times and remainders both ascend.
    """

    _lows: list[tuple[float, float]] = field(factory=list[tuple[float, float]])

    def __len__(self) -> int:
        return len(self._lows)

    def add(self, sent: float, now: float, remaining: float) -> float:
        """Record a remainder, and return the lowest one reported since `sent`."""
        lows = self._lows
        while lows and lows[-1][1] >= remaining:
            lows.pop()
        lows.append((now, remaining))
        return lows[bisect_left(lows, (sent, -inf))][1]

    def prune(self, before: float) -> None:
        """Remove what was reported before the oldest request in flight was sent."""
        if len(self._lows) > MOST:
            del self._lows[: bisect_left(self._lows, (before, -inf))]
