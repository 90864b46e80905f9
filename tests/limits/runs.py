"""Runs of a job against a server: all-knowing client, gate, plain strategies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf, log
from typing import Any

from aiolimiter import AsyncLimiter
from attrs import define, field, frozen

from chainapi import Limit
from chainapi.errors import ChainAPIError
from chainapi.testing import run as in_virtual_time
from tests.limits.changing import Service
from tests.limits.seam import Ask, Gate, RateLimitInfo
from tests.limits.servers import EPSILON, Response

__all__ = ["Case", "Run", "finish", "gate", "knowing", "plain", "quickest"]

GIVE_UP = 50.0  # times as long as the all-knowing client needs
HANGS = 1e9  # seconds: no answer
FREE = -1  # in place of the number of a request

Send = Callable[[int, float], Awaitable[None]]


@frozen
class Case:
    """Job: `costs` of its requests in order, `concurrency` callers, and its server.

    Attributes:
        server: builds a new server, the same each time.
        tail: whether some round trips are much longer than others.
        hidden: whether the headers are taken away.
        limits: limits that the gate is given.
        trip: median round trip in seconds; 50 ms, or 80 ms with a `tail`, if it is None.
        routes: route of each request; without them requests of one cost have a route.
        priors: documented cost of each request; without them it is the real one.
        begins: seconds after which each request begins; without them as soon as a caller is free.
        slow: seconds by which the answers to some requests are late; they do not count in the job's end.
        hangs: builds a function that returns whether a request that is sent at a time gets no answer.
        timeout: seconds after which a request without an answer is sent again.
        late: whether the headers show what remains when an answer arrives, not when its request was counted.
        max_wait: seconds that each request may wait at the gate.
        in_flight: most requests without an answer; without it as many as callers.

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
    trip: float | None = None
    routes: Sequence[str] = ()
    priors: Sequence[float | None] = ()
    begins: Sequence[float] = ()
    slow: Mapping[int, float] = field(factory=dict[int, float])
    hangs: Callable[[], Callable[[float], bool]] = lambda: lambda _: False
    timeout: float | None = None
    late: bool = False
    max_wait: float | None = None
    in_flight: int | None = None

    def trips(self) -> list[float]:
        """Return the round trip of each request: all alike, or lognormal with a `tail`."""
        rng = random.Random(self.seed)
        middle = -2.5257 if self.trip is None else log(self.trip)
        return [rng.lognormvariate(middle, 0.5) if self.tail else self.trip or 0.05 for _ in self.costs]

    def places(self) -> int:
        """Return how many requests may be in flight."""
        return max(1, self.in_flight or self.concurrency)

    def begin(self, number: int) -> float:
        """Return the time when a request begins, if a caller is free then."""
        return self.start + self.begins[number] if self.begins else self.start


@define
class Run:
    """Result of a run; the lists have the times of requests, and their numbers.

    `prices` are the learned costs of the routes, without a documented one.
    """

    seconds: float = 0.0
    refusals: int = 0
    in_stops: int = 0
    blocks: int = 0
    failed: int = 0
    gave_up: bool = False
    begun: list[tuple[float, int]] = field(factory=list[tuple[float, int]])
    passed: list[tuple[float, int]] = field(factory=list[tuple[float, int]])
    sent: list[tuple[float, int]] = field(factory=list[tuple[float, int]])
    stops: list[tuple[float, float]] = field(factory=list[tuple[float, float]])
    prices: dict[str, float | None] = field(factory=dict[str, float | None])

    def waits(self, since: int = 0) -> list[float]:
        """Return the seconds from begin to answer of the requests from number `since` on."""
        passed = {number: when for when, number in self.passed}
        return [passed[number] - when for when, number in self.begun if number >= since and number in passed]

    def end(self, case: Case) -> float:
        """Return the seconds until the last answer, those of slow requests apart."""
        counted = (when for when, number in self.passed if number not in case.slow)
        return max(counted, default=case.start) - case.start


def knowing(case: Case) -> Run:
    """Send the requests in order, so that each arrives when the server first admits it."""
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


