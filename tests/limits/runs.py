"""Runs of a job against a server: all-knowing client, gate, plain strategies."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import inf, log
from typing import Any

from aiolimiter import AsyncLimiter
from attrs import define, field, frozen

from chainapi import Limit
from chainapi.errors import ChainAPIError, QuotaWaitError
from chainapi.testing import run as in_virtual_time
from tests.limits.changing import Service
from tests.limits.seam import Ask, Gate, Permit, RateLimitInfo, Verdict, read_limits
from tests.limits.servers import EPSILON, Response
from tests.limits.wild import BEGAN, Errand, Front, Fronted

__all__ = ["OVERDUE", "Case", "Client", "Run", "finish", "gate", "knowing", "plain", "quickest"]

GIVE_UP = 50.0  # times as long as the all-knowing client needs
HANGS = 1e9  # seconds: no answer
FREE = -1  # in place of the number of a request
OVERDUE = 1.1  # seconds: a call about to get its turn is not refused
PATIENT = 5  # attempts, after which a session gives up on a route that refuses it


def errands(costs: Iterable[float | Errand]) -> Sequence[Errand]:
    """Return errands; equal costs share a route, and are documented."""
    return [one if isinstance(one, Errand) else Errand(f"/{one:g}", one, one) for one in costs]


@frozen
class Case:
    """Job: its `errands` in order, or only their costs, `concurrency` callers, and its server.

    Attributes:
        server: builds a new server, the same each time.
        tail: whether some round trips are much longer than others.
        hidden: whether the headers are taken away.
        limits: limits that the gate is given.
        trip: median round trip in seconds; 50 ms, or 80 ms with a `tail`, if it is None.
        begins: seconds after which each request begins; without them as soon as a caller is free.
        slow: seconds by which the answers to some requests are late; they do not count in the job's end.
        hangs: builds a function that returns whether a request that is sent at a time gets no answer.
        timeout: seconds after which a request without an answer is sent again.
        late: whether the headers show what remains when an answer arrives, not when its request was counted.
        max_wait: seconds that each request may wait at the gate.
        in_flight: most requests without an answer; without it as many as callers.
        front: writes the fields of the answers.
        used: units that others used before.
        spread: seconds over which the callers begin.
        leaves: seconds after which some requests are cancelled, if they are not done by then.

    """

    name: str
    server: Callable[[], Service]
    errands: Sequence[Errand] = field(converter=errands)
    concurrency: int
    tail: bool = False
    hidden: bool = False
    seed: int = 0
    limits: tuple[Limit, ...] = ()
    start: float = 0.0
    trip: float | None = None
    begins: Sequence[float] = ()
    slow: Mapping[int, float] = field(factory=dict[int, float])
    hangs: Callable[[], Callable[[float], bool]] = lambda: lambda _: False
    timeout: float | None = None
    late: bool = False
    max_wait: float | None = None
    in_flight: int | None = None
    front: Front | None = None
    used: float = 0.0
    spread: float = 0.0
    leaves: Mapping[int, float] = field(factory=dict[int, float])

    def trips(self) -> list[float]:
        """Return the round trip of each request: all alike, or lognormal with a `tail`."""
        rng = random.Random(self.seed)
        middle = -2.5257 if self.trip is None else log(self.trip)
        return [rng.lognormvariate(middle, 0.5) if self.tail else self.trip or 0.05 for _ in self.errands]

    def places(self) -> int:
        """Return how many requests may be in flight."""
        return max(1, self.in_flight or self.concurrency)

    def begin(self, number: int) -> float:
        """Return the time when a request begins, if a caller is free then."""
        return self.start + self.begins[number] if self.begins else self.start

    def closed(self, number: int) -> bool:
        """Return whether the route of a request is always refused."""
        return self.front is not None and self.errands[number].route in self.front.closed


@define
class Run:
    """Result of a run; the lists have the times of requests, and their numbers.

    Attributes:
        in_stops: requests that were sent in a stop.
        failed: requests that raised an error because of `max_wait`.
        given_up: requests whose route refused them again and again.
        overdue: requests that left later than `max_wait` allows.
        rest: requests that wait or are in flight at the end.
        refused: times of the refusals, without closed routes.
        attempts: begin of the last attempt of each request, and its number.
        turned_away: when a `QuotaWaitError` ended a request, and its `retry_after`.

    """

    case: Case
    seconds: float = 0.0
    in_stops: int = 0
    blocks: int = 0
    failed: int = 0
    given_up: int = 0
    overdue: int = 0
    rest: int = 0
    hung: bool = False
    gate: Gate | None = None
    sent: list[tuple[float, int]] = field(factory=list[tuple[float, int]])
    passed: list[tuple[float, int]] = field(factory=list[tuple[float, int]])
    stops: list[tuple[float, float]] = field(factory=list[tuple[float, float]])
    refused: list[float] = field(factory=list[float])
    begun: dict[int, float] = field(factory=dict[int, float])
    attempts: dict[int, tuple[float, int]] = field(factory=dict[int, tuple[float, int]])
    turned_away: dict[int, tuple[float, float]] = field(factory=dict[int, tuple[float, float]])

    @property
    def refusals(self) -> int:
        """Number of refusals."""
        return len(self.refused)

    @property
    def done(self) -> int:
        """Number of answered requests."""
        return len(self.passed)

    @property
    def finished(self) -> dict[int, float]:
        """When each request was answered."""
        return {number: when for when, number in self.passed}

    @property
    def storm(self) -> int:
        """Most refusals at one instant."""
        return max(Counter(round(when, 6) for when in self.refused).values(), default=0)

    @property
    def first_burst(self) -> int:
        """Refusals within a second of the first one."""
        return sum(round(when, 6) <= round(self.refused[0], 6) + 1.0 for when in self.refused)

    def waits(self, since: int = 0) -> list[float]:
        """Return the seconds from begin to answer of the requests from number `since` on."""
        passed = self.finished
        return [passed[one] - when for one, when in self.begun.items() if one >= since and one in passed]

    def goodput(self) -> float:
        """Return the all-knowing client's time as a share of the time taken, in per cent."""
        return 100.0 * min(1.0, quickest(self.case).seconds / self.seconds)

    def end(self) -> float:
        """Return the seconds until the last answer, without slow requests and closed routes."""
        case = self.case
        apart = {*case.slow, *filter(case.closed, range(len(case.errands)))}
        return max((when for when, one in self.passed if one not in apart), default=case.start) - case.start


