"""Routes of both services: requests, arguments that are refused, rows and records."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import subprocess
import sys
import typing
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import partial, reduce
from math import nan
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainapi
from chainapi import ROUTES, Limit, Pages, Session
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models import Unknown
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.documents import LISTS, Maker, path_pattern, values
from tests.sessions import simulated
from tests.test_session import reply, scripted, session_of

NAMES = sorted(ROUTES)


def method_of(session: Session, name: str) -> Any:
    """Return the method of a route, by its dotted name."""
    return reduce(getattr, name.split("."), session)


@contextlib.contextmanager
def deprecation(endpoint: Any) -> Iterator[None]:
    """Expect a warning for each deprecated route and for no other route."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert bool(caught) == endpoint.route.deprecated
    assert all(issubclass(warning.category, DeprecationWarning) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)


def kinds_of(model: Any) -> tuple[type, ...]:
    """Return the classes that rows of a model may have."""
    return (str,) if model is None else tuple({*typing.get_args(model)} - {Unknown}) or (model,)


# Requests and responses


async def test_every_route() -> None:
    """Routes request their path with all parameters and return rows of their model, or a record."""
    for number, name in enumerate(NAMES):
        endpoint, maker = ROUTES[name], Maker(seed=number)
        given = values(endpoint, maker)
        requests, rows = await called(name, endpoint, maker, given)
        assert len(requests) == (1 if endpoint.single else 3), name
        assert {type(row) for row in rows} <= set(kinds_of(endpoint.route.model)), name
        assert len(rows) >= 1, name
        url, body = urlsplit(requests[0].url), requests[0].body
        assert path_pattern(endpoint).fullmatch(url.path), name
        sent = {wire for wire, _ in parse_qsl(url.query)} | set(json.loads(body or b"{}"))
        assert sent == {parameter.wire for parameter in endpoint.parameters if not parameter.in_path}, name
        assert requests[0].method == endpoint.route.method, name
        assert (body is None) == (endpoint.route.method == "GET"), name


async def called(name: str, endpoint: Any, maker: Maker, given: dict[str, Any]) -> tuple[list[Request], Any]:
    """Call a route that has three pages with some values; return the requests and the rows."""

    def answer(request: Request) -> Response:
        if endpoint.single:
            return reply(maker.value(endpoint.route.model))
        page = len(transport.requests)
        return reply(maker.page(endpoint, rows=5, token=f"token-{page}" if page < 3 else None))

    transport = scripted(answer)
    in_path = [given[parameter.name] for parameter in endpoint.parameters if parameter.in_path]
    others = {
        one.name: given[one.name] for one in endpoint.parameters if not one.in_path and one.name in given
    }
    async with session_of(transport) as session:
        with deprecation(endpoint):
            made = method_of(session, name)(*in_path, **others)
            rows = [await made] if endpoint.single else await made.collect()
    return transport.requests, rows


async def test_pages_are_as_large_as_they_can_be() -> None:
    """Pages have the largest size that the route allows, because a request costs the same with any."""
    for name in LISTS:
        endpoint, maker = ROUTES[name], Maker(seed=1)
        (request, *_), _ = await called(name, endpoint, maker, values(endpoint, maker, optional=False))
        query = dict(parse_qsl(urlsplit(request.url).query))
        query |= {wire: str(value) for wire, value in json.loads(request.body or b"{}").items()}
        size = endpoint.page_size
        assert query.get("pageSize") == (None if size is None else str(size.bounds and size.bounds.most)), (
            name
        )


# Arguments that are refused

BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda data: data.evm.blocks(1, page_size=101), "page_size=101 is not from 1 to 100"),
    (lambda data: data.evm.blocks(1, page_size=0), "page_size=0 is not from 1 to 100"),
    (lambda data: data.evm.blocks(1, page_size=True), "page_size must be int, not bool"),
    (lambda data: data.evm.blocks(1, page_size="5"), "page_size must be int, not str"),
    (lambda data: data.evm.erc20_balances(1, "0x", page_size=501), "from 1 to 500"),
    (lambda data: data.primary_network.subnets("fuji", page_size=10_001), "from 1 to 10000"),
    (lambda data: data.primary_network.subnets("fiji"), "network='fiji' is not known; did you mean 'fuji'?"),
    (lambda data: data.primary_network.subnets(5), "network='5' is not known; it is one of 'mainnet'"),
    (lambda data: data.evm.blocks(1, pagesize=5), "did you mean 'page_size'?"),
    (lambda data: data.evm.blocks(1, block_number=5), "it takes chain_id, deadline, on_invalid, page_size"),
    (lambda data: data.evm.blocks("a/b"), "chain_id='a/b' cannot be part of a path"),
    (lambda data: data.evm.blocks(1.5), "chain_id must be int or str, not float"),
    (lambda data: data.evm.blocks(None), "chain_id must be int or str, not NoneType"),
    (lambda data: data.evm.blocks(-1), "chain_id=-1 is negative"),
    (lambda data: data.evm.blocks(1, resume="x"), "resume= must be a Checkpoint"),
    (lambda data: data.evm.blocks(1, prefetch=17), "prefetch=17 must be"),
    (lambda data: data.evm.block_transactions(1, 2, page_size=101), "from 0 to 100"),
    (lambda data: data.primary_network.utxos("fuji", "q-chain"), "did you mean"),
    (lambda data: p_chain(data, start_timestamp=-1), "is not from 0 on"),
    (lambda data: p_chain(data, start_timestamp=datetime(2024, 1, 1)), "a datetime without a time zone"),  # noqa: DTZ001
    (lambda data: p_chain(data, start_timestamp=BEFORE_1970), "start_timestamp=-1 is not from 0 on"),
    (lambda data: data.primary_network.validators("fuji", min_fee_percentage=1.5), "is not from 2 to 100"),
    (lambda data: data.primary_network.validators("fuji", min_fee_percentage=nan), "is not from"),
    (
        lambda data: data.primary_network.transactions("fuji", "p-chain", tx_types=["AddValidatorTX"]),
        "did you mean 'AddValidatorTx'?",
    ),
]


def p_chain(data: Any, **options: Any) -> Any:
    """Return a walk over blocks of the P-Chain."""
    return data.primary_network.blocks("fuji", "p-chain", **options)


def test_what_cannot_be_sent_is_refused() -> None:
    """A wrong argument is refused before a request, with its bound or the likely name."""
    transport = scripted(lambda _: reply({}))
    session = session_of(transport)
    for call, said in REFUSED:
        with pytest.raises(ConfigurationError) as caught:
            call(session.data)
        assert said in str(caught.value)
    assert transport.requests == []


async def test_single_resources_refuse_too() -> None:
    """A wrong argument of a single resource is refused at the await, before a request."""
    transport = scripted(lambda _: reply({}))
    async with session_of(transport) as session:
        with pytest.raises(ConfigurationError, match="currency='dollar' is not known"):
            await session.data.evm.native_balance(1, "0x", currency="dollar")  # type: ignore[arg-type]  # pyright: ignore
        with pytest.raises(TypeError, match=r"block.*missing a required argument: 'block_id'"):
            await session.data.evm.block(1)  # type: ignore[call-arg]  # pyright: ignore
    assert transport.requests == []


ARGUMENTS = st.sampled_from(["chain_id", "page_size", "prefetch", "resume", "tag", "pagesize", "self"])


@settings(max_examples=60)
@given(st.lists(st.integers(), max_size=4), st.dictionaries(ARGUMENTS, st.integers(), max_size=4))
def test_arguments_are_bound_as_python_binds_them(args: list[int], kwargs: dict[str, int]) -> None:
    """A method takes the arguments that its signature takes; a missing one is a TypeError."""
    method: Any = session_of(scripted(lambda _: reply({}))).data.evm.blocks
    try:
        inspect.signature(method).bind(*args, **kwargs)
    except TypeError:
        with pytest.raises((TypeError, ConfigurationError)):
            method(*args, **kwargs)
    else:
        with contextlib.suppress(ConfigurationError):  # a value that cannot be sent
            method(*args, **kwargs)
    with pytest.raises(TypeError, match=r"blocks\(\): missing a required argument: 'chain_id'"):
        method()


# Parameters


