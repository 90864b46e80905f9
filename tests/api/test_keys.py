"""Keys and orders of lists: every list has a decision, and declarations are sound."""

from __future__ import annotations

import asyncio
import enum
import operator
import typing
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any

import attrs
import pytest

from chainapi._tooling import keys
from chainapi._tooling.files import COMMAND
from chainapi.api.catalogue import ROUTES
from chainapi.api.endpoint import Endpoint
from chainapi.api.identity import identity_of
from chainapi.api.routes import Route
from chainapi.core.paging.rows import hash_digests
from chainapi.errors import DecodeError
from chainapi.models import (
    Erc20Transfer,
    Erc721Transfer,
    Erc1155Transfer,
    EvmBlock,
    InternalTransaction,
    Invalid,
    Unknown,
    converter,
)
from chainapi.models.enums import SortOrder
from chainapi.models.unions import Tag, tags_of, wire_name
from chainapi.transport import Request, Response
from tests.api.test_routes import kinds_of, method_of
from tests.documents import Maker, values
from tests.simulator.test_routes import BLOCK_ROWS, arguments, session_with, simulator
from tests.test_session import reply, scripted, session_of

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning")

LISTS = sorted(name for name, endpoint in ROUTES.items() if not endpoint.single)
KEYED = [name for name in LISTS if ROUTES[name].route.key]
# Attributes of keys that a response may lack; a row without one has no key.
MAY_BE_MISSING = {
    ("data.chains", "chain_id"),
    ("data.evm.blocks_of_all_chains", "chain_id"),
    ("data.evm.all_latest_blocks", "chain_id"),
    ("data.evm.transactions_of_all_chains", "chain_id"),
    ("data.evm.all_latest_transactions", "chain_id"),
}
# Parts of rows that the documents let change from answer to answer.
CHANGING = {
    "amount",
    "balance",
    "confirmations",
    "index_status",
    "logo_uri",
    "metadata",
    "name",
    "price",
    "progress",
    "reputation",
    "sort_key",
    "status",
    "symbol",
    "value",
    "weight",
}
ALL_CHAINS = {
    "data.evm.blocks_of_all_chains": ("chain_id", "block_hash"),
    "data.evm.all_latest_blocks": ("chain_id", "block_hash"),
    "data.evm.transactions_of_all_chains": ("chain_id", "tx_hash"),
    "data.evm.all_latest_transactions": ("chain_id", "tx_hash"),
}

Json = dict[str, Any]


def attribute(model: Any, path: str) -> attrs.Attribute[Any] | None:
    """Return the attribute of a model at a path with dots, or None."""
    found = None
    for name in path.split("."):
        found = attrs.fields_dict(model).get(name) if attrs.has(model) else None
        if found is None:
            return None
        model = typing.get_type_hints(model)[name]
    return found


def keys_of(route: Route) -> Iterator[tuple[type, tuple[str, ...]]]:
    """Yield each kind of rows of a list with its key."""
    for kind in kinds_of(route.model):
        yield kind, dict(route.kind_keys).get(kind.__name__, route.key)


# Decisions


def test_every_list_is_decided() -> None:
    """Lists each have a decision with its reason, which the declarations follow."""
    assert set(LISTS) == set(keys.IDENTITIES), "chainapi/_tooling/keys.py has an entry for each"
    for name in LISTS:
        identity, route = keys.identity_of(name), ROUTES[name].route
        assert (route.key, dict(route.kind_keys), route.immutable) == (
            identity.key,
            identity.kinds,
            identity.immutable,
        ), f"{name}: run {COMMAND}"
        assert len(identity.why) > 20, name
        assert identity.why.startswith("no key: ") == (not identity.key and not identity.kinds), name
        assert not (identity.key and identity.kinds), name


def test_orders_are_those_of_the_records() -> None:
    """Declared orders each have their evidence and agree with it."""
    ordered = {name for name in LISTS if ROUTES[name].route.descending_key}
    assert ordered == set(keys.ORDERS), f"run {COMMAND}"
    for name, order in keys.ORDERS.items():
        route = ROUTES[name].route
        assert (route.descending_key, route.until) == (order.attribute, order.until), f"{name}: run {COMMAND}"
        assert len(order.why) > 20, name


# Soundness


