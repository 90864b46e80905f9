"""Routes of both services: requests, arguments that are refused, rows and records."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import gc
import inspect
import json
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainapi
from chainapi import Limit, Pages, Provider, Session
from chainapi._tooling import route_names
from chainapi._tooling.files import COMMAND
from chainapi.api.catalogue import ROUTES, WRITES
from chainapi.api.endpoint import Endpoint, _types_of
from chainapi.api.groups.evm import EVM
from chainapi.api.options import NOT_SENT
from chainapi.api.routes import UNITS
from chainapi.client.pages import MetricPages
from chainapi.core.limits.estimate import estimate
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models import EvmBlock, Unknown
from chainapi.models.unions import tags_of
from chainapi.simulator import Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response
from tests.documents import Maker, path_pattern, values
from tests.test_session import reply, scripted, session_of
from tests.typing import every_route

NAMES = sorted(ROUTES)
DECLARED = {**ROUTES, **WRITES}


def method_of(session: Session, name: str) -> Any:
    """Return the method of a route, by its dotted name."""
    found: Any = session
    for part in name.split("."):
        found = getattr(found, part)
    return found


@contextlib.contextmanager
def deprecation(endpoint: Endpoint) -> Iterator[None]:
    """Expect a warning for each deprecated route and for no other route."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert bool(caught) == endpoint.route.deprecated
    assert all(issubclass(warning.category, DeprecationWarning) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)


def kinds_of(model: Any) -> tuple[type, ...]:
    """Return the classes that rows of a model may have."""
    return (str,) if model is None else tuple(tag.kind for tag in tags_of(model)) or (model,)


# Requests and responses


def test_all_routes_are_there() -> None:
    """Sessions have every route of the tables, each at most three names away."""
    listed = {dotted for paths in route_names.ROUTES.values() for dotted, _ in paths.values()}
    assert {*ROUTES, *WRITES} == {*listed, "metrics.avg_tps"}, f"run {COMMAND}"
    assert set(WRITES) == set(route_names.WRITES)
    assert max(name.count(".") for name in ROUTES) == 2
    assert {"data.evm.blocks", "data.primary_network.utxos", "metrics.chains.metric"} <= set(ROUTES)


@pytest.mark.parametrize("name", NAMES)
async def test_every_route(name: str) -> None:
    """Routes request their path with all parameters and return rows of their model.

    A route of a single resource returns a record.
    """
    endpoint = ROUTES[name]
    maker = Maker(seed=NAMES.index(name))
    given = values(endpoint, maker)

    def answer(request: Request) -> Response:
        if endpoint.single:
            return reply(maker.value(endpoint.route.model))
        page = len(transport.requests)
        return reply(maker.page(endpoint, rows=5, token=f"token-{page}" if page < 3 else None))

    transport = scripted(answer)
    async with session_of(transport) as session:
        in_path = [given.pop(parameter.name) for parameter in endpoint.parameters if parameter.in_path]
        with deprecation(endpoint):
            made = method_of(session, name)(*in_path, **given)
            rows = [await made] if endpoint.single else await made.collect()
    assert len(transport.requests) == (1 if endpoint.single else 3)
    assert {type(row) for row in rows} <= set(kinds_of(endpoint.route.model))
    assert len(rows) >= 1
    url = urlsplit(transport.requests[0].url)
    assert path_pattern(endpoint).fullmatch(url.path)
    body = transport.requests[0].body
    sent = {wire for wire, _ in parse_qsl(url.query)} | set(json.loads(body or b"{}"))
    assert sent == {parameter.wire for parameter in endpoint.parameters if not parameter.in_path}
    assert transport.requests[0].method == endpoint.route.method
    assert (body is None) == (endpoint.route.method == "GET")


@pytest.mark.parametrize("name", [name for name in NAMES if not ROUTES[name].single])
async def test_pages_are_as_large_as_they_can_be(name: str) -> None:
    """Pages have the largest size that the route allows, unless the caller sets one.

    The cost of a request does not depend on the page size.
    """
    endpoint = ROUTES[name]
    maker = Maker(seed=1)
    transport = scripted(lambda _: reply(maker.page(endpoint, rows=1)))
    async with session_of(transport) as session:
        with deprecation(endpoint):
            await method_of(session, name)(**values(endpoint, maker, optional=False)).collect()
    request = transport.requests[0]
    query = dict(parse_qsl(urlsplit(request.url).query))
    query |= {wire: str(value) for wire, value in json.loads(request.body or b"{}").items()}
    size = endpoint.page_size
    assert query.get("pageSize") == (None if size is None else str(size.bounds and size.bounds.most))