def utxos(**options: Any) -> Any:
    """Return a call of the UTXOs of a chain."""
    return lambda data: data.primary_network.utxos("fuji", "p-chain", page_size=None, **options)


def since(time: datetime) -> Any:
    """Return a call of the blocks of the P-Chain since a time."""
    return lambda data: p_chain(data, page_size=None, start_timestamp=time)


SENT: list[tuple[Any, str]] = [
    (since(datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))), "startTimestamp=1704067200"),
    (since(datetime(2024, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)), "startTimestamp=1704067200"),
    (since(datetime.max.replace(tzinfo=UTC)), "startTimestamp=253402300799"),
    (utxos(addresses=["a", "b"]), "addresses=a,b"),
    (utxos(addresses="a,b"), "addresses=a,b"),
    (utxos(addresses=("b", "a")), "addresses=b,a"),
    (utxos(addresses={"b", "a"}), "addresses=a,b"),
    (utxos(addresses="a", include_spent=False), "addresses=a&includeSpent=false"),
    (lambda data: data.icm.messages(from_="0x1", page_size=None), "from=0x1"),
    (
        lambda data: data.primary_network.transactions("fuji", "x-chain", tx_types=["BaseTx", "ExportTx"]),
        "pageSize=100&txTypes=BaseTx&txTypes=ExportTx",
    ),
]


async def test_parameters_are_sent_as_the_service_has_them() -> None:
    """Times, lists, sets, booleans and names have the form of the service."""
    transport = scripted(lambda _: reply({"blocks": [], "transactions": [], "utxos": [], "messages": []}))
    async with session_of(transport) as session:
        for call, query in SENT:
            await call(session.data).collect()
            assert unquote(urlsplit(transport.requests[-1].url).query) == query


# Records, order, weight


def test_streams_and_groups_show_what_they_are() -> None:
    """Streams have the class in the signature, and reprs name groups and declarations."""
    session = session_of(scripted(lambda _: reply({})))
    assert type(session.metrics.avg_tps(1)).__name__ == "MetricPages"
    assert type(session.metrics.chains.metric(1, "txCount")) is Pages
    assert repr(session.data.evm).startswith("<EVM of <DataAPI of <Session")
    assert repr(ROUTES["data.evm.blocks"]) == "<EVM.blocks: /v1/chains/{chainId}/blocks>"
    names = "chain_id page_size resume page_token on_invalid prefetch priority deadline tag"
    assert list(inspect.signature(session.data.evm.blocks).parameters) == names.split()
    assert "newest first" in str(session.data.evm.blocks.__doc__)


async def test_what_else_an_answer_holds() -> None:
    """A page has the other fields of its envelope as records; `raw` is all of it."""
    info = {"chainName": "p-chain", "network": "fuji"}
    transport = scripted(lambda _: reply({"blocks": [], "chainInfo": info, "novel": True}))
    async with session_of(transport) as session:
        page = await anext(session.data.primary_network.blocks("fuji", "p-chain"))
        assert page.extra["chain_info"].chain_name == "p-chain"
        assert page.raw == {"blocks": [], "chainInfo": info, "novel": True}
        info["network"] = 5  # type: ignore[assignment]  # pyright: ignore
        with pytest.raises(DecodeError) as caught:
            await anext(session.data.primary_network.blocks("fuji", "p-chain"))
    assert caught.value.path == "$.chainInfo.network"


# Weights and estimates


def costing(price: int) -> Any:
    """Return a service whose remaining quota drops by a price with each request."""

    def answer(request: Request) -> Response:
        left = str(1000 - price * len(transport.requests))
        body = {"utxos": [], "rows": [], "nextPageToken": left}
        return reply(body, ratelimit_limit="1000", ratelimit_remaining=left)

    transport = scripted(answer)
    return transport


async def test_weights_are_what_requests_are_thought_to_cost() -> None:
    """A route's weight is the assumed cost of its requests until a response shows one."""
    async with session_of(costing(100)) as session:
        stream = session.data.primary_network.utxos("fuji", "p-chain", addresses="a")
        assert stream.estimate(rows=1).units == 100
        for _ in range(10):
            await anext(stream)
        assert session.data.quota.remaining == 0


