"""Rows that break a service's promises: none is lost, and events report it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import Factory, define, frozen

from chainapi import ROUTES, Checkpoint, Pages, Session
from chainapi.errors import (
    APIStatusError,
    ConfigurationError,
    DecodeError,
    IncompleteExportError,
    NotFoundError,
    PageRefusedError,
    PageTokenExpiredError,
    PaginationLoopError,
)
from chainapi.events import (
    Event,
    KeyNotUnique,
    LoopFound,
    OrderBroken,
    Restarted,
    TokenRenewed,
)
from chainapi.export import export
from chainapi.models import InternalTransaction, NativeTransaction
from chainapi.transport import Request, Response
from tests.documents import Maker

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
        refusals: error bodies by the number of rows before the refused page.
        expect: callback before each request, with the number of earlier requests.

    """

    rows: list[Json]
    size: int = 10
    items: str = "rows"
    by: Literal["row", "position"] = "row"
    refusals: dict[int, Json] = Factory(dict[int, Json])
    expect: Callable[[int], None] = lambda _: None
    life: int = 0
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
            return reply({"message": "the page token has expired", "statusCode": 400}, 400)
        begin = self.tokens.get(token, 0)
        if begin in self.refusals:
            said = self.refusals[begin]
            return reply(said, said["statusCode"])
        return reply(self.page(begin))

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


def reply(body: Json, status: int = 200) -> Response:
    """Return an answer."""
    return Response(status, {}, json.dumps(body).encode())


def session_of(service: Any, heard: list[Event] | None = None, **options: Any) -> Session:
    """Return a session on a service in memory that appends its events to `heard`."""
    listener = None if heard is None else heard.append
    return Session(
        data_base_url="https://data.test",
        metrics_base_url="https://metrics.test",
        api_key="k",
        transport=service,
        on_event=listener,
        **options,
    )


def kinds(heard: Iterable[Event]) -> list[str]:
    """Return the types of the events about the list, in order."""
    told = KeyNotUnique | OrderBroken | Restarted | TokenRenewed | LoopFound
    return [type(event).__name__ for event in heard if isinstance(event, told)]


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


# 1. Equal rows are rows.


def internal_transactions(serial: int = 0) -> list[Json]:
    """Return 1,000 internal transactions: ten equal ones in each transaction."""
    model: Any = ROUTES["data.evm.internal_transactions"].route.model
    made = Maker(seed=7, whole=True).value(model)
    return [{**made, "txHash": f"0x{serial + index // 10:x}", "blockNumber": "5"} for index in range(1_000)]


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


@pytest.mark.parametrize("dies", [None, 3])
async def test_equal_internal_transactions_are_all_exported(tmp_path: Path, dies: int | None) -> None:
    """An export has all 1,000 equal rows, also if the tokens die on the way."""
    service = Service(internal_transactions(), 100, "transactions")
    service.expect = lambda number: service.forget() if number == dies else None
    out = tmp_path / "rows.jsonl"
    async with session_of(service) as session:
        walk = session.data.evm.internal_transactions
        result = await export(walk, [(43114, "0xabc")], out, page_size=None)
    assert result.rows == 1_000
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert Counter(line["tx_hash"] for line in lines) == TEN_EACH
    assert service.requests == (10 if dies is None else 15)


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


async def test_equal_rows_that_came_meanwhile_are_given() -> None:
    """Equal rows added before a restart are yielded as well."""
    service = Service(internal_transactions(), 100, "transactions")
    async with session_of(service) as session:
        pages = internal(session)
        rows = await pages.collect(limit=450)
        service.grow(internal_transactions()[:10])
        service.forget()
        rows += await pages.collect()
    assert hashes(rows) == TEN_EACH + Counter({"0x0": 10})


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


