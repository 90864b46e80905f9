"""Deadlines of waiting requests, compared with their predicted turns."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf
from typing import Generic, TypeVar

from attrs import define

from chainapi.core.limits.queue import Queue
from chainapi.core.limits.quota import Quota
from chainapi.core.limits.ticket import Ticket

__all__ = ["CLOSE", "GRACE", "Deadlines"]

GRACE = 1.0  # seconds by which a forecast must exceed the limit of a waiter to fail it early: it may be wrong
CLOSE = 0.05  # seconds: a request waits for a turn as close as this

T = TypeVar("T", bound=Ticket)


@define(eq=False, repr=False)
class Deadlines(Generic[T]):
    """Deadlines of the requests of a queue, which a quota may let leave too late."""

    queue: Queue[T]
    quota: Quota
    _checked_opening: float = -inf  # opening time at the last check of all waiters
    _checked_idle: bool = False  # whether nothing was in flight at that check

    def wait(self, now: float, ticket: T, *, least: bool = False, again: bool = False) -> float:
        """Return the seconds until a request leaves, as far as limits decide that.

        With `least`, the earliest possible time; with `again`, the time if it came again behind all others.
        """
        quota, ceiling = self.quota, ticket.ceiling
        units, ahead = self.queue.ahead(ticket, last=again)
        units += quota.costs.likely(ticket.route, ticket.prior)
        seconds = quota.forecast(now, units, ahead + 1.0, least=least)
        if quota.routes.known:
            seconds = max(seconds, quota.routes.closed_until(ticket.route) - now)
        if ceiling is not None:
            seconds = max(seconds, ceiling.wait(ceiling.toll(units, ahead + 1.0)))
        return seconds

    def again(self, now: float, ticket: T) -> float:
        """Return the seconds after which a new attempt of a request would leave at once."""
        return self.quota.promise(now, self.wait(now, ticket, again=True))

    def cleared(self, now: float, ticket: T) -> float:
        """Return the seconds after which the requests that wait now have left.

        A request without a response holds its place in flight for about a round trip.
        """
        quota, group = self.quota, ticket.group
        places = quota.max_in_flight if group is None else min(quota.max_in_flight, group.most)
        trips = ceil((self.queue.waiting + 1) / places) * quota.probes.trip
        probe = None if trips else quota.probes.opens_at(now)  # before the first response
        return max(self.again(now, ticket), trips, 0.0 if probe is None else probe - now)

    def misses(self, now: float, ticket: T) -> bool:
        """Return whether a new request will surely leave too late."""
        latest = ticket.latest
        return latest < inf and now + self.wait(now, ticket, least=True) > latest + CLOSE

    def missed(self, now: float, opens: float) -> Iterator[T]:
        """Yield the requests that cannot leave in time if the next one leaves at `opens`.

        Each new request is checked already, so this is necessary only when the opening moved, and when
        nothing is in flight any more: until then more units may be left than the known responses show.
        """
        idle = not self.quota.in_flight
        if not now < opens < inf or (opens < self._checked_opening + 1 and self._checked_idle >= idle):
            return
        self._checked_opening, self._checked_idle = opens, idle
        for ticket in self.queue.all():
            if ticket.latest == inf or ticket.over:
                continue
            seconds = self.wait(now, ticket, least=True)
            if now + seconds > ticket.latest + GRACE and seconds > CLOSE:
                yield ticket
