"""Refusals: the limit that a 429 shows, its reach, and the wait after it."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from attrs import define, field

from chainapi._limits.headers import RateLimitInfo, hold
from chainapi.core.limits.backoff import LONGEST_BACKOFF, backoff
from chainapi.core.limits.costs import Costs
from chainapi.core.limits.discovery import SOON
from chainapi.core.limits.in_force import LimitsInForce
from chainapi.core.limits.memory import LONGEST_NAME, RefusalsPart, seconds
from chainapi.core.limits.policy import Policy
from chainapi.core.limits.reservation import Reservation
from chainapi.core.limits.scope import Routes
from chainapi.core.limits.verdict import Verdict

__all__ = ["Refusals"]

MOST_IN_A_ROW = 1_000  # in a memory; the backoff reaches its longest far below
OF_WINDOW = 1 / 6  # of a known window: the longest backoff if no refusal has the wait
LEFT = 0.25  # of the limit: with more left, a refusal does not concern the quota


class Refusal(NamedTuple):
    """Refusal of a request, as its response reports it.

    Attributes:
        wait: announced seconds; None if the response has none.
        policy: the policy that it reports; None if unknown.
        remaining: units that remain of that policy; None if the response does not report them.
        left: whether these are enough, so that another limit refused the request; None if unknown.
        jitter: a random number from 0 to 1.

    """

    reservation: Reservation
    now: float
    wait: float | None
    policy: Policy | None
    remaining: float | None
    left: bool | None
    jitter: float

    @property
    def whole(self) -> bool:
        """Whether the whole limit remains."""
        return self.policy is not None and self.remaining == self.policy.limit


@define(eq=False, repr=False)
class Refusals:
    """Refusals in a row, and the stop of all requests that they cause.

    Attributes:
        stopped_until: end of the last stop, which only moves later.
        stops: number of stops: a request granted before the last one may not leave.

    """

    limits: LimitsInForce
    costs: Costs
    routes: Routes
    stopped_until: float = field(default=-inf, init=False)
    stops: int = field(default=0, init=False)
    _in_a_row: int = field(default=0, init=False)  # of probes
    _route: str | None = field(default=None, init=False)  # of the last refused probe
    _passed_any: bool = field(default=False, init=False)

    def passed(self) -> None:
        """Record a request that passed a limiter: the next refusal is the first in a row."""
        self._in_a_row, self._route, self._passed_any = 0, None, True

    def refused(
        self,
        reservation: Reservation,
        now: float,
        info: RateLimitInfo,
        policy: Policy | None,
        *,
        jitter: float,
        max_stop: float,
    ) -> tuple[Verdict, Policy | None]:
        """Stop requests after a refusal.

        Returns its meaning, and the announced policy that is used up.
        """
        wait = min(hold(429, info), max_stop) if info.retry_after is not None or info.reset else None
        left = self._left(reservation, info.remaining, policy)
        refusal = Refusal(reservation, now, wait, policy, info.remaining, left, jitter)
        unannounced = self._is_unannounced(refusal)
        shared = unannounced and self._is_shared(refusal)
        if not shared and self.routes.concerns_route_only(reservation.route, now, left=left):
            return self._close_route(refusal), None
        if reservation.alone and not left and policy is not None and info.remaining is not None:
            self.costs.refused(reservation.route, info.remaining)
        if reservation.probe:
            self._in_a_row += 1
        self.limits.refused(reservation, now, wait, unannounced=unannounced)
        self._stop(refusal)
        if unannounced:
            return Verdict.UNANNOUNCED, None
        return Verdict.UNANNOUNCED if wait is None and self._passed_any else Verdict.QUOTA, policy

    # --- meaning ----------------------------------------------------------------------------

    def _left(self, reservation: Reservation, remaining: float | None, policy: Policy | None) -> bool | None:
        """Return whether quota is left for a request and those in flight; None if unknown."""
        if policy is None or remaining is None:
            return None
        needed = max(reservation.cost, reservation.prior or 0.0, LEFT * policy.limit, 1.0)
        return remaining - self.limits.in_flight.units >= min(needed, policy.limit)

    def _is_unannounced(self, refusal: Refusal) -> bool:
        """Return whether it shows an unannounced limit: the others have quota left."""
        known, discovery = self.limits.announced.known, self.limits.discovery
        route, wait = refusal.reservation.route, refusal.wait
        longest = SOON if discovery is None else discovery.longest()
        if not known or not self.costs.known(route) or (wait is not None and wait > longest):
            return False
        if refusal.left is not None:
            return refusal.left
        return all(one.balance.backed(refusal.reservation.cost, 0.0) for one in known)

    def _is_shared(self, refusal: Refusal) -> bool:
        """Return whether an unannounced limit surely concerns more than one closed route."""
        route = refusal.reservation.route
        if self.limits.discovery is not None:
            return not refusal.reservation.probe and self.routes.passes(route)
        others = (one for one in self.routes.closed(refusal.now) if one != route)
        return bool(refusal.left) and (self.routes.passes_alone(route) or any(map(self.costs.known, others)))

    # --- waits ------------------------------------------------------------------------------

    def _close_route(self, refusal: Refusal) -> Verdict:
        """Stop the requests of one route."""
        route, now, wait = refusal.reservation.route, refusal.now, refusal.wait
        refusals = self.routes.refused(route, now)
        if wait is None or refusals > 1:
            wait = max(wait or 0.0, self._backoff(refusals, refusal.jitter))
        self.routes.close(route, now + wait)
        return Verdict.TOO_EXPENSIVE if refusal.whole and refusals > 1 else Verdict.ROUTE

    def _backoff(self, refusals: int, jitter: float, window: float | None = None) -> float:
        """Return 1, 2, 4 ... 60 seconds with jitter, and more for a long known window."""
        longest = max(LONGEST_BACKOFF, OF_WINDOW * (window or 0.0))
        return (0.5 + 0.5 * jitter) * backoff(refusals, longest)

    def stop(self, until: float) -> None:
        """Stop all requests until a time; the end only moves later."""
        self.stopped_until = max(self.stopped_until, until)

    def _stop(self, refusal: Refusal) -> None:
        """Stop all requests after a refusal."""
        reservation, now = refusal.reservation, refusal.now
        self.stop(self._tries_at(refusal))
        self.stops += 1
        if refusal.left is None and reservation.probe:
            if reservation.route == self._route:
                self.routes.step_back(reservation.route, now, self.stopped_until)
            self._route = reservation.route

    def _tries_at(self, refusal: Refusal) -> float:
        """Return when the next request may try."""
        now, wait, policy = refusal.now, refusal.wait, refusal.policy
        pause = self._backoff(self._in_a_row, refusal.jitter, None if policy is None else policy.window)
        if wait is not None:
            return now + (wait if self._in_a_row < 2 else max(wait, pause))
        discovery = self.limits.discovery
        if discovery is not None and (policy is None or discovery.drip is not None):
            stopped = now < self.stopped_until
            return self.stopped_until if stopped else discovery.tries_at(now, refusal.jitter)
        if policy is not None and self._in_a_row < 2:
            opens = policy.opens_at(now, refusal.reservation.cost, 0.0)
            if now + pause < opens < inf:
                return opens
        return now + pause

    # --- memory -----------------------------------------------------------------------------

    def memory(self, then: float) -> RefusalsPart:
        """Return the state for a memory."""
        route = self._route if self._route is not None and len(self._route) <= LONGEST_NAME else None
        return RefusalsPart(
            seconds(then, self.stopped_until), min(self._in_a_row, MOST_IN_A_ROW), route, self._passed_any
        )

    def restore(self, part: RefusalsPart, then: float) -> None:
        """Continue from a memory."""
        if part.stopped is not None:
            self.stop(then + part.stopped)
        self._in_a_row, self._route, self._passed_any = part.in_a_row, part.route, part.passed_any
