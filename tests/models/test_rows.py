"""Rows that break a service's promises: none is lost, and events report it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import product
from random import Random
from typing import Any

import pytest
from attrs import field, frozen, make_class

from chainapi import ROUTES, Checkpoint, Pages, Session
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.events import Event, KeyNotUnique, OrderBroken, Restarted
from chainapi.models import InternalTransaction, NativeTransaction
from tests.documents import Maker
from tests.models.lists import ListService
from tests.sessions import reaching

Json = dict[str, Any]
ROWS = "/v1/rows"


def session_of(service: ListService, heard: list[Event] | None = None) -> Session:
    """Return a session on a service in memory that appends its events to `heard`."""
    return reaching(service, on_event=None if heard is None else heard.append)


def kinds(heard: Iterable[Event]) -> list[str]:
    """Return the types of the events about the list, in order."""
    return [
        type(event).__name__ for event in heard if isinstance(event, KeyNotUnique | OrderBroken | Restarted)
    ]


def counted(rows: Iterable[Json]) -> Counter[str]:
    """Count rows by all that they hold."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


async def read_through(
    how: str, service: ListService, walk: Callable[..., Pages[Any]], limits: Sequence[int]
) -> list[Any]:
    """Read a list at once, or up to limits, with a restart or a resume at each."""
    pages, rows = walk(), []
    for limit in () if how == "once" else limits:
        rows += await pages.collect(limit=limit)
        if how == "restart":
            service.forget()
        else:
            pages = walk(resume=Checkpoint.loads(pages.checkpoint.dumps()))
    return rows + await pages.collect()


HOWS = ("once", "restart", "resume")


# Equal rows are rows


def internal_transactions() -> list[Json]:
    """Return 1,000 internal transactions: ten equal ones in each transaction."""
    model: Any = ROUTES["data.evm.internal_transactions"].route.model
    made = Maker(seed=7, whole=True).value(model)
    return [{**made, "txHash": f"0x{index // 10:x}", "blockNumber": "5"} for index in range(1_000)]


def hashes(rows: Iterable[InternalTransaction]) -> Counter[str]:
    """Count rows by their transaction."""
    return Counter(row.tx_hash for row in rows)


TEN_EACH = Counter({f"0x{index:x}": 10 for index in range(100)})


async def test_equal_internal_transactions_are_all_given() -> None:
    """Equal rows are all yielded, by each reader, also over restarts and resumes."""
    for size in (7, 100):
        service = ListService(internal_transactions(), size, "transactions")
        heard: list[Event] = []
        async with session_of(service, heard) as session:
            walk = partial(session.data.evm.internal_transactions, 43114, "0xabc", page_size=None)
            assert hashes([row async for row in walk().items()]) == TEN_EACH
            assert hashes([row async for page in walk() for row in page]) == TEN_EACH
            for how, limit in product(HOWS, (5, 104, 850, 999)):
                if size > 7 or limit == 104:
                    assert hashes(await read_through(how, service, walk, [limit])) == TEN_EACH, (how, limit)
        assert {event.exact for event in heard if isinstance(event, Restarted)} == {True}


@frozen
class Narrow:
    """Model of two fields of a row."""

    block_number: int
    value: str


@pytest.mark.parametrize("how", HOWS)
async def test_a_model_of_two_fields_keeps_all_rows(how: str) -> None:
    """A model that makes rows equal loses none, as the bytes that were sent differ."""
    draw = Random(4)
    rows: list[Json] = [
        {"blockNumber": draw.randrange(20), "value": str(draw.randrange(9)), "txHash": f"0x{index}"}
        for index in range(250)
    ]
    service = ListService(rows, 25)
    async with session_of(service) as session:
        walk = partial(session.data.list, ROWS, model=Narrow)
        got = await read_through(how, service, walk, [60, 77])
    assert Counter(got) == Counter(Narrow(row["blockNumber"], row["value"]) for row in rows)
    assert len(set(got)) < 180


