"""Permits to send one request each, and the protocol of the gates that grant them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from chainapi._limits.verdict import Verdict

if TYPE_CHECKING:
    from chainapi._limits.headers import RateLimitInfo
    from chainapi._limits.view import QuotaSnapshot
    from chainapi.client.member import Member
    from chainapi.client.turns import Turns
    from chainapi.core.limits.group import Group
    from chainapi.core.limits.reservation import Reservation
    from chainapi.core.limits.spenders import Account
    from chainapi.core.limits.waiting import WaitingLimit

__all__ = ["AnyGate", "AnyPermit", "Permit"]


class AnyPermit(Protocol):
    """Permit of a gate, wherever the gate is; see `Permit`."""

    def answered(self, status: int, info: RateLimitInfo) -> Verdict | Awaitable[Verdict]:
        """Report a response; a gate of another process returns its verdict later."""
        ...

    def lost(self) -> None:
        """Report that no response arrived."""
        ...

    def unsent(self) -> None:
        """Return the permit unused."""
        ...


class AnyGate(Protocol):
    """Gate as a session uses it, wherever it is; see `chainapi.client.limiter.Gate`."""

    def acquire(
        self,
        route: str = "",
        *,
        cost: float | None = None,
        priority: int = 0,
        max_wait: float | None = None,
        deadline: float = inf,
        again: bool = False,
        member: Member,
        tag: str | None = None,
        limit: WaitingLimit | None = None,
    ) -> Coroutine[Any, Any, AnyPermit]:
        """Wait for a turn, and return the permit to send now."""
        ...

    def acquire_now(
        self, route: str, *, cost: float | None, member: Member, tag: str | None = None
    ) -> AnyPermit | None:
        """Return the permit to send now; None if the gate does not know at once."""
        ...

    def price(self, route: str, prior: float | None) -> float | None:
        """Return the known cost of a request; None if nothing shows it."""
        ...

    def snapshot(self, member: Member) -> QuotaSnapshot:
        """Return the known state of the quota."""
        ...

    def join(self, member: Member) -> None:
        """Apply the settings of a session."""
        ...

    def leave(self, member: Member) -> None:
        """Forget the settings of a session."""
        ...


class Permit:
    """Permit to send one request; exactly one of its methods ends it.

    A cancelled caller ends it too, in a ``finally``: with `unsent` if the request was not sent, else with
    `lost`. Ending it a second time does nothing.
    """

    __slots__ = ("_account", "_group", "_reservation", "_turns")

    def __init__(self, turns: Turns, reservation: Reservation, group: Group | None, account: Account) -> None:
        account.in_flight += 1
        self._account = account
        self._group = group
        self._reservation: Reservation | None = reservation
        self._turns = turns

    def answered(self, status: int, info: RateLimitInfo) -> Verdict:
        """Report a response with `status`, and `info` read from its headers.

        Return its meaning for the quota: whether it was a refusal, and which requests it stops.
        """
        if (reservation := self._settle()) is None:
            return Verdict.PASSED
        turns, account, now = self._turns, self._account, asyncio.get_running_loop().time()
        costs, route = turns.quota.costs, reservation.route
        version = costs.version
        verdict = turns.scheduler.answered(reservation, now, status, info, turns.random())
        account.requests += 1
        if status == 429:
            account.refusals += 1
        elif costs.version == version and route in costs.learned:
            account.units += reservation.cost
        else:  # it may have held more than its cost, and the response may have shown that
            account.units += costs.shown(route, reservation.prior)
        if turns.quota.contradicted:
            turns.members.report_plans()
        turns.advance()
        return verdict

    def lost(self) -> None:
        """Report that no response arrived: the service may have counted the request."""
        if (reservation := self._settle()) is not None:
            quota = self._turns.quota
            self._account.requests += 1
            self._account.units += quota.costs.shown(reservation.route, reservation.prior)
            quota.lost(reservation, asyncio.get_running_loop().time())
            self._turns.advance()

    def unsent(self) -> None:
        """Return the permit unused: the request was not sent."""
        if (reservation := self._settle()) is not None:
            self._turns.quota.unsent(reservation)
            self._turns.advance()

    def _settle(self) -> Reservation | None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            self._account.in_flight -= 1
            if self._group is not None:
                self._turns.landed(self._group)
        return reservation