@pytest.mark.parametrize("name", LISTS)
def test_attributes_are_there(name: str) -> None:
    """Keys and orders name required, unchanging attributes of each kind of row."""
    route = ROUTES[name].route
    for kind, key in keys_of(route):
        for path in key:
            found = attribute(kind, path)
            assert found is not None, (kind, path)
            assert (found.default is attrs.NOTHING) != ((name, path) in MAY_BE_MISSING), (kind, path)
            assert path.rpartition(".")[2] not in CHANGING
        if not key:
            assert all(attribute(kind, path) for path in route.immutable), kind
        if route.descending_key:
            order = attribute(kind, route.descending_key)
            assert order is not None
            assert order.type in ("int", int), kind  # a class as soon as rows were made
    assert {kind for kind, _ in route.kind_keys} <= {kind.__name__ for kind in kinds_of(route.model)}


def test_over_all_chains_the_chain_is_in_the_key() -> None:
    """Keys of lists over all chains contain the chain.

    Messages are the exception: they have an ID that is unique over all chains.
    """
    for name, key in ALL_CHAINS.items():
        assert ROUTES[name].route.key == key
    without_chain = {
        name
        for name in LISTS
        if not {parameter.wire for parameter in ROUTES[name].parameters if parameter.in_path}
        and "chain_id" not in ROUTES[name].route.key
    }
    assert without_chain == {
        *(f"data.{group}.messages" for group in ("icm", "teleporter")),
        "data.usage.logs",
        "data.webhooks.list",
        "metrics.chains.btcb_bridgers",  # of the one chain that is written in the path
        "metrics.chains.list",  # its blockchain IDs name chains of a network
        "metrics.icm.timeseries",  # as above, of both chains of a message
        "metrics.looking_glass.composite_query",  # its rows are texts, and have no key
        "metrics.looking_glass.composite_query_v1",
    }


@pytest.mark.parametrize("name", LISTS)
def test_conditions_are_sound(name: str) -> None:
    """Conditions name optional parameters, allowed values and attributes of the model."""
    endpoint = ROUTES[name]
    parameters = {parameter.name: parameter for parameter in endpoint.parameters}
    for field, parameter, value in endpoint.route.holds_if:
        assert getattr(endpoint.route, field)
        assert not parameters[parameter].required
        assert value is None or value in parameters[parameter].choices


@pytest.mark.parametrize("name", LISTS)
def test_an_order_that_the_caller_chooses_is_conditional(name: str) -> None:
    """An order is conditional if the caller can choose the sort order or property."""
    endpoint = ROUTES[name]
    conditions = {parameter for field, parameter, _ in endpoint.route.holds_if if field == "descending_key"}
    chosen = {parameter.name for parameter in endpoint.parameters} & {"sort_order", "sort_by"}
    assert not endpoint.route.descending_key or chosen <= conditions


# Conditions of a call


@pytest.mark.parametrize(
    ("sort_order", "order"),
    [
        ("desc", "create_block_timestamp"),
        ("asc", None),
        (None, None),
    ],
)
def test_an_order_holds_only_for_calls_that_request_it(
    sort_order: SortOrder | None, order: str | None
) -> None:
    """An order holds only for calls with the sort order that gives it."""
    session = session_of(scripted(lambda _: reply({})))
    subnets = session.data.primary_network.subnets
    pages = subnets("mainnet", sort_order=sort_order)
    assert pages.walk.ordered == (order is not None)
    endpoint: Endpoint = ROUTES["data.primary_network.subnets"]
    called = endpoint.for_call({"sort_order": sort_order})
    assert called.route.descending_key == order
    assert called.route.key == ("subnet_id",)
    assert (called is endpoint) == (order is not None)


async def test_a_list_that_goes_up_is_walked_whole_after_a_restart() -> None:
    """A restart with sort_order="asc" yields rows added at the end, and no row twice."""
    maker = Maker(seed=3, whole=True)
    model = ROUTES["data.primary_network.subnets"].route.model
    rows = [
        {**maker.value(model), "subnetId": str(i), "createBlockTimestamp": 1_700_000_000 + i}
        for i in range(5)
    ]

    def answer(request: Request) -> Response:
        if len(transport.requests) == 1:
            return reply({"subnets": rows[:3], "nextPageToken": "a"})
        assert "pageToken" not in request.url
        return reply({"subnets": rows})

    transport = scripted(answer)
    got: list[str] = []
    async with session_of(transport, page_token_lifetime=timedelta(hours=1)) as session:
        async for subnet in session.data.primary_network.subnets("mainnet", sort_order="asc").items():
            got.append(subnet.subnet_id)
            if len(got) == 3:
                await asyncio.sleep(3_601)
    assert got == ["0", "1", "2", "3", "4"]


