"""Probes: single requests ahead of the others, which wait for the response."""

from __future__ import annotations

from math import inf

from attrs import define, field

__all__ = ["Probes"]

SOONEST_HEDGE = 1.0  # seconds
TRIPS = 4.0  # round trips that a probe may take before another one is sent
FAULTY = 3  # at once, if responses come that did not pass the limiter


@define(eq=False, repr=False)
class Probes:
    """Probes in flight: one at once, and twice as many each time that one is not answered."""

    trip: float = 0.0
    _in_flight: set[object] = field(factory=set[object])
    _most: int = 1
    _hedge_at: float = inf

    def opens_at(self, now: float) -> float | None:
        """Return when another request may leave beside the probes in flight; None without any."""
        if not self._in_flight:
            return None
        if len(self._in_flight) < self._most:
            return now
        return self._hedge_at

    def send(self, reservation: object, now: float) -> None:
        """Count a probe that leaves."""
        if len(self._in_flight) >= self._most:
            self._most *= 2
        self._in_flight.add(reservation)
        self._hedge_at = now + max(SOONEST_HEDGE, TRIPS * self.trip) * self._most

    def __len__(self) -> int:
        return len(self._in_flight)

    def answered(self, reservation: object) -> None:
        """Note an answer, of a probe or another: the service is alive."""
        self._in_flight.discard(reservation)
        self._most = 1

    def faulty(self, reservation: object, *, failed: bool) -> None:
        """Note an answer that did not pass the limiter: few others may try at once."""
        self._in_flight.discard(reservation)
        self._most = min(FAULTY, self._most + 1) if failed else self._most

    def lost(self, reservation: object, *, failed: bool) -> None:
        """Note that a request was not answered; after a lost probe, send more."""
        self._in_flight.discard(reservation)
        if failed:
            self._most *= 2

    def unsent(self, reservation: object) -> None:
        """Note that a probe did not leave."""
        self._in_flight.discard(reservation)