async def test_the_typing_calls_run() -> None:
    """Calls that the type checkers read also run."""
    simulator = Simulator(chains=[7], forbidden=[])
    async with Session(**simulator.arguments()) as session:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            await every_route.call_every_route(session)
    assert simulator.stats.answered == {200: len([name for name in NAMES if ROUTES[name].single]) - 1, 201: 1}


async def test_the_typing_calls_of_writes_run() -> None:
    """Calls of writes that the type checkers read also run, each with its method and body."""
    maker = Maker(seed=2)
    declared = iter(WRITES.values())

    def answer(request: Request) -> Response:
        endpoint = next(declared)
        assert request.method == endpoint.record.method
        assert path_pattern(endpoint).fullmatch(urlsplit(request.url).path)
        return Response(201) if endpoint.bodiless else reply(maker.value(endpoint.route.model))

    transport = scripted(answer)
    async with session_of(transport) as session:
        await every_route.call_every_write(session)
    assert len(transport.requests) == len(WRITES)


def test_the_types_of_every_route_are_checked() -> None:
    """Type checkers read calls of every route with every parameter."""
    tree = ast.parse(Path(every_route.__file__).read_text("utf-8"))
    called: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)).startswith("session."):
            count = len(node.args)
            known = list(DECLARED[name.removeprefix("session.")].parameters)
            named = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            called[name.removeprefix("session.")] = named | {one.name for one in known[:count]}
    wanted = {name: {one.name for one in endpoint.parameters} for name, endpoint in DECLARED.items()}
    walks = {*NOT_SENT}
    assert {name: given - walks for name, given in called.items()} == wanted, f"run {COMMAND}"


async def test_the_names_lead_to_the_rows() -> None:
    """The first call of the docs returns blocks with numbers and times."""
    block = {
        **Maker(seed=1, whole=True).record(EvmBlock),
        "blockNumber": "49889407",
        "blockTimestamp": 1724990250,
    }
    del block["chainId"]
    transport = scripted(lambda _: reply({"blocks": [block]}))
    async with session_of(transport) as session:
        (row,) = await session.data.evm.blocks(43114, page_size=10).collect()
    assert row.block_number == 49889407
    assert row.block_time == datetime(2024, 8, 30, 3, 57, 30, tzinfo=UTC)
    assert row.chain_id is None
    assert transport.requests[0].url.endswith("/v1/chains/43114/blocks?pageSize=10")


async def test_checkpoints_of_named_and_plain_calls_are_the_same() -> None:
    """Checkpoints of a list by name and of the same list by path are interchangeable.

    A walk by name resumes the checkpoint of the walk by path, in its own order.
    """
    maker = Maker(seed=4, whole=True)
    endpoint = ROUTES["data.evm.blocks"]
    transport = scripted(lambda _: reply(maker.page(endpoint, rows=2, token=f"t{len(transport.requests)}")))
    async with session_of(transport) as session:
        plain = session.data.list(
            "/v1/chains/1/blocks", items="blocks", page_size=100, descending_key="blockTimestamp"
        )
        checkpoint = (await anext(plain)).checkpoint
        page = await anext(session.data.evm.blocks(1, resume=checkpoint))
    assert transport.requests[1].url.endswith("pageSize=100&pageToken=t1")
    assert len(page) == 2


# Arguments that are refused

BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda data: data.evm.blocks(1, page_size=101), "page_size=101 is not from 1 to 100"),
        (lambda data: data.evm.blocks(1, page_size=0), "page_size=0 is not from 1 to 100"),
        (lambda data: data.evm.blocks(1, page_size=True), "page_size must be int, not bool"),
        (lambda data: data.evm.blocks(1, page_size="5"), "page_size must be int, not str"),
        (lambda data: data.evm.erc20_balances(1, "0x", page_size=501), "from 1 to 500"),
        (lambda data: data.primary_network.subnets("fuji", page_size=10_001), "from 1 to 10000"),
        (
            lambda data: data.primary_network.subnets("fiji"),
            "network='fiji' is not known; did you mean 'fuji'?",
        ),
        (lambda data: data.primary_network.subnets(5), "network='5' is not known; it is one of 'mainnet'"),
        (lambda data: data.evm.blocks(1, pagesize=5), "did you mean 'page_size'?"),
        (
            lambda data: data.evm.blocks(1, block_number=5),
            "it takes chain_id, deadline, on_invalid, page_size, prefetch",
        ),
        (lambda data: data.evm.blocks("a/b"), "chain_id='a/b' cannot be part of a path"),
        (lambda data: data.evm.blocks(1.5), "chain_id must be int or str, not float"),
        (lambda data: data.evm.blocks(None), "chain_id must be int or str, not NoneType"),
        (lambda data: data.evm.blocks(-1), "chain_id=-1 is negative"),
        (lambda data: data.evm.blocks(1, resume="x"), "resume= must be a Checkpoint"),
        (lambda data: data.evm.blocks(1, prefetch=17), "prefetch=17 must be"),
        (lambda data: data.evm.block_transactions(1, 2, page_size=101), "from 0 to 100"),
        (lambda data: data.primary_network.utxos("fuji", "q-chain"), "did you mean"),
        (lambda data: data.primary_network.blocks("fuji", "p-chain", start_timestamp=-1), "is not from 0 on"),
        (
            lambda data: data.primary_network.blocks("fuji", "p-chain", start_timestamp=datetime(2024, 1, 1)),  # noqa: DTZ001
            "start_timestamp is a datetime without a time zone",
        ),
        (
            lambda data: data.primary_network.blocks("fuji", "p-chain", start_timestamp=BEFORE_1970),
            "start_timestamp=-1 is not from 0 on",
        ),
        (
            lambda data: data.primary_network.validators("fuji", min_fee_percentage=1.5),
            "is not from 2 to 100",
        ),
        (
            lambda data: data.primary_network.validators("fuji", min_fee_percentage=float("nan")),
            "is not from",
        ),
        (
            lambda data: data.primary_network.transactions("fuji", "p-chain", tx_types=["AddValidatorTX"]),
            "did you mean 'AddValidatorTx'?",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused(call: Any, said: str) -> None:
    """A wrong argument is refused before a request, with its bound or the likely name."""
    transport = scripted(lambda _: reply({}))
    session = session_of(transport)
    with pytest.raises(ConfigurationError, match=r".*") as caught:
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


def test_a_missing_argument_is_a_type_error() -> None:
    """A call without a path parameter raises TypeError, as any Python function does."""
    session = session_of(scripted(lambda _: reply({})))
    with pytest.raises(TypeError, match=r"blocks\(\): missing a required argument: 'chain_id'"):
        session.data.evm.blocks()  # type: ignore[call-arg]  # pyright: ignore


ARGUMENTS = st.sampled_from(["chain_id", "page_size", "prefetch", "resume", "tag", "pagesize", "self"])


@given(st.lists(st.integers(), max_size=4), st.dictionaries(ARGUMENTS, st.integers(), max_size=4))
def test_arguments_are_bound_as_python_binds_them(args: list[int], kwargs: dict[str, int]) -> None:
    """A method takes the arguments that its signature takes, with the same values for all parameters."""
    endpoint: Endpoint = EVM.blocks.endpoint  # type: ignore[attr-defined]  # pyright: ignore
    try:
        bound = inspect.signature(endpoint.function).bind(None, *args, **kwargs)
    except TypeError:
        with pytest.raises((TypeError, ConfigurationError)):
            endpoint.bind((None, *args), kwargs)
    else:
        bound.apply_defaults()
        assert list(endpoint.bind((None, *args), kwargs).items()) == list(bound.arguments.items())


# Parameters


async def sent(call: Any) -> list[tuple[str, str]]:
    """Return the query parameters that a call sends."""
    transport = scripted(lambda _: reply({"blocks": [], "transactions": [], "utxos": [], "messages": []}))
    async with session_of(transport) as session:
        await call(session.data).collect()
    return parse_qsl(urlsplit(transport.requests[0].url).query)


async def test_times_are_sent_in_unix_seconds() -> None:
    """An aware datetime of any zone is sent as Unix seconds."""
    start = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    query = await sent(lambda data: data.primary_network.blocks("fuji", "p-chain", start_timestamp=start))
    assert query == [("pageSize", "100"), ("startTimestamp", "1704067200")]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (datetime.max.replace(tzinfo=UTC), 253402300799),
        (datetime(2024, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC), 1704067200),
    ],
)
async def test_parts_of_a_second_are_cut(time: datetime, seconds: int) -> None:
    """A time is sent as its whole seconds, also the last microsecond of the last year."""
    query = await sent(lambda data: data.primary_network.blocks("fuji", "p-chain", start_timestamp=time))
    assert query[1] == ("startTimestamp", str(seconds))


