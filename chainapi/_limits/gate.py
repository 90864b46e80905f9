"""Gate that every request of one quota passes: all that waits is here.

Pure rules decide: `chainapi._limits.quota` when a request may leave, `chainapi._limits.queue` which one
is next, and `chainapi._limits.deadlines` which would leave too late. Here are a future for each request that
waits, one timer for all, and the sessions that share the gate: each joins it as a `Member`, with the settings
of its own requests. A request is granted immediately before it is sent, so a stop that begins while a granted
task has not run yet still holds it back.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from attrs import define, evolve, field
from msgspec.structs import replace

from chainapi._limits.deadlines import CLOSE, Deadlines
from chainapi._limits.headers import RateLimitInfo
from chainapi._limits.member import MAX_IN_FLIGHT, GateSettings, Member
from chainapi._limits.queue import Ask, Queue, RequestGroup, Wait, Waiter, WaitingLimit, share
from chainapi._limits.quota import Quota, Reservation
from chainapi._limits.spenders import Account, Spenders
from chainapi._limits.verdict import Verdict
from chainapi._limits.view import Limit, QuotaSnapshot
from chainapi.errors import APITimeoutError, QuotaWaitError

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = [
    "AnyGate",
    "AnyPermit",
    "Ask",
    "Gate",
    "Member",
    "Permit",
    "RequestGroup",
    "Timer",
    "Wait",
    "WaitingLimit",
]

# --- what a session uses, wherever the gate is ------------------------------------------------------


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
    """Gate as a session uses it, wherever it is; see `Gate`."""

    def acquire(self, ask: Ask, member: Member) -> Coroutine[Any, Any, AnyPermit]:
        """Wait for a turn, and return the permit to send now."""
        ...

    def acquire_now(self, ask: Ask, member: Member) -> AnyPermit | None:
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


# --- waits ------------------------------------------------------------------------------------------


@define(eq=False, repr=False)
class Timer:
    """Timer that calls `callback` once, at the time that was set last.

    Attributes:
        running: whether a time is set.

    """

    callback: Callable[[], None]
    running: bool = field(default=False, init=False)
    _when: float = field(default=inf, init=False)
    _handle: asyncio.TimerHandle | None = field(default=None, init=False)

    def set(self, when: float) -> None:
        """Set a time on the loop's clock; inf stops the timer."""
        if self._handle is not None:
            if self._when == when:
                return
            self._handle.cancel()
            self._handle = None
        self._when, self.running = when, when < inf
        if self.running:
            self._handle = asyncio.get_running_loop().call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle, self.running = None, False
        self.callback()


class _Turn(Waiter, kw_only=True):
    """Request of a member in the queue; its task awaits the future."""

    member: Member
    future: asyncio.Future[None]

    @property
    def over(self) -> bool:
        """Whether its task awaits no turn: it was woken, or gave up."""
        return self.future.done()

    def too_late(self, now: float, seconds: float) -> QuotaWaitError:
        """Return the error of a request that could leave after some seconds."""
        left = self.ask.deadline - now if self.ask.deadline < self.waits_until else None
        return self.member.too_long(seconds, self.ask.max_wait, left)


# --- the gate ---------------------------------------------------------------------------------------


class Permit:
    """Permit to send one request; exactly one of its methods ends it.

    A cancelled caller ends it too, in a ``finally``: with `unsent` if the request was not sent, else with
    `lost`. Ending it a second time does nothing.
    """

    __slots__ = ("_account", "_gate", "_group", "_reservation")

    def __init__(
        self, gate: Gate, reservation: Reservation, group: RequestGroup | None, account: Account
    ) -> None:
        account.in_flight += 1
        self._account = account
        self._gate = gate
        self._group = group
        self._reservation: Reservation | None = reservation

    def answered(self, status: int, info: RateLimitInfo) -> Verdict:
        """Report a response with `status`, and `info` read from its headers.

        Return its meaning for the quota: whether it was a refusal, and which requests it stops.
        """
        if (reservation := self._settle()) is None:
            return Verdict.PASSED
        gate, account, now = self._gate, self._account, self._gate.now()
        gate.queue.answered(now)
        verdict = gate.quota.answered(reservation, now, status, info, gate.random())
        account.requests += 1
        if status == 429:
            account.refusals += 1
            gate.deadlines.refused()
        else:  # the reservation may have held more than the cost
            account.units += reservation.cost
        if gate.quota.contradicted:
            gate.report_plans()
        gate.advance()
        return verdict

    def lost(self) -> None:
        """Report that no response arrived: the service may have counted the request."""
        if (reservation := self._settle()) is not None:
            quota = self._gate.quota
            self._account.requests += 1
            quota.lost(reservation, self._gate.now())
            self._account.units += reservation.cost
            self._gate.advance()

    def unsent(self) -> None:
        """Return the permit unused: the request was not sent."""
        if (reservation := self._settle()) is not None:
            self._gate.quota.unsent(reservation)
            self._gate.advance()

    def _settle(self) -> Reservation | None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            self._account.in_flight -= 1
            if self._group is not None:
                self._group.in_flight -= 1
        return reservation


