"""Gate that every request of one quota passes, first come, first served.

All waiting happens here, in one queue with one timer; the pure `chainapi.core.limits.quota` decides which
request may leave when. The gate grants a request immediately before it is sent, so a stop that begins
while a granted task has not run yet still holds it back.

Sessions share a gate (`chainapi.client.gates`). Each joins it as a `Member`, with the settings of its own
requests.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from attrs import evolve

from chainapi.client.member import MAX_IN_FLIGHT, WORTH_REPORTING, Member, Settings
from chainapi.core.limits.headers import RateLimitInfo
from chainapi.core.limits.lane import Waiter
from chainapi.core.limits.limit import Limit
from chainapi.core.limits.modes import Mode
from chainapi.core.limits.queue import Queue
from chainapi.core.limits.quota import Quota
from chainapi.core.limits.reservation import Decision, Reservation
from chainapi.core.limits.scope import Verdict
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.core.limits.spenders import Account, Spenders
from chainapi.errors import APITimeoutError, QuotaWaitError

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = ["AnyGate", "AnyPermit", "Gate", "Permit"]

LOOK_AHEAD = 16  # waiters behind an expensive request that may pass it
UNANSWERED = 5.0  # seconds without any response after which the gate assumes that the service hangs
GRACE = 1.0  # seconds by which a forecast must exceed the limit of a waiter to fail it early: it may be wrong
CLOSE = 0.05  # seconds: a request waits for a turn as close as this


class AnyPermit(Protocol):
    """Permit of a gate, wherever the gate is; see `Permit`."""

    def answered(self, status: int, info: RateLimitInfo) -> Verdict | Awaitable[Verdict]:
        """Report a response; a gate of another process returns its verdict later."""

    def lost(self) -> None:
        """Report that no response arrived."""

    def unsent(self) -> None:
        """Return the permit unused."""


class AnyGate(Protocol):
    """Gate as a session uses it, wherever it is; see `Gate`."""

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
    ) -> Coroutine[Any, Any, AnyPermit]:
        """Wait for a turn, and return the permit to send now."""

    def price(self, route: str, prior: float | None) -> float:
        """Return the known cost of a request."""

    def snapshot(self, member: Member) -> QuotaSnapshot:
        """Return the known state of the quota."""

    def join(self, member: Member) -> None:
        """Apply the settings of a session."""

    def leave(self, member: Member) -> None:
        """Forget the settings of a session."""


class Permit:
    """Permit to send one request; exactly one of its methods ends it.

    A cancelled caller ends it too, in a ``finally``: with `unsent` if the request was not sent, else with
    `lost`. Ending it a second time does nothing.
    """

    __slots__ = ("_account", "_gate", "_member", "_reservation")

    def __init__(self, gate: Gate, reservation: Reservation, member: Member, account: Account) -> None:
        account.in_flight += 1
        self._account = account
        self._gate = gate
        self._member = member
        self._reservation: Reservation | None = reservation

    def answered(self, status: int, info: RateLimitInfo, *, elapsed: float | None = None) -> Verdict:
        """Report a response with `status`, and `info` read from its headers.

        `elapsed` is the seconds since its request was sent, if that was later than the grant. Return its
        meaning for the quota: whether it was a refusal, and which requests it stops.
        """
        if (reservation := self._settle()) is None:
            return Verdict.PASSED
        return self._gate.answered(reservation, self._account, status, info, elapsed)

    def lost(self) -> None:
        """Report that no response arrived: the service may have counted the request."""
        if (reservation := self._settle()) is not None:
            self._account.requests += 1
            self._account.units += reservation.cost
            self._gate.lost(reservation)

    def unsent(self) -> None:
        """Return the permit unused: the request was not sent."""
        if (reservation := self._settle()) is not None:
            self._gate.unsent(reservation)

    def _settle(self) -> Reservation | None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            self._account.in_flight -= 1
            self._gate.landed(self._member)
        return reservation


class _Ticket(Waiter):
    """Request in the queue, with the future that its task awaits.

    The grant sets `reservation`.
    """

    __slots__ = ("deadline", "future", "max_wait", "member", "paid", "reservation", "waits_until")

    def __init__(
        self,
        number: int,
        rank: float,
        route: str,
        prior: float | None,
        member: Member,
        future: asyncio.Future[None],
    ) -> None:
        super().__init__(number, rank, route, prior, member.group, member.process)
        self.member = member
        self.future = future
        self.reservation: Reservation | None = None
        self.paid = False
        self.max_wait = inf
        self.waits_until = inf  # on the loop's clock, by max_wait
        self.deadline = inf  # on the loop's clock, for the whole call

    @property
    def latest(self) -> float:
        """Latest time of its turn, on the loop's clock."""
        return min(self.waits_until, self.deadline)


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
        self._members: dict[Settings, WeakSet[Member]] = {}
        self._quota = Quota(max_in_flight, tuple(limits), probe, inf if max_stop is None else max_stop)
        self._random = random
        self._queue: Queue[_Ticket] = Queue(self._quota.costs)
        self._numbers = count()
        self._spenders = Spenders()
        self._woken = 0  # granted, but their tasks did not run yet: no other request may leave before them
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = inf
        self._waits_until = -inf  # known time of the next grant while the queue waits for it
        self._reported_until = -inf  # end of the longest wait reported to listeners
        self._rechecked_opening = -inf  # opening time at the last recheck of the waiters
        self._rechecked_idle = False  # whether nothing was in flight at that recheck
        self._unanswered_since = inf  # when the oldest request was sent after the last response

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
    ) -> Permit:
        """Wait for this request's turn, and return the permit to send it now.

        Requests of one `route` cost the same; `cost` is the documented cost in units. It counts only if the
        service is known to count units, and until responses show the real cost. A higher `priority` goes
        first; `again` marks a request that was refused or lost before, and puts it in front of all others.
        `member` has the settings of the session that sends it. `tag` names the spender in the snapshot; None
        uses the tag of the member.

        Raises:
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
        loop = asyncio.get_running_loop()
        rank = -inf if again else -priority
        waiter = _Ticket(next(self._numbers), rank, route, cost, member, loop.create_future())
        self._enter(loop.time(), waiter, max_wait, deadline)
        late = None if max_wait is None else loop.call_later(max_wait, self._late, waiter)
        account = self._account(member, tag)
        account.used = loop.time()
        account.waiting += 1
        try:
            return Permit(self, await self._wait(loop, waiter), member, account)
        finally:
            account.waiting -= 1
            if late is not None:
                late.cancel()

    def acquire_now(
        self, route: str, *, cost: float | None, member: Member, tag: str | None = None
    ) -> Permit | None:
        """Return the permit to send a request now; None if it has to wait."""
        if self._queue or self._woken:
            return None
        if member.group is not None and (member.rate is not None or not member.group.room):
            return None
        now = asyncio.get_running_loop().time()
        reservation = self._try(now, route, cost)
        if reservation is None:
            return None
        if member.group is not None:
            member.group.in_flight += 1
        account = member.account if tag is None else None
        if account is None or account.closed:
            account = self._account(member, tag)
        account.used = now
        return Permit(self, reservation, member, account)

    def adopt(
        self, route: str, *, cost: float | None, member: Member, elapsed: float, tag: str | None = None
    ) -> Permit:
        """Return the permit of a request that is under way since `elapsed` seconds.

        Another gate permitted it. Here it is a probe as long as nothing is known: others wait for its
        response.
        """
        quota, sent = self._quota, asyncio.get_running_loop().time() - elapsed
        decision = Decision(sent, probe=quota.mode in (Mode.LEARNING, Mode.PROBING))
        reservation = quota.send(decision, sent, route, quota.costs.price(route, cost), cost)
        if member.group is not None:
            member.group.in_flight += 1
        account = self._account(member, tag)
        account.used = sent + elapsed
        return Permit(self, reservation, member, account)

    def hold_back(self, seconds: float) -> None:
        """Send nothing for some seconds: another gate met a refusal."""
        self._quota.hold_back(asyncio.get_running_loop().time() + seconds)
        self._pump()

    def surplus(self, route: str, cost: float | None) -> float:
        """Return how many more requests of a route could leave now beside those in flight.

        0 unless responses reported what is left, and while any request waits.
        """
        quota = self._quota
        known = quota.mode is Mode.KNOWN and quota.costs.known(route) and not quota.routes.known
        if self._queue or not known:
            return 0.0
        room = quota.room(asyncio.get_running_loop().time(), route)
        if room == inf:
            return 0.0
        return min(room / quota.costs.price(route, cost), quota.max_in_flight - quota.in_flight)

    @property
    def stopped_for(self) -> float:
        """Seconds until the end of a stop; 0 without one."""
        return max(0.0, self._quota.stopped_until - asyncio.get_running_loop().time())

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self._queue)

    def price(self, route: str, prior: float | None) -> float:
        """Return the known cost of a request of `route`; `prior` is the documented one."""
        return self._quota.costs.price(route, prior)

    def snapshot(self, member: Member | None = None) -> QuotaSnapshot:
        """Return the known state of the quota; call it inside a running loop only."""
        unix_time = (member or self._own).now()
        snapshot = self._quota.snapshot(asyncio.get_running_loop().time(), len(self._queue), unix_time)
        return evolve(snapshot, spenders=self._spenders.shown())

    def _account(self, member: Member, tag: str | None) -> Account:
        """Return the account of a spender; each member remembers that of its own tag."""
        if tag is not None:
            return self._spenders.account(member.process, tag)
        if member.account is None or member.account.closed:
            member.account = self._spenders.account(member.process, member.tag)
        return member.account

    # --- sessions that share it --------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Apply the settings of a session; its limits hold from now on."""
        member.account = self._spenders.account(member.process, member.tag)
        self._members.setdefault(member.settings, WeakSet()).add(member)
        self._agree()
        self._quota.add_limits(member.limits)

    def leave(self, member: Member) -> None:
        """Forget the settings of a closed session; its requests in flight continue."""
        if (members := self._members.get(member.settings)) is not None:
            members.discard(member)
        self._agree()

    def _agree(self) -> None:
        """Use the largest `max_in_flight` and `max_stop`; probe only if all allow it."""
        self._members = {settings: members for settings, members in self._members.items() if members}
        if self._members:
            quota, wanted = self._quota, self._members
            quota.max_in_flight = max(one.max_in_flight for one in wanted)
            quota.max_stop = max(one.max_stop for one in wanted)
            quota.probe = all(one.probe for one in wanted)

    # --- the queue --------------------------------------------------------------------------

    def _enter(self, now: float, waiter: _Ticket, max_wait: float | None, deadline: float) -> None:
        """Put a request in the queue, unless its turn will be too late."""
        waiter.deadline = deadline
        if max_wait is not None:
            waiter.max_wait, waiter.waits_until = max_wait, now + max_wait
        if waiter.latest < inf and now + self._forecast(now, waiter, least=True) > waiter.latest + CLOSE:
            raise self._too_long(now, waiter)
        self._queue.add(waiter)
        self._pump()
        if waiter.queued:
            until = self._waits_until
            waiter.member.report_wait(self._reason(until), now, until, len(self._queue))

    async def _wait(self, loop: asyncio.AbstractEventLoop, waiter: _Ticket) -> Reservation:
        """Wait until the request is granted and may still leave."""
        while True:
            try:
                if self._woken > 1 and waiter.future.done():
                    await asyncio.sleep(0)  # behind the requests granted before
                await waiter.future
                if waiter.reservation is None:
                    await self._pay(waiter)
            except BaseException:
                self._leave(waiter)
                raise
            reservation = self._claim(waiter)
            if reservation is not None and self._quota.holds(reservation, loop.time()):
                return reservation
            waiter.future = loop.create_future()
            if reservation is not None:
                self.landed(waiter.member)
                self._queue.add(waiter)
                self._quota.unsent(reservation)
            elif waiter.queued:
                self._queue.step_in(waiter)  # it has paid
            self._pump()

    def _claim(self, waiter: _Ticket) -> Reservation | None:
        """Take the reservation of a waiter; None without a grant."""
        reservation, waiter.reservation = waiter.reservation, None
        self._woken -= reservation is not None
        return reservation

    def _leave(self, waiter: _Ticket) -> None:
        """Remove a waiter that gives up, and let the next one have its turn."""
        reservation = self._claim(waiter)
        if reservation is not None:
            self.landed(waiter.member)
            self._quota.unsent(reservation)
        elif waiter.queued:
            self._queue.remove(waiter)
        self._pump()

    async def _pay(self, waiter: _Ticket) -> None:
        """Pay the cost of a request from its session's ceiling.

        Other requests of the session wait meanwhile.
        """
        rate = waiter.member.rate
        assert rate is not None  # noqa: S101 - otherwise the gate wakes no waiter without a grant
        left = self._toll(waiter)
        while left > 1e-9:
            part = min(left, rate.max_rate)
            await rate.acquire(part)
            left -= part
        waiter.paid = True

    def _toll(self, waiter: _Ticket) -> float:
        return self._quota.costs.price(waiter.route, waiter.prior) if waiter.member.rate_units else 1.0

    def _late(self, waiter: _Ticket) -> None:
        """Fail a waiter whose time is over, unless its turn is close."""
        if not waiter.queued or waiter.future.done():
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._forecast(now, waiter) > CLOSE:
            self._fail(waiter, self._too_long(now, waiter))
        elif self._unanswered_since <= now - max(waiter.max_wait, UNANSWERED):
            waited = now - self._unanswered_since
            self._fail(waiter, APITimeoutError(f"no answer to any request for {waited:.0f} s"))
        else:
            loop.call_later(GRACE, self._late, waiter)
            return
        self._pump()

    def _fail(self, waiter: _Ticket, error: Exception) -> None:
        self._queue.remove(waiter)
        waiter.future.set_exception(error)

    def _too_long(self, now: float, waiter: _Ticket) -> QuotaWaitError:
        seconds = self._quota.promise(now, self._forecast(now, waiter, again=True))
        left = waiter.deadline - now if waiter.deadline < waiter.waits_until else None
        return waiter.member.too_long(seconds, waiter.max_wait, left)

    def _forecast(self, now: float, waiter: _Ticket, *, least: bool = False, again: bool = False) -> float:
        """Return the seconds until a waiter leaves, as far as limits decide that.

        With `least`, the earliest possible time; with `again`, the time if it came again behind all others.
        """
        units, ahead = self._queue.ahead(waiter, last=again)
        units += self._quota.costs.likely(waiter.route, waiter.prior)
        seconds = self._quota.forecast(now, units, ahead + 1.0, least=least)
        if self._quota.routes.known:
            seconds = max(seconds, self._quota.routes.closed_until(waiter.route) - now)
        if (rate := waiter.member.rate) is not None:
            toll = units if waiter.member.rate_units else ahead + 1.0
            if not rate.has_capacity(min(toll, rate.max_rate)):
                seconds = max(seconds, toll * rate.time_period / rate.max_rate)
        return seconds

    # --- grants -----------------------------------------------------------------------------

    def _try(self, now: float, route: str, prior: float | None) -> Reservation | None:
        """Grant a request if it may leave now; else set the timer that wakes the queue."""
        quota = self._quota
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
        self._wait_until(now, when)
        return None

    def _wait_until(self, now: float, when: float) -> None:
        """Set the timer, and report the wait to listeners.

        Waiting for the response to a probe is not reported.
        """
        self._wake_at(when)
        if not self._queue or self._quota.probes.opens_at(now) is not None:
            return
        if now + WORTH_REPORTING <= when < inf:
            self._waits_until = when
            if when > self._reported_until:
                self._reported_until = when
                for member in {waiter.member for waiter in self._queue.all()}:
                    member.report_wait(self._reason(when), now, when, len(self._queue))

    def _reason(self, until: float) -> str:
        return "stop" if until == self._quota.stopped_until else "quota"

    def _pump(self) -> None:
        """Grant all requests that may leave now."""
        if not self._queue and self._timer is None:
            return
        now = asyncio.get_running_loop().time()
        self._waits_until = -inf
        self._reopen(now)
        self._queue.fill()
        while (waiter := self._first(now)) is not None:
            if waiter.member.rate is not None and not waiter.paid:
                if self._bill(now, waiter):
                    continue
                break
            reservation = self._try(now, waiter.route, waiter.prior)
            if reservation is None:
                if waiter.member.rate is None:
                    self._let_pass(now, waiter)
                break
            self._grant(waiter, reservation)
        else:
            self._wake_at(self._queue.parked_until)
        if self._queue.parked_until < self._wakes_at:
            self._wake_at(self._queue.parked_until)
        self._recheck(now)

    def _first(self, now: float) -> _Ticket | None:
        """Return the waiter whose turn it is; park those whose route is closed."""
        routes = self._quota.routes
        while (waiter := self._queue.first()) is not None:
            if waiter.future.done():
                self._queue.remove(waiter)  # cancelled, and its task did not run yet
                continue
            opens = routes.opens_at(waiter.route, now) if routes.known else now
            if opens <= now:
                return waiter
            self._queue.park(waiter, opens)
            if waiter.latest < routes.closed_until(waiter.route):
                self._fail(waiter, self._too_long(now, waiter))
        return None

    def _reopen(self, now: float) -> None:
        """Put waiters back in the queue whose route opened."""
        routes = self._quota.routes
        for route in self._queue.parked_routes():
            self._queue.unpark(route, routes.places(route, now), routes.wakes_at(route, now))

    def _bill(self, now: float, waiter: _Ticket) -> bool:
        """Let a waiter pay its session's ceiling before its grant.

        Return False if the quota does not allow the request yet: then it does not pay.
        """
        quota, member, rate = self._quota, waiter.member, waiter.member.rate
        decision = quota.decide(now, quota.costs.price(waiter.route, waiter.prior), waiter.route)
        quota.wait(decision)  # for its turn, or until the request has paid its session's ceiling
        if decision.when > now:
            self._wait_until(now, decision.when)
            return False
        self._queue.step_out(waiter)
        assert rate is not None  # noqa: S101 - the caller checked it
        toll = self._toll(waiter)
        if not rate.has_capacity(min(toll, rate.max_rate)):
            member.report_wait("rate", now, now + toll * rate.time_period / rate.max_rate, len(self._queue))
        waiter.future.set_result(None)
        return True

    def _recheck(self, now: float) -> None:
        """Fail waiters at once whose predicted turn is later than they may wait.

        `_enter` checks each new waiter, so a recheck is necessary only when the opening moved, and when
        nothing is in flight any more: until then more units may be left than the known responses show.
        """
        opens, idle = self._wakes_at, not self._quota.in_flight
        if not now < opens < inf or (opens < self._rechecked_opening + 1 and self._rechecked_idle >= idle):
            return
        self._rechecked_opening, self._rechecked_idle = opens, idle
        for waiter in self._queue.all():
            if waiter.latest == inf or waiter.future.done():
                continue
            seconds = self._forecast(now, waiter, least=True)
            if now + seconds > waiter.latest + GRACE and seconds > CLOSE:
                self._fail(waiter, self._too_long(now, waiter))

    def _let_pass(self, now: float, expensive: _Ticket) -> None:
        """Let cheaper requests use units too few for an expensive one, at most its cost.

        So no units are lost when a window ends, and an expensive request waits at most twice as long.
        """
        quota = self._quota
        cost = quota.costs.price(expensive.route, expensive.prior)
        if cost <= self._queue.cheapest():
            return
        room = min(quota.room(now, expensive.route), cost - expensive.passed)
        for waiter in self._queue.behind(expensive, LOOK_AHEAD):
            units = quota.costs.price(waiter.route, waiter.prior)
            unpaid = waiter.member.rate is not None and not waiter.paid
            if units > room or waiter.future.done() or unpaid:
                continue
            if quota.routes.known and quota.routes.opens_at(waiter.route, now) > now:
                continue
            decision = quota.decide(now, units, waiter.route)
            if decision.when > now:
                quota.wait(decision)
                return
            room -= units
            expensive.passed += units
            self._grant(waiter, quota.send(decision, now, waiter.route, units, waiter.prior))

    def _grant(self, waiter: _Ticket, reservation: Reservation) -> None:
        self._queue.remove(waiter, granted=True)
        if waiter.group is not None:
            waiter.group.in_flight += 1
        waiter.reservation = reservation
        self._woken += 1
        waiter.future.set_result(None)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._wakes_at == when:
                return
            self._timer.cancel()
            self._timer = None
        self._wakes_at = when
        if when < inf:
            self._timer = asyncio.get_running_loop().call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._wakes_at = None, inf
        self._pump()

    # --- end of reservations; called by the permits ----------------------------------------------

    def landed(self, member: Member) -> None:
        """Record that a request of a member ended; the next one of the member may follow."""
        if member.group is not None:
            member.group.in_flight -= 1
            self._queue.freed(member.group)

    def answered(
        self,
        reservation: Reservation,
        account: Account,
        status: int,
        info: RateLimitInfo,
        elapsed: float | None = None,
    ) -> Verdict:
        """Record a response, and return its meaning for the quota."""
        costs = self._quota.costs
        version = costs.version
        now = asyncio.get_running_loop().time()
        if elapsed is not None:
            reservation.sent = max(reservation.sent, now - elapsed)
        self._unanswered_since = now if self._quota.in_flight > 1 else inf
        verdict = self._quota.answered(reservation, now, status, info, self._random())
        account.requests += 1
        if status == 429:
            account.refusals += 1
        elif costs.version == version:
            account.units += reservation.cost
        else:  # the response may have shown the cost of its request
            account.units += costs.price(reservation.route, reservation.prior)
        self._pump()
        return verdict

    def lost(self, reservation: Reservation) -> None:
        """Record that no response will arrive."""
        self._quota.lost(reservation, asyncio.get_running_loop().time())
        self._pump()

    def unsent(self, reservation: Reservation) -> None:
        """Take a grant back."""
        self._quota.unsent(reservation)
        self._pump()