def knowing(case: Case) -> Run:
    """Send the requests in order, so that each arrives when the server first admits it."""
    server, trips, run = case.server(), case.trips(), Run(case)
    slots = [case.start] * min(case.concurrency, case.places(), len(case.errands))
    heapify(slots)
    last = case.start
    for number, errand in enumerate(case.errands):
        half = trips[number] / 2
        last = server.earliest(max(last, heappop(slots) + half), errand.cost)
        server.take(last, errand.cost)
        heappush(slots, last + half)
        run.passed.append((last + half, number))
    run.seconds = max(slots) - case.start
    return run


def quickest(case: Case) -> Run:
    """Do the same in the order in which the requests arrive: none waits for one with a longer trip."""
    server, trips, run = case.server(), case.trips(), Run(case)
    todo, last = iter(range(len(case.errands))), case.start
    for _ in range(round(case.used)):
        server.take(last, 1.0)
    places = min(case.concurrency, case.places(), len(case.errands))
    events = [(case.start, FREE)] * places  # when a place gets free, or a request arrives
    while events:
        now, number = heappop(events)
        if number == FREE:
            if (number := next(todo, FREE)) != FREE:
                heappush(events, (max(now, case.begin(number)) + trips[number] / 2, number))
            continue
        last = server.earliest(max(last, now), case.errands[number].cost)
        server.take(last, case.errands[number].cost)
        answered = last + trips[number] / 2 + case.slow.get(number, 0.0)
        run.passed.append((answered, number))
        heappush(events, (answered, FREE))
    run.seconds = run.end()
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


class _GaveUpError(Exception):
    """A session gives up on a request whose route refuses it again and again."""


