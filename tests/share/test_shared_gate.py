"""The gate of a quota that processes share: one gate for all, through any host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chainapi._limits.gate import Ask, Member
from chainapi._limits.verdict import Verdict
from chainapi.share.participant import OnUnavailable, SharedGate
from chainapi.share.permits import SharedPermit
from tests.client.services import time
from tests.share.exchange import Exchange, ExchangeCarrier
from tests.share.responses import end, headers

pytestmark = pytest.mark.rule


class Process:
    """Process with one session on a shared quota."""

    def __init__(
        self, exchange: Exchange, on_unavailable: OnUnavailable = "degrade", **settings: object
    ) -> None:
        self.carrier: ExchangeCarrier = exchange.carrier()
        self.member = Member(**settings)  # type: ignore[arg-type]
        self.gate = SharedGate("quota", "https://data.test", self.carrier, on_unavailable)
        self.gate.join(self.member)

    async def acquire(self, route: str = "/a", **options: object) -> SharedPermit:
        """Return a permit."""
        return await self.gate.acquire(Ask(route, **options), self.member)  # type: ignore[arg-type]

    async def aclose(self) -> None:
        """Leave the quota."""
        self.gate.leave(self.member)
        await self.gate.aclose()


@asynccontextmanager
async def processes(number: int, exchange: Exchange | None = None) -> AsyncIterator[list[Process]]:
    """Return processes that share a quota, and close those that live at the end."""
    exchange = exchange or Exchange()
    made = [Process(exchange) for _ in range(number)]
    try:
        yield made
    finally:
        for process in made:
            await process.aclose()


async def test_snapshot_after_the_first_response() -> None:
    """After its first response a process has the state of the quota, however late the response was."""
    async with processes(2, Exchange(delay=0.001)) as made:
        for number, process in enumerate(made, 1):
            permit = await process.acquire()
            await asyncio.sleep(1.0)
            began = time()
            await end(permit, 200, headers(100 - number))
            snapshot = process.gate.snapshot(process.member)
            assert (snapshot.limit, snapshot.remaining) == (100, 100 - number)
            assert time() - began < 0.01


async def test_first_response_waits_for_no_host_that_hangs() -> None:
    """A response is not held up for long by a host that answers late, or ends."""
    exchange = Exchange(delay=0.001)
    async with processes(2, exchange) as (host, process):
        permit = await process.acquire()
        exchange.links[-1][2].delay = 60.0  # frames to the process are late
        began = time()
        await end(permit, 200, headers(99))
        assert time() - began == pytest.approx(0.5)
        late = await host.acquire()
        ending = asyncio.create_task(end(late, 200, headers(98)))
        await asyncio.sleep(0)
        exchange.kill(host.carrier)
        await ending


async def test_request_under_way_is_reported_to_the_next_host() -> None:
    """A response that arrives after a take-over teaches the next host."""
    exchange = Exchange()
    async with processes(3, exchange) as (one, two, three):
        await end(await one.acquire(), 200, headers(99))
        under_way = await two.acquire()
        exchange.kill(one.carrier)
        await asyncio.sleep(1)
        assert await end(under_way, 429, headers(0, 30.0)) is Verdict.QUOTA
        began = time()
        (await three.acquire()).unsent()
        assert time() - began >= 29.9


async def test_second_outage_begins_without_the_requests_of_the_first() -> None:
    """A session with a limit of its own sends in each outage, whatever it sent in the last one."""
    exchange = Exchange()
    process = Process(exchange, max_in_flight=1)
    await end(await process.acquire(), 200, headers(99))
    exchange.cut()
    await asyncio.sleep(3)
    under_way = await process.acquire()
    aside = [asyncio.create_task(process.acquire()) for _ in range(2)]
    await asyncio.sleep(1)
    exchange.away = False
    await asyncio.sleep(1)
    assert exchange.gate("quota").snapshot().in_flight == 1  # the next host knows of it
    await end(under_way, 200, headers(98))
    await asyncio.sleep(0.001)
    assert exchange.gate("quota").snapshot().limit == 100
    for task in asyncio.as_completed(aside):
        await end(await task, 200, headers(97))
    exchange.cut()
    await asyncio.sleep(3)
    await end(await process.acquire(), 429, headers(0, 5.0))
    await end(await process.acquire(), 200, headers(99))
    await process.aclose()


async def test_refusal_without_a_verdict_reaches_the_next_host() -> None:
    """A 429 that the last host took with it stops the next one too."""
    exchange = Exchange(delay=0.01)
    async with processes(3, exchange) as (one, two, three):
        await end(await one.acquire(), 200, headers(99))
        refused = await two.acquire()
        began = time()
        report = asyncio.create_task(end(refused, 429, headers(0, 30.0)))
        await asyncio.sleep(0.005)
        exchange.kill(one.carrier)
        assert await report is Verdict.QUOTA
        await asyncio.sleep(0.1)
        (await three.acquire()).unsent()
        assert time() >= began + 29.9