async def test_within_a_page_nothing_is_dropped() -> None:
    """Rows of one page that share a key are all yielded, with one KeyNotUnique event."""
    rows = [{"id": index // 2, "part": index % 2} for index in range(100)]
    heard: list[Event] = []
    async with session_of(Service(rows), heard) as session:
        assert await session.data.list(ROWS, key="id").collect() == rows
    assert [(event.where, event.page) for event in heard if isinstance(event, KeyNotUnique)] == [
        (f"GET {ROWS}", 1)
    ]


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


# 2. Keys


async def test_one_hash_on_three_chains() -> None:
    """Transactions with one hash on three chains are three rows of all chains."""
    model: Any = ROUTES["data.evm.transactions_of_all_chains"].route.model
    made = Maker(seed=5, whole=True).value(model)
    rows = [{**made, "txHash": "0xsame", "chainId": str(chain)} for chain in (1, 43114, 43113)]
    async with session_of(Service(rows, 1, "transactions")) as session:
        got: list[NativeTransaction] = await session.data.evm.transactions_of_all_chains().collect()
    assert [row.chain_id for row in got] == [1, 43114, 43113]


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_one_hash_on_three_chains_under_a_key_of_the_caller(size: int) -> None:
    """Rows with the caller's key but another time are distinct, and none is lost."""
    given = ((1, 30), (2, 30), (3, 30), (1, 20), (5, 20), (1, 15), (4, 9))
    rows = [{"hash": f"0x{number}", "time": time} for number, time in given]
    heard: list[Event] = []
    async with session_of(Service(rows, size), heard) as session:
        assert await session.data.list(ROWS, key="hash", descending_key="time").collect() == rows
    assert kinds(heard) == ["KeyNotUnique"]


def transfers() -> list[Json]:
    """Return 500 transfers whose token has a price, which changes."""
    return [{"id": f"0x{index}", "token": {"symbol": "A", "price": 1.0}} for index in range(500)]


def change(service: Service) -> None:
    """Change the price of every token."""
    for row in service.rows:
        if "token" in row:
            row["token"]["price"] += 0.25
        else:
            row["price"] += 0.25


@pytest.mark.parametrize("key", ["id", ["id"], ("id", "token.symbol")])
async def test_transfers_whose_price_changes(key: str | Sequence[str]) -> None:
    """Transfers whose price changes around a restart are 500 rows under a key."""
    service = Service(transfers(), 25)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        pages = session.data.list(ROWS, key=key)
        rows = await pages.collect(limit=300)
        change(service)
        service.forget()
        rows += await pages.collect()
    assert [row["id"] for row in rows] == [f"0x{index}" for index in range(500)]
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [True]


async def test_transfers_whose_price_changes_without_a_key() -> None:
    """A changed row without a key is yielded as it was and as it is; none is lost."""
    service = Service(transfers(), 25)
    async with session_of(service) as session:
        pages = session.data.list(ROWS)
        rows = await pages.collect(limit=300)
        change(service)
        service.forget()
        rows += await pages.collect()
    assert {row["id"] for row in rows} == {f"0x{index}" for index in range(500)}
    assert len(rows) == 800


async def test_declared_transfers_whose_price_changes() -> None:
    """Transfers of an address are keyed by transaction and log, not by token price."""
    model: Any = ROUTES["data.evm.erc20_transactions"].route.model
    made = Maker(seed=5, whole=True).value(model)
    service = Service([{**made, "logIndex": index} for index in range(500)], 25, "transactions")
    async with session_of(service) as session:
        pages = session.data.evm.erc20_transactions(43114, "0xabc", page_size=None)
        rows = await pages.collect(limit=300)
        for row in service.rows:
            row["erc20Token"] = {**row["erc20Token"], "price": {"value": 1.5, "currencyCode": "usd"}}
        service.forget()
        rows += await pages.collect()
    assert [row.log_index for row in rows] == list(range(500))


async def test_rows_that_changed_between_a_checkpoint_and_its_resume() -> None:
    """A resume inside a page recognizes changed rows by their key."""
    service = Service(transfers(), 25)

    def walk(**resume: Any) -> Pages[Json]:
        change(service)
        return session.data.list(ROWS, key="id", **resume)

    async with session_of(service) as session:
        rows = await through_resumes(walk, [60, 13, 140])
    assert [row["id"] for row in rows] == [f"0x{index}" for index in range(500)]


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


async def test_a_row_with_null_in_its_key_has_none() -> None:
    """A row with a null in its key has no key, and no pass drops it."""
    rows = [{"id": None, "n": index // 10} for index in range(40)]
    async with session_of(Service(rows)) as session:
        assert await session.data.list(ROWS, key="id").collect() == rows


async def test_a_key_that_turns_out_not_to_be_one_after_a_restart() -> None:
    """Rows of a key refuted later repeat after a restart, and the event reports it."""
    rows = [{"id": index, "n": index} for index in range(60)]
    rows[35]["id"] = rows[36]["id"]
    service = Service(rows)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        pages = session.data.list(ROWS, key="id")
        got = await through_a_restart_of(service, pages, 20, 19)
        service.grow([{"id": 5, "n": -1}])  # another row under the key of one that was given
        service.forget()
        got += await pages.collect()
    assert {row["n"] for row in got} == {-1, *range(60)}
    assert kinds(heard) == ["Restarted", "KeyNotUnique", "Restarted"]
    assert [event.exact for event in heard if isinstance(event, Restarted)] == [True, False]


async def through_a_restart_of(service: Service, pages: Pages[Any], before: int, behind: int) -> list[Any]:
    """Read `before` rows, let the tokens die, and read `behind` more."""
    rows = await pages.collect(limit=before)
    service.forget()
    return rows + await pages.collect(limit=behind)


# 3. Order


def numbered(numbers: Iterable[int], values: int = 1) -> list[Json]:
    """Return rows with these numbers, with `values` rows for each number."""
    return [{"n": number, "value": value} for number in numbers for value in range(values)]


def points(session: Session, key: str | None = None, **options: Any) -> Pages[Json]:
    """Walk rows with the declared descending order of `n`."""
    return session.data.list(ROWS, descending_key="n", key=key, **options)


@frozen
class Numbered:
    """Row of `numbered` in a class, whose number may be null."""

    n: int | None
    value: int


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


async def test_a_row_whose_number_is_null_breaks_the_order() -> None:
    """A null number loses no row, also after a restart, and an event reports it."""
    for where, model in product((0, 5, 14), (None, Numbered)):
        rows = numbered(range(15, 0, -1))
        rows[where]["n"] = None
        service = Service(rows, size=5)
        heard: list[Event] = []
        async with session_of(service, heard) as session:
            given = await through_a_restart(service, points(session, model=model), 7)
        assert given == (rows if model is None else [Numbered(**row) for row in rows])
        assert sorted(kinds(heard)) == ["OrderBroken", "Restarted"]


@pytest.mark.parametrize("how", ["once", "restart", "restarts", "resume"])
async def test_two_values_on_one_number(how: str) -> None:
    """Ties of two rows keep the order: all rows come once, without an OrderBroken event."""
    for size in (7, 10):
        service = Service(numbered(range(100, 0, -1), values=2), size)
        heard: list[Event] = []
        async with session_of(service, heard) as session:
            assert await read_through(how, service, partial(points, session)) == service.rows
        assert "OrderBroken" not in kinds(heard)


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


async def test_new_rows_on_the_newest_number() -> None:
    """New rows on the newest number are yielded after a restart, and none is lost."""
    for broken in (False, True):
        service = Service(numbered(range(100, 0, -1)))
        if broken:
            service.rows[55:57] = reversed(service.rows[55:57])
        async with session_of(service) as session:
            pages = points(session)
            rows = await pages.collect(limit=80)
            service.grow([{"n": number, "value": value} for number in (101, 100) for value in (5, 6, 7)])
            service.forget()
            rows += await pages.collect()
        assert counted(rows) == counted(service.rows)


async def test_a_walk_that_breaks_its_order_in_its_second_pass() -> None:
    """Rows that changed places before the second pass are recognized.

    These include the rows yielded in order.
    """
    service = Service(numbered(range(100, 0, -1)))
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        pages = points(session)
        rows = await pages.collect(limit=60)
        for at in (0, 19, 33):
            service.rows[at : at + 2] = reversed(service.rows[at : at + 2])
        service.forget()
        rows += await pages.collect()
    assert counted(rows) == counted(service.rows)
    assert kinds(heard) == ["Restarted", "OrderBroken"]


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


async def test_rows_that_fill_a_gap_at_the_head() -> None:
    """A point of time that a metric lacked before a restart is given behind it."""
    rows = numbered([30, 29, 27, *range(25, 0, -1)])
    service = Service(rows)
    async with session_of(service) as session:
        pages = points(session, "n")
        got = await pages.collect(limit=20)
        service.rows = numbered(range(30, 0, -1))
        service.forget()
        got += await pages.collect()
    assert counted(got) == counted(service.rows)


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


async def test_an_export_has_rows_that_replace_others_at_the_head(tmp_path: Path) -> None:
    """An export of an ordered list has the rows that took the numbers of others."""
    rows = [{"n": number, "id": f"row {number}"} for number in range(30, 0, -1)]
    service = Service(rows)

    def expect(number: int) -> None:
        if number == 2:
            service.rows = reorganized(rows, 5)
            service.forget()

    service.expect = expect
    out = tmp_path / "rows.jsonl"
    async with session_of(service) as session:
        await export(session.data.list, [ROWS], out, items="rows", key="id", descending_key="n")
    got = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert counted({"n": row["n"], "id": row["id"]} for row in got) == counted(rows) + counted(
        service.rows[:5]
    )


async def test_rows_that_lack_the_number() -> None:
    """A row without the number breaks the order, but causes no loss of rows.

    Rows of unknown kinds have no number.
    """
    maker = Maker(seed=2, whole=True)
    model: Any = ROUTES["data.primary_network.blockchains"].route.model
    made = maker.value(model)
    rows = [
        {**made, "blockchainId": str(number), "createBlockTimestamp": 1_000_000 - number}
        for number in range(40)
    ]
    service = Service(rows, 10, "blockchains")
    async with session_of(service) as session:
        pages = session.data.primary_network.blockchains("mainnet", sort_order="desc", page_size=None)
        got = await through_a_restart(service, pages, 25)
    assert [row.blockchain_id for row in got] == [str(number) for number in range(40)]


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


# 4. Loops


@define
class Repeating:
    """A service that gives some pages over and over, each time under a fresh token."""

    pages: list[list[Json]]
    back_to: int
    requests: int = 0

    async def send(self, request: Request) -> Response:
        """Give the next page; behind the last one the page `back_to` follows."""
        number = self.requests
        self.requests += 1
        last = len(self.pages)
        if number >= last:
            number = self.back_to + (number - last) % (last - self.back_to)
        return reply({"rows": self.pages[number], "nextPageToken": f"fresh-{self.requests}"})

    async def aclose(self) -> None:
        """Do nothing."""


def repeating(back_to: int) -> Repeating:
    """Return a service of 18 rows on six pages, which restarts at one of them."""
    rows = [{"id": f"r{number}", "n": 100 - number} for number in range(18)]
    return Repeating([rows[at : at + 3] for at in range(0, 18, 3)], back_to)


IDENTIFIED: dict[str, Json] = {
    "plain": {},
    "keyed": {"key": "id"},
    "ordered": {"descending_key": "n"},
    "both": {"key": "id", "descending_key": "n"},
    "unique": {"key": "n", "descending_key": "n"},
}


async def read(reader: str, pages: Pages[Json], session: Session, out: Path, options: Json) -> None:
    """Read a list to its end as items, pages or an export.

    An error of the export is raised as that of its source.
    """
    match reader:
        case "items":
            await pages.collect()
        case "pages":
            async for _ in pages:
                pass
        case _:
            try:
                await export(session.data.list, [ROWS], out, **options)
            except IncompleteExportError as error:
                raise error.failures[ROWS] from None


@pytest.mark.parametrize(
    ("identified", "back_to", "reader"),
    [
        ("plain", 5, "items"),
        ("keyed", 0, "items"),
        ("ordered", 5, "items"),
        ("both", 0, "items"),
        ("unique", 5, "pages"),
        ("keyed", 5, "export"),
    ],
)
async def test_a_service_that_repeats_itself(
    identified: str, back_to: int, reader: str, tmp_path: Path
) -> None:
    """A service that repeats its last page, or all six, ends within 1,100 requests."""
    service = repeating(back_to)
    heard: list[Event] = []
    options = IDENTIFIED[identified]
    async with session_of(service, heard) as session:
        pages = session.data.list(ROWS, **options)
        with pytest.raises(PaginationLoopError, match="the service repeats itself") as caught:
            await read(reader, pages, session, tmp_path / "rows.jsonl", options)
        if reader == "items":
            assert {row["id"] for row in caught.value.partial or ()} == {f"r{number}" for number in range(18)}
    assert 1_000 < service.requests <= 1_100
    assert kinds(heard)[-1] == "LoopFound"
    assert caught.value.checkpoint is not None


async def test_one_token_with_one_page_is_a_loop_at_once() -> None:
    """The same token with the same rows again ends the walk at its second request."""

    class Stuck(Repeating):
        async def send(self, request: Request) -> Response:
            self.requests += 1
            return reply({"rows": self.pages[0], "nextPageToken": "t"})

    for reader in ("items", "pages"):
        service = Stuck([[{"id": 1}]], 0)
        async with session_of(service) as session:
            pages = session.data.list(ROWS)
            with pytest.raises(PaginationLoopError, match="page 2 "):
                await take(reader, pages, [])
        assert service.requests == 2


@pytest.mark.parametrize("identified", ["plain", "both"])
async def test_pages_of_rows_given_before_a_restart_are_no_loop(identified: str) -> None:
    """A walk passes 1,200 known pages again after a restart."""
    rows = [{"id": f"r{number}", "n": 2_500 - number} for number in range(2_500)]
    service = Service(rows, 2)
    async with session_of(service) as session:
        pages = session.data.list(ROWS, **IDENTIFIED[identified])
        assert await through_a_restart(service, pages, 2_400) == rows
    assert service.requests == 1_200 + 2 + 1_250


# 7. A refused token keeps the service's words.

MAINTENANCE: Json = {"message": "under maintenance until 17:00", "error": "Not Found", "statusCode": 404}


async def take(reader: str, pages: Pages[Json], got: list[Json]) -> None:
    """Put the rows of a list into `got`, as rows or as pages."""
    if reader == "items":
        async for row in pages.items():
            got.append(row)  # noqa: PERF401 - an error leaves those that came
    else:
        async for page in pages:
            got += page


@pytest.mark.parametrize(
    ("status", "identified", "reader"),
    [(422, identified, "items") for identified in IDENTIFIED]
    + [(status, "keyed", "pages") for status in (400, 404, 410)],
)
async def test_a_page_under_maintenance(status: int, identified: str, reader: str) -> None:
    """A refused page 301 ends the walk with the service's message.

    The walk takes fewer than 310 requests.
    """
    rows = [{"id": f"r{number}", "n": 900 - number, "price": 1.0} for number in range(800)]
    service = Service(rows, 2, refusals={600: {**MAINTENANCE, "statusCode": status}})
    heard: list[Event] = []
    got: list[Json] = []
    async with session_of(service, heard) as session:
        pages = session.data.list(ROWS, **IDENTIFIED[identified])
        with pytest.raises(PageRefusedError) as caught:
            await take(reader, pages, got)
        assert service.requests < 310
        assert got == rows[:600]
        error = caught.value
        assert (error.status, error.messages) == (status, ("under maintenance until 17:00",))
        assert "under maintenance until 17:00" in str(error)
        assert isinstance(error.__cause__, APIStatusError)
        assert error.__cause__.messages == error.messages
        assert error.checkpoint is not None
        assert error.checkpoint == pages.checkpoint
        assert kinds(heard) == ["TokenRenewed"]
        service.refusals.clear()
        rest = session.data.list(
            ROWS, **IDENTIFIED[identified], resume=Checkpoint.loads(error.checkpoint.dumps())
        )
        assert await rest.collect() == rows[600:]
        assert await pages.collect() == rows[600:]


@pytest.mark.parametrize("identified", ["keyed", "both"])
async def test_a_page_under_maintenance_of_rows_that_change(identified: str) -> None:
    """A refused page ends the walk early, as keys identify rows that change."""
    rows = [{"id": f"r{number}", "n": 900 - number, "price": 1.0} for number in range(800)]
    service = Service(rows, 2, refusals={600: MAINTENANCE})
    service.expect = lambda _: change(service)
    async with session_of(service) as session:
        with pytest.raises(PageRefusedError, match="under maintenance until 17:00"):
            await session.data.list(ROWS, **IDENTIFIED[identified]).collect()
    assert service.requests < 310


async def test_a_page_under_maintenance_without_keys() -> None:
    """A refused page after unkeyed rows that change causes a single restart.

    The error then has the service's message.
    """
    rows = [{"id": f"r{number}", "price": 1.0} for number in range(100)]
    service = Service(rows, 2, refusals={60: MAINTENANCE})
    service.expect = lambda _: change(service)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        with pytest.raises(PageTokenExpiredError, match="under maintenance until 17:00") as caught:
            await session.data.list(ROWS).collect()
        assert isinstance(caught.value.__cause__, NotFoundError)
    assert kinds(heard) == ["Restarted"]
    assert service.requests == 2 * (30 + 2)


async def test_a_whole_service_under_maintenance() -> None:
    """A service that refuses every page ends the restart with its own error message."""
    rows = [{"id": f"r{number}"} for number in range(100)]
    service = Service(rows, 2)

    def close(number: int) -> None:
        if number == 30:
            service.refusals = dict.fromkeys(range(0, 100, 2), MAINTENANCE)

    service.expect = close
    async with session_of(service) as session:
        pages = session.data.list(ROWS)
        with pytest.raises(NotFoundError, match="under maintenance until 17:00") as caught:
            await pages.collect()
        assert len(caught.value.partial or ()) == 60
        service.refusals.clear()
        service.expect = lambda _: None
        assert await pages.collect() == rows[60:]
    assert service.requests == 30 + 3 + 50


@pytest.mark.parametrize("prefetch", [0, 3])
async def test_a_token_that_died_early_is_renewed(prefetch: int) -> None:
    """A single dead token is renewed from the page before, without a restart.

    No row is yielded twice.
    """
    rows = [{"id": f"r{number}"} for number in range(100)]
    service = Service(rows, 10)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        pages = session.data.list(ROWS, prefetch=prefetch)
        got = await pages.collect(limit=45)
        await asyncio.sleep(1)
        if not prefetch:
            service.tokens = {token: at for token, at in service.tokens.items() if at != 50}
        got += await pages.collect()
    assert got == rows
    assert kinds(heard) == ([] if prefetch else ["TokenRenewed"])
    assert service.requests == (10 if prefetch else 12)


async def test_a_token_that_died_is_a_restart() -> None:
    """Two dead tokens in a row cost two requests, and the walk restarts."""
    rows = [{"id": f"r{number}"} for number in range(100)]
    service = Service(rows, 10)
    heard: list[Event] = []
    async with session_of(service, heard) as session:
        assert await through_a_restart(service, session.data.list(ROWS), 45) == rows
    assert kinds(heard) == ["Restarted"]
    assert service.requests == 5 + 2 + 10
