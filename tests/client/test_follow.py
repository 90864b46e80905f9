"""Follow: new rows of a list, each once and oldest first, as the list grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import ROUTES, Cache, Checkpoint, LimiterOptions, Pages, Session, merge
from chainapi.errors import (
    APITimeoutError,
    ArgumentError,
    CheckpointError,
    ConfigurationError,
    PageTokenExpiredError,
    PagingError,
    ServerError,
    SessionClosedError,
)
from chainapi.testing import run
from chainapi.transport import Request, Response
from tests.client.test_split import NATIVE
from tests.documents import Maker
from tests.ledger import ADDRESS, Ledger, block, point, transfer
from tests.sessions import reaching

DAY = 86_400
Open = Callable[..., Pages[Any]]

# Times and numbers of the rows that a list gains: several may come at once, and share a number.
GROWTH = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=10)

NUMBERS = st.lists(st.integers(0, 9), max_size=9).map(sorted)


def schedule(steps: list[tuple[int, int]], newest: int) -> list[tuple[float, int]]:
    """Return when each row comes, and its number, which never falls."""
    grown, now = list[tuple[float, int]](), 0.0
    for wait, step in steps:
        now, newest = now + wait, newest + step
        grown.append((now, newest))
    return grown


def blocks(session: Session, **arguments: Any) -> Pages[Any]:
    """Return a list in descending order without a start."""
    return session.data.evm.blocks(43114, **dict[str, Any]({"page_size": 4} | arguments))


def transfers(session: Session, **arguments: Any) -> Pages[Any]:
    """Return a list with a start, in no order that is known."""
    return session.data.evm.erc20_transactions(43114, ADDRESS, **dict[str, Any]({"page_size": 4} | arguments))


def serials(rows: list[Any]) -> list[int]:
    """Return what identifies each row."""
    return [int(getattr(row, "tx_hash" if hasattr(row, "tx_hash") else "block_hash")[2:]) for row in rows]


async def taken(stream: AsyncIterator[Any], seconds: float) -> list[Any]:
    """Return the rows that come within some seconds."""
    rows: list[Any] = []
    try:
        async with asyncio.timeout(seconds):
            async for row in stream:
                rows.append(row)  # noqa: PERF401 - the timeout keeps those that came
    except TimeoutError:
        pass
    return rows


_INTERNAL = Maker(1, whole=True).page(ROUTES["data.evm.internal_transactions"], 1)["transactions"][0]

LISTS = st.sampled_from([("blocks", False), ("blocks", True), ("transfers", False), ("transfers", True)])


def ledger_of(kind: str, numbers: list[int], *, shifts: bool, **options: Any) -> tuple[Ledger, Open]:
    """Return a service with a list of a kind, and the method that opens the list."""
    if kind == "blocks":
        return Ledger(numbers, block, "blocks", shifts=shifts, **options), blocks
    return Ledger(numbers, transfer, shifts=shifts, **options), transfers


@settings(max_examples=40)
@given(
    kind=LISTS,
    known=NUMBERS | st.just([1, 2, 3, 3]),
    steps=GROWTH,
    stops=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=2),
    lifetime=st.sampled_from([86_400.0, 0.05]),
    statuses=st.lists(st.sampled_from([200, 429, 503]), max_size=12),
)
def test_restarts_lose_and_repeat_nothing(
    kind: tuple[str, bool],
    known: list[int],
    steps: list[tuple[int, int]],
    stops: list[tuple[int, int]],
    lifetime: float,
    statuses: list[int],
) -> None:
    """A stream continues at the exact row after the process ended, whatever the service does meanwhile."""

    async def scenario() -> None:
        grown = [(when + 1, number) for when, number in schedule(steps, max(known, default=0))]
        ledger, method = ledger_of(kind[0], list(known), shifts=kind[1], grows=grown, lifetime=lifetime)
        async with reaching(ledger) as session:
            stream = method(session).follow(every=10)
            assert await taken(stream, 0.5) == []
            checkpoint = stream.checkpoint
        # Behind a 429 requests are paced: no token of a twentieth of a second would ever arrive in time.
        ledger.statuses = [one for one in statuses if one != 429 or lifetime > 1]
        rows: list[Any] = []
        for most, pause in [*stops, (len(steps), 0)]:
            async with reaching(ledger) as session:
                stream = method(session, resume=Checkpoint.loads(checkpoint.dumps())).follow(every=40)
                rows += await some(stream, min(most, len(steps) - len(rows)))
                checkpoint = stream.checkpoint
            await asyncio.sleep(pause)
        assert serials(rows) == list(range(len(known), len(known) + len(steps)))

    run(scenario())


async def some(stream: Any, most: int) -> list[Any]:
    """Return some rows, for at most ten minutes; an error is no end, and has the position."""
    rows: list[Any] = []
    try:
        async with asyncio.timeout(600):
            while len(rows) < most:
                try:
                    rows.append(await anext(stream))
                except (ServerError, APITimeoutError, PageTokenExpiredError) as error:
                    assert error.checkpoint == stream.checkpoint  # noqa: PT017 - there may be none
    except TimeoutError:
        pass
    return rows


async def test_polls_keep_their_distance() -> None:
    """Two polls begin `every` seconds apart at least, also while rows wait to be read and after an error."""
    ledger, _ = ledger_of(
        "blocks", [1], shifts=False, grows=[(5.0 * number, number) for number in range(2, 40)]
    )
    async with reaching(ledger, max_attempts=1) as session:
        ledger.statuses = [200, 200, 503]
        stream = blocks(session, page_size=100).follow(every=20)
        rows = await some(stream, 30)
        assert len(rows) == 30
        assert [later - first for first, later in zip(ledger.sent, ledger.sent[1:], strict=False)] == [
            pytest.approx(20)
        ] * (len(ledger.sent) - 1)
        await asyncio.sleep(1_000)  # nobody reads: nothing is sent
        sent = len(ledger.sent)
        await anext(stream)
        assert len(ledger.sent) <= sent + 1


async def test_a_poll_ends_at_the_rows_that_were_given() -> None:
    """A poll reads no page behind the first row that was given before, however long the list is."""
    ledger, _ = ledger_of("blocks", list(range(1, 41)), shifts=False)
    async with reaching(ledger) as session:
        stream = blocks(session).follow(every=5)
        assert await taken(stream, 1) == []
        ledger.numbers += [41, 42]
        assert serials(await taken(stream, 4.5)) == [40, 41]
    assert len(ledger.requests) == 2


async def test_requests_have_the_lowest_priority() -> None:
    """Quota goes to every other caller first, unless the list method was given a priority."""
    for arguments, order in (({}, ["9", "4"]), ({"priority": 3}, ["4", "9"]), ({"priority": 0}, ["4", "9"])):
        ledger, _ = ledger_of("blocks", [1], shifts=False)
        ledger.headers, ledger.statuses = {"retry-after": "20"}, [200, 429]
        async with reaching(ledger, limiter=LimiterOptions(isolated=True)) as session:
            await blocks(session).first()
            refused = asyncio.ensure_future(blocks(session, page_size=1).first())  # leaves first afterwards
            await asyncio.sleep(1)
            poll = asyncio.ensure_future(taken(blocks(session, **arguments).follow(every=50), 40))
            await asyncio.sleep(1)
            await blocks(session, page_size=9, priority=-5).first()
            await asyncio.wait([refused, poll])
        assert [one["pageSize"] for one in ledger.requests] == ["4", "1", *order]


async def test_a_cache_is_no_answer_to_a_poll() -> None:
    """A view with a cache shows new rows too: polls do not read from it."""
    ledger, _ = ledger_of("blocks", [1], shifts=False)
    async with reaching(ledger) as session:
        view = session.with_options(cache=Cache(fresh=3_600))
        stream = view.data.evm.blocks(43114).follow(every=5)
        assert await taken(stream, 1) == []
        ledger.numbers += [2]
        assert serials(await taken(stream, 10)) == [1]


@pytest.mark.parametrize(
    ("kind", "after"), [("blocks", 0.0), ("blocks", 0.07), ("points", 0.01), ("points", 4.0)]
)
async def test_a_checkpoint_before_the_first_poll_has_the_history(kind: str, after: float) -> None:
    """A stream that is stopped before or inside its first poll repeats no row of the history when resumed."""
    make, items = (block, "blocks") if kind == "blocks" else (point, "results")
    ledger = Ledger([DAY * day for day in range(9)], make, items)
    async with reaching(ledger) as session:

        def opened(**arguments: Any) -> Pages[Any]:
            if kind == "blocks":
                return blocks(session, **arguments)
            return session.metrics.chains.metric(43114, "txCount", page_size=2, **arguments)

        pages = opened()
        assert len(await pages.collect()) == 9
        stream = pages.follow(every=5)
        assert await taken(stream, after) == []
        resumed = opened(resume=Checkpoint.loads(stream.checkpoint.dumps())).follow(every=5)
        ledger.numbers.append(DAY * 9)
        assert len(await taken(resumed, 60)) == 1


@pytest.mark.parametrize("after", [0.0, 0.05, 4.0])
async def test_a_longer_lookback_repeats_no_row_that_did_not_change(after: float) -> None:
    """A resume with a longer lookback takes the rows below the old one as they are, however soon it stops."""
    ledger = Ledger([DAY * day for day in range(9)], point, "results")
    async with reaching(ledger) as session:

        def opened(days: int, checkpoint: Checkpoint | None = None) -> Any:
            pages = session.metrics.chains.metric(43114, "txCount", page_size=2, resume=checkpoint)
            return pages.follow(every=5, lookback=days * DAY)

        stream = opened(1)
        assert await taken(stream, 4) == []
        stream = opened(5, stream.checkpoint)
        assert await taken(stream, after) == []
        ledger.changed[7] = {"value": 70}
        stream = opened(5, stream.checkpoint)
        assert [row.value for row in await taken(stream, 60)] == [70]


async def test_a_start_gives_the_rows_from_there_on() -> None:
    """A list with a start is followed from it: first the rows that it has, oldest first."""
    ledger, _ = ledger_of("transfers", list(range(20)), shifts=False, grows=[(50.0, 20)])
    async with reaching(ledger) as session:
        stream = transfers(session, start_block=12).follow(every=5)
        rows = [await anext(stream) for _ in range(9)]
    assert serials(rows) == list(range(12, 21))
    # A poll asks for the newest numbers alone.
    assert ledger.requests[-1]["startBlock"] == "18"


@settings(max_examples=20)
@given(
    numbers=NUMBERS,
    steps=GROWTH,
    shifts=st.booleans(),
    lifetime=st.sampled_from([86_400.0, 0.05]),
    page_size=st.integers(1, 7),
    lookback=st.integers(0, 3),
)
@example(
    numbers=[1], steps=[(50, 0), (0, 0), (0, 0)], shifts=False, lifetime=86_400.0, page_size=7, lookback=0
)
def test_an_ascending_list_keeps_its_order(
    numbers: list[int],
    steps: list[tuple[int, int]],
    shifts: bool,
    lifetime: float,
    page_size: int,
    lookback: int,
) -> None:
    """Rows of a list with its oldest rows first come once and in this order, those of one number too."""

    async def scenario() -> None:
        grown = schedule(steps, max(numbers, default=0))
        ledger = Ledger(list(numbers), _address_transaction, grows=grown, shifts=shifts, lifetime=lifetime)
        async with reaching(ledger) as session:
            pages = session.data.evm.address_transactions(
                43114, ADDRESS, sort_order="asc", start_block=0, page_size=page_size
            )
            stream = pages.follow(every=7, lookback=lookback)
            rows = await taken(stream, sum(wait for wait, _ in steps) + 60)
        assert serials([row.native_transaction for row in rows]) == list(range(len(numbers) + len(steps)))

    run(scenario())


def _address_transaction(number: int, serial: int) -> dict[str, Any]:
    return {"nativeTransaction": _transaction(number, serial)}


@settings(max_examples=20)
@given(
    changes=st.lists(st.tuples(st.integers(0, 9), st.integers(100, 103)), max_size=8),
    lookback=st.integers(0, 4),
    resumed=st.booleans(),
)
def test_lookback_gives_changed_rows_again(
    changes: list[tuple[int, int]], lookback: int, resumed: bool
) -> None:
    """A point that changed comes again while it lies within the lookback, and no other one does."""

    async def scenario() -> None:
        ledger = Ledger([DAY * day for day in range(10)], point, "results")
        async with reaching(ledger) as session:

            def opened(**arguments: Any) -> Pages[Any]:
                return session.metrics.chains.metric(43114, "txCount", **arguments)

            stream = opened().follow(every=10, lookback=lookback * DAY)
            assert await taken(stream, 5) == []
            for day, value in changes:
                old = ledger.changed.get(day, {}).get("value", day)
                ledger.changed[day] = {"value": value}
                if resumed:
                    text = stream.checkpoint.dumps()
                    stream = opened(resume=Checkpoint.loads(text)).follow(every=10, lookback=lookback * DAY)
                rows = await taken(stream, 15)
                expected = [(day, value)] if value != old and lookback and day >= 9 - lookback else []
                assert [(row.timestamp // DAY, row.value) for row in rows] == expected

    run(scenario())


async def test_the_newest_block_of_a_reorganisation_comes_once() -> None:
    """A block that takes the place of the newest one, with the same number, is a new row."""
    ledger, _ = ledger_of("blocks", [1, 2], shifts=False)
    async with reaching(ledger) as session:
        stream = blocks(session).follow(every=5)
        assert await taken(stream, 1) == []
        ledger.changed[1] = {"blockHash": "0x77"}
        assert serials(await taken(stream, 20)) == [77]


async def test_an_older_answer_repeats_nothing() -> None:
    """A service that shows an older state of the list for a while makes no row come twice."""
    ledger, _ = ledger_of("blocks", [1, 2, 3, 4], shifts=False)
    async with reaching(ledger) as session:
        stream = blocks(session).follow(every=5)
        ledger.grows = [(2.0, 5), (2.0, 5)]
        rows = [await anext(stream), await anext(stream)]
        newest, ledger.numbers = ledger.numbers, [1, 2, 3]
        assert await taken(stream, 20) == []
        ledger.numbers = newest
        assert await taken(stream, 20) == []
    assert serials(rows) == [4, 5]


@pytest.mark.parametrize("lookback", [0, 3])
async def test_equal_rows_come_as_often_as_the_list_has_them(lookback: int) -> None:
    """Equal rows of a list without a key come once each; a change of one comes once within the lookback."""
    ledger = Ledger([1, 1, 1], lambda number, _: {**_INTERNAL, "blockNumber": str(number)})
    async with reaching(ledger) as session:
        pages = session.data.evm.internal_transactions(43114, ADDRESS, start_block=0, page_size=2)
        stream = pages.follow(every=5, lookback=lookback)
        assert len(await taken(stream, 20)) == 3
        ledger.numbers += [1, 2, 2]
        assert len(await taken(stream, 20)) == 3
        ledger.changed[1] = {"blockHash": "0x2"}
        assert len(await taken(stream, 20)) == (1 if lookback else 0)


@pytest.mark.parametrize("kind", ["blocks", "transfers"])
async def test_a_list_that_shifts_by_many_pages_repeats_nothing(kind: str) -> None:
    """A poll that meets rows of its first pages again gives each once, and reads on behind them."""
    ledger, method = ledger_of(kind, [1], shifts=True)
    async with reaching(ledger) as session:
        stream = method(session, page_size=50).follow(every=5)
        assert await taken(stream, 4.9) == []
        ledger.numbers += range(2, 302)
        ledger.grows = [(5.05, number) for number in range(302, 502)]
        assert sorted(serials(await taken(stream, 20))) == list(range(1, 501))


async def test_the_order_may_break() -> None:
    """A page that is not in order ends the search for known rows at a page without a new one."""
    ledger, _ = ledger_of("blocks", [1, 2, 3, 5, 4, 9, 8], shifts=False)
    async with reaching(ledger) as session:
        stream = blocks(session, page_size=2).follow(every=5)
        assert await taken(stream, 1) == []
        ledger.numbers += [12, 20, 3]  # an old number at the head is no end
        before = len(ledger.requests)
        assert serials(await taken(stream, 4.5)) == [7, 8]
        assert len(ledger.requests) - before <= 3


async def test_lists_without_a_declared_order_are_checked() -> None:
    """A list without a declared order is followed while its pages fall; a page that rises is an error."""
    ledger = Ledger([1, 2, 2], _transaction)
    async with reaching(ledger) as session:
        stream = session.data.evm.transactions(43114, page_size=2).follow(every=5)
        assert await taken(stream, 1) == []
        ledger.numbers += [2, 3, 3, 4]
        assert serials(await taken(stream, 4.5)) == [3, 4, 5, 6]
        assert len(ledger.requests) == 2 + 4
        ledger.numbers += [9, 8]
        with pytest.raises(PagingError, match="newest rows come first") as caught:
            await anext(stream)
        assert caught.value.call is not None
        ledger.numbers[-2:] = [8, 9]
        assert serials(await taken(stream, 9)) == [7, 8]


def _transaction(number: int, serial: int) -> dict[str, Any]:
    return {**transfer(number, serial), **NATIVE, "blockTimestamp": number}


@pytest.mark.parametrize(("status", "seconds"), [(200, 50.0), (200, 0.01), (429, 1.0)])
async def test_a_close_ends_its_reader(status: int, seconds: float) -> None:
    """A stream that is closed while it waits, fetches or lacks quota ends its reader, and sends nothing."""
    ledger, _ = ledger_of("blocks", [1], shifts=False, grows=[(100.0, 2)])
    ledger.headers, ledger.statuses = {"retry-after": "300"}, [status]
    async with reaching(ledger) as session:
        async with blocks(session).follow(every=30) as stream:
            reader = asyncio.ensure_future(taken(stream, 1_000))
            await asyncio.sleep(seconds)
        await stream.aclose()
        await asyncio.sleep(0.01)
        assert (reader.done(), await reader, stream.exhausted) == (True, [], True)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        sent = len(ledger.sent)
        await asyncio.sleep(1_000)
        assert len(ledger.sent) == sent


async def test_nothing_is_sent_after_a_close_beside_a_page() -> None:
    """A stream that is closed while a page arrives requests no further page, and keeps its position."""

    class Closing(Ledger):
        async def send(self, request: Request) -> Response:
            response = await super().send(request)
            if len(self.sent) == 3:
                await stream.aclose()
            return response

    ledger = Closing([*range(10)], block, "blocks")
    async with reaching(ledger) as session:
        pages = blocks(session)
        await pages.first()
        stream = pages.follow(every=5)
        ledger.numbers += range(10, 20)
        assert await taken(stream, 20) == []
        assert len(ledger.sent) == 3
        resumed = blocks(session, resume=Checkpoint.loads(stream.checkpoint.dumps())).follow(every=5)
        assert serials(await taken(resumed, 20)) == list(range(10, 20))


@pytest.mark.parametrize("seconds", [0.3, 5.0])
async def test_a_poll_longer_than_its_readers_wait_gives_its_rows(seconds: float) -> None:
    """A poll whose reader was cancelled continues: many short waits get the rows that one long wait gets."""
    ledger, _ = ledger_of("blocks", [1], shifts=False)
    async with reaching(ledger) as session:
        stream = blocks(session).follow(every=5)
        assert await taken(stream, 4.9) == []
        ledger.numbers += range(2, 42)
        ledger.latency = 0.2
        began, rows = ledger.now, list[Any]()
        while len(rows) < 40 and ledger.now < began + 30:
            rows += await taken(stream, seconds)
        assert serials(rows) == list(range(1, 41))


@pytest.mark.parametrize(("status", "limit"), [(503, {}), (0, {"timeout": 10}), (0, {"deadline": 10})])
async def test_a_poll_longer_than_the_service_is_without_errors_gives_its_rows(
    status: int, limit: dict[str, float]
) -> None:
    """A poll continues after an error, so that each page with new rows is requested until it comes, once."""
    ledger, _ = ledger_of("blocks", [1], shifts=False)
    async with reaching(ledger, max_attempts=1, **limit) as session:
        stream = blocks(session).follow(every=5)
        assert await taken(stream, 4.9) == []
        ledger.numbers += range(2, 42)
        ledger.statuses = [200, 200, status] * 20
        assert serials(await some(stream, 40)) == list(range(1, 41))
        assert len(ledger.sent) == 1 + 11 + 5


async def test_waits_too_short_for_a_page_do_not_hurry_the_polls() -> None:
    """A poll that is cancelled before its page comes is repeated once at once, then after `every` seconds."""
    ledger, _ = ledger_of("blocks", [1], shifts=False, grows=[(1.0, 2)])
    async with reaching(ledger) as session:
        stream = blocks(session).follow(every=5)
        while ledger.now < 21:
            assert await taken(stream, 0.01) == []
        assert len(ledger.sent) == 6


async def test_the_newest_range_of_a_list_is_followed() -> None:
    """The range with the open end gives its own rows and those that come, also after a resume."""
    ledger, _ = ledger_of("transfers", list(range(20)), shifts=False, grows=[(50.0, 20)])
    async with reaching(ledger) as session:
        newest, *older = await transfers(session).split(4)
        stream = newest.follow(every=5, lookback=30)
        rows = [await anext(stream) for _ in range(2)]
        resume = Checkpoint.loads(stream.checkpoint.dumps())
        rows += await taken(transfers(session, resume=resume).follow(every=5, lookback=30), 100)
        assert serials(rows) == list(range(15, 21))
        with pytest.raises(ConfigurationError, match="a list with an end"):
            older[0].follow(every=5)


async def test_rows_of_one_number_keep_their_order_after_an_expired_token() -> None:
    """A poll that restarts at a head with a newer number gives the rows of the older one oldest first."""
    ledger, _ = ledger_of("blocks", [1, 2], shifts=False)
    async with reaching(ledger) as session:
        stream = blocks(session, page_size=3).follow(every=5)
        assert await taken(stream, 4.9) == []
        ledger.numbers += [5, 5, 5]
        ledger.grows, ledger.lifetime = [(5.03, 6)], 0.0
        asyncio.get_running_loop().call_at(5.05, setattr, ledger, "lifetime", DAY)
        assert serials([await anext(stream) for _ in range(4)]) == [2, 3, 4, 5]


async def test_one_reader_at_a_time() -> None:
    """A second reader is refused, and a closed session is an error of the reader."""
    ledger, _ = ledger_of("blocks", [1], shifts=False)
    async with reaching(ledger) as session:
        stream = blocks(session).follow(every=30)
        reader = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(1)
        with pytest.raises(PagingError, match="read already"):
            await anext(stream)
    with pytest.raises(SessionClosedError):
        await reader


async def test_merge_follows_many_lists() -> None:
    """Merge takes followed lists, and yields each row with its key."""
    ledger, _ = ledger_of("blocks", [1], shifts=False, grows=[(5.0, 2), (6.0, 3)])
    async with reaching(ledger) as session:
        streams = {chain: session.data.evm.blocks(chain).follow(every=3) for chain in (1, 2)}
        found: list[tuple[int, int]] = []
        async with aclosing(merge(streams)) as merged:
            async for chain, row in merged:
                found.append((chain, serials([row])[0]))
                if len(found) == 4:
                    break
    assert sorted(found) == [(1, 1), (1, 2), (2, 1), (2, 2)]


async def test_lists_that_cannot_be_followed() -> None:
    """A list without a number, with an end, or a position without one, is refused with a remedy."""
    ledger, _ = ledger_of("transfers", [1, 2, 3], shifts=False)
    async with reaching(ledger) as session:
        with pytest.raises(ConfigurationError, match=r"descending_key="):
            session.data.evm.erc20_balances(43114, ADDRESS).follow(every=5)
        with pytest.raises(ConfigurationError, match="leave out end_block="):
            transfers(session, end_block=5).follow(every=5)
        for arguments in ({"every": 0}, {"every": 5, "lookback": -1}, {"every": 5, "lookback": True}):
            with pytest.raises(ArgumentError):
                transfers(session).follow(**arguments)
        pages = transfers(session)
        await pages.collect()
        with pytest.raises(CheckpointError, match="kept no block_number"):
            pages.follow(every=5)
        ledger.make = _address_transaction  # its walk keeps timestamps, and is followed by blocks
        method = session.data.evm.address_transactions
        with pytest.raises(PagingError, match="newest rows come first"):
            await anext(method(43114, ADDRESS, sort_order="asc").follow(every=5))
        pages = method(43114, ADDRESS, sort_order="desc")
        await pages.collect()
        with pytest.raises(CheckpointError, match=r"kept no native_transaction\.block_number"):
            pages.follow(every=5)
        ledger.make = transfer
        stream = transfers(session).follow(every=5)
        assert await taken(stream, 1) == []
        with pytest.raises(CheckpointError, match="call follow"):
            await transfers(session, resume=stream.checkpoint).collect()
        assert "0 rows" in repr(stream)


async def test_a_list_by_path_is_followed_by_the_order_that_the_caller_names() -> None:
    """A list without a declared order is followed by the number that the caller names."""
    ledger, _ = ledger_of("blocks", [1, 2], shifts=False)
    async with reaching(ledger) as session:

        def opened(**arguments: Any) -> Pages[Any]:
            path = "/v1/chains/43114/blocks"
            return session.data.list(path, key="blockHash", page_size=4, **arguments)

        stream = opened(descending_key="blockTimestamp").follow(every=5)
        assert await taken(stream, 1) == []
        ledger.numbers += [2, 3]
        rows = [await anext(stream), await anext(stream)]
        assert [row["blockHash"] for row in rows] == ["0x2", "0x3"]
        with pytest.raises(CheckpointError, match="by the same number"):
            opened(descending_key="blockNumber", resume=stream.checkpoint).follow(every=5)
