"""Runs of a job against a server: all-knowing client, gate, plain strategies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

from aiolimiter import AsyncLimiter
from attrs import define, field, frozen

from chainapi import Limit
from chainapi._limits.gate import Ask, Gate
from chainapi.core.limits.info import RateLimitInfo
from chainapi.testing import VirtualLoop
from tests.limits.servers import EPSILON, Response

__all__ = ["Case", "Run", "gate", "knowing", "plain"]

GIVE_UP = 50.0  # times as long as the all-knowing client needs


Send = Callable[[int, float], Awaitable[None]]


class Service(Protocol):
    """Server interface that a run needs."""

    def answer(self, now: float, cost: float) -> Response:
        """Answer one request."""
        ...

    def earliest(self, now: float, cost: float) -> float:
        """Return when a request is admitted."""
        ...

    def take(self, now: float, cost: float) -> None:
        """Count a request."""
        ...


@frozen
class Case:
    """Job: `costs` of its requests in order, `concurrency` callers, and its server.

    `server` builds a new server, the same each time. `tail` makes some round trips much longer than others;
    `hidden` takes the headers away; the gate gets `limits`.
    """

    name: str
    server: Callable[[], Service]
    costs: Sequence[float]
    concurrency: int
    tail: bool = False
    hidden: bool = False
    seed: int = 0
    limits: tuple[Limit, ...] = ()
    start: float = 0.0

    def trips(self) -> list[float]:
        """Return the round trip of each request: 50 ms, or lognormal, median 80 ms."""
        rng = random.Random(self.seed)
        return [rng.lognormvariate(-2.5257, 0.5) if self.tail else 0.05 for _ in self.costs]


@define
class Run:
    """Result of a run; `order` has the numbers and times of the requests that passed."""

    seconds: float = 0.0
    refusals: int = 0
    in_stops: int = 0
    blocks: int = 0
    gave_up: bool = False
    passed: list[tuple[float, int]] = field(factory=list[tuple[float, int]])
    sent: list[tuple[float, int]] = field(factory=list[tuple[float, int]])
    stops: list[tuple[float, float]] = field(factory=list[tuple[float, float]])


def knowing(case: Case) -> Run:
    """Send every request so that it arrives when the server first admits it."""
    server, trips = case.server(), case.trips()
    slots = [case.start] * min(case.concurrency, len(case.costs))
    heapify(slots)
    run = Run()
    last = case.start
    for number, cost in enumerate(case.costs):
        half = trips[number] / 2
        arrival = server.earliest(max(last, heappop(slots) + half), cost)
        server.take(arrival, cost)
        last = arrival
        heappush(slots, arrival + half)
        run.passed.append((arrival + half, number))
    run.seconds = max(slots) - case.start
    return run


class _Wire:
    """Carries requests to the server and back, and watches what is sent during a stop."""

    def __init__(self, case: Case, run: Run) -> None:
        self.server, self.trips, self.hidden, self.run = case.server(), case.trips(), case.hidden, run
        self.until = -inf

    async def send(self, number: int, cost: float) -> Response:
        """Send one request and return what the service answered."""
        loop = asyncio.get_running_loop()
        self.run.sent.append((loop.time(), number))
        if loop.time() < self.until - EPSILON:
            self.run.in_stops += 1
        half = self.trips[number] / 2
        await asyncio.sleep(half)
        response = self.server.answer(loop.time(), cost)
        await asyncio.sleep(half)
        if response.status == 429:
            self.run.refusals += 1
            self.run.blocks += response.blocked
            if self.hidden:
                return Response(429, RateLimitInfo())
            self.until = max(self.until, loop.time() + (response.info.retry_after or 0.0))
            self.run.stops.append((loop.time(), self.until))
        else:
            self.run.passed.append((loop.time(), number))
        return Response(response.status, RateLimitInfo()) if self.hidden else response


def _play(case: Case, call: Callable[[_Wire], Send], limit: float) -> Run:
    """Let `concurrency` workers take the requests of the job in order."""
    run = Run()

    async def job() -> None:
        wire = _Wire(case, run)
        one = call(wire)
        todo = iter(enumerate(case.costs))
        loop = asyncio.get_running_loop()

        async def work() -> None:
            for number, cost in todo:
                await one(number, cost)

        workers = [loop.create_task(work()) for _ in range(min(case.concurrency, len(case.costs)))]
        _, late = await asyncio.wait(workers, timeout=limit)
        run.gave_up = bool(late)
        for task in late:
            task.cancel()
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        run.seconds = loop.time() - case.start

    loop = VirtualLoop(case.start)
    try:
        loop.run_until_complete(job())
    finally:
        loop.close()
    return run


def gate(case: Case, *, probe: bool = True, limit: float = inf) -> Run:
    """Run the job through the gate."""

    def call(wire: _Wire) -> Send:
        rng = random.Random(case.seed)
        doors = Gate(
            max_in_flight=max(1, case.concurrency), probe=probe, limits=case.limits, random=rng.random
        )

        async def one(number: int, cost: float) -> None:
            again = False
            while True:
                permit = await doors.acquire(Ask(f"/{cost:g}", cost=cost, again=again))
                response = await wire.send(number, cost)
                permit.answered(response.status, response.info)
                if response.status == 200:
                    return
                again = True

        return one

    return _play(case, call, min(limit, 1e7))


def plain(case: Case, strategy: str, limit: float) -> Run:
    """Run the job as usual: `blind` or `honest` retries, or with an `AsyncLimiter`."""

    def call(wire: _Wire) -> Send:
        rng = random.Random(case.seed)
        info = case.server().answer(case.start, 1.0).info
        amount, window = info.limit or 1.0, info.policies[0].window or 60.0
        bucket = AsyncLimiter(amount, window) if strategy == "bucket" else None

        async def one(number: int, cost: float) -> None:
            tries = 0
            while True:
                if bucket is not None:
                    await bucket.acquire(cost)
                response = await wire.send(number, cost)
                if response.status == 200:
                    return
                own = rng.random() * min(60.0, 2.0**tries)
                wait = response.info.retry_after
                await asyncio.sleep(own if strategy == "blind" or wait is None else wait)
                tries = min(tries + 1, 10)

        return one

    return _play(case, call, limit)