@pytest.mark.parametrize("limit", [5, 30])
async def test_a_service_that_counts_requests(limit: int) -> None:
    """A weight above the limit delays nothing if the service counts requests."""
    simulator, began = Simulator(rows=30 * limit, limit=limit, window=60.0), asyncio.get_running_loop().time()
    async with simulated(simulator) as session:
        await session.data.primary_network.utxos("fuji", "p-chain", addresses="a", page_size=10).collect()
    assert (simulator.stats.answered[200], simulator.stats.answered[429] <= 1) == (3 * limit, True)
    assert asyncio.get_running_loop().time() - began <= 4 * 60


def novel(session: Session) -> Pages[Any]:
    """Return a list whose price is not known."""
    return session.data.list("/v1/novel", items="rows", page_size=10)


PLAN = (Limit(6_000, 60, units=True), Limit(1_200_000, 86_400, units=True))
UNITS, REQUESTS, ONE = Limit(8_000, 60, units=True), Limit(5, 60), Limit(1, 60)
DAYS = (Limit(100, 86_400), Limit(2_000_000, 86_400, units=True))
# A stream, the arguments of the estimate, and its requests, units, minutes and share of the day.
ESTIMATES: list[tuple[Callable[[Any], Any], dict[str, Any], tuple[Any, ...]]] = [
    (lambda of: of.data.evm.blocks(1), {"rows": 10**6, "limits": PLAN}, (10_000, 100_000, 16, 1 / 12)),
    (lambda of: of.data.evm.blocks(1, page_size=10), {"rows": 95}, (10, 100, None, None)),
    (lambda of: of.data.evm.blocks(1), {"rows": 1}, (1, 10, None, None)),
    (lambda of: of.data.evm.blocks_of_all_chains(), {"rows": 1}, (1, 20, None, None)),  # not in the document
    (lambda of: of.data.evm.blocks_of_all_chains(), {"rows": 10, "limits": [ONE]}, (1, 20, 0, None)),
    # The Metrics API has a scale of its own.
    (lambda of: of.metrics.chains.metric(1, "txCount"), {"rows": 1, "page_size": 1}, (1, 100, None, None)),
    (lambda of: of.data.chains(), {"rows": 50, "page_size": 100}, (1, 1, None, None)),
    # Without a known price units are None, and minutes follow from limits of requests alone.
    (novel, {"rows": 100, "limits": []}, (10, None, None, None)),
    (novel, {"rows": 100, "limits": [REQUESTS]}, (10, None, 1, None)),
    (novel, {"rows": 100, "limits": [REQUESTS, UNITS]}, (10, None, 1, None)),
    (novel, {"rows": 100, "limits": [UNITS]}, (10, None, None, None)),
    (novel, {"rows": 100, "limits": DAYS}, (10, None, 0, 0.1)),
]


def test_estimates() -> None:
    """A stream estimates requests, units, minutes and share of the day, if known."""
    session = session_of(scripted(lambda _: reply({})))
    for stream, arguments, wanted in ESTIMATES:
        found = stream(session).estimate(**arguments)
        assert (found.requests, found.units, found.minutes) == wanted[:3]
        assert found.day_share == (None if wanted[3] is None else pytest.approx(wanted[3]))
    limited = session_of(scripted(lambda _: reply({})), limits={"data": [Limit(10, 60)]})
    assert limited.data.evm.blocks(1).estimate(rows=2_000).minutes == 1, "the limits of the session"


async def test_a_price_that_responses_show_is_known() -> None:
    """The next estimate has the price by which the remaining quota drops."""
    for price in (3, 1):  # requests that count are units
        async with session_of(costing(price)) as session:
            stream = novel(session)
            for _ in range(5):
                await anext(stream)
            assert stream.estimate(rows=100).units == 10 * price


