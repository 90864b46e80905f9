"""Gate that every request of one quota passes: all that waits is here.

The pure `chainapi.core.limits.quota` decides when a request may leave, the pure `chainapi._limits.queue` which
one is next, and the pure `chainapi._limits.deadlines` which would leave too late. Here are a future for each
request that waits, one timer for all, and the sessions that share the gate: each joins it as a `Member`, with
the settings of its own requests. A request is granted immediately before it is sent, so a stop that begins
while a granted task has not run yet still holds it back.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from attrs import define, evolve, field
from msgspec import Struct

from chainapi._limits.deadlines import CLOSE, Deadlines
from chainapi._limits.queue import Ask, Group, Queue, Shares, Wait, Waiter
from chainapi._limits.spenders import Account, Spenders
from chainapi.core.limits.info import RateLimitInfo
from chainapi.core.limits.limit import Limit, whole
from chainapi.core.limits.quota import Quota
from chainapi.core.limits.reservation import Reservation
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.core.limits.verdict import Verdict
from chainapi.errors import APITimeoutError, QueueFullError, QuotaWaitError

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = ["MAX_IN_FLIGHT", "AnyGate", "AnyPermit", "Ceiling", "Gate", "Member", "Permit", "Timer", "is_rate"]

MAX_IN_FLIGHT = 100  # requests without a response, if a session does not set it
HALVINGS = 24  # of a bucket's size: the precision with which its tokens are found
NEWER = 0.05  # seconds: copies of one memory differ by less in age

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

    def price(self, route: str, prior: float | None) -> float:
        """Return the known cost of a request."""
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


class Settings(Struct, frozen=True):
    """Settings on which the sessions that share a gate have to agree."""

    max_in_flight: int
    probe: bool
    max_stop: float


class Member:
    """Membership of a session in a gate: settings of its requests, and its listener.

    Args:
        rate: a ceiling for these requests: a `Limit`, or an `aiolimiter.AsyncLimiter`, which other parts of
            the program may share. It counts requests, and a `Limit` with ``units=True`` counts units.
        max_in_flight: most of these requests without a response at once. None sets no limit besides that
            of the gate, which is the largest of its open sessions, each with 100 by default.
        limits: limits that the service does not announce; they hold for the whole gate from then on.
        probe: False on one open session holds for the whole gate.
        max_stop: the longest of the open sessions holds for the whole gate.
        on_wait: called as ``on_wait(reason=, seconds=, waiting=)`` when these requests begin to wait for a
            known time of a second or more; the reason is ``"stop"``, ``"quota"`` or ``"rate"``.
        now: the wall clock in Unix seconds, for errors and snapshots.
        process: name of the process that the session belongs to; "" for this one. Processes have equal
            shares of the quota while they wait.
        tag: name of the spender, for requests without a tag of their own.
        group: limits the requests in flight of several members, for those without `rate` or `max_in_flight`.
        timeout: seconds after which its requests are given up; it may grow later.

    """

    def __init__(
        self,
        *,
        rate: Limit | AsyncLimiter | None = None,
        max_in_flight: int | None = None,
        limits: Sequence[Limit] = (),
        probe: bool = True,
        max_stop: float | None = None,
        on_wait: Callable[..., None] | None = None,
        now: Callable[[], float] = time.time,
        process: str = "",
        tag: str = "",
        group: Group | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.given = rate
        self.most_in_flight = max_in_flight
        self.process = process
        self.tag = tag
        self.timeout = timeout
        self.account: Account | None = None  # of its tag, in the gate that it joined
        self.ceiling = None if rate is None else Ceiling(rate)
        self.limits = tuple(limits)
        in_flight = MAX_IN_FLIGHT if max_in_flight is None else max_in_flight
        self.settings = Settings(in_flight, probe, inf if max_stop is None else max_stop)
        self.on_wait = on_wait
        self.now = now
        self.wait = Wait()  # that is known
        self._reported = Wait()  # last, to `on_wait`
        self._common = group
        self.enter(None)

    def enter(self, account: Account | None) -> None:
        """Begin in a gate, with the account of the tag there.

        Requests in the last gate count in the last group: their ends can wake nobody in this gate.
        """
        self.account, most, ceiling = account, self.most_in_flight, self.ceiling
        if most is None and ceiling is None:
            self.group = self._common
        else:
            self.group = Group(inf if most is None else most, None if ceiling is None else ceiling.wait)

    def too_long(self, seconds: float, max_wait: float | None, left: float | None) -> QuotaWaitError:
        """Return the error of a wait longer than `max_wait` or the time until a deadline."""
        allowed = max_wait if left is None else None
        return QuotaWaitError(self.now() + seconds, retry_after=seconds, max_wait=allowed, deadline=left)

    def queue_full(self, seconds: float, most: float) -> QueueFullError:
        """Return the error of a call beside which as many wait as may."""
        return QueueFullError(self.now() + seconds, retry_after=seconds, max_waiting=int(most))

    def report_wait(self, wait: Wait, now: float, waiting: int) -> None:
        """Remember a wait, and call the listener once for each that is long enough."""
        self.wait = wait
        if self.on_wait is not None and wait.is_news(self._reported, now):
            self._reported = wait
            self.on_wait(reason=wait.reason, seconds=wait.until - now, waiting=waiting)


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


class Ceiling:
    """Ceiling of a session: a token bucket for its requests, besides the quota."""

    def __init__(self, rate: Limit | AsyncLimiter) -> None:
        self._counts_units = isinstance(rate, Limit) and rate.units
        if isinstance(rate, Limit):
            from aiolimiter import AsyncLimiter  # imported here, because most sessions have no ceiling

            rate = AsyncLimiter(*whole(rate))  # a bucket must hold a whole request
        self._bucket = rate

    def toll(self, units: float, requests: float = 1.0) -> float:
        """Return the tokens that requests with `units` units of the quota cost."""
        return units if self._counts_units else requests

    def ready(self, units: float) -> bool:
        """Return whether it has the tokens of a request now, or as many as it can have."""
        return self._bucket.has_capacity(min(self.toll(units), self._bucket.max_rate))

    def wait(self, units: float, requests: float = 1.0) -> float:
        """Return the seconds until it has the tokens of requests if nobody else takes any."""
        bucket, toll = self._bucket, self.toll(units, requests)
        if toll <= bucket.max_rate and bucket.has_capacity(toll):
            return 0.0
        return (toll - self._tokens()) * bucket.time_period / bucket.max_rate

    def _tokens(self) -> float:
        """Return the tokens that it has.

        An `AsyncLimiter` only says whether it has a number of them.
        """
        tokens = step = self._bucket.max_rate
        if self._bucket.has_capacity(tokens):
            return tokens
        tokens = 0.0
        for _ in range(HALVINGS):
            step /= 2.0
            if self._bucket.has_capacity(tokens + step):
                tokens += step
        return tokens

    async def pay(self, units: float) -> None:
        """Wait for the tokens of a request and take them, in parts if they are more than it holds."""
        toll = self.toll(units)
        while toll > 1e-9:
            part = min(toll, self._bucket.max_rate)
            await self._bucket.acquire(part)
            toll -= part


def is_rate(value: object) -> bool:
    """Return whether a value can be the `rate` of a member; does not import aiolimiter."""
    if isinstance(value, Limit):
        return True
    aiolimiter = sys.modules.get("aiolimiter")
    return aiolimiter is not None and isinstance(value, aiolimiter.AsyncLimiter)


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

    def __init__(self, gate: Gate, reservation: Reservation, group: Group | None, account: Account) -> None:
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
        gate, account, now = self._gate, self._account, asyncio.get_running_loop().time()
        gate.queue.answered(now)
        verdict = gate.quota.answered(reservation, now, status, info, gate.random())
        account.requests += 1
        if status == 429:
            account.refusals += 1
            gate.deadlines.refused()
        else:  # the reservation may have held more than the cost
            account.units += gate.quota.costs.shown(reservation.route, reservation.prior)
        gate.advance()
        return verdict

    def lost(self) -> None:
        """Report that no response arrived: the service may have counted the request."""
        if (reservation := self._settle()) is not None:
            quota = self._gate.quota
            self._account.requests += 1
            self._account.units += quota.costs.shown(reservation.route, reservation.prior)
            quota.lost(reservation, asyncio.get_running_loop().time())
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
        self.quota = Quota(max_in_flight, tuple(limits), probe, inf if max_stop is None else max_stop)
        self.queue: Queue[_Turn] = Queue(self.quota)
        self.deadlines: Deadlines[_Turn] = Deadlines(self.queue)
        self._own = Member(rate=rate, on_wait=on_wait, now=now)
        self._members: dict[Settings, WeakSet[Member]] = {}
        self._spenders = Spenders()
        self._numbers = count()
        self._timer = Timer(self.advance)
        self._woken = 0  # granted, but their tasks did not run yet: no other request may leave before them
        self._limited = Counter[tuple[Member, int]]()  # requests that wait, by member and limit
        self._reported = Wait()  # to the members that wait
        self._remembers = -inf  # when the restored memory was made

    async def acquire(self, ask: Ask, member: Member | None = None) -> Permit:
        """Wait for the turn of a request of a member, and return the permit to send it now.

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
        now = asyncio.get_running_loop().time()
        reservation = self.queue.reserve(now, ask.route, ask.cost)
        return None if reservation is None else self._permit(reservation, ask, member)

    def adopt(self, ask: Ask, member: Member, elapsed: float) -> Permit:
        """Return the permit of a request that is under way since `elapsed` seconds.

        Another gate permitted it. See `Quota.adopt`.
        """
        sent = asyncio.get_running_loop().time() - elapsed
        cost = self.quota.costs.price(ask.route, ask.cost)
        return self._permit(self.quota.adopt(sent, ask.route, cost, ask.cost), ask, member)

    def hold_back(self, seconds: float) -> None:
        """Send nothing for some seconds, at most `max_stop`: another gate met a refusal."""
        self.quota.hold_back(asyncio.get_running_loop().time() + min(seconds, self.quota.max_stop))
        self.deadlines.refused()
        self.advance()

    def memory(self) -> bytes:
        """Return what the gate learned, for the next host of a shared quota."""
        return self.quota.memory(asyncio.get_running_loop().time())

    def restore(self, memory: bytes, age: float) -> None:
        """Continue from a memory made `age` seconds ago.

        Without effect after a newer one, or after a response.
        """
        now = asyncio.get_running_loop().time()
        if now - age > self._remembers + NEWER and self.quota.restore(memory, now, age):
            self._remembers = now - age
            self.advance()

    def divide(self, groups: Iterable[Group], ranks: Sequence[float]) -> None:
        """Divide the places in flight among groups, by the best rank of each that is busy."""
        shares = Shares(self.max_in_flight, sorted(ranks))
        for group in groups:
            group.shares = shares
        self.advance()

    @property
    def max_in_flight(self) -> int:
        """Most requests without a response at once, of all members."""
        return self.quota.max_in_flight

    @property
    def stopped_for(self) -> float:
        """Seconds until the end of a stop; 0 without one."""
        return max(0.0, self.quota.stopped_until - asyncio.get_running_loop().time())

    @property
    def paused(self) -> bool:
        """Whether requests wait although none is in flight."""
        return bool(self.waiting) and not self.quota.in_flight

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return self.queue.waiting

    def price(self, route: str, prior: float | None) -> float:
        """Return the known cost of a request of `route`; `prior` is the documented one."""
        return self.quota.costs.shown(route, prior)

    def snapshot(self, member: Member | None = None) -> QuotaSnapshot:
        """Return the known state of the quota; call it inside a running loop only."""
        unix_time = (member or self._own).now()
        snapshot = self.quota.snapshot(asyncio.get_running_loop().time(), self.waiting, unix_time)
        return evolve(snapshot, spenders=self._spenders.shown())

    # --- members ----------------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Apply the settings of a session; its limits hold from now on."""
        member.enter(self._spenders.account(member.process, member.tag))
        self._members.setdefault(member.settings, WeakSet()).add(member)
        self.quota.add_limits(member.limits)
        self._agree()

    def leave(self, member: Member) -> None:
        """Forget the settings of a closed session; its limits stay, and its requests in flight continue."""
        if (members := self._members.get(member.settings)) is not None:
            members.discard(member)
        self._agree()

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
        """Return the account of a spender; each member remembers that of its own tag."""
        if tag is not None:
            return self._spenders.account(member.process, tag)
        if member.account is None or member.account.closed:
            member.account = self._spenders.account(member.process, member.tag)
        return member.account

    # --- requests that wait -----------------------------------------------------------------

    def _enter(self, ask: Ask, member: Member) -> _Turn:
        """Put a request in the queue; the caller awaits it in `_wait` at once."""
        loop = asyncio.get_running_loop()
        now, rank = loop.time(), -inf if ask.again else -float(ask.priority)
        until = inf if ask.max_wait is None else now + ask.max_wait
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
        if ask.limit is not None and self._full(now, turn):
            most = ask.limit.most
            raise member.queue_full(self.deadlines.cleared(now, turn, joins=not most), most)
        if self.deadlines.misses(now, turn):
            raise turn.too_late(now, self.deadlines.again(now, turn))
        self.deadlines.watch(turn)
        if self.queue.add(turn) and not self.quota.full:
            self.advance()
        else:
            self._set_timer()
        if turn.waits and self.queue.wait.reason:
            member.report_wait(self.queue.wait, now, self.queue.waiting)
        return turn

    def _full(self, now: float, turn: _Turn) -> bool:
        """Return whether as many wait as the limit of a request allows, and it would have to wait."""
        limit, ceiling = turn.ask.limit, turn.member.ceiling
        if limit is None or turn.ask.again or self._limited[turn.member, limit.number] < limit.most:
            return False
        ready = ceiling is None or ceiling.ready(self.price(turn.ask.route, turn.ask.cost))
        return not (ready and self.queue.ready(now, turn))

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
                elif self.quota.holds(reservation, asyncio.get_running_loop().time()):
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
            async with asyncio.timeout_at(None if until == inf else until):
                await ceiling.pay(self.price(turn.ask.route, turn.ask.cost))
        except TimeoutError:
            now = asyncio.get_running_loop().time()
            raise turn.too_late(now, self.deadlines.again(now, turn)) from None
        turn.paid = True

    def advance(self) -> None:
        """Give all requests their turns that may leave now, and fail those that are too late."""
        if not self.queue.waiting and not self._timer.running:
            return
        now = asyncio.get_running_loop().time()
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

    def _set_timer(self) -> None:
        self._timer.set(min(self.queue.wakes_at, self.deadlines.check_at))

    def _wake(self, now: float, turn: _Turn) -> None:
        """Let a request leave, or pay before it leaves."""
        if turn.reservation is not None:
            self._woken += 1
        elif (ceiling := turn.member.ceiling) is not None:
            seconds = ceiling.wait(self.price(turn.ask.route, turn.ask.cost))
            turn.member.report_wait(Wait(now + seconds, "rate"), now, self.queue.waiting)
        turn.future.set_result(None)

    def _failure(self, now: float, turn: _Turn, seconds: float | None) -> QuotaWaitError | APITimeoutError:
        """Return the error of a request that would leave too late; see `Late`."""
        if seconds is not None:
            return turn.too_late(now, seconds)
        return APITimeoutError(f"no answer to any request for {now - self.queue.unanswered_since:.0f} s")