def test_points_of_several_subnets_have_no_key() -> None:
    """Points of a staking metric have a key only if one subnet is requested.

    A point does not name its own subnet.
    """
    endpoint = ROUTES["metrics.networks.metric"]
    one, all_of_them = (endpoint.for_call({"subnet_id": given}).route for given in ("11111", None))
    assert (one.key, all_of_them.key) == (("timestamp",), ())
    assert all_of_them.descending_key == "timestamp"
    assert all_of_them.until == "endTimestamp"


class Way(enum.Enum):
    """Enumeration of sort orders by a user."""

    UP = "asc"
    DOWN = "desc"


def test_what_undoes_an_order_undoes_its_bound() -> None:
    """A call without the order has no bound; an enumeration counts as its value."""
    route = Route(
        "/v1/x", descending_key="n", until="end", key=("id",), holds_if=(("descending_key", "way", "desc"),)
    )
    assert route.for_call({"way": Way.DOWN}) is route
    undone = route.for_call({"way": Way.UP})
    assert (undone.descending_key, undone.until, undone.key) == (None, None, ("id",))


# Keys of rows


def test_only_declared_keys_are_hashes() -> None:
    """A key that a caller names has a digest of its text: nothing says that it is a hash."""
    blocks, transfers = (ROUTES[f"data.evm.{name}"].route for name in ("blocks", "erc20_transactions"))
    assert identity_of(blocks, declared=True).hashed
    assert not identity_of(blocks, declared=False).hashed
    assert not identity_of(transfers, declared=True).hashed  # the index of a log is in the key


def row_of(model: Any, **fields: Any) -> Any:
    """Return a row of a model with these fields."""
    made = Maker(seed=1, whole=True).record(model)
    return attrs.evolve(converter().structure(made, model), **fields)


def test_keys_are_read_by_kind() -> None:
    """Transfers have the key of their kind.

    Kinds that a batch may repeat, and unknown kinds, have no key.
    """
    read = ROUTES["data.evm.transfers"].route.key_reader()
    assert read is not None
    token = row_of(Erc721Transfer).erc721_token
    assert read(row_of(Erc20Transfer, tx_hash="0x1", log_index=4)) == ("0x1", 4)
    assert read(row_of(Erc721Transfer, tx_hash="0x1", log_index=4)) == ("0x1", 4, token.token_id)
    assert read(row_of(Erc1155Transfer)) is None
    assert read(Unknown({"txHash": "0x1", "logIndex": 4})) is None
    for name, model in (("erc1155", Erc1155Transfer), ("internal", InternalTransaction)):
        route = ROUTES[f"data.evm.{name}_transactions"].route
        assert route.key_reader() is None
        assert all(attribute(model, path) for path in route.immutable)


def test_a_row_without_an_attribute_of_its_key_has_none() -> None:
    """Blocks without a chain have no key: hashes are not unique over chains."""
    read = ROUTES["data.evm.blocks_of_all_chains"].route.key_reader()
    assert read is not None
    assert read(row_of(EvmBlock, chain_id=7, block_hash="0xa")) == (7, "0xa")
    assert read(row_of(EvmBlock, chain_id=None, block_hash="0xa")) is None
    read = ROUTES["data.chains"].route.key_reader()
    assert read is not None
    assert read(row_of(ROUTES["data.chains"].route.model, chain_id=None)) is None


def test_an_unknown_kind_has_the_key_that_its_fields_give() -> None:
    """A message of an unknown status has the key of all messages, if it has the field."""
    read = ROUTES["data.teleporter.messages"].route.key_reader()
    assert read is not None
    assert read(Unknown({"messageId": "0x1", "status": "lost"})) == "0x1"
    assert read(Unknown({"status": "lost"})) is None