def test_what_cannot_be_estimated() -> None:
    """Invalid numbers are refused, and a limit below the cost of a single request."""
    data = session_of(scripted(lambda _: reply({}))).data
    for estimated, said in list[tuple[Callable[[], Any], str]](
        [
            (lambda: data.evm.blocks(1).estimate(rows=0), "rows=0 must be"),
            (lambda: data.evm.blocks(1).estimate(rows=1.5), "rows=1.5 must be"),  # type: ignore[arg-type]  # pyright: ignore
            (lambda: data.evm.blocks(1).estimate(rows=10**400), "from 1 to 1000000000000000"),
            (lambda: data.chains().estimate(rows=1, page_size=0), "page_size=0 must be"),
            (lambda: data.chains().estimate(rows=50), "page_size is not known"),
            *(
                (
                    partial(data.evm.blocks(1).estimate, rows=1, limits=limits),
                    "limits must be a sequence of Limit",
                )
                for limits in list[Any]([5, [5], {"data": PLAN}])
            ),
            (
                lambda: data.usage.logs().estimate(rows=1, limits=[Limit(100, 60, units=True)]),
                "a request costs 200 units: more than 100 in 60 s",
            ),
        ]
    ):
        with pytest.raises(ConfigurationError) as caught:
            estimated()
        assert said in str(caught.value)


# Providers, and imports on first use


def test_the_names_of_the_package_are_found_on_first_use() -> None:
    """Public names are found on first use, and other names are not."""
    for name in chainapi.__all__:
        assert getattr(chainapi, name) is getattr(chainapi, name)
    assert set(dir(chainapi)) == set(chainapi.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        _ = chainapi.Sesion
    for name, module in (("RateLimitedError", "errors"), ("Simulator", "simulator")):
        with pytest.raises(AttributeError, match=f"write `from chainapi.{module} import {name}`"):
            getattr(chainapi, name)


PARTS = ("export", "simulator", "testing", "cli", "share", "dask", "otel", "contrib", "_tooling")
STAGES = """
import json, sys
def stage(): print(json.dumps([*sys.modules]))
from chainapi import Session
stage()
Session(data_base_url='https://x.invalid', api_key='k')
stage()
from chainapi.json import dumps
from chainapi.models import EvmBlock
stage()
"""


@pytest.mark.adapter
def test_what_is_loaded_when() -> None:
    """A session loads no records, groups, rules of quotas and optional packages; records load no Pydantic."""
    done = subprocess.run([sys.executable, "-c", STAGES], capture_output=True, text=True, check=True)
    imported, made, recorded = (set(json.loads(line)) for line in done.stdout.splitlines())
    assert "aiohttp" in imported
    for loaded in (imported, made):
        own = {name.split(".")[1] for name in loaded if name.startswith("chainapi.")}
        assert not own & {*PARTS}
        records = ("evm", "icm", "common", "enums", "primary_network", "usage")
        assert not loaded & {f"chainapi.models.{name}" for name in records}
        assert not loaded & {"aiolimiter", "cattrs", "difflib", "html.entities", "pyarrow", "pydantic"}
    assert len([name for name in imported if name.startswith("chainapi")]) <= 30
    assert not recorded & {"pydantic", "orjson", "pyarrow", "pandas"}


FIRST_CALL = """
import asyncio, sys, threading
from chainapi import Session
from chainapi.transport import Response

class Answers:
    async def send(self, request):
        return Response(200, {}, b'{"blocks":[],"blockHash":"0x"}')
    async def aclose(self):
        pass

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("chainapi.models."):
            print(name.rpartition(".")[2], threading.current_thread() is threading.main_thread())

async def main():
    async with Session(data_base_url="https://data.invalid", api_key="key", transport=Answers()) as session:
        sys.meta_path.insert(0, Watch())
        streams = [session.data.evm.blocks(chain) for chain in (1, 2)]
        print("made")
        await asyncio.gather(*(stream.collect() for stream in streams))
        print(session.data.evm.blocks(1).model.__name__)
        try:
            await session.data.primary_network.details("mainnet")
        except Exception as error:
            print(type(error).__name__)

asyncio.run(main())
"""


@pytest.mark.adapter
def test_records_are_loaded_off_the_loop() -> None:
    """A first call loads records and builds decoders outside of the loop's thread."""
    done = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [
        "made",
        "evm False",
        "enums False",
        "common False",
        "EvmBlock",
        "primary_network False",
        "DecodeError",
        "",
    ]
