"""Common mistakes: each error says what to write in its place."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from itertools import product
from typing import Any
from unittest.mock import create_autospec

import pytest

from chainapi import Page, Session
from chainapi.errors import ConfigurationError, PagingError
from chainapi.export import export
from chainapi.simulator import Simulator
from tests.sessions import simulated

ADDRESS = "0x71C7656EC7ab88b098defB751B7401B5f6d8976F"


def untyped(function: Any) -> Any:
    """Return a function without its types: type checkers report these mistakes too."""
    return function


@pytest.mark.parametrize(
    ("use", "answer"),
    [
        (lambda pages: iter(pages), "`async for row in stream.items()`"),
        (lambda pages: [*pages], "`async for row in stream.items()`"),
        (lambda pages: len(pages), "`len(await stream.collect())`"),
        (lambda pages: pages[0], "`await stream.first()`"),
        (lambda pages: pages[:10], "`await stream.first()`"),
    ],
    ids=["iter", "unpacked", "len", "index", "slice"],
)
async def test_a_stream_is_no_list(use: Callable[[Any], Any], answer: str) -> None:
    """A stream that is used as a list names the call that gives one."""
    async with simulated(Simulator()) as session:
        pages: Any = session.data.evm.blocks(43114)
        with pytest.raises(TypeError) as caught:
            use(pages)
        assert answer in str(caught.value)
        assert bool(pages) is True  # although it has no length


async def test_a_stream_is_no_coroutine() -> None:
    """An awaited list method names `collect`, and `with` names `async with`."""
    async with simulated(Simulator()) as session:
        with pytest.raises(TypeError, match=r"write `rows = await stream\.collect\(\)`"):
            await untyped(session.data.evm.blocks(43114))
        with pytest.raises(TypeError, match="`async with`"), untyped(session):
            pass


@pytest.mark.parametrize(
    ("use", "name", "kind"),
    [
        (lambda session: [*session.data.evm.blocks(43114).collect()], "Pages.collect", TypeError),
        (lambda session: len(session.data.evm.blocks(43114).collect()), "Pages.collect", TypeError),
        (lambda session: session.data.evm.blocks(43114).first().block_number, "Pages.first", AttributeError),
        (lambda session: session.data.chain(43114).chain_name, "DataAPI.chain", AttributeError),
        (lambda session: session.data.get("/v1/chains")["chains"], "ServiceAPI.get", TypeError),
        (
            lambda session: untyped(export)(session.data.evm.blocks, [1], "b.jsonl").rows,
            "export",
            AttributeError,
        ),
    ],
    ids=["unpacked", "len", "row", "resource", "json", "export"],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_forgotten_await_is_named(
    use: Callable[[Any], Any], name: str, kind: type[Exception]
) -> None:
    """A result that is used without `await` names the call, and works in a task all the same."""
    async with simulated(Simulator(rows=3)) as session:
        with pytest.raises(kind, match=rf"{name}\(\) was not awaited: write `await` before the call"):
            use(session)
        chain: Any = session.data.chain(43114)
        with pytest.raises(TypeError, match=r"DataAPI\.chain\(\) is no stream: write `await` .*`async for`"):
            aiter(chain)  # as `async for` does
        assert (await chain).chain_id == 43114
        first = session.data.evm.blocks(43114).first()
        assert not hasattr(first, "__name__")
        assert asyncio.iscoroutinefunction(session.data.get)
        mocked = create_autospec(session.data.evm.blocks(43114))
        mocked.collect.return_value = [1]
        assert await mocked.collect() == [1]
        row = await asyncio.create_task(first)
        assert row == await session.data.evm.blocks(43114).first()
        task = asyncio.create_task(session.data.evm.blocks(43114).collect())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        session.data.evm.blocks(43114).collect().close()


async def read(pages: Any, way: str) -> int:
    """Read a stream in one way; return what it gave."""
    if way == "collect":
        return len(await pages.collect())
    return len([one async for one in (pages if way == "pages" else getattr(pages, way)())])


@pytest.mark.parametrize("first", ["pages", "items", "batches", "collect"])
@pytest.mark.parametrize("again", ["pages", "items", "batches", "collect"])
async def test_a_stream_is_read_once(first: str, again: str) -> None:
    """A second loop over a whole stream names the remedy; a reader with a limit finds nothing more."""
    async with simulated(Simulator(rows=30)) as session:
        pages = session.data.evm.blocks(43114)
        assert await read(pages, first) > 0
        assert (await pages.collect(5), await pages.first()) == ([], None)
        with pytest.raises(PagingError, match="read to its end, and can be read once: call the method of"):
            await read(pages, again)
        whole = session.data.evm.blocks(43114)
        assert len(await whole.collect(30)) == 30
        assert len(await whole.collect()) == 0  # the rest
        await pages.aclose()
        assert await read(pages, again) == 0


async def test_a_page_is_no_row() -> None:
    """A field of the rows that is read from their page names `page.items`."""
    async with simulated(Simulator()) as session:
        page: Any = await anext(session.data.evm.blocks(43114))
        with pytest.raises(AttributeError, match=r"'block_number': it is one of each row"):
            print(page.block_number)
        with pytest.raises(AttributeError, match=r"no attribute 'rows': its rows are `page\.items`"):
            print(page.rows)
        with pytest.raises(TypeError, match=r"write `page\.items\[0\]`"):
            print(page[0])


async def test_a_quota_of_no_service_names_the_services() -> None:
    """A wrong key of `session.quota` names the services, and those that are configured."""
    async with simulated(Simulator()) as session:
        with pytest.raises(KeyError, match=r"'Data' is no configured service: .*'metrics', 'data'"):
            print(session.quota["Data"])
        quota: Any = session.quota
        with pytest.raises(AttributeError, match=r"no attribute 'data': write \['data'\] or \['metrics'\]"):
            print(quota.data)


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        (lambda session: session.evm, "Session has no attribute 'evm': did you mean session.data.evm?"),
        (lambda session: session.data.blocks, "did you mean session.data.evm.blocks or "),
        (lambda session: session.data.evm.block_s, "did you mean session.data.evm.blocks?"),
        (lambda session: session.metrics.avg_tp, "did you mean session.metrics.avg_tps?"),
        (lambda session: session.with_options(priority=1).evm, "did you mean session.data.evm?"),
        (
            lambda session: session.metrics.evm,
            "MetricsAPI has no attribute 'evm': did you mean session.data.evm?",
        ),
        (lambda session: session.data.evm.avg_tps, "did you mean session.metrics.avg_tps?"),
        (lambda session: session.data.evm.nothing_like_it, "EVM has no attribute 'nothing_like_it'"),
    ],
    ids=["group", "route", "misspelt", "metric", "view", "service", "other", "unknown"],
)
def test_names_lead_to_their_place(read: Callable[[Any], Any], meant: str) -> None:
    """A missing attribute names the path of the one that was meant."""
    with pytest.raises(AttributeError) as caught:
        read(Session(**Simulator().arguments()))
    assert meant in str(caught.value)


def test_services_and_groups_can_be_copied() -> None:
    """A copy has no attribute yet when Python looks for its methods."""
    session = Session(**Simulator().arguments())
    for one in (session.data, session.data.evm, session.with_options(priority=1)):
        assert type(copy.copy(one)) is type(one)
        with pytest.raises(AttributeError, match="has no attribute '"):
            repr(object.__new__(type(one)))
    page: Any = object.__new__(Page)
    with pytest.raises(AttributeError, match="a page has no attribute 'items'"):
        print(page.rows)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (
            lambda session: session.data.primary_network.blocks(
                "fuji", "p-chain", start_timestamp=1_700_000_000_000
            ),
            "looks like milliseconds: give Unix seconds, 1700000000",
        ),
        (
            lambda session: session.data.evm.native_transactions(43114, ADDRESS, start_block=10, end_block=5),
            "start_block=10 is after end_block=5",
        ),
        (
            lambda session: session.data.evm.blocks(43114, limit=5),
            "'limit'; limit= belongs to the reader: .items(limit=...) or .collect(limit=...)",
        ),
        (
            lambda session: session.data.evm.blocks(43114, timeout=3),
            "'timeout'; timeout= is an option of session.with_options()",
        ),
        (
            lambda session: session.data.evm.blocks(43114, model=dict),
            "'model'; the rows of a route have its own class: session.data.list(path, model=...) takes",
        ),
        (
            lambda session: session.metrics.avg_tps(43114, page_size=3),
            "'page_size'; the pages of this route have no size to choose: leave it out",
        ),
        (lambda session: session.metrics.list("/v2/rows", until="endTimestamp"), "descending_key"),
    ],
    ids=["milliseconds", "backwards", "limit", "timeout", "model", "page size", "bound without an order"],
)
async def test_arguments_that_mean_something_else(call: Callable[[Any], Any], answer: str) -> None:
    """Bounds that no row meets, and arguments of other methods, are refused before any request."""
    simulator = Simulator()
    async with simulated(simulator) as session:
        with pytest.raises(ConfigurationError) as caught:
            call(session)
    assert answer in str(caught.value)
    assert simulator.stats.requests == 0


Try = Callable[[Session, dict[str, Any]], Any]


PLACES: dict[str, Try] = {
    "Session": lambda session, wrong: Session(**Simulator().arguments(), **wrong),
    "with_options": lambda session, wrong: session.with_options(**wrong),
    "get": lambda session, wrong: session.data.get("/v1/chains", **wrong),
    "chain": lambda session, wrong: session.data.chain(43114, **wrong),
    "list": lambda session, wrong: session.data.list("/v1/chains", **wrong),
    "blocks": lambda session, wrong: session.data.evm.blocks(43114, **wrong),
}
TABLES = ("arrow_batches", "to_arrow", "to_pandas", "to_polars")
NO_COUNT = (0, -1, 1.5, True, "5")
WRONG: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
    "prefetch": ((-1, 17, True, 1.0, None), ("blocks",)),
    "tag": ((7, b"job", "a" * 65, "line\nend", "\x1b[31m", ["job"]), ("Session", "blocks", "list")),
    "max_waiting": ((-1, 1.5, True, "10"), ("Session", "with_options")),
    "deadline": ((*NO_COUNT[:2], float("nan"), "5", True), ("Session", "get", "chain", "list", "blocks")),
    "size": (NO_COUNT, ("batches", "arrow_batches")),
    "limit": (NO_COUNT, ("items", "batches", "collect", *TABLES)),
    "progress": (("false", 1, None), ("collect",)),
    "amounts": (NO_COUNT, TABLES),
}


async def tried(session: Session, place: str, wrong: dict[str, Any]) -> None:
    """Give a value to an argument at one of the places: a call, or a reader of a stream."""
    if place in PLACES:
        made = PLACES[place](session, wrong)
    else:
        made = getattr(session.data.evm.blocks(43114), place)(**wrong)
    await made


@pytest.mark.parametrize("name", WRONG)
async def test_values_that_cannot_be_used(name: str) -> None:
    """A value that an argument cannot have is refused by its name, wherever it is given, before a request."""
    simulator = Simulator()
    values, places = WRONG[name]
    async with simulated(simulator) as session:
        for place, value in product(places, values):
            with pytest.raises(ConfigurationError, match=name):
                await tried(session, place, {name: value})
    assert simulator.stats.requests == 0
