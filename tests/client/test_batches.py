"""Reading of streams: the first row, some rows, batches, and pages ahead, each row once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import MetricPoint, Pages, Session
from chainapi.errors import (
    PaginationLoopError,
    PagingError,
    ServerError,
    SessionClosedError,
)
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response
from tests.client.services import settle, time
from tests.sessions import Answering, cancelled, reaching, simulated

BLOCKS = "/v1/chains/43114/blocks"


def blocks(session: Session, **options: Any) -> Pages[dict[str, Any]]:
    """Return a stream of blocks in pages of seven rows."""
    return session.data.list(BLOCKS, page_size=7, descending_key="blockNumber", **options)


async def read_tens(pages: Pages[Any]) -> list[list[Any]]:
    """Return all rows in batches of ten."""
    return [batch async for batch in pages.batches(10)]


def numbers(rows: list[dict[str, Any]], held: int = 40) -> list[int]:
    """Return the numbers of blocks, counted from the newest one of those that the service holds."""
    return [13_113_999 + held - int(row["blockNumber"]) for row in rows]


async def test_first() -> None:
    """`first()` returns the first row with one request, then the next ones, and None at the end."""
    simulator = Simulator(rows=2)
    async with simulated(simulator) as session:
        pages = blocks(session)
        assert numbers([await pages.first() or {}], 2) == [0]
        assert pages.checkpoint.rows == 1
        assert numbers([await pages.first() or {}], 2) == [1]
        assert await pages.first() is None
        assert pages.exhausted
    assert simulator.stats.requests == 1


async def test_first_fetches_nothing_ahead() -> None:
    """`first()` of a stream with prefetch requests one page."""
    simulator = Simulator(rows=100)
    async with simulated(simulator) as session:
        await blocks(session, prefetch=4).first()
    assert simulator.stats.requests == 1


@pytest.mark.parametrize("limit", [1, 7, 8, 99])
async def test_items_up_to_a_limit(limit: int) -> None:
    """`items(limit=)` gives that many rows without a request more, and the stream can be read on."""
    simulator = Simulator(rows=40)
    async with simulated(simulator) as session:
        pages = blocks(session)
        rows = [row async for row in pages.items(limit=limit)]
        assert numbers(rows) == list(range(min(limit, 40)))
        assert pages.checkpoint.rows == len(rows)
        assert simulator.stats.requests == -(-len(rows) // 7)
        rest = [row async for row in pages.items()]
        assert numbers(rows + rest) == list(range(40))


@settings(max_examples=40)
@given(rows=st.integers(0, 40), size=st.integers(1, 50), stop=st.integers(0, 6))
def test_batches(rows: int, size: int, stop: int) -> None:
    """Batches have the exact size but for the last; a checkpoint after any of them resumes behind it."""

    async def main() -> None:
        async with simulated(Simulator(rows=rows)) as session:
            given = [batch async for batch in blocks(session).batches(size)]
            assert numbers([row for batch in given for row in batch], rows) == list(range(rows))
            assert [len(batch) for batch in given[:-1]] == [size] * (len(given) - 1)
            assert all(0 < len(batch) <= size for batch in given)
            pages, read = blocks(session), 0
            async for batch in pages.batches(size):
                read += len(batch)
                assert pages.checkpoint.rows == read
                if read >= stop * size:
                    break
            rest = await blocks(session, resume=pages.checkpoint).collect()
            assert numbers(rest, rows) == list(range(read, rows))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


async def test_batches_of_pages() -> None:
    """Without a size, a batch has the rows of a page, and none is empty."""
    async with simulated(Simulator(rows=20)) as session:
        assert [numbers(batch, 20) async for batch in blocks(session).batches()] == [
            [*range(7)],
            [*range(7, 14)],
            [*range(14, 20)],
        ]
    async with simulated(Simulator(rows=0)) as session:
        assert [batch async for batch in blocks(session).batches()] == []


@pytest.mark.parametrize(("size", "limit"), [(None, 6), (None, 8), (3, 7), (10, 20), (50, 40), (10, 99)])
async def test_batches_up_to_a_limit(size: int | None, limit: int) -> None:
    """`batches(limit=)` gives that many rows without a request more, and the stream can be read on."""
    simulator = Simulator(rows=40)
    async with simulated(simulator) as session:
        pages = blocks(session)
        given = [batch async for batch in pages.batches(size, limit)]
        rows = [row for batch in given for row in batch]
        assert numbers(rows) == list(range(min(limit, 40)))
        assert all(len(batch) == (size or 7) for batch in given[:-1])
        assert pages.checkpoint.rows == len(rows)
        assert simulator.stats.requests == -(-len(rows) // 7)
        rest = [row async for row in pages.items()]
        assert numbers(rows + rest) == list(range(40))


@pytest.mark.parametrize("size", [3, 10, 50])
async def test_an_error_comes_behind_the_rows_before_it(size: int) -> None:
    """All rows before a failing page are given; the error follows, and its checkpoint is behind them."""
    simulator = Simulator(rows=40, faults=[Fault(at=3, status=500)])
    async with simulated(simulator, max_attempts=1) as session:
        pages, rows = blocks(session), list[dict[str, Any]]()

        async def read() -> None:
            async for batch in pages.batches(size):
                rows.extend(batch)

        with pytest.raises(ServerError) as caught:
            await read()
        assert numbers(rows) == list(range(14))
        assert caught.value.checkpoint == pages.checkpoint
        assert pages.checkpoint.rows == 14
        again = [batch async for batch in pages.batches(size)]  # the stream was left in place
        assert numbers([row for batch in again for row in batch]) == list(range(14, 40))


async def test_a_cancelled_batch_is_continued() -> None:
    """A wait that is cancelled inside a batch loses no row: checkpoint and next reader begin with it."""
    given = list[Any]()

    async def read(pages: Pages[Any]) -> None:
        async for batch in pages.batches(10):
            given.extend(batch)

    async with cancelled(blocks, read) as (session, pages):
        assert numbers(given) == [*range(10)]
        assert pages.checkpoint.rows == 10
        resumed = await blocks(session, resume=pages.checkpoint).collect()
        assert numbers(resumed) == [*range(10, 40)]
        assert [numbers(batch) for batch in await read_tens(pages)] == [
            [*range(10, 20)],
            [*range(20, 30)],
            [*range(30, 40)],
        ]


async def test_a_cancelled_batch_has_no_more_rows_than_the_next_size() -> None:
    """A size below the number of rows that a cancelled wait has taken is refused; no batch is larger."""
    async with cancelled(blocks, lambda pages: anext(pages.batches(30))) as (_, pages):
        with pytest.raises(
            PagingError, match="has taken 14 rows: read on with a size of as many or more"
        ) as caught:
            await anext(pages.batches(13))
        assert caught.value.checkpoint == pages.checkpoint
        assert pages.checkpoint.rows == 0
        sizes = [len(batch) async for batch in pages.batches(14)]
        assert sizes == [14, 14, 12]


@pytest.mark.parametrize("limit", [None, 20, 14])
@pytest.mark.parametrize("progress", [True, False])
async def test_a_cancelled_list_is_continued(limit: int | None, progress: bool) -> None:
    """A `collect()` after a cancelled one has the rows of both: a partial list is never returned."""
    async with cancelled(blocks, lambda pages: pages.collect(progress=progress)) as (session, pages):
        assert pages.checkpoint.rows == 0
        assert numbers(await blocks(session, resume=pages.checkpoint).collect()) == [*range(40)]
        rows = await pages.collect(limit, progress=progress)
        assert pages.checkpoint.rows == len(rows) == (limit or 40)
        assert numbers(rows + await pages.collect(100)) == [*range(40)]


async def test_a_cancelled_list_is_returned_in_pieces() -> None:
    """Smaller limits return the rows of a cancelled `collect()` in order; a resume may repeat some."""
    async with cancelled(blocks, Pages.collect) as (_, pages):
        rows = await pages.collect(5)
        assert pages.checkpoint.rows == 0
        with pytest.raises(PagingError, match=r"read on with collect\(\)"):
            await anext(pages)
        rows += await pages.collect(8)
        rows += await pages.collect(2)
        assert pages.checkpoint.rows == len(rows) == 15
        rows += await pages.collect()
        assert numbers(rows) == [*range(40)]


async def test_a_cancelled_list_keeps_its_rows_at_an_error() -> None:
    """An error that ends the second `collect()` has the rows of both in `partial`."""
    failing = Fault(at=5, status=500)
    async with cancelled(blocks, Pages.collect, failing, max_attempts=1) as (_, pages):
        with pytest.raises(ServerError) as caught:
            await pages.collect()
        assert numbers(caught.value.partial) == [*range(21)]
        assert caught.value.checkpoint == pages.checkpoint
        assert numbers(await pages.collect()) == [*range(21, 40)]


async def test_other_readers_do_not_skip_an_unfinished_batch() -> None:
    """Readers of pages and rows, and a limit, are refused inside a batch, at the checkpoint before it."""
    async with cancelled(blocks, read_tens) as (_, pages):
        limited = pages.batches(10, limit=5)
        for read in (pages.first(), anext(pages), anext(pages.items()), anext(limited)):
            with pytest.raises(PagingError, match="inside a batch") as caught:
                await read
            assert caught.value.checkpoint == pages.checkpoint
        assert [len(batch) async for batch in pages.batches()] == [4, 7, 7, 7, 5]


async def test_a_reader_that_was_replaced_takes_no_rows() -> None:
    """Batches whose stream another reader takes over end with an error; the other one has all rows."""
    async with simulated(Simulator(rows=40)) as session:
        pages = blocks(session)
        batches = pages.batches(10)
        first = await anext(batches)
        rest = await pages.collect()
        with pytest.raises(PagingError, match="another reader"):
            await anext(batches)
        assert numbers(first + rest) == [*range(40)]


READERS: dict[str, Callable[[Pages[Any]], Awaitable[Any]]] = {
    "page": anext,
    "first": Pages.first,
    "collect": Pages.collect,
    "to_arrow": Pages.to_arrow,
    "items": lambda pages: anext(pages.items()),
    "batches": lambda pages: anext(pages.batches(20)),
    "arrow_batches": lambda pages: anext(pages.arrow_batches(20)),
}


@pytest.mark.parametrize("first", ["collect", "to_arrow", "batches", "arrow_batches"])
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_reader_that_is_refused_disturbs_no_other(first: str, is_cancelled: bool) -> None:
    """A second reader is refused while another one waits; that one loses no row, if it is cancelled too."""
    async with simulated(Simulator(rows=40, latency=1.0)) as session:
        pages = session.data.evm.blocks(43114, page_size=7)
        reading = asyncio.ensure_future(READERS[first](pages))
        await asyncio.sleep(1.5)  # it has a page, and waits for the second one
        for second in READERS.values():
            with pytest.raises(PagingError, match=r"one reader at a time|inside a batch"):
                await second(pages)
        if is_cancelled:
            reading.cancel()
            await asyncio.wait([reading])
            assert pages.checkpoint.rows == 0
            reading = asyncio.ensure_future(READERS[first](pages))
        count = 40 if first in ("collect", "to_arrow") else 20
        assert len(await reading) == pages.checkpoint.rows == count


async def test_a_closed_stream_gives_no_more_batches() -> None:
    """After `aclose()` batches end."""
    async with simulated(Simulator(rows=40)) as session:
        pages = blocks(session)
        given = []
        async for batch in pages.batches(10):
            given.append(batch)
            await pages.aclose()
        assert [len(batch) for batch in given] == [10]


# Prefetch: a bounded number of pages ahead, no needless request, no leftovers


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


async def test_token_that_ages_in_the_buffer() -> None:
    """A page fetched in time is given although its token has died since; the next step restarts."""
    simulator = Simulator(points=450)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=1)
        stamps = [point.timestamp for point in await anext(pages)]
        await asyncio.sleep(24 * 3600)
        second = await anext(pages)
        assert second.restarts == 0
        stamps += [point.timestamp for point in second]
        await asyncio.sleep(1)
        requests = simulator.stats.requests
        stamps += [point.timestamp async for point in pages.items()]
    assert requests == 2  # with a dead token in hand nothing is fetched ahead
    assert pages.restarts == 1
    assert stamps == sorted(set(stamps), reverse=True)
    assert len(stamps) == 450
    assert simulator.stats.answered[400] == 0


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


LEAVING: list[Callable[[Points], Coroutine[Any, Any, None]]] = [waits, works, works_on_rows, collects]


async def cancel_after(reader: Coroutine[Any, Any, None], after: float) -> None:
    """Cancel a reader after some seconds."""
    task = asyncio.create_task(reader)
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("reader", LEAVING)
async def test_pages_ahead_are_there_after_a_cancellation(
    reader: Callable[[Points], Coroutine[Any, Any, None]],
) -> None:
    """A cancelled reader finds the pages ahead when it reads again; no more than these were fetched."""
    transport = Counting(Simulator(points=1_000, latency=10.0))
    async with simulated(Simulator(points=1_000), transport=transport) as session:
        pages = session.metrics.avg_tps(43114, prefetch=4)
        await cancel_after(reader(pages), 15)  # the second page is on its way
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