@pytest.mark.parametrize("name", KEYED)
def test_an_invalid_row_has_the_key_that_its_fields_give(name: str) -> None:
    """A row that does not fit its model has the key of its list, from records inside the row too."""
    endpoint = ROUTES[name]
    raw = Maker(seed=1, whole=True).page(endpoint, 1)[endpoint.route.items or "chains"][0]
    row = Invalid(raw, DecodeError("invalid", path="$"))
    for read in (endpoint.route.key_reader(), identity_of(endpoint.route, declared=False).key):
        assert read is not None
        key, parts = read(row), [take(raw, path) for path in endpoint.route.key]
        assert key == (tuple(parts) if len(parts) > 1 else parts[0])
        without = deepcopy(raw)
        put(without, endpoint.route.key[-1], None)
        assert read(Invalid(without, row.error)) is None
        assert read(Invalid("no object", row.error)) is None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("data.evm.address_transactions", "native_transaction.gas_used"),
        ("data.evm.erc721_transactions", "block_timestamp"),
        ("data.evm.blocks", "gas_used"),
    ],
)
async def test_an_invalid_row_that_shifts_comes_once(name: str, path: str) -> None:
    """A row that does not fit its model is left out when the list has shifted it to the next page."""
    maker, route = Maker(seed=2, whole=True), ROUTES[name].route
    rows = [maker.value(route.model) for _ in range(4)]
    for number, row in enumerate(rows):
        put(row, route.key[0], f"0x{number}")
        if route.descending_key is not None:
            put(row, route.descending_key, 9 - number)
    put(rows[1], path, {})
    found = await walked(name, rows[:2], rows[1:], on_invalid="raw")
    assert [isinstance(row, Invalid) for row in found] == [False, True, False, False]


async def test_a_row_that_cannot_be_parsed_has_the_key_of_the_caller() -> None:
    """A row with half of a surrogate pair has the key and the number that a caller names without a model."""
    rows = [{"block_hash": f"0x{number}", "nested": {"number": 9 - number}} for number in range(3)]
    rows[1]["text"] = "half"

    def answer(request: Request) -> Response:
        last = len(transport.requests) == 2
        page = reply({"blocks": rows[1:] if last else rows[:2], **({} if last else {"nextPageToken": "a"})})
        return Response(page.status, page.headers, page.body.replace(b"half", b"\\ud800"))

    transport = scripted(answer)
    options: dict[str, Any] = {"key": "block_hash", "descending_key": "nested.number"}
    async with session_of(transport) as session:
        pages = session.data.list("/v1/x", items="blocks", on_invalid="raw", **options)
        found = await pages.collect()
        assert pages.walk.ordered
    assert [isinstance(row, Invalid) for row in found] == [False, True, False]


@pytest.mark.parametrize("name", LISTS)
async def test_keys_are_unique(name: str) -> None:
    """Keys are unique among the rows of a simulated list, and so are digests of hashes.

    Each row has a key if its list or its kind has one.
    """
    endpoint = ROUTES[name]
    given = arguments(endpoint)
    if name == "metrics.networks.metric":
        given["subnet_id"] = "11111111111111111111111111111111LpoYY"
    async with session_with(simulator(rows=200)) as session:
        rows = await method_of(session, name)(**given).collect()
    assert rows or name == BLOCK_ROWS
    read = endpoint.route.key_reader()
    if read is None:
        assert keys.identity_of(name).why.startswith("no key: ")
        return
    keyed = [key for row in rows if (key := read(row)) is not None]
    assert len(set(keyed)) == len(keyed)
    if identity_of(endpoint.route, declared=True).hashed:
        assert len(set(hash_digests(keyed))) == len(keyed)
    kinds = {kind for kind, key in keys_of(endpoint.route) if key}
    may_miss = [operator.attrgetter(path) for listed, path in MAY_BE_MISSING if listed == name]
    for row in rows:
        lacks = any(value(row) is None for value in may_miss)
        assert (read(row) is None) == (lacks or type(row) not in kinds)


async def walked(name: str, *pages: list[Json], **options: Any) -> list[Any]:
    """Return the rows that a walk yields from the given pages; `options` are further arguments."""
    endpoint = ROUTES[name]
    items = endpoint.route.items or "chains"

    def answer(request: Request) -> Response:
        number = len(transport.requests)
        more = {"nextPageToken": str(number)} if number < len(pages) else {}
        return reply({items: pages[number - 1], **more})

    transport = scripted(answer)
    async with session_of(transport) as session:
        rows: list[Any] = await method_of(session, name)(**arguments(endpoint), **options).collect()
        return rows


