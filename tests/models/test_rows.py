"""Rows that break a service's promises: none is lost, and events report it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import product
from random import Random
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import Factory, define, frozen

from chainapi import ROUTES, Checkpoint, Pages, Session
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.events import Event, KeyNotUnique, OrderBroken, Restarted
from chainapi.models import InternalTransaction, NativeTransaction
from chainapi.transport import Request, Response
from tests.documents import Maker
from tests.sessions import reaching

Json = dict[str, Any]
ROWS = "/v1/rows"


@define
class Service:
    """Service with one list, whose tokens die and whose rows change on command.

    Attributes:
        rows: current rows of the list.
        size: rows per page.
        items: name of the list field.
        by: meaning of a token: the row before its page, or a position.
        expect: callback before each request, with the number of earlier requests.

    """

    rows: list[Json]
    size: int = 10
    items: str = "rows"
    by: Literal["row", "position"] = "row"
    expect: Callable[[int], None] = lambda _: None
    requests: int = 0
    tokens: dict[str, int] = Factory(dict[str, int])

    def forget(self) -> None:
        """Let all tokens die."""
        self.tokens.clear()

    def grow(self, rows: Sequence[Json]) -> None:
        """Put rows at the head."""
        self.rows[:0] = rows
        if self.by == "row":
            for token in self.tokens:
                self.tokens[token] += len(rows)

    async def send(self, request: Request) -> Response:
        """Answer a request."""
        self.expect(self.requests)
        self.requests += 1
        token = parse_qs(urlsplit(request.url).query).get("pageToken", [""])[0]
        if token and token not in self.tokens:
            return Response(400, {}, b'{"message": "the page token has expired", "statusCode": 400}')
        begin = self.tokens.get(token, 0)
        return Response(200, {}, json.dumps(self.page(begin)).encode())

    def page(self, begin: int) -> Json:
        """Return the page that begins at this row."""
        behind = begin + self.size
        body: Json = {self.items: deepcopy(self.rows[begin:behind])}
        if behind < len(self.rows):
            token = f"{self.requests}-{behind}"
            self.tokens[token] = behind
            body["nextPageToken"] = token
        return body

    async def aclose(self) -> None:
        """Do nothing."""


def session_of(service: Service, heard: list[Event] | None = None) -> Session:
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


async def through_a_restart(service: Service, pages: Pages[Any], limit: int) -> list[Any]:
    """Read some rows, let the tokens die, and read the rest."""
    rows = await pages.collect(limit=limit)
    service.forget()
    return rows + await pages.collect()


async def through_resumes(walk: Callable[..., Pages[Any]], limits: Sequence[int]) -> list[Any]:
    """Read rows up to each limit, resuming from the checkpoint's text; then the rest."""
    rows: list[Any] = []
    resume: Checkpoint | None = None
    for limit in limits:
        pages = walk(resume=resume)
        rows += await pages.collect(limit=limit)
        resume = Checkpoint.loads(pages.checkpoint.dumps())
    return rows + await walk(resume=resume).collect()


# Equal rows are rows


def internal_transactions() -> list[Json]:
    """Return 1,000 internal transactions: ten equal ones in each transaction."""
    model: Any = ROUTES["data.evm.internal_transactions"].route.model
    made = Maker(seed=7, whole=True).value(model)
    return [{**made, "txHash": f"0x{index // 10:x}", "blockNumber": "5"} for index in range(1_000)]


def internal(session: Session, **options: Any) -> Pages[InternalTransaction]:
    """Walk the internal transactions of an address."""
    return session.data.evm.internal_transactions(43114, "0xabc", page_size=None, **options)


def hashes(rows: Iterable[InternalTransaction]) -> Counter[str]:
    """Count rows by their transaction."""
    return Counter(row.tx_hash for row in rows)


TEN_EACH = Counter({f"0x{index:x}": 10 for index in range(100)})


async def test_equal_internal_transactions_are_all_given() -> None:
    """Equal rows are all yielded, as rows, in lists and in pages: 1,000 rows, ten equal ones each."""
    for size in (7, 100):
        service = Service(internal_transactions(), size, "transactions")
        async with session_of(service) as session:
            assert hashes([row async for row in internal(session).items()]) == TEN_EACH
            assert hashes(await internal(session).collect()) == TEN_EACH
            given = [row async for page in internal(session) for row in page]
            assert hashes(given) == TEN_EACH


@pytest.mark.parametrize("limit", [5, 104, 999])
async def test_equal_internal_transactions_after_a_restart_and_a_resume(limit: int) -> None:
    """A restart or a resume leaves out as many equal rows as were yielded before."""
    service = Service(internal_transactions(), 100, "transactions")
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        if limit < 900:
            assert hashes(await through_a_restart(service, internal(session), limit)) == TEN_EACH
            assert [event.exact for event in heard if isinstance(event, Restarted)] == [True]
        rows = await through_resumes(lambda **resume: internal(session, **resume), [limit])
        assert hashes(rows) == TEN_EACH


