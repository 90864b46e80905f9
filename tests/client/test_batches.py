"""Reading of streams: the first row, some rows, and batches, each row once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi import Pages, Session
from chainapi.errors import ConfigurationError, PagingError, ServerError
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from tests.sessions import simulated

BLOCKS = "/v1/chains/43114/blocks"


def blocks(session: Session, **options: Any) -> Pages[dict[str, Any]]:
    """Return a stream of blocks in pages of seven rows."""
    return session.data.list(BLOCKS, page_size=7, descending_key="blockNumber", **options)


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


@pytest.mark.parametrize("limit", [1, 6, 7, 8, 40, 99])
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


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "5"])
async def test_wrong_sizes_are_refused_at_once(wrong: Any) -> None:
    """A limit or a size that is no whole number above 0 raises before anything is read."""
    async with simulated(Simulator()) as session:
        for read in (blocks(session).items, blocks(session).batches):
            with pytest.raises(ConfigurationError):
                read(wrong)
        with pytest.raises(ConfigurationError, match="limit"):
            blocks(session).batches(limit=wrong)


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


@pytest.mark.parametrize("limit", [1, 6, 7, 8, 20, 40, 99])
@pytest.mark.parametrize("size", [None, 3, 10, 50])
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


async def test_limit_begins_at_no_unfinished_batch() -> None:
    """A limit inside an unfinished batch is refused: its rows could be more than the limit."""
    simulator = Simulator(rows=40, faults=[Fault(at=2, stall=True)])
    async with simulated(simulator) as session:
        pages = blocks(session)
        assert await cancelled_inside_a_batch(pages) == []
        with pytest.raises(PagingError, match="batch"):
            await anext(pages.batches(10, limit=5))


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


async def cancelled_inside_a_batch(pages: Pages[Any]) -> list[Any]:
    """Read batches of ten until a page takes too long; return the rows given."""
    given: list[Any] = []
    try:
        async with asyncio.timeout(20):
            async for batch in pages.batches(10):
                given += batch
    except TimeoutError:
        pass
    return given


async def test_a_cancelled_batch_is_continued() -> None:
    """A wait that is cancelled inside a batch loses no row: checkpoint and next reader begin with it."""
    simulator = Simulator(rows=40, faults=[Fault(at=3, slow=1_000.0)])
    async with simulated(simulator, timeout=5_000) as session:
        pages = blocks(session)
        given = await cancelled_inside_a_batch(pages)
        assert numbers(given) == [*range(10)]
        assert pages.checkpoint.rows == 10
        resumed = await blocks(session, resume=pages.checkpoint).collect()
        assert numbers(resumed) == [*range(10, 40)]
        rest = [batch async for batch in pages.batches(10)]
        assert [numbers(batch) for batch in rest] == [[*range(10, 20)], [*range(20, 30)], [*range(30, 40)]]


@pytest.mark.parametrize("limit", [None, 20, 14])
@pytest.mark.parametrize("progress", [True, False])
async def test_a_cancelled_list_is_continued(limit: int | None, progress: bool) -> None:
    """A `collect()` after a cancelled one has the rows of both: a partial list is never returned."""
    simulator = Simulator(rows=40, faults=[Fault(at=3, slow=1_000.0)])
    async with simulated(simulator, timeout=5_000) as session:
        pages = blocks(session)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await pages.collect(progress=progress)
        assert pages.checkpoint.rows == 0
        assert numbers(await blocks(session, resume=pages.checkpoint).collect()) == [*range(40)]
        rows = await pages.collect(limit, progress=progress)
        assert pages.checkpoint.rows == len(rows) == (limit or 40)
        assert numbers(rows + await pages.collect()) == [*range(40)]


async def test_a_cancelled_list_is_returned_in_pieces() -> None:
    """Smaller limits return the rows of a cancelled `collect()` in order; a resume may repeat some."""
    simulator = Simulator(rows=40, faults=[Fault(at=3, slow=1_000.0)])
    async with simulated(simulator, timeout=5_000) as session:
        pages = blocks(session)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await pages.collect()
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
    simulator = Simulator(rows=40, faults=[Fault(at=3, slow=1_000.0), Fault(at=5, status=500)])
    async with simulated(simulator, timeout=5_000, max_attempts=1) as session:
        pages = blocks(session)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await pages.collect()
        with pytest.raises(ServerError) as caught:
            await pages.collect()
        assert numbers(caught.value.partial) == [*range(21)]
        assert caught.value.checkpoint == pages.checkpoint
        assert numbers(await pages.collect()) == [*range(21, 40)]


async def test_other_readers_do_not_skip_an_unfinished_batch() -> None:
    """Readers of pages and rows refuse to read on inside a batch, at the checkpoint before it."""
    simulator = Simulator(rows=40, faults=[Fault(at=3, slow=1_000.0)])
    async with simulated(simulator, timeout=5_000) as session:
        pages = blocks(session)
        await cancelled_inside_a_batch(pages)
        for read in (pages.first(), anext(pages), anext(pages.items())):
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


async def test_a_closed_stream_gives_no_more_batches() -> None:
    """After `aclose()` batches end."""
    async with simulated(Simulator(rows=40)) as session:
        pages = blocks(session)
        given = []
        async for batch in pages.batches(10):
            given.append(batch)
            await pages.aclose()
        assert [len(batch) for batch in given] == [10]
