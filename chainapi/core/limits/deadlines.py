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

    def wait(self, now: float, ticket: T, *, least: bool = False) -> float:
        """Return the seconds until a request leaves, as far as limits decide that.

        With `least`, the earliest possible time, without an unconfirmed documented cost; else the scheduler
        holds the request for that cost.
        """
        units, ahead = self.queue.ahead(ticket)
        cost = self.quota.costs.likely if least else self.quota.costs.price
        units, requests = units + cost(ticket.route, ticket.prior), ahead + 1.0
        seconds = self.quota.forecast(now, units, requests, least=least)
        return max(seconds, self._own_limits(now, ticket, units, requests))

    def _own_limits(self, now: float, ticket: T, units: float, requests: float) -> float:
        """Return the seconds until its route and its ceiling let a request leave."""
        routes, ceiling = self.quota.routes, ticket.ceiling
        seconds = routes.closed_until(ticket.route) - now if routes.known else 0.0
        if ceiling is None:
            return seconds
        costs, route = self.quota.costs, ticket.route
        cost = costs.shown(route, ticket.prior)
        if cost < costs.price(route, ticket.prior):
            units = requests * cost  # `units` has what the quota holds beside the cost
        return max(seconds, ceiling.wait(ceiling.toll(units, requests)))

    def again(self, now: float, ticket: T) -> float:
        """Return the seconds after which a new attempt would leave at once.

        The request is not in the queue: it left, or never joined.
        """
        return self._behind(now, ticket, joins=True)

    def cleared(self, now: float, ticket: T, *, joins: bool) -> float:
        """Return the seconds after which the requests that wait now have left.

        With `joins`, the request leaves as well, because none may wait. A request without a response holds
        its place in flight for about a round trip.
        """
        quota, group = self.quota, ticket.group
        places = quota.max_in_flight if group is None else min(quota.max_in_flight, group.most)
        trips = ceil((self.queue.waiting + joins) / places) * quota.probes.trip
        probe = None if trips else quota.probes.opens_at(now)  # before the first response
        return max(self._behind(now, ticket, joins=joins), trips, 0.0 if probe is None else probe - now)

    def _behind(self, now: float, ticket: T, *, joins: bool) -> float:
        """Return the seconds until all that wait have left, and one that `joins` them.

        A request that pays the ceiling is not among them, so the ceiling is that of one more in any case.
        """
        units, ahead = self.queue.ahead(ticket, last=True)
        own = self.quota.costs.price(ticket.route, ticket.prior)
        seconds = self.quota.forecast(now, units + own * joins, ahead + joins)
        return self.quota.promise(now, max(seconds, self._own_limits(now, ticket, units + own, ahead + 1.0)))

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