@pytest.mark.parametrize(
    ("name", "path"),
    [
        *((name, "chain_id") for name in sorted(ALL_CHAINS)),  # one deployment has one hash on several chains
        ("data.evm.erc20_transactions", "log_index"),  # one transaction has several logs
        ("data.evm.erc721_transactions", "log_index"),
        ("data.evm.erc721_transactions", "erc721_token.token_id"),  # one log may transfer several tokens
        ("data.evm.erc721_balances", "token_id"),
        ("data.evm.erc1155_balances", "token_id"),
        ("data.primary_network.pending_rewards", "reward_type"),  # of one staking transaction
        ("data.primary_network.rewards", "utxo_id"),
        ("data.primary_network.validators", "node_id"),  # one transaction may add several
        ("metrics.icm.timeseries", "dest_blockchain_id"),  # at one time
    ],
)
async def test_one_attribute_identifies_rows(name: str, path: str) -> None:
    """Rows that differ in one attribute are all yielded, also from adjacent pages."""
    row = Maker(seed=2, whole=True).value(ROUTES[name].route.model)
    rows = [deepcopy(row) for _ in range(3)]
    for number, other in enumerate(rows):
        put(other, path, str(number))
    assert len(await walked(name, rows[:2], rows[2:])) == 3


@pytest.mark.parametrize("name", [name for name in LISTS if len(ROUTES[name].route.key) > 1])
async def test_rows_that_share_a_part_of_a_key_are_several(name: str) -> None:
    """Rows that differ in one attribute of their key are all yielded.

    This also holds for rows of neighbouring pages.
    """
    maker, route = Maker(seed=2, whole=True), ROUTES[name].route
    row = maker.value(route.model)
    rows = [row]
    for path in route.key:
        other, value = deepcopy(row), take(row, path)
        if path == "erc_type":  # the discriminator of a union
            continue
        put(other, path, str(int(value) + 1) if str(value).isdecimal() else f"other {value}")
        rows.append(other)
    assert len(await walked(name, *([row] for row in rows))) == len(rows)


# Attributes that may change


def wires(path: str) -> list[str]:
    """Return the names in JSON of a path of attributes."""
    return [wire_name(name) for name in path.split(".")]


def take(row: Json, path: str) -> Any:
    """Return the value at a path in a row as plain JSON."""
    value: Any = row
    for wire in wires(path):
        value = value[wire]
    return value


def put(row: Json, path: str, value: Any) -> None:
    """Set the value at a path in a row as plain JSON."""
    *parents, last = wires(path)
    for wire in parents:
        row = row[wire]
    row[last] = value


def changed(maker: Maker, row: Json, tag: Tag | None, kind: Any, kept: tuple[str, ...]) -> Json:
    """Return a changed row of the same kind.

    Its discriminator and the paths `kept` have their old values.
    """
    other = maker.record(kind) if tag is None else maker.of_kind(tag)
    for path in kept:
        put(other, path, take(row, path))
    return other


@pytest.mark.parametrize("name", KEYED)
async def test_rows_that_have_changed_are_given_once(name: str) -> None:
    """A restart recognizes a row by its key, though all else in the row has changed."""
    endpoint, maker = ROUTES[name], Maker(seed=len(name), whole=True)
    route = endpoint.route
    given = values(endpoint, maker, optional=False)
    if name == "metrics.networks.metric":
        given["subnet_id"] = "1"
    kept = tuple({*route.key, route.descending_key or route.key[0]})
    kinds: list[tuple[Tag | None, Any]] = [(tag, tag.kind) for tag in tags_of(route.model)]
    kinds = kinds or [(None, route.model)]
    before: list[Json] = []
    after: list[Json] = []
    for number in range(4):
        tag, kind = kinds[number % len(kinds)]
        row = changed(maker, {}, tag, kind, ())
        for path in kept:
            if path.endswith("timestamp"):
                put(row, path, 1_700_000_000 - number)
        before.append(row)
        after.append(changed(maker, row, tag, kind, kept))
    assert all(a != b for a, b in zip(before, after, strict=True))
    items = route.items or "chains"
    rest = {wire_name(other): maker.value(kind) for other, kind in route.extra}

    def answer(request: Request) -> Response:
        if len(transport.requests) == 1:
            return reply({**rest, items: before[:2], "nextPageToken": "a"})
        assert "pageToken" not in request.url
        return reply({**rest, items: after})

    transport = scripted(answer)
    got: list[Any] = []
    async with session_of(transport, page_token_lifetime=timedelta(hours=1)) as session:
        async for row in method_of(session, name)(**given).items():
            got.append(row)
            if len(got) == 2:
                await asyncio.sleep(3_601)
    read = route.key_reader()
    assert read is not None
    assert len(got) == len({read(row) for row in got}) == 4
