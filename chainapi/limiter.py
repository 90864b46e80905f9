"""The gate: every request of one quota passes it, first come, first served.

All waiting happens here, in one queue with one timer; what may leave when is decided by the pure
`chainapi.core.quota`. A request is granted immediately before it is sent, so a stop that begins while a
granted task has not run yet still holds it back.
"""

from __future__ import annotations

import asyncio
import random
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING

from attrs import define, field

from chainapi.core.headers import LimitNews
from chainapi.core.quota import Flight, Limit, Quota, QuotaSnapshot
from chainapi.errors import QuotaWaitError

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

__all__ = ["Gate", "Permit"]

LOOK_AHEAD = 16  # waiters behind a dear request that may pass it
WORTH_TELLING = 1.0  # seconds


class Permit:
    """Leave to send one request; exactly one of its methods ends it.

    A caller that is cancelled settles it too, in a ``finally``: with `unsent` when nothing left, else with
    `lost`. Ending it a second time does nothing.
    """

    __slots__ = ("_flight", "_gate")

    def __init__(self, gate: Gate, flight: Flight) -> None:
        self._gate = gate
        self._flight: Flight | None = flight

    def answered(self, status: int, news: LimitNews) -> None:
        """Report that the service answered with `status`, and that its headers say `news`."""
        if (flight := self._settle()) is not None:
            self._gate.answered(flight, status, news)

    def lost(self) -> None:
        """Report that no answer is known: the service may have counted the request or not."""
        if (flight := self._settle()) is not None:
            self._gate.lost(flight)

    def unsent(self) -> None:
        """Hand the permit back: the request never left."""
        if (flight := self._settle()) is not None:
            self._gate.unsent(flight)

    def _settle(self) -> Flight | None:
        flight, self._flight = self._flight, None
        return flight


@define(eq=False, repr=False)
class _Waiter:
    """A request in the queue; `flight` is set from its grant until its task runs."""

    number: int
    rank: float
    route: str
    prior: float | None
    price: float
    future: asyncio.Future[None]
    flight: Flight | None = None
    deadline: float = inf  # on the loop's clock; its turn may not come later
    max_wait: float = inf
    queued: bool = False
    passed: float = 0.0


@define(eq=False, repr=False)
class _Lane:
    """Waiters of one rank in the order of their numbers; who left is skipped when its turn comes."""

    waiters: deque[_Waiter] = field(factory=deque[_Waiter])
    waiting: int = 0
    units: float = 0.0

    def first(self) -> _Waiter | None:
        """Return the waiter whose turn it is."""
        waiters = self.waiters
        while waiters:
            if waiters[0].queued:
                return waiters[0]
            waiters.popleft()
        return None

    def add(self, waiter: _Waiter) -> None:
        """Put a waiter at its place, which for one that was granted before is in front."""
        waiters = self.waiters
        if waiters and waiters[-1].number > waiter.number:
            insort(waiters, waiter, key=_number)
        else:
            waiters.append(waiter)
        waiter.queued = True
        self.waiting += 1
        self.units += waiter.price

    def remove(self, waiter: _Waiter) -> None:
        """Take a waiter out; sweep when those who left outnumber those who wait."""
        waiter.queued = False
        self.waiting -= 1
        self.units -= waiter.price
        if self.waiters[0] is waiter:
            self.waiters.popleft()
        elif len(self.waiters) > 2 * self.waiting + 16:
            self.waiters = deque(one for one in self.waiters if one.queued)


def _number(waiter: _Waiter) -> int:
    return waiter.number