@pytest.mark.parametrize("by", [1, 9, 128, 149, 290])
async def test_rows_that_a_shifted_list_repeats(by: int) -> None:
    """A list that shifts by any number of rows repeats none that has a key."""
    service = ListService([{"id": index} for index in range(300)], 10 if by < 10 else 150, by="position")
    news = [{"id": -index} for index in range(1, by + 1)]
    service.expect = lambda number: service.grow(news) if number == 1 else None
    async with session_of(service) as session:
        rows = [row["id"] for row in await session.data.list(ROWS, key="id").collect()]
    assert len(rows) == len({*rows})
    assert {*range(300)} <= {*rows} <= {*range(-by, 300)}


# Keys


async def test_one_hash_on_three_chains() -> None:
    """Transactions with one hash on three chains are three rows of all chains."""
    model: Any = ROUTES["data.evm.transactions_of_all_chains"].route.model
    made = Maker(seed=5, whole=True).value(model)
    rows = [{**made, "txHash": "0xsame", "chainId": str(chain)} for chain in (1, 43114, 43113)]
    async with session_of(ListService(rows, 1, "transactions")) as session:
        got: list[NativeTransaction] = await session.data.evm.transactions_of_all_chains().collect()
    assert [row.chain_id for row in got] == [1, 43114, 43113]


