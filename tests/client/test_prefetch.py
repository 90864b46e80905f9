"""Prefetch: a bounded number of pages ahead, no needless request, no leftovers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from chainapi import MetricPoint, Pages, Session
from chainapi.errors import (
    PaginationLoopError,
    PagingError,
    ServerError,
    SessionClosedError,
)
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response
from tests.client.services import settle, time
from tests.sessions import Answering, reaching, simulated

Points = Pages[MetricPoint]


@pytest.mark.parametrize(("prefetch", "seconds"), [(0, 4.0), (1, 2.1), (3, 2.1)])
async def test_time_saved(prefetch: int, seconds: float) -> None:
    """Prefetch gives the same rows, in half the time where pages take as long to fetch as to use."""
    simulator = Simulator(points=950, latency=0.2)
    stamps = list[int]()
    async with simulated(simulator) as session:
        async for page in session.metrics.avg_tps(43114, prefetch=prefetch):
            stamps += [point.timestamp for point in page]
            await asyncio.sleep(0.2)
    assert time() == pytest.approx(seconds, abs=0.11)
    assert stamps == sorted(set(stamps), reverse=True)
    assert (len(stamps), simulator.stats.requests) == (950, 10)


async def test_never_more_than_requested() -> None:
    """At most `prefetch` pages are fetched ahead, however long the reader works."""
    for prefetch in (0, 1, 5):
        simulator = Simulator(points=1_000)
        async with simulated(simulator) as session:
            pages = session.metrics.avg_tps(43114, prefetch=prefetch)
            for read in range(1, 5):
                await anext(pages)
                await asyncio.sleep(60)
                assert simulator.stats.requests == read + prefetch


@pytest.mark.parametrize(("limit", "requests"), [(100, 1), (101, 2), (250, 3)])
async def test_not_beyond_a_limit(limit: int, requests: int) -> None:
    """collect(limit) fetches no page ahead that it will not need."""
    simulator = Simulator(points=1_000)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=4)
        assert len(await pages.collect(limit=limit)) == limit
        await asyncio.sleep(60)
        assert simulator.stats.requests == requests
        assert len(await pages.collect()) == 1_000 - limit


@pytest.mark.parametrize(("left", "given"), [("items", 1), ("batches", 100), ("arrow_batches", 200)])
async def test_not_beyond_the_limit_of_the_last_reader(left: str, given: int) -> None:
    """A reader with a limit that was left by `break` does not change how far the next one fetches ahead."""
    simulator = Simulator(points=1_000)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=4)
        async for _ in getattr(pages, left)(limit=200):
            break
        assert len(await pages.collect(limit=250)) == 250
        await asyncio.sleep(60)
        assert simulator.stats.requests == (given + 250 + 99) // 100
        assert len(await pages.collect()) == 750 - given


async def test_pages_are_fetched_ahead_beyond_the_limit_of_the_last_reader() -> None:
    """A reader of pages after one of rows with a limit fetches ahead as if there had been none."""
    simulator = Simulator(points=1_000)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=4)
        rows = pages.batches(limit=150)
        await anext(rows)
        await anext(pages)
        await asyncio.sleep(60)
        assert simulator.stats.requests == 6
        with pytest.raises(PagingError, match="another reader"):
            await anext(rows)


async def test_error_ahead_comes_in_its_turn() -> None:
    """An error of a page ahead is raised only after the pages before it."""
    simulator = Simulator(points=450, faults=[Fault(at=3, status=500)])
    async with simulated(simulator, max_attempts=1) as session:
        pages = session.metrics.avg_tps(43114, prefetch=3)
        first = await anext(pages)
        await asyncio.sleep(1)
        second = await anext(pages)
        with pytest.raises(ServerError) as caught:
            await anext(pages)
        assert caught.value.checkpoint == second.checkpoint
        rest = [page async for page in pages]
    assert sum(len(page) for page in (first, second, *rest)) == 450


class Counting:
    """Transport that counts the requests on their way."""

    def __init__(self, simulator: Simulator) -> None:
        self._inner = simulator.transport()
        self.sent = 0
        self.flying = 0

    async def send(self, request: Request) -> Response:
        """Send, and count."""
        self.sent += 1
        self.flying += 1
        try:
            return await self._inner.send(request)
        finally:
            self.flying -= 1

    async def aclose(self) -> None:
        """Do nothing."""


async def leave(how: str, pages: Points, session: Session) -> bool:
    """Leave a stream as `how` names; return whether to break."""
    match how:
        case "close stream":
            await pages.aclose()
        case "close session":
            await session.aclose()
        case "cancel":
            await asyncio.sleep(1_000)
        case "error":
            raise LookupError
    return how == "break"


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("break", type(None)),
        ("close stream", type(None)),
        ("close session", SessionClosedError),
        ("cancel", asyncio.CancelledError),
        ("error", LookupError),
    ],
)
async def test_nothing_left_behind(how: str, expected: type[object], rows: bool) -> None:
    """Pages on their way are cancelled, and no task remains, when a reader leaves."""
    simulator = Simulator(points=1_000, metrics_page_size=1, latency=10.0)
    transport = Counting(simulator)
    session = simulated(simulator, transport=transport)
    before = asyncio.all_tasks()

    async def read() -> None:
        pages = session.metrics.avg_tps(43114, prefetch=2)
        async for _ in pages.items() if rows else pages:
            await asyncio.sleep(5)
            assert transport.flying == 1
            if await leave(how, pages, session):
                break

    task = asyncio.ensure_future(read())
    await asyncio.sleep(30)
    task.cancel()
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    assert isinstance(outcome, expected)
    del task, outcome
    await settle()
    assert asyncio.all_tasks() == before
    assert transport.flying == 0
    assert session.quota["metrics"].in_flight == 0
    await session.aclose()


@pytest.mark.parametrize("prefetch", [0, 1])
async def test_closed_by_another_task(prefetch: int) -> None:
    """A stream closed while its reader waits ends there; `collect` raises an error with the rows so far."""
    simulator = Simulator(points=300, latency=10.0)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=prefetch)
        task = asyncio.ensure_future(pages.collect())
        await asyncio.sleep(15)
        await pages.aclose()
        with pytest.raises(PagingError, match="closed") as caught:
            await task
        assert caught.value.partial is not None
        assert len(caught.value.partial) == 100
        assert caught.value.checkpoint == pages.checkpoint
        assert [page async for page in pages] == []
        assert not pages.exhausted
        rest = await session.metrics.avg_tps(43114, resume=pages.checkpoint).collect()
        assert len(rest) == 200


async def test_nothing_on_its_way_after_a_loop() -> None:
    """A walk that fails for good cancels the pages that it was fetching ahead."""
    body = b'{"results": [{"timestamp": 1, "value": 1}], "nextPageToken": "t"}'
    async with reaching(Answering(body, seconds=10)) as session:
        pages = session.metrics.avg_tps(43114, prefetch=3)
        await anext(pages)
        await asyncio.sleep(25)
        with pytest.raises(PaginationLoopError):
            await anext(pages)
        await settle()
        assert session.quota["metrics"].in_flight == 0


# A reader that is cancelled


async def waits(pages: Points) -> None:
    """Wait for the second page."""
    await anext(pages)
    await anext(pages)


async def works(pages: Points) -> None:
    """Work on the first page for long."""
    await anext(pages)
    await asyncio.sleep(1_000)


async def works_on_rows(pages: Points) -> None:
    """Work on the first row for long."""
    async for _ in pages.items():
        await asyncio.sleep(1_000)


async def collects(pages: Points) -> None:
    """Take all rows."""
    await pages.collect()


READERS: list[Callable[[Points], Coroutine[Any, Any, None]]] = [waits, works, works_on_rows, collects]


async def cancelled(reader: Coroutine[Any, Any, None], after: float) -> None:
    """Cancel a reader after some seconds."""
    task = asyncio.create_task(reader)
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("reader", READERS)
async def test_pages_ahead_are_there_after_a_cancellation(
    reader: Callable[[Points], Coroutine[Any, Any, None]],
) -> None:
    """A cancelled reader finds the pages ahead when it reads again; no more than these were fetched."""
    transport = Counting(Simulator(points=1_000, latency=10.0))
    async with simulated(Simulator(points=1_000), transport=transport) as session:
        pages = session.metrics.avg_tps(43114, prefetch=4)
        await cancelled(reader(pages), 15)  # the second page is on its way
        assert transport.sent == 2
        await asyncio.sleep(1_000)
        assert transport.sent == 5
        rows = pages.checkpoint.rows
        assert len(await pages.collect()) == 1_000 - rows
    assert transport.sent == 10


async def test_each_page_may_be_read_by_a_task_of_its_own() -> None:
    """Pages are fetched ahead also where each one is read by a task of its own."""
    simulator = Simulator(points=1_000, latency=1.0)
    transport = Counting(simulator)
    async with simulated(simulator, transport=transport) as session:
        pages = session.metrics.avg_tps(43114, prefetch=3)
        await asyncio.create_task(waits(pages))
        await asyncio.sleep(60)
        assert transport.sent == 5


async def test_reader_may_go_on_while_it_is_cancelled() -> None:
    """A task that reads on after it was cancelled gets its pages, ahead as before."""
    simulator = Simulator(points=1_000, latency=10.0)
    transport = Counting(simulator)
    async with simulated(simulator, transport=transport) as session:
        pages = session.metrics.avg_tps(43114, prefetch=2)

        async def stubborn() -> int:
            try:
                await works(pages)
            except asyncio.CancelledError:
                return len(await pages.collect())
            return 0

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(15)
        task.cancel()
        assert await task == 900
    assert transport.sent == 10
    assert asyncio.get_running_loop().time() < 200
