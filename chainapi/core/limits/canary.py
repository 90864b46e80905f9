"""Single requests that go ahead of all others, to be answered before anybody follows."""

from __future__ import annotations

from math import inf

from attrs import define, field

__all__ = ["Canaries"]

SOONEST_HEDGE = 1.0  # seconds
TRIPS = 4.0  # round trips that a canary may take before another one is sent
FAULTY = 3  # that fly at once where answers come, but without passing the limiter


@define(eq=False, repr=False)
class Canaries:
    """How many canaries may fly at once: one, and twice as many each time that one is not answered.

    `due` says that the next request is a canary.
    """

    due: bool = True
    trip: float = 0.0
    _flying: set[object] = field(factory=set[object])
    _most: int = 1
    _hedge_at: float = inf

    def opens_at(self, now: float) -> float | None:
        """Return when another request may leave beside the canaries that fly; None when none does."""
        if not self._flying:
            return None
        if len(self._flying) < self._most:
            return now
        return self._hedge_at

    def send(self, flight: object, now: float) -> None:
        """Note that a canary leaves."""
        if len(self._flying) >= self._most:
            self._most *= 2
        self._flying.add(flight)
        self.due = False
        self._hedge_at = now + max(SOONEST_HEDGE, TRIPS * self.trip) * self._most

    def __contains__(self, flight: object) -> bool:
        return flight in self._flying

    def answered(self, flight: object) -> None:
        """Note an answer, of a canary or another: the service is alive."""
        self._flying.discard(flight)
        self._most = 1

    def faulty(self, flight: object, *, due: bool) -> None:
        """Note an answer that did not pass the limiter: few others may try at once."""
        self._flying.discard(flight)
        self.due = self.due or due
        self._most = min(FAULTY, self._most + 1) if due else self._most

    def lost(self, flight: object, *, due: bool) -> None:
        """Note that a request was not answered; when it was the canary, more fly next."""
        self._flying.discard(flight)
        self.due = self.due or due
        if due:
            self._most *= 2

    def unsent(self, flight: object, *, due: bool) -> None:
        """Note that a canary did not leave."""
        self._flying.discard(flight)
        self.due = self.due or due
