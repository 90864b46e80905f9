"""Reading of streams: the first row, some rows, and batches, each row once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Pages, Session
from chainapi.errors import PagingError, ServerError
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from tests.sessions import cancelled, simulated

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
