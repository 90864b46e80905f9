"""Probes: single requests ahead of the others, which wait for the response."""

from __future__ import annotations

from math import inf

from attrs import define, field

__all__ = ["Probes"]

SOONEST_HEDGE = 1.0  # seconds
TRIPS = 4.0  # round trips that a probe may take before another one is sent
FAULTY = 3  # at once, after responses that did not pass the limiter


@define(eq=False, repr=False)
class Probes:
    """Probes in flight: one at once, twice as many after each one without response."""

    trip: float = 0.0
    _in_flight: set[object] = field(factory=set[object])
    _most: int = 1
    _hedge_at: float = inf

    def opens_at(self, now: float) -> float | None:
        """Return when one more request may join the probes; None if none is in flight."""
        if not self._in_flight:
            return None
        if len(self._in_flight) < self._most:
            return now
        return self._hedge_at

    def send(self, reservation: object, now: float) -> None:
        """Record a sent probe."""
        if len(self._in_flight) >= self._most:
            self._most *= 2
        self._in_flight.add(reservation)
        self._hedge_at = now + max(SOONEST_HEDGE, TRIPS * self.trip) * self._most

    def __len__(self) -> int:
        return len(self._in_flight)

    def answered(self, reservation: object) -> None:
        """Record a response, to a probe or another request: the service works."""
        self._in_flight.discard(reservation)
        self._most = 1

    def faulty(self, reservation: object, *, failed: bool) -> None:
        """Record a response from before the limiter: few others may try at once."""
        self._in_flight.discard(reservation)
        self._most = min(FAULTY, self._most + 1) if failed else self._most

    def lost(self, reservation: object, *, failed: bool) -> None:
        """Record a request without a response; after a lost probe, allow more."""
        self._in_flight.discard(reservation)
        if failed:
            self._most *= 2

    def unsent(self, reservation: object) -> None:
        """Record a probe that was not sent."""
        self._in_flight.discard(reservation)
