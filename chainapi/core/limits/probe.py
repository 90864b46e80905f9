"""Probes: single requests ahead of the others, which wait for the response."""

from __future__ import annotations

from math import inf

from attrs import define, field

from chainapi.core.limits.modes import TRANSITIONS, Event, Mode, sends_probe
from chainapi.core.limits.reservation import Reservation

__all__ = ["Probes"]

SOONEST_HEDGE = 1.0  # seconds
TRIPS = 4.0  # round trips that a probe may take before another one is sent
FAULTY = 3  # at once, after responses that did not pass the limiter
MOST = 1 << 10  # at once, however many were lost: a service may be unreachable for days
# Constants, because access to the member of an Enum takes as long as a call.
LEARNING, PROBING, KNOWN, DRAINED = Mode.LEARNING, Mode.PROBING, Mode.KNOWN, Mode.DRAINED


@define(eq=False, repr=False)
class Probes:
    """Probes in flight, and the mode of the quota.

    The mode decides whether another probe follows.

    One is in flight at once, twice as many after each one without response, up to `MOST`. The first response
    to one of them ends probing: the others are requests in flight from then on, which may be late.

    Attributes:
        mode: mode of the quota.
        next: whether the next request is a probe, by the mode.
        trip: mean round trip of requests, in seconds.
        in_flight: probes without a response.
        late: those that were in flight when another one was answered.

    """

    mode: Mode = field(default=Mode.LEARNING, init=False)
    next: bool = field(default=True, init=False)
    trip: float = field(default=0.0, init=False)
    in_flight: set[Reservation] = field(factory=set[Reservation], init=False)
    late: set[Reservation] = field(factory=set[Reservation], init=False)
    _most: int = field(default=1, init=False)
    _hedge_at: float = field(default=inf, init=False)

    def opens_at(self, now: float) -> float | None:
        """Return when one more request may join the probes; None if none is in flight."""
        if not self.in_flight:
            return None
        if len(self.in_flight) < self._most:
            return now
        return self._hedge_at

    def send(self, reservation: Reservation, now: float) -> None:
        """Record a sent probe."""
        if len(self.in_flight) >= self._most:
            self._allow_more()
        self.in_flight.add(reservation)
        self._hedge_at = now + max(SOONEST_HEDGE, TRIPS * self.trip) * self._most
        self._take(Event.PROBE_SENT)

    def sent_other(self) -> None:
        """Record a sent request that is no probe."""
        if self.mode is DRAINED:
            self._take(Event.UNITS_BACK)

    def used_up(self) -> None:
        """Record that a request waits for units while none is in flight."""
        if self.mode is KNOWN:
            self._take(Event.USED_UP)

    # --- end of any request -----------------------------------------------------------------

    def answered(self, reservation: Reservation, now: float) -> None:
        """Record a response, to a probe or another request: the service works."""
        self.late.discard(reservation)
        if reservation in self.in_flight:
            self._release(reservation)
        self._most = 1
        trip = now - reservation.sent
        self.trip += 0.1 * (trip - self.trip) if self.trip else trip

    def _release(self, answered: Reservation) -> None:
        """End probing, because a probe was answered."""
        self.in_flight.discard(answered)
        for one in self.in_flight:
            one.probe = one.alone = False  # what it shows is older than the response
        self.late |= self.in_flight
        self.in_flight.clear()
        if self.mode is PROBING:
            self._take(Event.PROBES_ENDED)

    def refused(self) -> None:
        """Record that a response was a 429 for all requests."""
        self._take(Event.REFUSED)

    def route_refused(self, reservation: Reservation) -> None:
        """Record a 429 for its route alone: it shows nothing about the quota."""
        if reservation.required_probe:
            self._take(Event.PROBE_FAILED)

    def faulty(self, reservation: Reservation) -> None:
        """Record a response from before the limiter: few others may try at once."""
        if reservation.required_probe:
            self._most = min(FAULTY, self._most + 1)
        self._end(reservation)

    def lost(self, reservation: Reservation) -> None:
        """Record a request without a response; after a lost probe, allow more."""
        if reservation.required_probe:
            self._allow_more()
        self._end(reservation)

    def unsent(self, reservation: Reservation) -> None:
        """Record a request that was not sent."""
        self._end(reservation)

    def _allow_more(self) -> None:
        self._most = min(MOST, 2 * self._most)

    def _end(self, reservation: Reservation) -> None:
        """Leave the mode PROBING if a probe failed, or no probe is in flight any more."""
        self.in_flight.discard(reservation)
        self.late.discard(reservation)
        if reservation.required_probe:
            self._take(Event.PROBE_FAILED)
        elif self.mode is PROBING and not self.in_flight:
            self._take(Event.PROBES_ENDED)

    def restore(self, trip: float) -> None:
        """Continue from a memory with one more probe: requests may have left since then."""
        self.trip = self.trip or trip
        if self.mode is LEARNING:
            self._take(Event.RESTORED)

    def _take(self, event: Event) -> None:
        self.mode = TRANSITIONS[self.mode][event]
        self.next = sends_probe(self.mode)
