"""Gate that every request of one quota passes, first come, first served.

The pure `chainapi.core.limits.quota` decides which request may leave when, the pure
`chainapi.core.limits.scheduler` whose turn it is; all waiting happens in `chainapi.client.turns`.

Sessions share a gate (`chainapi.client.gates`). Each joins it as a `Member`, with the settings of its own
requests.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from attrs import evolve

from chainapi._limits.view import Limit, QuotaSnapshot
from chainapi.client.member import MAX_IN_FLIGHT, Member, Members
from chainapi.client.permit import Permit
from chainapi.client.turns import Turn, Turns
from chainapi.core.limits.group import Group, Places
from chainapi._limits.shim import Quota
from chainapi.core.limits.reservation import Reservation
from chainapi.core.limits.scheduler import Scheduler
from chainapi.core.limits.spenders import Account, Spenders
from chainapi.core.limits.waiting import WaitingLimit

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = ["Gate"]

NEWER = 0.05  # seconds: copies of one memory differ by less in age


class Gate:
    """Sends requests of one quota as early as the service allows, never in a stop.

    Args:
        rate: the user's own ceiling: a `Limit`, or an `aiolimiter.AsyncLimiter`, which other parts of the
            program may share. It counts requests, and a `Limit` with ``units=True`` counts units.
        max_in_flight: most requests without a response at once.
        limits: limits of a service that does not send them in headers.
        probe: whether the gate may risk one request to find out when the quota comes back.
        max_stop: seconds after which the gate sends a request although an announced wait is longer; None
            waits for as long as announced.
        random: returns numbers from 0 to 1, for jitter.
        on_wait: called as ``on_wait(reason=, seconds=, waiting=)`` when the queue begins to wait for a
            known time of a second or more; the reason is ``"stop"``, ``"quota"`` or ``"rate"``.
        now: the wall clock in Unix seconds, only for messages and snapshots.

    These are settings of a gate that is used by itself; each `Member` that joins one has its own.
    """

    def __init__(
        self,
        *,
        rate: Limit | AsyncLimiter | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        limits: Sequence[Limit] = (),
        probe: bool = True,
        max_stop: float | None = None,
        random: Callable[[], float] = random.random,
        on_wait: Callable[..., None] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._own = Member(rate=rate, on_wait=on_wait, now=now)
        self._quota = Quota(max_in_flight, tuple(limits), probe, inf if max_stop is None else max_stop)
        self._scheduler: Scheduler[Turn] = Scheduler(self._quota)
        self._members = Members(self._quota)
        self._turns = Turns(self._scheduler, random, self._members)
        self._spenders = Spenders()
        self._limited = Counter[tuple[Member, int]]()  # requests that wait, by member and limit
        self._remembers = -inf  # when the restored memory was made

    async def acquire(
        self,
        route: str = "",
        *,
        cost: float | None = None,
        priority: int = 0,
        max_wait: float | None = None,
        deadline: float = inf,
        again: bool = False,
        member: Member | None = None,
        tag: str | None = None,
        limit: WaitingLimit | None = None,
    ) -> Permit:
        """Wait for this request's turn, and return the permit to send it now.

        Requests of one `route` cost the same; `cost` is the documented cost in units. It counts only if the
        service is known to count units, and until responses show the real cost. A higher `priority` goes
        first; `again` marks a request that was refused or lost before, and puts it in front of all others.
        `member` has the settings of the session that sends it. `tag` names the spender in the snapshot; None
        uses the tag of the member. `limit` counts the requests of a member that wait.

        Raises:
            QueueFullError: if it would have to wait, and as many wait as `limit` allows; never with `again`.
            QuotaWaitError: if its turn would come more than `max_wait` seconds from now, or after
                `deadline`, a time of the loop. The gate raises it at once if it can predict that, else as
                soon as it can. Waiting for a place among `max_in_flight` does not count. The caller
                itself has to enforce the deadline.
            APITimeoutError: if `max_wait` is over, and the service sent no response at all for as long (and
                for at least five seconds).

        """
        member = member or self._own
        if (permit := self.acquire_now(route, cost=cost, member=member, tag=tag)) is not None:
            return permit
        rank = -inf if again else -priority
        full = None if again else self._full(member, limit)
        turn = self._turns.enter(
            member, route, cost, rank=rank, max_wait=max_wait, deadline=deadline, full=full
        )
        account = self._account(member, tag)
        account.used = asyncio.get_running_loop().time()
        account.waiting += 1
        self._count(member, limit, 1)
        try:
            return Permit(self._turns, await self._turns.wait(turn), turn.group, account)
        finally:
            account.waiting -= 1
            self._count(member, limit, -1)

    def acquire_now(
        self, route: str, *, cost: float | None, member: Member, tag: str | None = None
    ) -> Permit | None:
        """Return the permit to send a request now; None if it has to wait."""
        now = asyncio.get_running_loop().time()
        reservation = self._turns.reserve(now, route, cost, member)
        return None if reservation is None else self._permit(now, reservation, member, tag)

    def adopt(
        self, route: str, *, cost: float | None, member: Member, elapsed: float, tag: str | None = None
    ) -> Permit:
        """Return the permit of a request that is under way since `elapsed` seconds.

        Another gate permitted it. See `Quota.adopt`.
        """
        now = asyncio.get_running_loop().time()
        return self._permit(now, self._turns.adopt(now - elapsed, route, cost, member), member, tag)

    def hold_back(self, seconds: float) -> None:
        """Send nothing for some seconds, at most `max_stop`: another gate met a refusal."""
        self._quota.hold_back(asyncio.get_running_loop().time() + min(seconds, self._quota.max_stop))
        self._turns.advance()

    def memory(self) -> bytes:
        """Return what the gate learned, for the next host of a shared quota."""
        return self._quota.memory(asyncio.get_running_loop().time())

    def restore(self, memory: bytes, age: float) -> None:
        """Continue from a memory made `age` seconds ago.

        Without effect after a newer one, or after a response.
        """
        now = asyncio.get_running_loop().time()
        if now - age > self._remembers + NEWER and self._quota.restore(memory, now, age):
            self._remembers = now - age
            self._turns.advance()

    def divide(self, groups: Iterable[Group], ranks: Sequence[float]) -> None:
        """Divide the places in flight among groups, by the best rank of each that is busy."""
        places = Places(self.max_in_flight, sorted(ranks))
        for group in groups:
            group.places = places
            self._scheduler.queue.freed(group)
        self._turns.advance()

    @property
    def max_in_flight(self) -> int:
        """Most requests without a response at once, of all members."""
        return self._quota.max_in_flight

    @property
    def stopped_for(self) -> float:
        """Seconds until the end of a stop; 0 without one."""
        return max(0.0, self._quota.stopped_until - asyncio.get_running_loop().time())

    @property
    def paused(self) -> bool:
        """Whether requests wait although none is in flight."""
        return bool(self.waiting) and not self._quota.in_flight

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return self._scheduler.queue.waiting

    def price(self, route: str, prior: float | None) -> float | None:
        """Return the known cost of a request of `route`; `prior` is the documented one."""
        return self._quota.costs.known_price(route, prior)

    def snapshot(self, member: Member | None = None) -> QuotaSnapshot:
        """Return the known state of the quota; call it inside a running loop only."""
        unix_time = (member or self._own).now()
        snapshot = self._quota.snapshot(asyncio.get_running_loop().time(), self.waiting, unix_time)
        return evolve(snapshot, spenders=self._spenders.shown())

    def join(self, member: Member) -> None:
        """Apply the settings of a session; its limits hold from now on."""
        member.enter(self._spenders.account(member.process, member.tag))
        self._members.join(member)
        self._turns.advance()

    def leave(self, member: Member) -> None:
        """Forget the settings of a closed session; its requests in flight continue."""
        self._members.leave(member)
        self._turns.advance()

    def _full(self, member: Member, limit: WaitingLimit | None) -> WaitingLimit | None:
        """Return the limit of a request if as many wait as it allows."""
        if limit is None or self._limited[member, limit.number] < limit.most:
            return None
        return limit

    def _count(self, member: Member, limit: WaitingLimit | None, number: int) -> None:
        """Count a request with a limit that begins to wait, or that ends its wait."""
        if limit is not None:
            key = member, limit.number
            self._limited[key] += number
            if not self._limited[key]:
                del self._limited[key]

    def _permit(self, now: float, reservation: Reservation, member: Member, tag: str | None) -> Permit:
        account = member.account if tag is None else None
        if account is None or account.closed:
            account = self._account(member, tag)
        account.used = now
        return Permit(self._turns, reservation, member.group, account)

    def _account(self, member: Member, tag: str | None) -> Account:
        """Return the account of a spender; each member remembers that of its own tag."""
        if tag is not None:
            return self._spenders.account(member.process, tag)
        if member.account is None or member.account.closed:
            member.account = self._spenders.account(member.process, member.tag)
        return member.account