class Gate:
    """Sends requests of one quota as early as the service allows, never in a stop.

    Args:
        rate, on_wait, now: for requests without a member; see `Member`.
        max_in_flight: most requests without a response at once.
        limits: limits of a service that does not send them in headers.
        probe: whether the gate may risk one request to find out when the quota comes back.
        max_stop: seconds after which the gate sends a request although an announced wait is longer; None
            waits for as long as announced.
        random: returns numbers from 0 to 1, for jitter.

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
        self.random = random
        self.quota: Quota = Quota(
            max_in_flight=max_in_flight, probe=probe, max_stop=inf if max_stop is None else max_stop
        )
        self.quota.add_limits(limits)
        self.queue: Queue[_Turn] = Queue(self.quota)
        self.deadlines: Deadlines[_Turn] = Deadlines(self.queue)
        self._own = Member(rate=rate, on_wait=on_wait, now=now)
        self._members: dict[GateSettings, WeakSet[Member]] = {}
        self._spenders = Spenders()
        self._numbers = count()
        self._timer = Timer(self.advance)
        self._woken = 0  # granted, but their tasks did not run yet: no other request may leave before them
        self._limited = Counter[tuple[Member, int]]()  # requests that wait, by member and limit
        self._reported = Wait()  # to the members that wait
        self._epoch = 0.0  # when the clock of the quota began, on the clock of the loop

    async def acquire(self, ask: Ask, member: Member | None = None) -> Permit:
        """Wait for the turn of a member's request, and return the permit to send now.

        Raises:
            QueueFullError: if it would have to wait, and as many wait as its `limit` allows.
            QuotaWaitError: if its turn would come after `max_wait` or the deadline. The gate raises it at
                once if it can predict that, else as soon as it can. Waiting for a place among
                `max_in_flight` does not count.
            APITimeoutError: if `max_wait` is over, and the service sent no response at all for as long (and
                for at least five seconds).

        """
        member = member or self._own
        if (permit := self.acquire_now(ask, member)) is not None:
            return permit
        turn = self._enter(ask, member)
        account = self._account(member, ask.tag)
        account.waiting += 1
        self._count(turn, 1)
        try:
            return Permit(self, await self._wait(turn), turn.group, account)
        finally:
            account.waiting -= 1
            self._count(turn, -1)

    def acquire_now(self, ask: Ask, member: Member) -> Permit | None:
        """Return the permit to send a request now; None if it has to wait."""
        group = member.group
        if self._woken or self.queue.waiting:
            return None
        if group is not None and (group.ceiling is not None or not group.free(inf)):
            return None
        now = self.now()
        reservation = self.queue.reserve(now, ask.route, ask.cost)
        return None if reservation is None else self._permit(reservation, ask, member)

    def adopt(self, ask: Ask, member: Member, elapsed: float) -> Permit:
        """Return the permit of a request that is under way since `elapsed` seconds.

        Another gate permitted it. See `Quota.adopt`.
        """
        sent = self.now() - elapsed
        cost = self.quota.costs.price(ask.route, ask.cost)
        return self._permit(self.quota.adopt(sent, ask.route, cost, ask.cost), ask, member)

    def hold_back(self, seconds: float) -> None:
        """Send nothing for some seconds, at most `max_stop`: another gate met a refusal."""
        self.quota.hold_back(self.now() + min(seconds, self.quota.max_stop))
        self.deadlines.refused()
        self.advance()

    def memory(self) -> bytes:
        """Return what the gate learned, for the next host of a shared quota."""
        return self.quota.encode(self.now())

    def restore(self, memory: bytes, age: float) -> None:
        """Continue from a memory made `age` seconds ago, before the first request."""
        now = self.quota.restore(memory, self.now(), age)
        if now is not None:
            self._epoch = asyncio.get_running_loop().time() - now

    def now(self) -> float:
        """Return the time on the clock of the quota, which outlives its hosts."""
        return asyncio.get_running_loop().time() - self._epoch

    def divide(self, groups: Iterable[RequestGroup], ranks: Sequence[float]) -> None:
        """Divide the places in flight among groups, by the best rank of each that is busy."""
        places = partial(share, self.quota.max_in_flight, sorted(ranks))
        for group in groups:
            group.places = places
        self.advance()

    @property
    def stopped_for(self) -> float:
        """Seconds until the end of a stop; 0 without one."""
        return max(0.0, self.quota.stopped_until - self.now())

    @property
    def paused(self) -> bool:
        """Whether requests wait although none is in flight."""
        return bool(self.queue.waiting) and not self.quota.in_flight

    def price(self, route: str, prior: float | None) -> float | None:
        """Return the cost of a request; None if neither documents nor responses show it."""
        return self.quota.costs.known_price(route, prior)

    def snapshot(self, member: Member | None = None) -> QuotaSnapshot:
        """Return the known state of the quota; call it inside a running loop only."""
        unix_time = (member or self._own).now()
        snapshot = self.quota.snapshot(self.now(), self.queue.waiting, unix_time)
        return evolve(snapshot, spenders=self._spenders.shown())

    # --- members ----------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Apply the settings of a session; its limits hold from now on."""
        member.enter(self._spenders.account(member.process, member.tag))
        self._members.setdefault(member.settings, WeakSet()).add(member)
        self.quota.add_limits(member.limits)
        self._agree()

    def leave(self, member: Member) -> None:
        """Forget the settings of a closed session; its requests in flight continue."""
        if (members := self._members.get(member.settings)) is not None:
            members.discard(member)
        self._agree()

    def report_plans(self) -> None:
        """Report the plans that responses contradicted to the sessions that named them."""
        contradicted, self.quota.contradicted = self.quota.contradicted, []
        for member in [one for members in self._members.values() for one in members]:
            for name, announced in contradicted:
                member.end_plan(name, announced.quota, announced.window)

    def _agree(self) -> None:
        """Use the largest `max_in_flight` and `max_stop`; probe only if all allow it."""
        self._members = {settings: members for settings, members in self._members.items() if members}
        if self._members:
            self.quota.max_in_flight = max(one.max_in_flight for one in self._members)
            self.quota.max_stop = max(one.max_stop for one in self._members)
            self.quota.probe = all(one.probe for one in self._members)
        self.advance()

    def _permit(self, reservation: Reservation, ask: Ask, member: Member) -> Permit:
        if member.group is not None:
            member.group.in_flight += 1
        return Permit(self, reservation, member.group, self._account(member, ask.tag))

    def _account(self, member: Member, tag: str | None) -> Account:
        """Return the account to use; a member remembers the account of its own tag."""
        account = member.account if tag is None else self._spenders.account(member.process, tag)
        if account is None or account.closed:
            account = member.account = self._spenders.account(member.process, member.tag)
        account.used = self.quota.numbers
        return account

    # --- requests that wait -----------------------------------------------------------------

    def _enter(self, ask: Ask, member: Member) -> _Turn:
        """Put a request in the queue; the caller awaits it in `_wait` at once."""
        loop = asyncio.get_running_loop()
        now, rank = self.now(), -inf if ask.again else -float(ask.priority)
        until = inf if ask.max_wait is None else now + ask.max_wait
        if self._epoch:
            ask = replace(ask, deadline=ask.deadline - self._epoch)
        turn = _Turn(
            next(self._numbers),
            ask,
            rank,
            member.group,
            member.process,
            until,
            member=member,
            future=loop.create_future(),
        )
        if self.queue.add(turn) and not self.quota.full:
            self.advance()
        if turn.waits and not self._pays_at_once(turn):
            self._refuse(now, turn)
            self.deadlines.watch(turn)
            self._set_timer()
        if turn.waits and self.queue.wait.reason:
            member.report_wait(self.queue.wait, now, self.queue.waiting)
        return turn

    def _pays_at_once(self, turn: _Turn) -> bool:
        ceiling = turn.member.ceiling
        return turn.flow is None and ceiling is not None and ceiling.ready(self._cost(turn))

    def _refuse(self, now: float, turn: _Turn) -> None:
        """Raise the error of a new request that may not wait for as long as it has to."""
        limit, member = turn.ask.limit, turn.member
        full = limit is not None and not turn.ask.again and self._limited[member, limit.number] >= limit.most
        if not full and not self.deadlines.misses(now, turn):
            return
        self.queue.remove(turn)  # first: a new attempt does not wait behind itself
        self.advance()  # others may have waited behind it
        if limit is not None and full:
            raise member.queue_full(self.deadlines.cleared(now, turn, joins=not limit.most), limit.most)
        raise turn.too_late(now, self.deadlines.again(now, turn))

    def _count(self, turn: _Turn, number: int) -> None:
        """Count a request with a limit that begins to wait, or that ends its wait."""
        if turn.ask.limit is not None:
            key = turn.member, turn.ask.limit.number
            self._limited[key] += number
            if not self._limited[key]:
                del self._limited[key]

    async def _wait(self, turn: _Turn) -> Reservation:
        """Wait until a request is granted and may still leave; see `acquire`."""
        try:
            while True:
                if self._woken > 1 and turn.over:
                    await asyncio.sleep(0)  # after the requests granted before
                await turn.future
                if (reservation := turn.reservation) is None:
                    await self._pay(turn)
                elif self.quota.holds(reservation, self.now()):
                    self._woken -= 1
                    return reservation
                else:
                    self._take_back(turn)
                turn.future = asyncio.get_running_loop().create_future()
                self.queue.put_back(turn)
                self.advance()
        except BaseException:
            if turn.reservation is not None:
                self._take_back(turn)
            elif turn.waits:
                self.queue.remove(turn)
            self.advance()
            raise

    def _take_back(self, turn: _Turn) -> None:
        """Take back the grant of a request that did not leave."""
        self._woken -= 1
        self.queue.take_back(turn)

    async def _pay(self, turn: _Turn) -> None:
        """Pay the ceiling of a request's session; its other requests wait meanwhile.

        Others that use the ceiling may take the tokens first.
        """
        ceiling, until = turn.member.ceiling, turn.waits_until + CLOSE
        assert ceiling is not None  # noqa: S101 - otherwise no request is woken without a grant
        try:
            async with asyncio.timeout_at(None if until == inf else until + self._epoch):
                await ceiling.pay(self._cost(turn))
        except TimeoutError:
            now = self.now()
            raise turn.too_late(now, self.deadlines.again(now, turn)) from None
        turn.paid = True

    def advance(self) -> None:
        """Let all requests leave that may, and fail those that are too late."""
        if not self.queue.waiting and not self._timer.running:
            return
        now = self.now()
        try:
            while (turn := self.queue.next(now)) is not None:
                self._wake(now, turn)
            for turn, seconds in self.deadlines.late(now):
                turn.future.set_exception(self._failure(now, turn, seconds))
            wait = self.queue.wait
            if wait.is_news(self._reported, now):
                self._reported = wait
                for member in {turn.member for turn in self.queue.all()}:
                    member.report_wait(wait, now, self.queue.waiting)
        finally:
            self._set_timer()

    def _cost(self, turn: _Turn) -> float:
        return self.quota.costs.shown(turn.ask.route, turn.ask.cost)

    def _set_timer(self) -> None:
        self._timer.set(min(self.queue.wakes_at, self.deadlines.check_at) + self._epoch)

    def _wake(self, now: float, turn: _Turn) -> None:
        """Let a request leave, or pay before it leaves."""
        if turn.reservation is not None:
            self._woken += 1
        elif (ceiling := turn.member.ceiling) is not None:
            seconds = ceiling.wait(self._cost(turn))
            turn.member.report_wait(Wait(now + seconds, "rate"), now, self.queue.waiting)
        turn.future.set_result(None)

    def _failure(self, now: float, turn: _Turn, seconds: float | None) -> QuotaWaitError | APITimeoutError:
        """Return the error of a request that would leave too late; see `Deadlines.late`."""
        if seconds is not None:
            return turn.too_late(now, seconds)
        return APITimeoutError(f"no answer to any request for {now - self.queue.unanswered_since:.0f} s")