@pytest.mark.parametrize(
    ("addresses", "text"), [(["a", "b"], "a,b"), ("a,b", "a,b"), (("b", "a"), "b,a"), ({"b", "a"}, "a,b")]
)
async def test_lists_are_joined(addresses: Any, text: str) -> None:
    """Addresses are sent as one parameter, with commas; those of a set are sorted."""
    query = await sent(
        lambda data: data.primary_network.utxos("mainnet", "p-chain", addresses=addresses, page_size=None)
    )
    assert query == [("addresses", text)]


async def test_types_are_repeated() -> None:
    """Types of transactions are sent as repeated parameters."""
    query = await sent(
        lambda data: data.primary_network.transactions("fuji", "x-chain", tx_types=["BaseTx", "ExportTx"])
    )
    assert query[1:] == [("txTypes", "BaseTx"), ("txTypes", "ExportTx")]


async def test_names_that_python_keeps_are_sent_as_they_are() -> None:
    """`from_` is sent as `from`, and a boolean in lower case."""
    assert ("from", "0x1") in await sent(lambda data: data.icm.messages(from_="0x1"))
    query = await sent(
        lambda data: data.primary_network.utxos("fuji", "p-chain", addresses="a", include_spent=False)
    )
    assert ("includeSpent", "false") in query


# Records, order, weight


def test_records_are_sound() -> None:
    """Route records have bounds on existing parameters and known weights.

    `test_keys` covers the names in keys and orders.
    """
    for name, endpoint in ROUTES.items():
        route = endpoint.route
        wires = {parameter.wire for parameter in endpoint.parameters}
        assert route.until is None or route.until in wires, name
        assert route.weight is None or route.weight in UNITS, name
        assert "{" not in path_pattern(endpoint).pattern
        assert inspect.iscoroutinefunction(endpoint.function) == endpoint.single


def test_wrong_names_in_a_record_are_errors() -> None:
    """A route whose record does not exist fails at first use, naming the command."""
    with pytest.raises(NameError, match=COMMAND):
        _types_of({"rows": "NoSuchModel"}, {})


def test_streams_and_groups_show_what_they_are() -> None:
    """Streams have the class in the signature, and reprs name groups and declarations."""
    session = session_of(scripted(lambda _: reply({})))
    assert type(session.metrics.avg_tps(1)) is MetricPages
    assert type(session.metrics.chains.metric(1, "txCount")) is Pages
    assert repr(session.data.evm).startswith("<EVM of <DataAPI of <Session")
    assert repr(ROUTES["data.evm.blocks"]) == "<EVM.blocks: /v1/chains/{chainId}/blocks>"
    assert list(inspect.signature(session.data.evm.blocks).parameters) == [
        "chain_id",
        "page_size",
        "resume",
        "on_invalid",
        "prefetch",
        "priority",
        "deadline",
        "tag",
    ]
    assert "newest first" in str(session.data.evm.blocks.__doc__)


async def test_keys_identify_rows() -> None:
    """A restart yields no row twice, though fields outside of its key have changed."""
    maker = Maker(seed=5, whole=True)
    rows = [{**maker.value(ROUTES["data.icm.messages"].route.model), "messageId": str(i)} for i in range(4)]

    def answer(request: Request) -> Response:
        match len(transport.requests):
            case 1:
                return reply({"messages": rows[:2], "nextPageToken": "a"})
            case 2:
                return reply(
                    {"message": "no such token", "error": "Bad Request", "statusCode": 400}, status=400
                )
            case _:
                return reply({"messages": [{**row, "from": "0xchanged"} for row in rows]})

    transport = scripted(answer)
    async with session_of(transport) as session:
        got = await session.data.icm.messages().collect()
    assert [row.message_id for row in got] == ["0", "1", "2", "3"]


async def test_unknown_fields_and_kinds_survive() -> None:
    """Unknown fields stay in the raw page, and rows of an unknown kind are kept whole."""
    row = {"ercType": "ERC-404", "address": "0x1", "novelty": 7}
    transport = scripted(lambda _: reply({"tokens": [row], "novel": True}))
    async with session_of(transport) as session:
        page = await anext(session.data.nfts.tokens(43114, "0x1"))
    (token,) = page
    assert isinstance(token, Unknown)
    assert (token.novelty, token.erc_type, token.raw) == (7, "ERC-404", row)
    assert page.raw == {"tokens": [row], "novel": True}


