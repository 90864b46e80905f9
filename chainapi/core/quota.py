"""What the service's answers say about its quota, and what may be sent because of it.

Pure arithmetic: times are seconds on any monotonic clock and come in as arguments, like the jitter.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from attrs import define, field, frozen

from chainapi.core.headers import LimitNews

__all__ = ["Flight", "Limit", "Quota", "QuotaSnapshot"]

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 60.0


@frozen
class Limit:
    """`amount` units (requests, where a service does not weigh them) in any `per` seconds."""

    amount: float
    per: float = 60.0


@frozen
class QuotaSnapshot:
    """The quota as it is known at `time`; times are seconds on the event loop's clock."""

    time: float
    limit: float | None = None
    remaining: float | None = None
    window: float | None = None
    stopped_until: float | None = None
    reset_at: float | None = None
    costs: Mapping[str, float] = field(factory=dict[str, float])
    waiting: int = 0
    in_flight: int = 0

    @property
    def stopped_for(self) -> float:
        """Seconds until requests may leave again after a refusal; 0 when nothing is stopped."""
        return max(0.0, self.stopped_until - self.time) if self.stopped_until is not None else 0.0

    @property
    def reset_in(self) -> float | None:
        """Seconds until the period ends and the quota is whole again; None when that is not known."""
        return max(0.0, self.reset_at - self.time) if self.reset_at is not None else None


@define(eq=False)
class Flight:
    """One request that was granted; `sent` in seconds, `cost` in units."""

    route: str
    cost: float
    sent: float
    stops: int
    canary: bool = False


@define(eq=False)
class Quota:
    """One quota of one service: ask `opens_at`, then `send`, then say how it ended."""

    max_in_flight: int = 100
    in_flight: int = 0
    units_in_flight: float = 0.0
    limit: float | None = None
    window: float | None = None
    remaining: float | None = None
    stopped_until: float = -inf
    _believed_at: float = -inf
    _stops: int = 0
    _refusals: int = 0
    _canary_due: bool = True
    _canary: Flight | None = None

    def price(self, route: str, prior: float | None) -> float:
        """Return the units that a request of `route` is thought to cost."""
        return 1.0 if prior is None else prior

    def opens_at(self, now: float, cost: float) -> float:
        """Return from when a request may leave: `now`, a later time, or inf when an answer decides."""
        if self.in_flight >= self.max_in_flight or self._canary is not None:
            return inf
        if now < self.stopped_until:
            return self.stopped_until
        if self._canary_due or self.remaining is None or self.remaining - self.units_in_flight >= cost:
            return now
        if self.in_flight:
            return inf
        self._canary_due = True
        return now

    def send(self, now: float, route: str, cost: float) -> Flight:
        """Count one request out."""
        flight = Flight(route, cost, now, self._stops, self._canary_due)
        if self._canary_due:
            self._canary, self._canary_due = flight, False
        self.in_flight += 1
        self.units_in_flight += cost
        return flight

    def holds(self, flight: Flight, now: float) -> bool:
        """Tell whether a request that was granted a moment ago may still leave."""
        return flight.stops == self._stops and now >= self.stopped_until

    def unsent(self, flight: Flight) -> None:
        """Take back a grant that was not used."""
        self._landed(flight)
        self._canary_due = self._canary_due or flight.canary

    def lost(self, flight: Flight, now: float) -> None:
        """Note that no answer will come: the service may have counted the request."""
        self._landed(flight)
        if self.remaining is not None:
            self.remaining -= flight.cost
        self._canary_due = self._canary_due or flight.canary

    def answered(self, flight: Flight, now: float, status: int, news: LimitNews, jitter: float) -> None:
        """Take in an answer; `jitter` is a random number from 0 to 1."""
        self._landed(flight)
        if status == 429:
            self._refused(now, news, jitter)
        elif status < 500:
            self._refusals = 0
        if news.policies:
            self.window = news.policies[0].window
        if news.limit is not None:
            self.limit = news.limit
        if news.remaining is not None:
            self._believe(flight, now, news.remaining)
        elif self.remaining is not None and status < 500:
            self.remaining -= flight.cost

    def _believe(self, flight: Flight, now: float, remaining: float) -> None:
        if self.remaining is None or remaining < self.remaining or flight.sent >= self._believed_at:
            self.remaining, self._believed_at = remaining, now

    def _landed(self, flight: Flight) -> None:
        self.in_flight -= 1
        self.units_in_flight = self.units_in_flight - flight.cost if self.in_flight else 0.0
        if self._canary is flight:
            self._canary = None

    def _refused(self, now: float, news: LimitNews, jitter: float) -> None:
        wait = news.retry_after if news.retry_after is not None else news.reset
        self._refusals += 1
        if wait is None:
            wait = jitter * min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(self._refusals - 1, 16))
        self.stopped_until = max(self.stopped_until, now + wait)
        self._stops += 1
        self._canary_due = True

    def forecast(self, now: float, cost: float, units_ahead: float) -> float:
        """Return the seconds until a request of `cost` leaves behind `units_ahead`; inf when unknown."""
        wait = max(0.0, self.stopped_until - now)
        if self.limit and self.window:
            room = (self.remaining or 0.0) - self.units_in_flight if not wait else self.limit
            behind = units_ahead + cost - room
            if behind > 0:
                wait += behind / self.limit * self.window
        return wait

    def snapshot(self, now: float, waiting: int) -> QuotaSnapshot:
        """Return what is known, to be read by people."""
        stopped = self.stopped_until if self.stopped_until > now else None
        return QuotaSnapshot(
            time=now,
            limit=self.limit,
            remaining=self.remaining,
            window=self.window,
            stopped_until=stopped,
            reset_at=stopped,
            waiting=waiting,
            in_flight=self.in_flight,
        )
