"""Requests in flight: the units held back for them, and for lost ones."""

from __future__ import annotations

from collections import deque

from attrs import define, field

from chainapi.core.limits.reservation import Reservation

__all__ = ["InFlight"]


@define(eq=False, repr=False)
class InFlight:
    """Requests without a response, and units of lost ones that may have been counted.

    Attributes:
        number: requests in flight.
        units: what they cost.
        guesses: how many of them no response covers.
        lost: units of lost requests that no later response includes; `losses`: time and units of each.
        remembered: those among them that were in flight or lost at the time of a memory.
        remembered_requests: how many requests were in flight then.

    """

    number: int = 0
    units: float = 0.0
    guesses: int = 0
    lost: float = 0.0
    remembered: float = field(default=0.0, init=False)
    remembered_requests: int = field(default=0, init=False)
    _reservations: dict[Reservation, None] = field(factory=dict[Reservation, None], init=False)
    losses: deque[tuple[float, float]] = field(factory=deque[tuple[float, float]], init=False)

    def oldest(self, now: float) -> float:
        """Return when the oldest request in flight was sent; `now` without any."""
        return next(iter(self._reservations)).sent if self._reservations else now

    def add(self, reservation: Reservation) -> None:
        """Record a sent request."""
        self.number += 1
        self.units += reservation.cost
        self._reservations[reservation] = None
        if reservation.guess:
            self.guesses += 1

    def remove(self, reservation: Reservation) -> None:
        """Record the end of a request."""
        del self._reservations[reservation]
        self.number -= 1
        # Reset to exactly zero, or rounding errors would accumulate over the years.
        self.units = self.units - reservation.cost if self.number else 0.0
        if reservation.guess:
            self.guesses -= 1

    def lose(self, now: float, units: float) -> None:
        """Hold units back that a request may have used whose response was lost."""
        self.losses.append((now, units))
        self.lost += units

    def include(self, sent: float) -> tuple[float, int]:
        """Release the units lost before a request was sent: its response includes them.

        Return the units and requests of a memory: limits that no response reports have to count them.
        """
        if not self.losses or self.losses[0][0] > sent:
            return 0.0, 0
        while self.losses and self.losses[0][0] <= sent:
            self.lost -= self.losses.popleft()[1]
        doubtful = self.remembered, self.remembered_requests
        self.remembered, self.remembered_requests = 0.0, 0
        return doubtful

    def restore(self, then: float, units: float, requests: int) -> None:
        """Hold units back that were in flight or lost at the time of a memory."""
        if units:
            self.losses.appendleft((then, units))
            self.lost += units
            self.remembered, self.remembered_requests = units, requests

    def found(self, sent: float, units: float) -> None:
        """Release units of a memory: their request is reported as in flight."""
        if self.remembered and sent <= self.losses[0][0]:
            at, doubtful = self.losses[0]
            units = min(units, self.remembered)
            self.losses[0] = at, doubtful - units
            self.lost -= units
            self.remembered -= units
            self.remembered_requests = max(0, self.remembered_requests - 1)