async def test_what_else_an_answer_holds() -> None:
    """A page has the other fields of its envelope as records.

    A wrong field raises DecodeError.
    """
    info = {"chainName": "p-chain", "network": "fuji"}
    transport = scripted(lambda _: reply({"blocks": [], "chainInfo": info}))
    async with session_of(transport) as session:
        page = await anext(session.data.primary_network.blocks("fuji", "p-chain"))
        assert page.extra["chain_info"].chain_name == "p-chain"
        info["network"] = 5  # type: ignore[assignment]  # pyright: ignore
        with pytest.raises(DecodeError) as caught:
            await anext(session.data.primary_network.blocks("fuji", "p-chain"))
    assert caught.value.path == "$.chainInfo.network"


# Weights and estimates


async def test_weights_are_what_requests_are_thought_to_cost() -> None:
    """A route's weight is the assumed cost of its requests until a response shows one."""

    def answer(request: Request) -> Response:
        left = 1000 - 100 * len(transport.requests)
        return reply(
            {"utxos": [], "nextPageToken": str(left)}, ratelimit_limit="1000", ratelimit_remaining=str(left)
        )

    transport = scripted(answer)
    async with session_of(transport) as session:
        stream = session.data.primary_network.utxos("fuji", "p-chain", addresses="a")
        assert stream.estimate(rows=1).units == 100
        for _ in range(10):
            await anext(stream)
        assert session.data.quota.remaining == 0


@pytest.mark.parametrize("limit", [5, 30, 150])
async def test_a_service_that_counts_requests(limit: int) -> None:
    """A weight above the limit delays nothing if the service counts requests."""
    loop = asyncio.get_running_loop()
    opened, used = loop.time(), 0

    def answer(request: Request) -> Response:
        nonlocal opened, used
        if loop.time() >= opened + 60:
            opened, used = loop.time(), 0
        used += 1
        told: dict[str, Any] = {"ratelimit_policy": f"{limit};w=60", "ratelimit_limit": str(limit)}
        if used > limit:
            wait = str(int(opened + 60 - loop.time()) + 1)
            return reply({}, status=429, ratelimit_remaining="0", retry_after=wait, **told)
        token = (
            {} if len(transport.requests) >= 3 * limit else {"nextPageToken": str(len(transport.requests))}
        )
        return reply({"utxos": [], **token}, ratelimit_remaining=str(limit - used), **told)

    transport = scripted(answer)
    async with session_of(transport) as session:
        began = loop.time()
        await session.data.primary_network.utxos("fuji", "p-chain", addresses="a").collect()
    assert len(transport.requests) <= 3 * limit + 1
    assert loop.time() - began <= 4 * 60


def test_estimates() -> None:
    """A stream estimates requests, units, minutes and share of the day, offline."""
    session = session_of(scripted(lambda _: reply({})))
    plan = (Limit(6_000, 60, units=True), Limit(1_200_000, 86_400, units=True))
    found = session.data.evm.blocks(43114).estimate(rows=1_000_000, limits=plan)
    assert (found.requests, found.units) == (10_000, 100_000)
    assert found.minutes == 16
    assert found.day_share == pytest.approx(1 / 12)
    assert session.data.evm.blocks(43114, page_size=10).estimate(rows=95).requests == 10
    assert session.data.evm.blocks(43114).estimate(rows=1) == estimate(1, 100, 10)
    assert session.data.chains().estimate(rows=50, page_size=100).units == 1
    with pytest.raises(ConfigurationError, match="page_size is not known"):
        session.data.chains().estimate(rows=50)
    for nonsense in list[Any]([5, [5], {"data": plan}]):
        with pytest.raises(ConfigurationError, match=r"^limits must be a sequence of Limit$"):
            session.data.evm.blocks(1).estimate(rows=1, limits=nonsense)


def test_a_session_estimates_by_its_limits() -> None:
    """An estimate without limits= uses the limits of the session."""
    session = session_of(scripted(lambda _: reply({})), limits={"data": [Limit(10, 60)]})
    assert session.data.evm.blocks(1).estimate(rows=2_000).minutes == 1


