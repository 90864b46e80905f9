"""Split: ranges of one list that hold each row once, and walk side by side."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from functools import reduce
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from chainapi import ROUTES, Checkpoint, Pages, merge
from chainapi.errors import ArgumentError, CheckpointError, ConfigurationError, PagingError
from chainapi.simulator import Simulator
from chainapi.testing import run
from tests.documents import Maker, values
from tests.ledger import ADDRESS, Ledger, ids, point, transfer
from tests.sessions import reaching, simulated

DAY = 86_400
NUMBERS = st.lists(st.integers(0, 60), max_size=80).map(sorted)


def transfers(session: Any, **arguments: Any) -> Pages[Any]:
    """Return the stream of the transfers of a ledger."""
    arguments = {"page_size": 7, **arguments}
    pages: Pages[Any] = session.data.evm.erc20_transactions(43114, ADDRESS, **arguments)
    return pages


async def walked(parts: Sequence[Pages[Any]]) -> list[Any]:
    """Return the rows of streams that are walked side by side."""
    rows: list[Any] = []
    async with aclosing(merge(parts)) as merged:
        async for _, page in merged:
            rows += page.items
    return rows


@settings(max_examples=60)
@given(
    numbers=NUMBERS,
    ranges=st.integers(1, 12),
    ends=st.tuples(st.booleans(), st.booleans()),
    start=st.none() | st.integers(0, 60),
    end=st.none() | st.integers(0, 60),
    taken=st.just(0) | st.integers(0, 40),
    lifetime=st.sampled_from([86_400.0, 0.1]),
)
@example([*range(60)], 3, (False, True), None, None, 14, 86_400.0)  # behind whole pages
@example([*range(60)], 3, (False, True), None, None, 14, 0.1)
def test_ranges_hold_each_row_once(
    numbers: list[int],
    ranges: int,
    ends: tuple[bool, bool],
    start: int | None,
    end: int | None,
    taken: int,
    lifetime: float,
) -> None:
    """Ranges have the rows of their list once, however it counts its ends, also if each is resumed alone."""
    assume(start is None or end is None or start <= end)

    async def scenario() -> None:
        ledger = Ledger(numbers, first_in=ends[0], last_in=ends[1])
        arguments = {"start_block": start, "end_block": end}
        async with reaching(ledger) as session:
            whole = Counter(ids(await transfers(session, **arguments).collect()))
            parts = await transfers(session, **arguments).split(ranges)
            assert len(parts) <= ranges
            ledger.lifetime = lifetime if taken else 86_400.0
            rows = [row for part in parts for row in (await part.collect(taken) if taken else [])]
            texts = [part.checkpoint.dumps() for part in parts]
        await asyncio.sleep(1)
        async with reaching(ledger) as session:
            resumed = [transfers(session, **arguments, resume=Checkpoint.loads(text)) for text in texts]
            found = Counter(ids(rows + await walked(resumed)))
        # A list without an order repeats rows if a token dies after a resume.
        assert (found == whole) if ledger.lifetime > 1 else (found.keys() == whole.keys())

    run(scenario())


@settings(max_examples=30)
@given(numbers=NUMBERS, step=st.integers(1, 40), ascending=st.booleans())
def test_ranges_one_after_the_other_keep_the_order(numbers: list[int], step: int, ascending: bool) -> None:
    """Ranges of some blocks each are in the order of the list, newest or oldest first."""

    async def scenario() -> None:
        path = "/v1/chains/{chainId}/addresses/{address}/transactions"
        row = transfer(0, 0)

        def make(number: int, serial: int) -> dict[str, Any]:
            native = {**row, "blockNumber": str(number), "txHash": f"0x{serial}", "blockTimestamp": number}
            return {"nativeTransaction": {**NATIVE, **native}}

        assert ROUTES["data.evm.address_transactions"].record.path == path
        ledger = Ledger(numbers, make)
        async with reaching(ledger) as session:
            pages = session.data.evm.address_transactions(
                43114, ADDRESS, sort_order="asc" if ascending else "desc", start_block=0
            )
            rows: list[Any] = []
            async for part in pages.split(blocks=step):
                rows += await part.collect()
        serials = list(range(len(numbers)))
        assert ids([row.native_transaction for row in rows]) == (serials if ascending else serials[::-1])

    run(scenario())


NATIVE = {
    "blockHash": "0x1",
    "blockIndex": 0,
    "txStatus": "1",
    "txType": 0,
    "gasLimit": "1",
    "gasUsed": "1",
    "gasPrice": "1",
    "nonce": "1",
    "value": "1",
}


async def test_eight_ranges_walk_side_by_side() -> None:
    """Eight ranges of evenly filled numbers take an eighth of the round trips of one walk."""
    ledger = Ledger(list(range(800)))
    async with reaching(ledger) as session:
        loop = asyncio.get_running_loop()
        began = loop.time()
        whole = await transfers(session, page_size=10).collect()
        one = loop.time() - began
        began = loop.time()
        parts = await transfers(session, page_size=10, start_block=0, end_block=800).split(8)
        rows = await walked(parts)
        eight = loop.time() - began
    assert sorted(ids(rows)) == sorted(ids(whole))
    assert one == pytest.approx(80 * 0.02)
    # Seven ranges have one row of their neighbor more, which takes a page of its own.
    assert eight == pytest.approx(11 * 0.02)


async def test_an_open_end_belongs_to_the_newest_range() -> None:
    """Rows that the list gains after the split are in the range with the open end, each once."""
    ledger = Ledger(list(range(100)))
    async with reaching(ledger) as session:
        parts = await transfers(session).split(4)
        assert len(ledger.requests) == 1
        assert ledger.requests[0]["pageSize"] == "1"
        ledger.numbers += range(100, 150)
        newest, *older = parts
        rows = await newest.collect()
        assert ids(rows) == list(range(75, 150))[::-1]
        assert len(await walked(older)) == 75


async def test_an_open_start_is_asked_for_where_the_route_has_an_order() -> None:
    """A route with sort_order= learns its oldest and newest row by one request of one row each."""

    def make(number: int, serial: int) -> dict[str, Any]:
        native = {**transfer(number, serial), **NATIVE, "blockTimestamp": number}
        return {"nativeTransaction": native}

    ledger = Ledger(list(range(1_000, 1_100)), make)
    async with reaching(ledger) as session:
        parts = await session.data.evm.address_transactions(43114, ADDRESS).split(2)
        asked = [(one["pageSize"], one["sortOrder"]) for one in ledger.requests]
        assert asked == [("1", "desc"), ("1", "asc")]
        assert [len(await part.collect()) for part in parts] == [50, 50]


async def test_a_list_by_time_needs_its_start() -> None:
    """A list by time without an order to choose has to be given its start."""
    ledger = Ledger([DAY * day for day in range(50)], point, "results")
    async with reaching(ledger) as session:
        with pytest.raises(ConfigurationError, match="pass start_timestamp="):
            session.metrics.chains.metric(43114, "activeAddresses").split(4)
        assert not ledger.requests
        parts = await session.metrics.chains.metric(43114, "activeAddresses", start_timestamp=0).split(4)
        points = await walked(parts)
    assert sorted(row.timestamp for row in points) == [DAY * day for day in range(50)]
    borders = [int(one["endTimestamp"]) for one in ledger.requests if "endTimestamp" in one]
    assert borders
    assert not any(border % DAY for border in borders)


async def test_days_have_their_borders_at_midnight() -> None:
    """Ranges of some days have their borders at multiples of them, in UTC."""
    ledger = Ledger([DAY * day for day in range(10)], point, "results")
    async with reaching(ledger) as session:
        pages = session.metrics.chains.metric(43114, "activeAddresses", start_timestamp=5)
        parts = await pages.split(days=3)
        found = [[row.timestamp // DAY for row in await part.collect()] for part in parts]
    assert found == [[9], [8, 7, 6], [5, 4, 3], [2, 1]]


async def test_an_empty_list_is_one_range() -> None:
    """A list without a row to ask for is one range, which has the rows that come later."""
    ledger = Ledger([])
    async with reaching(ledger) as session:
        (part,) = await transfers(session).split(8)
        ledger.numbers += [5, 6]
        assert ids(await part.collect()) == [1, 0]


async def test_a_dead_token_restarts_its_range_alone() -> None:
    """A range whose token expires begins again at its own end, and gives no row twice."""
    ledger = Ledger([DAY * day for day in range(60)], point, "results", lifetime=100.0)
    async with reaching(ledger) as session:
        pages = session.metrics.chains.metric(43114, "activeAddresses", start_timestamp=0, page_size=5)
        older = (await pages.split(2))[1]
        rows = [row async for row in older.items(limit=7)]
        await asyncio.sleep(200)
        before = len(ledger.requests)
        rows += await older.collect()
    assert [row.timestamp // DAY for row in rows] == list(range(29))[::-1]
    restarted = [one for one in ledger.requests[before:] if "pageToken" not in one]
    assert restarted
    assert all(int(one["endTimestamp"]) <= 29 * DAY for one in restarted)


async def test_a_service_that_ignores_the_range_is_found() -> None:
    """A row far beyond its range is an error with a remedy, not a walk that reads the list eight times."""
    ledger = Ledger(list(range(100)), bounds=False)
    async with reaching(ledger) as session:
        parts = await transfers(session).split(4)
        with pytest.raises(
            PagingError, match=r"far beyond the range from 50 to 75.*to another target"
        ) as caught:
            await parts[1].collect()
    assert caught.value.call is not None


async def test_pages_of_a_neighbor_alone_are_no_loop() -> None:
    """A range may begin with pages of its neighbor alone, also if all pages have one token."""
    ledger = Ledger([one // 30 for one in range(120)], last_in=True, scrolls=True)
    async with reaching(ledger) as session:
        rows = [row async for part in transfers(session).split(4) for row in await part.collect()]
    assert ids(rows) == list(range(120))[::-1]


async def test_lists_without_a_range_are_refused() -> None:
    """A list without start and end, or with sums over weeks, names the lists that can be split."""
    async with reaching(Ledger([])) as session:
        for pages in (
            session.data.evm.blocks(43114),
            session.data.list("/v1/chains/43114/blocks"),
            session.metrics.subnets.validators("a"),
            session.metrics.chains.metric(43114, "txCount", time_interval="week"),
            session.data.primary_network.transactions("mainnet", "p-chain", start_timestamp=1),
        ):
            with pytest.raises(ConfigurationError, match="start_block= and end_block="):
                pages.split(8)


async def test_arguments_are_checked_at_once() -> None:
    """Wrong arguments are errors of the call, before anything is sent."""
    ledger = Ledger(list(range(100)))
    async with reaching(ledger) as session:
        pages = transfers(session)
        wrong: list[dict[str, Any]] = [{}, {"ranges": 2, "blocks": 5}]
        for arguments in wrong:
            with pytest.raises(ConfigurationError, match="one of ranges=, blocks= and days="):
                pages.split(**arguments)
        wrong = [{"ranges": 0}, {"ranges": True}, {"blocks": 1.5}, {"days": "1"}, {"days": 1e-9}]
        for arguments in wrong:
            with pytest.raises(ArgumentError):
                pages.split(**arguments)
        with pytest.raises(ConfigurationError, match="days do not fit a list by block: split it by blocks"):
            pages.split(days=1)
        series = session.metrics.chains.metric(43114, "txCount", start_timestamp=0)
        with pytest.raises(ConfigurationError, match="blocks do not fit a list by day: split it by days"):
            series.split(blocks=1)
        with pytest.raises(ArgumentError, match="whole number"):
            series.split(days=0.5)
        assert not ledger.requests
        for end in (10**9, 2**64):
            with pytest.raises(ConfigurationError, match=rf"these are {end + 1} ranges, more than 100000"):
                await transfers(session, start_block=0, end_block=end).split(blocks=1)
        await pages.first()
        with pytest.raises(PagingError, match="before"):
            pages.split(8)


async def test_a_range_belongs_to_its_method() -> None:
    """A checkpoint of a range is refused by a method that cannot bound the list."""
    async with reaching(Ledger(list(range(100)))) as session:
        part = (await transfers(session).split(2))[1]
        await part.first()
        path = f"/v1/chains/43114/addresses/{ADDRESS}/transactions:listErc20"
        with pytest.raises(CheckpointError, match="one range"):
            session.data.list(path, page_size=7, resume=part.checkpoint)


async def test_every_list_with_a_range_splits() -> None:
    """Each list that declares a range has its rows, each once, in the ranges of the simulator."""
    failures = []
    for name, endpoint in ROUTES.items():
        ranged = endpoint.record.ranged
        if ranged is None:
            continue
        simulator = Simulator(rows=120, points=120, epoch=20_000 * DAY, forbidden=())
        given = values(endpoint, Maker(0), optional=False)
        if "chain_id" in given:
            given["chain_id"] = 43114
        if ranged.unit != "blocks":
            given["start_timestamp"] = 1
        if name == "data.primary_network.transactions":  # without addresses it takes no times
            given["addresses"] = "avax1"
        async with simulated(simulator) as session:
            method: Any = reduce(getattr, name.split("."), session)
            whole = await method(**given).collect()
            parts = await method(**given).split(5)
            rows = [row for part in parts for row in await part.collect()]
        if len(parts) < 2 or len(whole) <= 100 or Counter(map(repr, rows)) != Counter(map(repr, whole)):
            failures.append(f"{name}: {len(rows)} rows of {len(whole)} in {len(parts)} ranges")
    assert not failures