class Gate:
    """Lets requests of one quota leave as early as the service allows, and never during a stop.

    Args:
        rate: the user's own ceiling, kept by a token bucket.
        max_in_flight: how many requests may be without an answer at once.
        limits: limits of a service that does not tell them in headers.
        ask: whether one request may be risked to learn when the quota comes back.
        random: returns numbers from 0 to 1, for jitter.
        on_wait: called as ``on_wait(reason=, seconds=, waiting=)`` when the queue begins to wait for a
            known time of a second or more; the reason is ``"stop"``, ``"quota"`` or ``"rate"``.
        now: the wall clock in Unix seconds, only for what is told to people.

    """

    def __init__(
        self,
        *,
        rate: Limit | None = None,
        max_in_flight: int = 100,
        limits: Sequence[Limit] = (),
        ask: bool = True,
        random: Callable[[], float] = random.random,
        on_wait: Callable[..., None] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._rate = None if rate is None else _bucket(rate)
        self.limits = tuple(limits)
        self._quota = Quota(max_in_flight, self.limits, ask)
        self._random = random
        self._on_wait = on_wait
        self._now = now
        self._lanes: dict[float, _Lane] = {}
        self._waiting = 0
        self._cheapest = inf
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._told = -inf
        self._judged = -inf  # the opening time that the waiters were judged by

    async def acquire(
        self,
        route: str = "",
        *,
        cost: float | None = None,
        priority: int = 0,
        max_wait: float | None = None,
        again: bool = False,
    ) -> Permit:
        """Wait for this request's turn, and return the permit to send it now.

        `route` names what costs alike, `cost` is what a request of it is thought to cost in units until
        answers tell better. A higher `priority` goes first; `again` says that this request was
        refused or lost before, and puts it in front of all.

        Raises:
            QuotaWaitError: when its turn would come later than in `max_wait` seconds. That is foreseen and
                raised at once; where it was not foreseeable, after that time.

        """
        loop = asyncio.get_running_loop()
        if not self._waiting:
            now = loop.time()
            flight = self._try(now, route, self._quota.costs.price(route, cost))
            if flight is not None:
                return Permit(self, flight)
        waiter = self._enter(loop, route, cost, -inf if again else -priority, max_wait)
        deadline = loop.call_later(max_wait, self._late, waiter) if max_wait is not None else None
        try:
            while True:
                flight = await self._turn(waiter)
                if self._quota.holds(flight, loop.time()):
                    return Permit(self, flight)
                waiter.flight, waiter.future = None, loop.create_future()
                self._add(waiter)
                self.unsent(flight)
        finally:
            if deadline is not None:
                deadline.cancel()

    def price(self, route: str, prior: float | None) -> float:
        """Return what a request of `route` costs in units, as far as is known; `prior` is what is said."""
        return self._quota.costs.price(route, prior)

    def snapshot(self) -> QuotaSnapshot:
        """Return what is known of the quota now; inside a running loop only."""
        return self._quota.snapshot(asyncio.get_running_loop().time(), self._waiting)

    # --- the queue --------------------------------------------------------------------------

    def _enter(
        self,
        loop: asyncio.AbstractEventLoop,
        route: str,
        cost: float | None,
        rank: float,
        max_wait: float | None,
    ) -> _Waiter:
        price = self._quota.costs.price(route, cost)
        if max_wait is not None:
            seconds = self._forecast(loop.time(), price, rank)
            if seconds > max_wait:
                raise self._too_long(seconds, max_wait)
        waiter = _Waiter(next(self._numbers), rank, route, cost, price, loop.create_future())
        if max_wait is not None:
            waiter.deadline, waiter.max_wait = loop.time() + max_wait, max_wait
            self._judged = -inf  # it may not be there when the others are judged
        self._add(waiter)
        self._pump()
        return waiter

    def _add(self, waiter: _Waiter) -> None:
        lane = self._lanes.get(waiter.rank)
        if lane is None:
            lane = self._lanes[waiter.rank] = _Lane()
            self._lanes = dict(sorted(self._lanes.items()))
        lane.add(waiter)
        self._waiting += 1
        self._cheapest = min(self._cheapest, waiter.price)

    def _remove(self, waiter: _Waiter) -> None:
        self._lanes[waiter.rank].remove(waiter)
        self._waiting -= 1

    async def _turn(self, waiter: _Waiter) -> Flight:
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.flight is not None:
                self.unsent(waiter.flight)
            elif waiter.queued:
                self._remove(waiter)
                self._pump()
            raise
        assert waiter.flight is not None  # noqa: S101 - a future without exception comes with a flight
        return waiter.flight

    def _late(self, waiter: _Waiter) -> None:
        if waiter.queued and not waiter.future.done():
            seconds = self._forecast(asyncio.get_running_loop().time(), waiter.price, waiter.rank)
            self._fail(waiter, seconds)
            self._pump()

    def _fail(self, waiter: _Waiter, seconds: float) -> None:
        """Send a waiter away whose turn would come in so many seconds."""
        self._remove(waiter)
        waiter.future.set_exception(self._too_long(seconds, waiter.max_wait))

    def _too_long(self, seconds: float, max_wait: float) -> QuotaWaitError:
        return QuotaWaitError(self._now() + seconds, retry_after=seconds, max_wait=max_wait)

    def _forecast(self, now: float, price: float, rank: float) -> float:
        """Return the seconds until a request would leave that enters the queue at `rank` now."""
        ahead = [lane for at, lane in self._lanes.items() if at <= rank]
        units = sum(lane.units for lane in ahead)
        seconds = self._quota.forecast(now, price, units, sum(lane.waiting for lane in ahead))
        if self._rate is not None and not self._rate.has_capacity(min(units + price, self._rate.max_rate)):
            seconds = max(seconds, (units + price) * self._rate.time_period / self._rate.max_rate)
        return seconds

    # --- grants -----------------------------------------------------------------------------

    def _try(self, now: float, route: str, price: float) -> Flight | None:
        """Grant a request if it may leave now; else make sure that the timer wakes the queue."""
        when, rated = self._quota.opens_at(now, price), False
        if when <= now and self._rate is not None:
            when, rated = now + _take(self._rate, price), True
        if when <= now:
            return self._quota.send(now, route, price)
        self._wake_at(when)
        if (
            self._on_wait is not None
            and self._waiting
            and now + WORTH_TELLING <= when < inf
            and when > self._told
        ):
            self._told = when
            stopped = when == self._quota.stopped_until
            reason = "rate" if rated else "stop" if stopped else "quota"
            self._on_wait(reason=reason, seconds=when - now, waiting=self._waiting)
        return None

    def _pump(self) -> None:
        """Grant everybody who may leave now."""
        if not self._waiting and self._timer is None:
            return
        now = asyncio.get_running_loop().time()
        price = self._quota.costs.price
        while (waiter := self._first()) is not None:
            cost = price(waiter.route, waiter.prior)
            flight = self._try(now, waiter.route, cost)
            if flight is None:
                if cost > self._cheapest and self._rate is None:
                    self._let_pass(now, waiter, cost)
                self._judge(now)
                return
            self._grant(waiter, flight)
        self._wake_at(inf)

    def _judge(self, now: float) -> None:
        """Fail at once those whose turn, as it is foreseen now, comes later than they may wait."""
        opens = now if self._timer is None else self._timer.when()
        if opens < self._judged + 1:
            return
        self._judged = opens
        units, ahead = 0.0, 0
        for lane in self._lanes.values():
            for waiter in tuple(lane.waiters):
                if not waiter.queued or waiter.future.done():
                    continue
                seconds = (
                    self._quota.forecast(now, waiter.price, units, ahead) if waiter.deadline < inf else 0
                )
                if now + seconds > waiter.deadline:
                    self._fail(waiter, seconds)
                else:
                    units, ahead = units + waiter.price, ahead + 1

    def _first(self) -> _Waiter | None:
        for lane in self._lanes.values():
            while (waiter := lane.first()) is not None:
                if not waiter.future.done():
                    return waiter
                # Cancelled, and its task did not run yet.
                self._remove(waiter)
        return None

    def _let_pass(self, now: float, dear: _Waiter, cost: float) -> None:
        """Let cheaper requests use what is too little for a dear one, as many units as it costs at most.

        So nothing is left over when a window ends, and a dear request waits at most twice as long.
        """
        room = min(self._quota.room(now), cost - dear.passed)
        price = self._quota.costs.price
        for waiter in list(islice(self._lanes[dear.rank].waiters, 1, LOOK_AHEAD)):
            units = price(waiter.route, waiter.prior)
            if units > room or not waiter.queued or waiter.future.done():
                continue
            if self._quota.opens_at(now, units) > now:
                return
            room -= units
            dear.passed += units
            self._grant(waiter, self._quota.send(now, waiter.route, units))

    def _grant(self, waiter: _Waiter, flight: Flight) -> None:
        self._remove(waiter)
        waiter.flight = flight
        waiter.future.set_result(None)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() == when:
                return
            self._timer.cancel()
            self._timer = None
        if when < inf:
            self._timer = asyncio.get_running_loop().call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    # --- how flights end; called by the permits ---------------------------------------------

    def answered(self, flight: Flight, status: int, news: LimitNews) -> None:
        """Take in an answer."""
        self._quota.answered(flight, asyncio.get_running_loop().time(), status, news, self._random())
        self._pump()

    def lost(self, flight: Flight) -> None:
        """Note that no answer will come."""
        self._quota.lost(flight, asyncio.get_running_loop().time())
        self._pump()

    def unsent(self, flight: Flight) -> None:
        """Take a grant back."""
        self._quota.unsent(flight)
        self._pump()


def _bucket(rate: Limit) -> AsyncLimiter:
    from aiolimiter import AsyncLimiter  # here, because most sessions have no ceiling

    return AsyncLimiter(rate.amount, rate.per)


def _take(bucket: AsyncLimiter, amount: float) -> float:
    """Take from the bucket without waiting; return the seconds after which to try again, 0 when taken."""
    amount = min(amount, bucket.max_rate)
    if not bucket.has_capacity(amount):
        # A hair longer than exact, or a float remainder would cost a second round.
        return amount / bucket.max_rate * bucket.time_period * (1 + 1e-6)
    taking = bucket.acquire(amount)
    try:
        taking.send(None)
    except StopIteration:
        return 0.0
    raise AssertionError("the bucket had room and yet waits")