@frozen
class Narrow:
    """Model of two fields of a row."""

    block_number: int
    value: str


@pytest.mark.parametrize("how", ["once", "restart", "resume"])
async def test_a_model_of_two_fields_keeps_all_rows(how: str) -> None:
    """A model that makes rows equal loses none, as the bytes that were sent differ."""
    draw = Random(4)
    rows: list[Json] = [
        {"blockNumber": draw.randrange(20), "value": str(draw.randrange(9)), "txHash": f"0x{index}"}
        for index in range(250)
    ]
    service = Service(rows, 25)

    def walk(**resume: Any) -> Pages[Narrow]:
        return session.data.list(ROWS, model=Narrow, **resume)

    async with session_of(service) as session:
        match how:
            case "once":
                got = await walk().collect()
            case "restart":
                got = await through_a_restart(service, walk(), 130)
            case _:
                got = await through_resumes(walk, [60, 77])
    assert Counter(got) == Counter(Narrow(row["blockNumber"], row["value"]) for row in rows)
    assert len(set(got)) < 180


@pytest.mark.parametrize("by", [1, 9, 128, 149, 290])
async def test_rows_that_a_shifted_list_repeats(by: int) -> None:
    """A list that shifts by any number of rows repeats none that has a key."""
    service = Service([{"id": index} for index in range(300)], 10 if by < 10 else 150, by="position")
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
    async with session_of(Service(rows, 1, "transactions")) as session:
        got: list[NativeTransaction] = await session.data.evm.transactions_of_all_chains().collect()
    assert [row.chain_id for row in got] == [1, 43114, 43113]