class Client:
    """Client that sends the requests of a job through a gate, with a session's retries."""

    def __init__(self, case: Case, *, probe: bool = True) -> None:
        self.case, self.outcome, self.trips = case, Run(case), case.trips()
        self.service = Fronted(case.server(), case.front, random.Random(case.seed - 1))
        self.rng, self.probe = random.Random(case.seed), probe
        self.loop = asyncio.get_running_loop()
        self.stops = {"": -inf}
        self.slow, self.hangs = dict(case.slow), case.hangs()
        self.left_over = round(case.used)

    @cached_property
    def gate(self) -> Gate:
        """The gate, which has learned nothing yet."""
        self.outcome.gate = Gate(
            max_in_flight=self.case.places(),
            limits=self.case.limits,
            probe=self.probe,
            random=self.rng.random,
            now=lambda: BEGAN + self.loop.time(),
        )
        return self.outcome.gate

    def key(self, errand: Errand) -> str:
        """Return the route's name if a refusal may concern it alone, else an empty one."""
        front = self.case.front
        return errand.route if front and (errand.route in front.closed or front.inner == "outer") else ""

    def answer(self, errand: Errand) -> Response:
        """Return the service's answer."""
        while self.left_over:
            self.left_over -= 1
            self.service.server.take(self.loop.time(), 1.0)
        return self.service.answer(self.loop.time(), errand)

    async def exchange(self, number: int, errand: Errand) -> Response:
        """Send one request, and return what the client sees of the answer."""
        run, time = self.outcome, self.loop.time
        run.sent.append((time(), number))
        run.in_stops += time() < self.stops.get(self.key(errand), -inf) - EPSILON
        if self.hangs(time()):
            await asyncio.sleep(HANGS)
        half = self.trips[number] / 2
        await asyncio.sleep(half)
        answer = self.answer(errand)
        await asyncio.sleep(half + (self.slow.pop(number, 0.0) if answer.status == 200 else 0.0))
        info = self.seen(answer)
        if answer.status == 429:
            run.blocks += answer.blocked
            self.refused(number, errand, info.retry_after or info.reset or 0.0)
        elif answer.status in (200, 404):
            run.passed.append((time(), number))
        return Response(answer.status, info)

    def seen(self, answer: Response) -> RateLimitInfo:
        """Return the limit headers of an answer that arrives."""
        if answer.fields is not None:
            return read_limits(answer.fields, BEGAN + self.loop.time())
        if self.case.hidden:
            return RateLimitInfo()
        if self.case.late and not answer.blocked:
            return self.service.server.info(self.loop.time(), answer.info.retry_after)
        return answer.info

    def refused(self, number: int, errand: Errand, wait: float) -> None:
        """Note a refusal and its wait."""
        now, key = self.loop.time(), self.key(errand)
        self.stops[key] = max(self.stops.get(key, -inf), now + wait)
        self.outcome.stops.append((now, self.stops[key]))
        if not self.case.closed(number):
            self.outcome.refused.append(now)

    async def acquire(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait at the gate."""
        ask = Ask(errand.route, errand.prior, errand.priority, max_wait=self.case.max_wait, again=tries > 0)
        return await self.gate.acquire(ask)

    async def attempt(self, number: int, errand: Errand, tries: int) -> bool:
        """Make one attempt; return whether it is the last one."""
        case, run = self.case, self.outcome
        run.attempts[number] = self.loop.time(), tries
        permit = await self.acquire(number, errand, tries)
        if case.max_wait is not None:
            run.overdue += self.loop.time() > run.attempts[number][0] + case.max_wait + OVERDUE
        try:
            async with asyncio.timeout(case.timeout):
                answer = await self.exchange(number, errand)
            verdict = permit.answered(answer.status, answer.info)
        except TimeoutError:
            return False
        finally:
            permit.lost()
        if case.front and verdict in (Verdict.ROUTE, Verdict.TOO_EXPENSIVE) and tries + 1 >= PATIENT:
            raise _GaveUpError
        if answer.status == 503:
            backoff = self.rng.random() * 0.5 * 2.0 ** min(tries, 5)
            await asyncio.sleep(max(answer.info.retry_after or 0.0, backoff))
        return answer.status in (200, 404)

    async def run(self, number: int, errand: Errand) -> None:
        """Do one errand."""
        case, run, tries = self.case, self.outcome, 0
        if case.begins:
            await asyncio.sleep(case.begin(number) - self.loop.time())
        run.begun[number] = self.loop.time()
        try:
            while not await self.attempt(number, errand, tries):
                tries += 1
        except _GaveUpError:
            run.given_up += 1
        except ChainAPIError as error:
            if case.max_wait is None or not (case.timeout or isinstance(error, QuotaWaitError)):
                raise
            run.failed += 1
            if isinstance(error, QuotaWaitError):
                run.turned_away[number] = (self.loop.time(), error.retry_after)

    async def job(self, limit: float) -> None:
        """Let the callers take the requests in order, for at most some seconds."""
        case, run, todo = self.case, self.outcome, iter(enumerate(self.case.errands))

        async def work(place: int) -> None:
            await asyncio.sleep(case.spread * place / case.concurrency)
            for number, errand in todo:
                with suppress(TimeoutError):
                    async with asyncio.timeout(case.leaves.get(number)):
                        await self.run(number, errand)

        run.hung = await finish(map(work, range(min(case.concurrency, len(case.errands)))), limit)
        run.seconds = self.loop.time() - case.start if run.hung else run.end()
        if run.gate is not None:
            rest = run.gate.snapshot()
            run.rest = rest.waiting + rest.in_flight


def play(case: Case, client: Callable[[Case], Client], limit: float) -> Run:
    """Run the job with a client."""

    async def job() -> Run:
        one = client(case)
        await one.job(limit)
        return one.outcome

    return in_virtual_time(job(), start=case.start)


def gate(case: Case, *, probe: bool = True, limit: float = 1e7) -> Run:
    """Run the job through the gate."""
    return play(case, lambda case: Client(case, probe=probe), limit)


class _Plain(Client):
    """Client without a gate: `blind` or `honest` retries, or with an `AsyncLimiter`."""

    def __init__(self, case: Case, strategy: str) -> None:
        super().__init__(case)
        info = case.server().answer(case.start, 1.0).info
        amount, window = info.limit or 1.0, info.policies[0].window or 60.0
        self.bucket = AsyncLimiter(amount, window) if strategy == "bucket" else None
        self.blind = strategy == "blind"

    async def attempt(self, number: int, errand: Errand, tries: int) -> bool:
        """Make one attempt, and wait after a refusal."""
        if self.bucket is not None:
            await self.bucket.acquire(errand.cost)
        answer = await self.exchange(number, errand)
        if answer.status != 200:
            own, wait = self.rng.random() * min(60.0, 2.0 ** min(tries, 10)), answer.info.retry_after
            await asyncio.sleep(own if self.blind or wait is None else wait)
        return answer.status == 200


def plain(case: Case, strategy: str, limit: float) -> Run:
    """Run the job as usual, without a gate."""
    return play(case, lambda case: _Plain(case, strategy), limit)