@pytest.mark.parametrize(
    ("rows", "size", "price", "limits", "said"),
    [
        (0, 1, 1, (), "rows=0 must be"),
        (1.5, 1, 1, (), "rows=1.5 must be"),
        (10**400, 1, 1, (), "from 1 to 1000000000000000"),
        (1, 0, 1, (), "page_size=0 must be"),
        (1, 1, 200, (Limit(100, units=True),), "a request costs 200 units: more than 100 in 60 s"),
    ],
)
def test_what_cannot_be_estimated(rows: Any, size: int, price: float, limits: Any, said: str) -> None:
    """Invalid numbers are refused, and a limit below the cost of a single request."""
    with pytest.raises(ConfigurationError) as caught:
        estimate(rows, size, price, limits)
    assert said in str(caught.value)


def test_what_is_free_takes_no_time() -> None:
    """Free requests take no time under any limit."""
    assert estimate(10, 1, 0, (Limit(1, 60),)).minutes == 0


# Providers, and imports on first use


def test_the_public_deployment_is_one_value() -> None:
    """The public deployment is a preset, with its own key header."""
    public = Provider.PUBLIC
    assert public.api_key_header == "x-glacier-api-key"
    assert str(public.metrics_base_url).startswith("https://metrics.")
    assert str(public.data_base_url).startswith("https://data-api.")
    assert Provider().api_key_header == "x-data-api-key"
    assert Provider().data_base_url is None
    session = Session(provider=public, api_key="k")
    shown = repr(session)
    assert str(public.metrics_base_url) in shown
    assert str(public.data_base_url) in shown


def test_the_names_of_the_package_are_found_on_first_use() -> None:
    """Public names are found on first use, and other names are not."""
    for name in chainapi.__all__:
        assert getattr(chainapi, name) is getattr(chainapi, name)
    assert set(dir(chainapi)) == set(chainapi.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        _ = chainapi.Sesion


def loaded_by(code: str) -> set[str]:
    """Return the names of the modules that a program has loaded at its end."""
    code += "; import sys, json; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


IMPORTED = {
    "chainapi",
    *(f"chainapi.{name}" for name in ("_text", "_version", "api", "client", "core", "errors", "session")),
    *(f"chainapi.{name}" for name in ("api.view", "client.config", "client.transport")),
    *(f"chainapi.client.transport.{name}" for name in ("protocol", "sender", "direct", "connector")),
    *(f"chainapi.client.transport.{name}" for name in ("responses", "faults")),
    *(f"chainapi.core.{name}" for name in ("arguments", "duration", "http", "numbers", "private")),
}


def test_the_import_of_a_session_loads_little() -> None:
    """`from chainapi import Session` loads aiohttp and these modules of the package only."""
    loaded = loaded_by("from chainapi import Session")
    assert {name for name in loaded if name.partition(".")[0] == "chainapi"} == IMPORTED
    assert "aiohttp" in loaded
    assert not loaded & {"aiolimiter", "cattrs", "difflib", "html.entities"}


def test_nothing_of_the_models_is_loaded_by_a_session() -> None:
    """A new session has loaded no records, route groups, rules of quotas or optional parts."""
    loaded = loaded_by(
        "from chainapi import Session; Session(data_base_url='https://x.invalid', api_key='k')"
    )
    heavy = {
        f"chainapi.models.{name}" for name in ("common", "enums", "evm", "icm", "primary_network", "usage")
    }
    heavy |= {f"chainapi.{name}" for name in ("api.catalogue", "api.parameters", "core.events")}
    heavy |= {"chainapi.core.limits.estimate", "chainapi._tooling"}
    heavy |= {"chainapi.client.call", "chainapi.client.limiter", "chainapi.core.limits.quota"}
    heavy |= {"chainapi.core.limits.headers", "chainapi.core.cache"}
    assert "chainapi.client.connection" in loaded
    assert not loaded & (heavy | {"aiolimiter", "cattrs", "difflib", "html.entities"})
    assert not [name for name in loaded if name.startswith("chainapi.api.groups")]


FIRST_CALL = """
import asyncio, sys, threading
from chainapi import Session
from chainapi.core.http import Response

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


def test_a_route_keeps_no_event_loop() -> None:
    """The loader of records keeps no reference to the loop that waited for it."""
    known = ROUTES["data.evm.blocks"]
    endpoint = Endpoint(known.record, known.function, single=False)

    def run() -> weakref.ref[asyncio.AbstractEventLoop]:
        async def load() -> None:
            await asyncio.gather(endpoint.load(), endpoint.load())

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(load())
            return weakref.ref(runner.get_loop())

    loop = run()
    gc.collect()
    assert endpoint.loaded
    assert loop() is None
