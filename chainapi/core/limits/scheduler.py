"""Scheduler of a quota: which waiting request leaves next, and when.

Pure: a round yields steps, and the caller carries each of them out before it takes the next one. The rules:

1. The queue decides whose turn it is; a request whose route is closed is parked until the route opens.
2. A request of a session with a ceiling pays it at its turn. Others pass it meanwhile.
3. If the quota holds a request back, all others wait behind it. Only cheaper requests may use units that are
   too few for it, at most its own cost in all.
4. A request that will surely leave too late fails early.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Generic, TypeAlias, TypeVar

from attrs import define, field
from msgspec import Struct

from chainapi._limits.headers import RateLimitInfo
from chainapi.core.limits.deadlines import CLOSE, Deadlines
from chainapi.core.limits.queue import Queue
from chainapi.core.limits.quota import Quota
from chainapi.core.limits.reservation import Reservation
from chainapi.core.limits.ticket import Ceiling, Ticket
from chainapi._limits.verdict import Verdict

__all__ = [
    "WORTH_REPORTING",
    "Due",
    "Granted",
    "Scheduler",
    "Step",
    "TooLate",
    "Unanswered",
    "Wait",
    "is_another_wait",
]

LOOK_AHEAD = 16  # waiters behind an expensive request that may pass it
UNANSWERED = 5.0  # seconds without any response after which the service is assumed to hang
WORTH_REPORTING = 1.0  # seconds: no shorter wait is reported

T = TypeVar("T", bound=Ticket)


def is_another_wait(until: float, reason: str, reported: float, reported_reason: str) -> bool:
    """Return whether a wait is not the one reported last, nor a part of it.

    Its end is a second or more away from that one, or later for another reason. Each response may move the
    end of a wait a little.
    """
    return abs(until - reported) >= WORTH_REPORTING or (until > reported and reason != reported_reason)


class Granted(Struct, Generic[T], frozen=True, eq=False):
    """Grant: the request may leave now, and left the queue."""

    ticket: T
    reservation: Reservation


class Due(Struct, Generic[T], frozen=True, eq=False):
    """Turn of a request that pays its ceiling first, which has room after `seconds`."""

    ticket: T
    seconds: float


class TooLate(Struct, Generic[T], frozen=True, eq=False):
    """Failure of a request whose turn is too late.

    A new attempt would leave after `seconds`.
    """

    ticket: T
    seconds: float


class Unanswered(Struct, Generic[T], frozen=True, eq=False):
    """Failure of a request because the service sent no response for `seconds`."""

    ticket: T
    seconds: float


class Wait(Struct, frozen=True):
    """Wait of the whole queue until a known time, for a ``"stop"`` or the ``"quota"``."""

    until: float
    reason: str


Step: TypeAlias = Granted[T] | Due[T] | TooLate[T] | Wait


@define(eq=False, repr=False)
class Scheduler(Generic[T]):
    """Scheduler of the requests that wait for one quota.

    Attributes:
        wakes_at: time of the next round; inf if a response decides.
        wait: the wait of the queue, if it is known and a second or longer.

    """

    quota: Quota
    queue: Queue[T] = field(init=False)
    deadlines: Deadlines[T] = field(init=False)
    wakes_at: float = field(default=inf, init=False)
    wait: Wait | None = field(default=None, init=False)
    _reported: Wait = field(default=Wait(-inf, ""), init=False)  # the wait that was yielded last
    # When the oldest request was sent after the last response.
    _unanswered_since: float = field(default=inf, init=False)

    def __attrs_post_init__(self) -> None:
        self.queue = Queue(self.quota.costs)
        self.deadlines = Deadlines(self.queue, self.quota)

    # --- requests that do not wait ----------------------------------------------------------

    def reserve(self, now: float, route: str, prior: float | None) -> Reservation | None:
        """Reserve units for a request that may leave now; None sets `wakes_at`."""
        quota = self.quota
        cost = quota.costs.price(route, prior)
        decision = quota.decide(now, cost, route)
        when = decision.when
        if when <= now and quota.routes.known:
            when = quota.routes.opens_at(route, now)
        if when <= now:
            if now < self._unanswered_since:
                self._unanswered_since = now
            return quota.send(decision, now, route, cost, prior)
        quota.wait(decision)
        self.wakes_at = when
        return None

    def ready(self, now: float, ticket: T) -> bool:
        """Return whether a new request leaves at once if it joins the queue.

        It pays its ceiling first.
        """
        quota, ceiling, group = self.quota, ticket.owes, ticket.group
        if self.queue.first() is not None or (group is not None and not group.room(ticket.rank)):
            return False
        cost = quota.costs.price(ticket.route, ticket.prior)
        opens = max(quota.decide(now, cost, ticket.route).when, quota.routes.closed_until(ticket.route))
        return opens <= now and (ceiling is None or ceiling.ready(self._toll(ticket, ceiling)))

    def adopt(self, sent: float, route: str, prior: float | None) -> Reservation:
        """Reserve units for a request that left before; see `Quota.adopt`."""
        return self.quota.adopt(sent, route, self.quota.costs.price(route, prior), prior)

    def answered(
        self, reservation: Reservation, now: float, status: int, info: RateLimitInfo, jitter: float
    ) -> Verdict:
        """Record a response; see `Quota.answered`."""
        quota = self.quota
        self._unanswered_since = now if quota.in_flight > 1 else inf
        return quota.answered(reservation, now, status, info, jitter)

    # --- turns ------------------------------------------------------------------------------

    def round(self, now: float) -> Iterator[Step[T]]:
        """Yield a step for each request with its turn now, and for each that is too late."""
        self.wait = None
        self._reopen(now)
        self.queue.fill()
        while (turn := self._next(now)) is not None:
            if isinstance(turn, TooLate):
                yield turn
            elif (step := self._serve(now, turn)) is not None:
                yield step
            else:
                yield from self._hold(now, turn)
                break
        else:
            self.wakes_at = inf
            yield from self._hold_parked(now)
        self.wakes_at = min(self.wakes_at, self.queue.parked_until)
        for ticket in self.deadlines.missed(now, self.wakes_at):
            yield self._too_late(now, ticket)

    def overdue(self, now: float, ticket: T) -> TooLate[T] | Unanswered[T] | None:
        """Remove a request whose `max_wait` is over.

        Returns the reason; None if its turn is close.
        """
        if self.deadlines.wait(now, ticket) > CLOSE:
            return self._too_late(now, ticket)
        if self._unanswered_since <= now - max(ticket.max_wait, UNANSWERED):
            self.queue.remove(ticket)
            return Unanswered(ticket, now - self._unanswered_since)
        return None

    def _next(self, now: float) -> T | TooLate[T] | None:
        """Return the request whose turn it is; park those whose route is closed.

        One of these that cannot wait until its route opens is returned as its failure.
        """
        queue, routes = self.queue, self.quota.routes
        if self.quota.full and not routes.known:
            return None  # nobody has a turn before a response
        while (ticket := queue.first()) is not None:
            if ticket.over:
                queue.remove(ticket)  # cancelled, and its task did not run yet
                continue
            opens = routes.opens_at(ticket.route, now) if routes.known else now
            if opens <= now:
                return ticket
            queue.park(ticket, opens)
            if ticket.latest < routes.closed_until(ticket.route):
                return self._too_late(now, ticket)
        return None

    def _serve(self, now: float, ticket: T) -> Granted[T] | Due[T] | None:
        """Grant a request, or let it pay its ceiling first.

        None if the quota does not allow it yet.
        """
        if (ceiling := ticket.owes) is not None:
            return self._due(now, ticket, ceiling)
        reservation = self.reserve(now, ticket.route, ticket.prior)
        return None if reservation is None else self._granted(ticket, reservation)

    def _granted(self, ticket: T, reservation: Reservation) -> Granted[T]:
        self.queue.remove(ticket, granted=True)
        if ticket.group is not None:
            ticket.group.in_flight += 1
        return Granted(ticket, reservation)

    def _due(self, now: float, ticket: T, ceiling: Ceiling) -> Due[T] | None:
        """Let a request pay its session's ceiling before its grant.

        None if the quota does not allow the request yet: then it does not pay.
        """
        quota = self.quota
        cost = quota.costs.price(ticket.route, ticket.prior)
        decision = quota.decide(now, cost, ticket.route)
        quota.wait(decision)  # for its turn, or until the request has paid its session's ceiling
        if decision.when > now:
            self.wakes_at = decision.when
            return None
        self.queue.step_out(ticket)
        return Due(ticket, ceiling.wait(self._toll(ticket, ceiling)))

    def _toll(self, ticket: T, ceiling: Ceiling) -> float:
        return ceiling.toll(self.quota.costs.shown(ticket.route, ticket.prior))

    def _hold(self, now: float, ticket: T) -> Iterator[Step[T]]:
        """Let the queue wait behind a request until `wakes_at`.

        A wait for the response to a probe is not reported.
        """
        until = self.wakes_at
        if self.quota.probes.opens_at(now) is None:
            yield from self._report(now, until, "stop" if until == self.quota.stopped_until else "quota")
        if ticket.ceiling is None:
            yield from self._let_pass(now, ticket)

    def _hold_parked(self, now: float) -> Iterator[Wait]:
        """Let parked requests wait until the first of their routes opens.

        The service is silent until then only if no other request is in flight.
        """
        if self.queue.waiting and self.quota.in_flight == 0:
            yield from self._report(now, self.queue.parked_until, "stop")

    def _report(self, now: float, until: float, reason: str) -> Iterator[Wait]:
        """Keep a wait of a second or more; yield it unless it was yielded before."""
        if now + WORTH_REPORTING <= until < inf:
            self.wait, reported = Wait(until, reason), self._reported
            if is_another_wait(until, reason, reported.until, reported.reason):
                self._reported = self.wait
                yield self.wait

    def _let_pass(self, now: float, expensive: T) -> Iterator[Granted[T]]:
        """Let cheaper requests use units too few for an expensive one, at most its cost.

        So no units are lost when a window ends, and an expensive request waits at most twice as long.
        """
        quota = self.quota
        cost = quota.costs.price(expensive.route, expensive.prior)
        if cost <= self.queue.cheapest():
            return
        room = min(quota.room(now, expensive.route, cost), cost - expensive.passed)
        for ticket in self.queue.behind(expensive, LOOK_AHEAD):
            units = quota.costs.price(ticket.route, ticket.prior)
            if units > room or ticket.over or ticket.owes is not None:
                continue
            if quota.routes.known and quota.routes.opens_at(ticket.route, now) > now:
                continue
            decision = quota.decide(now, units, ticket.route)
            if decision.when > now:
                quota.wait(decision)
                return
            room -= units
            expensive.passed += units
            yield self._granted(ticket, quota.send(decision, now, ticket.route, units, ticket.prior))

    def _too_late(self, now: float, ticket: T) -> TooLate[T]:
        """Remove a request that would leave too late."""
        self.queue.remove(ticket)  # first: a new attempt does not wait behind itself
        return TooLate(ticket, self.deadlines.again(now, ticket))

    def _reopen(self, now: float) -> None:
        """Put requests back in the queue whose route opened."""
        routes = self.quota.routes
        for route in self.queue.parked_routes():
            self.queue.unpark(route, routes.places(route, now), routes.wakes_at(route, now))
