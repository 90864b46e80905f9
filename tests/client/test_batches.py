"""Reading of streams: the first row, some rows, batches, and pages ahead, each row once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import MetricPoint, Pages, Session
from chainapi.errors import (
    PaginationLoopError,
    PagingError,
    ServerError,
    SessionClosedError,
)
from chainapi.simulator import Fault, Simulator
from chainapi.testing import run
from tests.client.services import settle, time
from tests.sessions import Answering, cancelled, reaching, simulated

Blocks = Pages[Any]
Points = Pages[MetricPoint]


def blocks(session: Session, **options: Any) -> Blocks:
    """Return a stream of blocks in pages of seven rows."""
    return session.data.evm.blocks(43114, page_size=7, **options)


def numbers(rows: Any, held: int = 40) -> list[int]:
    """Return the numbers of blocks, counted from the newest one of those that the service holds."""
    found = (
        rows["block_number"].to_pylist() if hasattr(rows, "schema") else [row.block_number for row in rows]
    )
    return [13_113_999 + held - number for number in found]


async def test_first() -> None:
    """`first()` returns the first row, the next one, and None at the end, whose checkpoint sends nothing."""
    simulator = Simulator(rows=2)
    async with simulated(simulator) as session:
        pages = blocks(session)
        assert [numbers([await pages.first()], 2) for _ in range(2)] == [[0], [1]]
        assert await pages.first() is None
        assert pages.exhausted
        assert await blocks(session, resume=pages.checkpoint).collect() == []
    assert simulator.stats.requests == 1


LIMITED: dict[str, Callable[[Blocks, int | None, int], Any]] = {
    "collect": lambda pages, size, limit: pages.collect(limit),
    "to_arrow": lambda pages, size, limit: pages.to_arrow(limit),
    "items": lambda pages, size, limit: pages.items(limit),
    "batches": lambda pages, size, limit: pages.batches(size, limit),
    "arrow_batches": lambda pages, size, limit: pages.arrow_batches(size, limit),
}


@settings(max_examples=60)
@given(
    how=st.sampled_from([*LIMITED]),
    size=st.none() | st.integers(1, 50),
    limit=st.integers(1, 50) | st.just(2**64),
    prefetch=st.integers(0, 4),
)
@example(how="items", size=None, limit=1, prefetch=4)
@example(how="collect", size=None, limit=7, prefetch=1)
@example(how="to_arrow", size=None, limit=8, prefetch=0)
def test_limits(how: str, size: int | None, limit: int, prefetch: int) -> None:
    """A reader with a limit gives that many rows without a request more, and the stream can be read on."""

    async def main() -> None:
        simulator = Simulator(rows=40)
        async with simulated(simulator) as session:
            pages, count = blocks(session, prefetch=prefetch), min(limit, 40)
            result = LIMITED[how](pages, size, limit)
            given = [one async for one in result] if hasattr(result, "__anext__") else await result
            parts = given if "batches" in how else [given]
            assert [number for part in parts for number in numbers(part)] == [*range(count)]
            assert all(len(part) == (size or 7) for part in parts[:-1])
            assert pages.checkpoint.rows == count
            await asyncio.sleep(60)
            assert simulator.stats.requests == -(-count // 7)
            assert numbers(await pages.collect(100)) == [*range(count, 40)]

    run(main())


@settings(max_examples=40)
@given(rows=st.integers(0, 40), size=st.none() | st.integers(1, 50), stop=st.integers(0, 6))
def test_batches(rows: int, size: int | None, stop: int) -> None:
    """Batches but the last have the given size, or are pages; a checkpoint resumes behind any of them."""

    async def main() -> None:
        async with simulated(Simulator(rows=rows)) as session:
            given = [batch async for batch in blocks(session).batches(size)]
            assert numbers([row for batch in given for row in batch], rows) == [*range(rows)]
            assert [len(batch) for batch in given[:-1]] == [size or 7] * (len(given) - 1)
            assert all(0 < len(batch) <= (size or 7) for batch in given)
            pages, read = blocks(session), 0
            async for batch in pages.batches(size):
                read += len(batch)
                assert pages.checkpoint.rows == read
                if read >= stop * (size or 7):
                    break
            rest = await blocks(session, resume=pages.checkpoint).collect()
            assert numbers(rest, rows) == [*range(read, rows)]

    run(main())


@pytest.mark.parametrize("size", [3, 10, 50])
@pytest.mark.parametrize("prefetch", [0, 3])
async def test_an_error_comes_behind_the_rows_before_it(size: int, prefetch: int) -> None:
    """All rows before a failing page are given; the error follows, and its checkpoint is behind them."""
    simulator = Simulator(rows=40, faults=[Fault(at=3, status=500)])
    async with simulated(simulator, max_attempts=1) as session:
        pages, rows = blocks(session, prefetch=prefetch), list[Any]()

        async def read() -> None:
            async for batch in pages.batches(size):
                rows.extend(batch)
                await asyncio.sleep(1)  # pages ahead arrive

        with pytest.raises(ServerError) as caught:
            await read()
        assert numbers(rows) == [*range(14)]
        assert caught.value.checkpoint == pages.checkpoint
        assert pages.checkpoint.rows == 14
        await read()  # the stream was left in place
        assert numbers(rows) == [*range(40)]


@pytest.mark.parametrize(("size", "sizes"), [(14, [14, 14, 2]), (None, [4, 7, 7, 7, 5])])
@pytest.mark.parametrize("reader", ["batches", "arrow_batches"])
async def test_a_cancelled_batch_is_continued(reader: str, size: int | None, sizes: list[int]) -> None:
    """A wait that is cancelled inside a batch loses no row; no smaller batch or other reader skips one."""
    given = list[Any]()

    def batches(pages: Blocks, *arguments: Any) -> Any:
        return getattr(pages, reader)(*arguments)

    async def read(pages: Blocks) -> None:
        async for batch in batches(pages, 10):
            given.append(batch)

    async with cancelled(blocks, read) as (session, pages):
        assert [numbers(batch) for batch in given] == [[*range(10)]]
        assert pages.checkpoint.rows == 10
        assert numbers(await blocks(session, resume=pages.checkpoint).collect()) == [*range(10, 40)]
        with pytest.raises(PagingError, match="has taken 4 rows: read on with a size of as many or more"):
            await anext(batches(pages, 3))
        others = [pages.first(), pages.to_arrow(), anext(pages), anext(pages.items())]
        for other in (*others, anext(batches(pages, 10, 3))):
            with pytest.raises(PagingError, match=rf"inside a batch|read on with {reader}\(\)") as caught:
                await other
            assert caught.value.checkpoint == pages.checkpoint
        rest = [batch async for batch in batches(pages, size)]
        assert [len(batch) for batch in rest] == sizes
        assert [number for batch in rest for number in numbers(batch)] == [*range(10, 40)]


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


@pytest.mark.parametrize("taking", [Pages.items, Pages.batches])
async def test_a_reader_that_was_replaced_takes_no_rows(taking: Callable[[Blocks], Any]) -> None:
    """Rows or batches whose stream another reader takes over end with an error; that one has all rows."""
    async with simulated(Simulator(rows=40)) as session:
        pages = blocks(session)
        first, second = taking(pages), pages.items()
        begun = await anext(first)
        rows = [*(begun if isinstance(begun, list) else [begun]), await anext(second), *await anext(pages)]
        for replaced in (first, second):
            with pytest.raises(PagingError, match="another reader"):
                await anext(replaced)
        assert numbers([*rows, *await pages.collect()]) == [*range(40)]


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


@pytest.mark.parametrize(("left", "given"), [("items", 1), ("batches", 100), ("arrow_batches", 200)])
async def test_not_beyond_the_limit_of_the_last_reader(left: str, given: int) -> None:
    """A reader with a limit that was left by `break` does not change how far the next ones fetch ahead."""
    simulator = Simulator(points=1_000)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=4)
        async for _ in getattr(pages, left)(limit=200):
            break
        assert len(await pages.collect(limit=250)) == 250
        await asyncio.sleep(60)
        requests = (given + 250 + 99) // 100
        assert simulator.stats.requests == requests
        rest = len(await anext(pages)) + len(await anext(pages))
        await asyncio.sleep(60)
        assert simulator.stats.requests == requests + 1 + 4
        assert rest + len(await pages.collect()) == 750 - given


async def test_token_that_ages_in_the_buffer() -> None:
    """A page fetched in time is given although its token has died since; the next step restarts."""
    simulator = Simulator(points=450)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=1)
        points = [*await anext(pages)]
        await asyncio.sleep(24 * 3600)
        points += await anext(pages)
        await asyncio.sleep(1)
        assert (pages.restarts, simulator.stats.requests) == (0, 2)  # with a dead token nothing is fetched
        points += await pages.collect()
    assert (pages.restarts, simulator.stats.answered[400]) == (1, 0)
    assert len({point.timestamp for point in points}) == len(points) == 450


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
    session = simulated(simulator)
    before = asyncio.all_tasks()

    async def read() -> None:
        pages = session.metrics.avg_tps(43114, prefetch=2)
        async for _ in pages.items() if rows else pages:
            await asyncio.sleep(5)
            assert session.quota["metrics"].in_flight == 1
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
    simulator = Simulator(points=1_000, latency=10.0)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=4)
        await cancel_after(reader(pages), 16)  # the second page is on its way
        assert simulator.stats.requests == 2
        await asyncio.sleep(1_000)
        assert simulator.stats.requests == 5
        rows = pages.checkpoint.rows
        assert len(await pages.collect()) == 1_000 - rows
    assert simulator.stats.requests == 10


async def test_each_page_may_be_read_by_a_task_of_its_own() -> None:
    """Pages are fetched ahead also where each one is read by a task of its own."""
    simulator = Simulator(points=1_000, latency=1.0)
    async with simulated(simulator) as session:
        pages = session.metrics.avg_tps(43114, prefetch=3)
        await asyncio.create_task(waits(pages))
        await asyncio.sleep(60)
        assert simulator.stats.requests == 5


async def test_reader_may_go_on_while_it_is_cancelled() -> None:
    """A task that reads on after it was cancelled gets its pages, ahead as before."""
    simulator = Simulator(points=1_000, latency=10.0)
    async with simulated(simulator) as session:
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
    assert simulator.stats.requests == 10
    assert asyncio.get_running_loop().time() < 200
