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
from itertools import count
from math import inf

from aiolimiter import AsyncLimiter
from attrs import define, field

from chainapi.core.headers import LimitNews
from chainapi.core.quota import Flight, Limit, Quota, QuotaSnapshot
from chainapi.errors import QuotaWaitError

__all__ = ["Gate", "Permit"]


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


@define(eq=False)
class _Waiter:
    """A request in the queue; `flight` is set from its grant until its task runs."""

    number: int
    rank: float
    route: str
    prior: float | None
    future: asyncio.Future[None]
    flight: Flight | None = None
    gone: bool = False


@define(eq=False)
class _Queue:
    """Waiters in order: by rank, then by number. Those who left are dropped when their turn comes."""

    lanes: dict[float, deque[_Waiter]] = field(factory=dict[float, deque[_Waiter]])
    waiting: int = 0
    gone: int = 0

    def add(self, waiter: _Waiter) -> None:
        """Put a waiter at its place, which for one that was granted before is in front."""
        lane = self.lanes.get(waiter.rank)
        if lane is None:
            self.lanes[waiter.rank] = deque([waiter])
            self.lanes = dict(sorted(self.lanes.items()))
        elif lane and lane[-1].number > waiter.number:
            insort(lane, waiter, key=_number)
        else:
            lane.append(waiter)
        self.waiting += 1

    def first(self) -> _Waiter | None:
        """Return the waiter whose turn it is."""
        for lane in self.lanes.values():
            while lane:
                waiter = lane[0]
                if waiter.gone:
                    self.gone -= 1
                elif waiter.future.done():
                    # Cancelled, and its task did not run yet.
                    waiter.gone = True
                    self.waiting -= 1
                else:
                    return waiter
                lane.popleft()
        return None

    def pop(self, waiter: _Waiter) -> None:
        """Take out the waiter that `first` returned."""
        self.lanes[waiter.rank].popleft()
        self.waiting -= 1

    def leave(self, waiter: _Waiter) -> None:
        """Take out any waiter; sweep when the departed outnumber the living."""
        waiter.gone = True
        self.waiting -= 1
        self.gone += 1
        if self.gone > self.waiting + 16:
            self.gone = 0
            for rank, lane in list(self.lanes.items()):
                kept = deque(one for one in lane if not one.gone)
                self.lanes[rank] = kept
                if not kept:
                    del self.lanes[rank]


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
        on_wait: called as ``on_wait(reason=, seconds=, waiting=)`` when the gate closes for a known time.
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
        self._rate = AsyncLimiter(rate.amount, rate.per) if rate is not None else None
        self.limits = tuple(limits)
        self._quota = Quota(max_in_flight, self.limits, ask)
        self._random = random
        self._on_wait = on_wait
        self._now = now
        self._queue = _Queue()
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._told = -inf

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
            QuotaWaitError: at once, when its turn would come later than in `max_wait` seconds.

        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._queue.waiting and (flight := self._try(now, route, cost)) is not None:
            return Permit(self, flight)
        if max_wait is not None:
            self._check_wait(now, route, cost, max_wait)
        rank = -inf if again else -priority
        waiter = _Waiter(next(self._numbers), rank, route, cost, loop.create_future())
        self._queue.add(waiter)
        self._pump()
        while True:
            flight = await self._turn(waiter)
            if self._quota.holds(flight, loop.time()):
                return Permit(self, flight)
            waiter.flight, waiter.future = None, loop.create_future()
            self._queue.add(waiter)
            self.unsent(flight)

    def price(self, route: str, prior: float | None) -> float:
        """Return what a request of `route` costs in units, as far as is known; `prior` is what is said."""
        return self._quota.costs.price(route, prior)

    def snapshot(self) -> QuotaSnapshot:
        """Return what is known of the quota now; inside a running loop only."""
        return self._quota.snapshot(asyncio.get_running_loop().time(), self._queue.waiting)

    async def _turn(self, waiter: _Waiter) -> Flight:
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.flight is not None:
                self.unsent(waiter.flight)
            elif not waiter.gone:
                self._queue.leave(waiter)
                self._pump()
            raise
        assert waiter.flight is not None  # noqa: S101 - the future is resolved only with a flight
        return waiter.flight

    def _check_wait(self, now: float, route: str, cost: float | None, max_wait: float) -> None:
        units = self._quota.costs.price(route, cost)
        seconds = self._quota.forecast(now, units, float(self._queue.waiting), self._queue.waiting)
        if seconds > max_wait:
            raise QuotaWaitError(self._now() + seconds, retry_after=seconds, max_wait=max_wait)

    def _try(self, now: float, route: str, prior: float | None) -> Flight | None:
        """Grant a request if it may leave now; else make sure that the timer wakes the queue."""
        cost = self._quota.costs.price(route, prior)
        when = self._quota.opens_at(now, cost)
        if when <= now and self._rate is not None:
            when = now + _take(self._rate, cost)
        if when <= now:
            return self._quota.send(now, route, cost)
        self._wake_at(when)
        return None

    def _pump(self) -> None:
        """Grant everybody who may leave now."""
        now = asyncio.get_running_loop().time()
        while (waiter := self._queue.first()) is not None:
            flight = self._try(now, waiter.route, waiter.prior)
            if flight is None:
                return
            self._queue.pop(waiter)
            waiter.flight = flight
            waiter.future.set_result(None)
        self._wake_at(inf)

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

    def answered(self, flight: Flight, status: int, news: LimitNews) -> None:
        """Take in an answer; called by the permit."""
        now = asyncio.get_running_loop().time()
        self._quota.answered(flight, now, status, news, self._random())
        until = self._quota.stopped_until
        if self._on_wait is not None and until > max(now, self._told):
            self._told = until
            self._on_wait(reason="stop", seconds=until - now, waiting=self._queue.waiting)
        self._pump()

    def lost(self, flight: Flight) -> None:
        """Note that no answer will come; called by the permit."""
        self._quota.lost(flight, asyncio.get_running_loop().time())
        self._pump()

    def unsent(self, flight: Flight) -> None:
        """Take a grant back; called by the permit."""
        self._quota.unsent(flight)
        self._pump()


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