def quickest(case: Case) -> Run:
    """Do the same in the order in which the requests arrive: none waits for one with a longer trip."""
    server, trips, run = case.server(), case.trips(), Run()
    todo, last = iter(range(len(case.costs))), case.start
    places = min(case.concurrency, case.places(), len(case.costs))
    events = [(case.start, FREE)] * places  # when a place gets free, or a request arrives
    while events:
        now, number = heappop(events)
        if number == FREE:
            if (number := next(todo, FREE)) != FREE:
                heappush(events, (max(now, case.begin(number)) + trips[number] / 2, number))
            continue
        last = server.earliest(max(last, now), case.costs[number])
        server.take(last, case.costs[number])
        answered = last + trips[number] / 2 + case.slow.get(number, 0.0)
        run.passed.append((answered, number))
        heappush(events, (answered, FREE))
    run.seconds = run.end(case)
    return run


async def finish(workers: Iterable[Coroutine[Any, Any, None]], limit: float) -> bool:
    """Let all work for at most some seconds; return whether some had to be cancelled."""
    tasks = [asyncio.create_task(worker) for worker in workers]
    _, late = await asyncio.wait(tasks, timeout=limit)
    for task in late:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
    return bool(late)


class _Wire:
    """Carries requests to the server and back, and watches what is sent during a stop."""

    def __init__(self, case: Case, run: Run) -> None:
        self.case, self.server, self.trips, self.run = case, case.server(), case.trips(), run
        self.until = -inf
        self.slow, self.hangs = dict(case.slow), case.hangs()

    async def send(self, number: int, cost: float) -> Response:
        """Send one request and return what the service answered."""
        loop = asyncio.get_running_loop()
        self.run.sent.append((loop.time(), number))
        if loop.time() < self.until - EPSILON:
            self.run.in_stops += 1
        if self.hangs(loop.time()):
            await asyncio.sleep(HANGS)
        half = self.trips[number] / 2
        await asyncio.sleep(half)
        response = self.server.answer(loop.time(), cost)
        await asyncio.sleep(half + (self.slow.pop(number, 0.0) if response.status == 200 else 0.0))
        return self.arrived(loop.time(), number, response)

    def arrived(self, now: float, number: int, response: Response) -> Response:
        """Record a response, and return what the client sees of it."""
        if response.status == 429:
            self.run.refusals += 1
            self.run.blocks += response.blocked
            if not self.case.hidden:
                self.until = max(self.until, now + (response.info.retry_after or 0.0))
                self.run.stops.append((now, self.until))
        else:
            self.run.passed.append((now, number))
        if self.case.hidden:
            return Response(response.status, RateLimitInfo())
        if self.case.late and not response.blocked:
            return Response(response.status, self.server.info(now, response.info.retry_after))
        return response


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
                if case.begins:
                    await asyncio.sleep(case.begin(number) - loop.time())
                run.begun.append((loop.time(), number))
                try:
                    await one(number, cost)
                except ChainAPIError:
                    if case.max_wait is None:
                        raise
                    run.failed += 1

        workers = [work() for _ in range(min(case.concurrency, len(case.costs)))]
        run.gave_up = await finish(workers, limit)
        run.seconds = loop.time() - case.start if run.gave_up else run.end(case)

    in_virtual_time(job(), start=case.start)
    return run


def gate(case: Case, *, probe: bool = True, limit: float = inf) -> Run:
    """Run the job through the gate."""
    last: list[Gate] = []

    def call(wire: _Wire) -> Send:
        rng = random.Random(case.seed)
        doors = Gate(max_in_flight=case.places(), probe=probe, limits=case.limits, random=rng.random)
        last.append(doors)

        async def one(number: int, cost: float) -> None:
            route = case.routes[number] if case.routes else f"/{cost:g}"
            prior = case.priors[number] if case.priors else cost
            again = False
            while True:
                permit = await doors.acquire(Ask(route, prior, again=again, max_wait=case.max_wait))
                again = True
                try:
                    async with asyncio.timeout(case.timeout):
                        response = await wire.send(number, cost)
                except TimeoutError:
                    permit.lost()
                    continue
                permit.answered(response.status, response.info)
                if response.status == 200:
                    return

        return one

    run = _play(case, call, min(limit, 1e7))
    run.prices = {route: last[0].price(route, None) for route in dict.fromkeys(case.routes)}
    return run


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