NESTED = [{"a": {"b": index // 10, "c": {"d": index % 10}}, "e": [index // 50]} for index in range(100)]


@pytest.mark.parametrize(
    "key", [["a.b", "a.c.d"], ("a.c", "a.b"), ["a"], "a", ["e", "a.b", "a.c.d"], ["a.c.d", "a.b"]]
)
async def test_keys_of_the_caller(key: str | Sequence[str]) -> None:
    """`key=` accepts a name, several names, and dotted paths; a part may be an object."""
    service = Service(deepcopy(NESTED), 10, by="position")
    service.expect = lambda number: (
        service.grow([{"a": {"b": -1, "c": {"d": -number}}, "e": [0]}]) if 0 < number < 6 else None
    )
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        assert counted(await session.data.list(ROWS, key=key).collect()) == counted(NESTED)
    assert kinds(heard) == []


@frozen
class Listed:
    """A record with a list in it, which cannot be hashed."""

    parts: list[int]


@frozen
class Holder:
    """A row whose key is a record."""

    id: Listed
    n: int


async def test_a_key_that_cannot_be_hashed() -> None:
    """A key may be a record that holds a list: its text identifies the row."""
    rows = [{"id": {"parts": [index]}, "n": index} for index in range(30)]
    service = Service(rows, 10, by="position")
    service.expect = lambda number: service.grow([{"id": {"parts": [-1]}, "n": -1}]) if number == 1 else None
    async with session_of(service) as session:
        got = await session.data.list(ROWS, model=Holder, key="id").collect()
    assert [row.n for row in got] == list(range(30))


async def test_nonsense_is_no_name() -> None:
    """A key=, descending_key= or until= that is no name is refused before any request."""
    service = Service([])
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
    service = Service([{"n": 1}])
    async with session_of(service) as session:
        pages = session.data.list(ROWS, descending_key="n", until="end", end="9" * 5_000)
        assert await pages.collect() == [{"n": 1}]


async def test_a_misspelt_key_names_the_field() -> None:
    """A misspelt key raises an error with its name before any row; a model has a key of attributes."""
    async with session_of(Service([{"id": 1, "name": "x", "a": {"b": 5}}])) as session:
        for key in ("idd", "id.x", ["id", "nme"], "a.b.c"):
            pages = session.data.list(ROWS, key=key)
            with pytest.raises(DecodeError) as caught:
                await pages.collect()
            named = key if isinstance(key, str) else ", ".join(key)
            assert f"no field {named}, which key= names" in str(caught.value)
            assert caught.value.partial == []
            assert pages.checkpoint.rows == 0
    rows = [{"blockNumber": 5, "value": "x"}]
    async with session_of(Service(rows)) as session:
        assert await session.data.list(ROWS, model=Narrow, key="block_number").collect() == [Narrow(5, "x")]
        with pytest.raises(DecodeError, match="no field blockNo, which key= names"):
            await session.data.list(ROWS, model=Narrow, key="blockNo").collect()


@pytest.mark.parametrize("name", ["blockNumber", "block_number"])
@pytest.mark.parametrize("model", [None, Narrow])
async def test_fields_have_either_name(name: str, model: Any) -> None:
    """`key=` and `descending_key=` take the name of a field in JSON and in Python, also with a model."""
    rows = [{"blockNumber": number, "value": "x"} for number in (6, 5)]
    async with session_of(Service(rows)) as session:
        pages = session.data.list(ROWS, model=model, key=name, descending_key=name)
        assert len(await pages.collect()) == 2


@frozen
class WithRaw:
    """A class of a user's with a field that has the name of the JSON of an unknown row."""

    raw: dict[str, Any]
    n: int


async def test_a_field_named_raw_hides_no_misspelt_name() -> None:
    """A row with a field `raw` is not read like an unknown row: a misspelt name raises an error."""
    rows = [{"raw": {"number": 9 - n}, "n": n} for n in (3, 2)]
    made = [WithRaw({"number": 6}, 3), WithRaw({"number": 7}, 2)]
    async with session_of(Service(rows)) as session:
        for argument in ("key", "descending_key"):
            for name in ("nope", "n.x", "number"):
                wrong: dict[str, Any] = {argument: name}
                with pytest.raises(DecodeError, match=f"which {argument}= names"):
                    await session.data.list(ROWS, model=WithRaw, **wrong).collect()
            right: dict[str, Any] = {argument: "n"}
            assert await session.data.list(ROWS, model=WithRaw, **right).collect() == made


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


async def read_through(how: str, service: Service, walk: Callable[..., Pages[Json]]) -> list[Json]:
    """Read a list of at least 76 rows: at once, over one restart, over three, or over resumes."""
    match how:
        case "once":
            return await walk().collect()
        case "restart":
            return await through_a_restart(service, walk(), 75)
        case "restarts":
            pages, rows = walk(), []
            for limit in (30, 25, 20):
                rows += await pages.collect(limit=limit)
                service.forget()
            return rows + await pages.collect()
    return await through_resumes(walk, [20, 11, 42])


@pytest.mark.parametrize("how", ["once", "restart", "restarts", "resume"])
async def test_an_order_that_is_none(how: str) -> None:
    """A list out of its declared order yields each row once, with one event."""
    for name, key in product(DISORDERED, (None, "n")):
        service = Service(DISORDERED[name](), size=50)
        heard: list[Event] = []
        async with session_of(service, heard) as session:
            rows = await read_through(how, service, partial(points, session, key))
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
        async with session_of(Service(rows, size), heard) as session:
            assert await points(session, "n").collect() == rows
        assert kinds(heard)[0] == "KeyNotUnique"


async def test_the_memory_of_a_tied_number_is_bounded() -> None:
    """Memory of tied rows is bounded: above 1,000 on one number they are counted.

    The event has the reason, and a restart is exact.
    """
    service = Service(numbered([9, 8], values=1_500) + numbered([7]), 100)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        rows = await through_a_restart(service, points(session), 2_950)
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
    service = Service(numbered([*numbers, 10**9, *range(500, 0, -1)]), 100)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        rows = await through_a_restart(service, points(session), 5_200)
    assert set(counted(rows)) == set(counted(service.rows))
    again = counted(rows) - counted(service.rows)
    assert again == counted(service.rows[1_100:5_000]), "the rows at the head are known"
    assert kinds(heard) == ["OrderBroken", "Restarted"]
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [False]


def reorganized(rows: Sequence[Json], count: int) -> list[Json]:
    """Return the rows of a list whose newest ones were replaced: their numbers stay, their content is new."""
    return [{**row, "id": f"new {row['n']}"} for row in rows[:count]] + [*rows[count:]]


@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("read", [7, 15, 20])
async def test_rows_that_replace_others_at_the_head(key: str | None, read: int) -> None:
    """After a restart an ordered list gives rows that took the numbers of others, and no other row again."""
    rows = [{"n": number, "id": f"row {number}"} for number in range(30, 0, -1)]
    service, heard = Service(rows), list[Event]()
    async with session_of(service, heard) as session:
        pages = points(session, key)
        got = await pages.collect(limit=read)
        service.rows = reorganized(rows, 5)
        service.forget()
        got += await pages.collect()
    assert counted(got) == counted(rows) + counted(service.rows[:5])
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [True]


async def test_the_order_decides_in_another_process() -> None:
    """A restart after a resume leaves out what lies among the rows given; an event says so."""
    rows = [{"n": number, "id": f"row {number}"} for number in range(30, 0, -1)]
    service, heard = Service(rows), list[Event]()
    async with session_of(service, heard) as session:
        pages = points(session, "id")
        got = await pages.collect(limit=20)
        service.rows = reorganized(rows, 5)
        service.forget()
        got += await points(session, "id", resume=Checkpoint.loads(pages.checkpoint.dumps())).collect()
    assert counted(got) == counted(rows) + counted(service.rows[:1]), "only at the ends rows are compared"
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [False]


async def test_a_deep_walk_that_was_resumed_in_its_second_pass() -> None:
    """A second pass over 1,050 known pages with falling numbers is no loop."""
    service = Service(numbered(range(2_200, 0, -1)), 2)
    async with session_of(service) as session:
        pages = points(session, "n")
        rows = await pages.collect(limit=2_100)
        service.forget()
        await anext(pages)
        resume = Checkpoint.loads(pages.checkpoint.dumps())
        rows += await points(session, "n", resume=resume).collect()
    assert rows == service.rows