NESTED = [{"a": {"b": index // 10, "c": {"d": index % 10}}, "e": [index // 50]} for index in range(100)]


@pytest.mark.parametrize(
    "key", [["a.b", "a.c.d"], ("a.c", "a.b"), ["a"], "a", ["e", "a.b", "a.c.d"], ["a.c.d", "a.b"]]
)
async def test_keys_of_the_caller(key: str | Sequence[str]) -> None:
    """`key=` accepts a name, several names, and dotted paths; a part may be an object."""
    service = ListService(deepcopy(NESTED), 10, by="position")
    service.expect = lambda number: (
        service.grow([{"a": {"b": -1, "c": {"d": -number}}, "e": [0]}]) if 0 < number < 6 else None
    )
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        assert counted(await session.data.list(ROWS, key=key).collect()) == counted(NESTED)
    assert kinds(heard) == []


async def test_a_key_that_cannot_be_hashed() -> None:
    """A key may be a record that holds a list: its text identifies the row."""
    record = make_class("Listed", {"parts": field(type=list[int])}, frozen=True)
    holder = make_class("Holder", {"id": field(type=record), "n": field(type=int)}, frozen=True)
    rows = [{"id": {"parts": [index]}, "n": index} for index in range(30)]
    service = ListService(rows, 10, by="position")
    service.expect = lambda number: service.grow([{"id": {"parts": [-1]}, "n": -1}]) if number == 1 else None
    async with session_of(service) as session:
        got: list[Any] = await session.data.list(ROWS, model=holder, key="id").collect()
    assert [row.n for row in got] == list(range(30))


async def test_nonsense_is_no_name() -> None:
    """A key=, descending_key= or until= that is no name is refused before any request."""
    service = ListService([])
    async with session_of(service) as session:
        for key in list[Any](["", [], (), [""], 5, ["a", 5], {"a"}, {"a": 1}, b"a", ["a", None]]):
            with pytest.raises(ConfigurationError, match=r"key=.* must be the name of a row field"):
                session.data.list(ROWS, key=key)
        for name in list[Any](["", 5, ["n"], b"n"]):
            with pytest.raises(
                ConfigurationError, match=r"^descending_key=.* must be the name of a row field$"
            ):
                session.data.list(ROWS, descending_key=name)
            with pytest.raises(ConfigurationError, match=r"^until=.* must be the name of a query parameter$"):
                session.data.list(ROWS, descending_key="n", until=name)
    assert service.requests == 0


async def test_an_end_that_is_too_long_for_a_number_is_sent_as_it_is() -> None:
    """A value of thousands of digits bounds no walk: the service reads it."""
    service = ListService([{"n": 1}])
    async with session_of(service) as session:
        pages = session.data.list(ROWS, descending_key="n", until="end", end="9" * 5_000)
        assert await pages.collect() == [{"n": 1}]


async def test_a_misspelt_key_names_the_field() -> None:
    """A misspelt key raises an error with its name before any row; a model has a key of attributes."""
    async with session_of(ListService([{"id": 1, "name": "x", "a": {"b": 5}}])) as session:
        for key in ("idd", "id.x", ["id", "nme"], "a.b.c"):
            pages = session.data.list(ROWS, key=key)
            with pytest.raises(DecodeError) as caught:
                await pages.collect()
            named = key if isinstance(key, str) else ", ".join(key)
            assert f"no field {named}, which key= names" in str(caught.value)
            assert caught.value.partial == []
            assert pages.checkpoint.rows == 0
    rows = [{"blockNumber": 5, "value": "x"}]
    async with session_of(ListService(rows)) as session:
        assert await session.data.list(ROWS, model=Narrow, key="block_number").collect() == [Narrow(5, "x")]
        with pytest.raises(DecodeError, match="no field blockNo, which key= names"):
            await session.data.list(ROWS, model=Narrow, key="blockNo").collect()


@pytest.mark.parametrize("name", ["blockNumber", "block_number"])
@pytest.mark.parametrize("model", [None, Narrow])
async def test_fields_have_either_name(name: str, model: Any) -> None:
    """`key=` and `descending_key=` take the name of a field in JSON and in Python, also with a model."""
    rows = [{"blockNumber": number, "value": "x"} for number in (6, 5)]
    async with session_of(ListService(rows)) as session:
        pages = session.data.list(ROWS, model=model, key=name, descending_key=name)
        assert len(await pages.collect()) == 2


async def test_a_field_named_raw_hides_no_misspelt_name() -> None:
    """A row with a field `raw` is not read like an unknown row: a misspelt name raises an error."""
    model = make_class("WithRaw", {"raw": field(type=dict[str, Any]), "n": field(type=int)})
    rows = [{"raw": {"number": 9 - n}, "n": n} for n in (3, 2)]
    made = [model({"number": 6}, 3), model({"number": 7}, 2)]
    async with session_of(ListService(rows)) as session:
        for argument in ("key", "descending_key"):
            for name in ("nope", "n.x", "number"):
                wrong: dict[str, Any] = {argument: name}
                with pytest.raises(DecodeError, match=f"which {argument}= names"):
                    await session.data.list(ROWS, model=model, **wrong).collect()
            right: dict[str, Any] = {argument: "n"}
            assert await session.data.list(ROWS, model=model, **right).collect() == made


# Order


def numbered(numbers: Iterable[int], values: int = 1) -> list[Json]:
    """Return rows with these numbers, with `values` rows for each number."""
    return [{"n": number, "value": value} for number in numbers for value in range(values)]


def points(session: Session, key: str | None = None, **options: Any) -> Pages[Json]:
    """Walk rows with the declared descending order of `n`."""
    return session.data.list(ROWS, descending_key="n", key=key, **options)


def swapped() -> list[Json]:
    """Return 100 descending rows, two of them swapped across the border of pages."""
    rows = numbered(range(100, 0, -1))
    rows[49], rows[50] = rows[50], rows[49]
    return rows


def shuffled() -> list[Json]:
    """Return 1,000 rows in no order."""
    rows = numbered(range(1_000))
    Random(9).shuffle(rows)
    return rows


DISORDERED: dict[str, Callable[[], list[Json]]] = {
    "swapped": swapped,
    "shuffled": shuffled,
    "ascending": lambda: numbered(range(100)),
    "one late row": lambda: numbered([*range(100, 60, -1), 300, *range(60, 0, -1)]),
    "zigzag": lambda: numbered(number ^ 1 for number in range(99, -1, -1)),
}


@pytest.mark.parametrize("how", HOWS)
async def test_an_order_that_is_none(how: str) -> None:
    """A list out of its declared order yields each row once, with one event."""
    for name, key in product(DISORDERED, (None, "n")):
        service = ListService(DISORDERED[name](), size=50)
        heard: list[Event] = []
        async with session_of(service, heard) as session:
            rows = await read_through(how, service, partial(points, session, key), [30, 25, 20])
        assert counted(rows) == counted(service.rows), name
        broken = [event for event in heard if isinstance(event, OrderBroken)]
        assert len(broken) == 1, name
        assert broken[0].reason == "a row rises above the one before it, or has no number"
        assert all(event.exact for event in heard if isinstance(event, Restarted)), name


async def test_several_values_on_a_number_that_should_be_the_key() -> None:
    """Rows of one number that is also the key are all yielded, and refute the key."""
    lists = [numbered(range(100, 0, -1), values=2)]
    for page in (1, 4, 7):
        lists.append(numbered(range(20, 0, -1)))
        lists[-1].insert(2 * page + 3, {"n": 18, "value": 99})
    for rows, size in product(lists, (2, 7)):
        heard: list[Event] = []
        async with session_of(ListService(rows, size), heard) as session:
            assert await points(session, "n").collect() == rows
        assert kinds(heard)[0] == "KeyNotUnique"


async def test_the_memory_of_a_tied_number_is_bounded() -> None:
    """Memory of tied rows is bounded: above 1,000 on one number they are counted.

    The event has the reason, and a restart is exact.
    """
    service = ListService(numbered([9, 8], values=1_500) + numbered([7]), 100)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        rows = await read_through("restart", service, partial(points, session), [2_950])
    assert rows == service.rows
    assert [event.reason for event in heard if isinstance(event, OrderBroken)] == [
        "too many rows share one number"
    ]
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [True]


async def test_an_order_of_no_pattern_reports_an_inexact_restart() -> None:
    """A late break in an irregular order repeats earlier rows after a restart.

    The event reports that the restart is inexact.
    """
    draw = Random(3)
    numbers = sorted(draw.sample(range(10**9), 5_000), reverse=True)
    service = ListService(numbered([*numbers, 10**9, *range(500, 0, -1)]), 100)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        rows = await read_through("restart", service, partial(points, session), [5_200])
    assert set(counted(rows)) == set(counted(service.rows))
    again = counted(rows) - counted(service.rows)
    assert again == counted(service.rows[1_100:5_000]), "the rows at the head are known"
    assert kinds(heard) == ["OrderBroken", "Restarted"]
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [False]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("read", [7, 15, 20])
async def test_rows_that_replace_others_at_the_head(key: str | None, read: int, resumed: bool) -> None:
    """A restart of an ordered list yields rows that took the numbers of others, and no other row again.

    After a resume rows are compared at the ends alone: the order decides the rest, and an event says so.
    """
    rows = [{"n": number, "id": f"row {number}"} for number in range(30, 0, -1)]
    service, heard = ListService(rows), list[Event]()
    async with session_of(service, heard) as session:
        pages = points(session, key)
        got = await pages.collect(limit=read)
        service.rows = [{**row, "id": f"new {row['n']}"} for row in rows[:5]] + rows[5:]
        service.forget()
        if resumed:
            pages = points(session, key, resume=Checkpoint.loads(pages.checkpoint.dumps()))
        got += await pages.collect()
    again = 1 if resumed else 5
    assert counted(got) == counted(rows) + counted(service.rows[:again])
    exact = [event.exact for event in heard if isinstance(event, Restarted)]
    assert exact == ([] if resumed and read < 10 else [not resumed]), "the first page has no token"


async def test_a_deep_walk_that_was_resumed_in_its_second_pass() -> None:
    """A second pass over 1,050 known pages with falling numbers is no loop."""
    service = ListService(numbered(range(2_200, 0, -1)), 2)
    async with session_of(service) as session:
        pages = points(session, "n")
        rows = await pages.collect(limit=2_100)
        service.forget()
        await anext(pages)
        resume = Checkpoint.loads(pages.checkpoint.dumps())
        rows += await points(session, "n", resume=resume).collect()
    assert rows == service.rows
