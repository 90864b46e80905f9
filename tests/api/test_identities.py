"""Keys and orders of lists: every list has a decision, and declarations are sound."""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import attrs
import pytest

from chainapi import ROUTES
from chainapi._api.endpoint import Endpoint, _types_of
from chainapi._api.identity import identity_of
from chainapi._api.routes import UNITS, Route
from chainapi._tooling.entries import ROUTES as ENTRIES
from chainapi._tooling.entries import Entries
from chainapi._tooling.files import COMMAND
from chainapi.errors import DecodeError
from chainapi.models import (
    ChainInfo,
    Erc20Transfer,
    Erc721Transfer,
    Erc1155Transfer,
    EvmBlock,
    InternalTransaction,
    Invalid,
    Unknown,
    converter,
)
from tests.api.test_keys import ALL_CHAINS, MAY_BE_MISSING, put, take
from tests.api.test_routes import kinds_of
from tests.documents import LISTS, Maker, path_pattern

pytestmark = pytest.mark.rule

# Parts of rows that the documents let change from answer to answer.
CHANGING = {
    *("amount", "balance", "confirmations", "index_status", "logo_uri", "metadata", "name", "price"),
    *("progress", "reputation", "sort_key", "status", "symbol", "value", "weight"),
}


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
    """Lists each have a key or the reason for none; keys, orders and ranges have their evidence."""
    entries = Entries.read().routes
    decided = {name for name, entry in entries.items() if entry.key}
    assert {*LISTS} - {"metrics.avg_tps"} == decided, f"{ENTRIES} has a key for each"
    for name in decided:
        entry, key = entries[name], entries[name].key
        assert key is not None
        assert key.why.startswith("no key: ") == (not key.by and not key.kinds), name
        assert not (key.by and key.kinds), name
        assert entry.range is None or entry.range.why.startswith("no ranges: ") == (not entry.range.by), name
        evidence = [one.why for one in (key, entry.order, entry.cursor, entry.range) if one]
        assert min(map(len, evidence)) > 20, name


# Soundness


def test_attributes_are_there() -> None:
    """Keys and orders name required, unchanging attributes of each kind of row."""
    for name in LISTS:
        route = ROUTES[name].route
        for kind, key in keys_of(route):
            for path in key:
                found = attribute(kind, path)
                assert found is not None, (name, path)
                assert (found.default is attrs.NOTHING) != ((name, path) in MAY_BE_MISSING), (name, path)
                assert path.rpartition(".")[2] not in CHANGING, (name, path)
            if not key:
                assert all(attribute(kind, path) for path in route.immutable), name
            if route.descending_key:
                order = attribute(kind, route.descending_key)
                assert order is not None, name
                assert order.type in ("int", int), name  # a class as soon as rows were made
        assert {kind for kind, _ in route.kind_keys} <= {kind.__name__ for kind in kinds_of(route.model)}, (
            name
        )


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


def test_conditions_are_sound() -> None:
    """Conditions name optional parameters and allowed values; an order that the caller chooses has one."""
    for name in LISTS:
        endpoint = ROUTES[name]
        parameters = {parameter.name: parameter for parameter in endpoint.parameters}
        for field, parameter, value in endpoint.route.holds_if:
            assert getattr(endpoint.route, field), name
            assert not parameters[parameter].required, name
            assert value is None or value in parameters[parameter].choices, name
        conditions = {one for field, one, _ in endpoint.route.holds_if if field == "descending_key"}
        assert not endpoint.route.descending_key or {*parameters} & {"sort_order", "sort_by"} <= conditions, (
            name
        )


# Conditions of a call


def test_an_order_holds_only_for_calls_that_request_it() -> None:
    """An order holds only for calls with the sort order that gives it."""
    endpoint: Endpoint = ROUTES["data.primary_network.subnets"]
    for sort_order, order in (("desc", "create_block_timestamp"), ("asc", None), (None, None)):
        called = endpoint.for_call({"sort_order": sort_order})
        assert called.route.descending_key == order
        assert called.route.key == ("subnet_id",)
        assert (called is endpoint) == (order is not None)


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


PLACE: Any = {"tx_hash": "0x1", "log_index": 4}
# A list, a row of it, and the key of that. Kinds that a batch may repeat, unknown kinds, and rows without an
# attribute of their key have none; a message of an unknown status has the key of all messages.
KEYS: list[tuple[str, Any, Any]] = [
    ("evm.transfers", row_of(Erc20Transfer, **PLACE), ("0x1", 4)),
    ("evm.transfers", token := row_of(Erc721Transfer, **PLACE), ("0x1", 4, token.erc721_token.token_id)),
    ("evm.transfers", row_of(Erc1155Transfer), None),
    ("evm.transfers", Unknown({"txHash": "0x1", "logIndex": 4}), None),
    ("evm.blocks_of_all_chains", row_of(EvmBlock, chain_id=7, block_hash="0xa"), (7, "0xa")),
    ("evm.blocks_of_all_chains", row_of(EvmBlock, chain_id=None, block_hash="0xa"), None),
    ("chains", row_of(ChainInfo, chain_id=None), None),
    ("teleporter.messages", Unknown({"messageId": "0x1", "status": "lost"}), "0x1"),
    ("teleporter.messages", Unknown({"status": "lost"}), None),
]


def test_keys_are_read_by_kind() -> None:
    """A row has the key of its kind, if it has all attributes of it."""
    for name, row, key in KEYS:
        read = ROUTES[f"data.{name}"].identity.key
        assert read is not None
        assert read(row) == key, row
    for name, model in (("erc1155", Erc1155Transfer), ("internal", InternalTransaction)):
        route = ROUTES[f"data.evm.{name}_transactions"].route
        assert identity_of(route, declared=True).key is None
        assert all(attribute(model, path) for path in route.immutable)


def test_an_invalid_row_has_the_key_that_its_fields_give() -> None:
    """A row that does not fit its model has the key of its list, from records inside the row too."""
    for name in (name for name in LISTS if ROUTES[name].route.key):
        endpoint = ROUTES[name]
        raw = Maker(seed=1, whole=True).page(endpoint, 1)[endpoint.route.items or "chains"][0]
        row = Invalid(raw, DecodeError("invalid", path="$"))
        for read in (endpoint.identity.key, identity_of(endpoint.route, declared=False).key):
            assert read is not None
            key, parts = read(row), [take(raw, path) for path in endpoint.route.key]
            assert key == (tuple(parts) if len(parts) > 1 else parts[0]), name
            without = deepcopy(raw)
            put(without, endpoint.route.key[-1], None)
            assert read(Invalid(without, row.error)) is None, name
            assert read(Invalid("no object", row.error)) is None, name


# Records of routes


# Routes for which no weight is published: one of the Data API, and that of the specification.
UNPRICED = {"data.live_check", "metrics.avg_tps"}


def test_records_are_sound() -> None:
    """Route records have bounds on existing parameters and known weights."""
    for name, endpoint in ROUTES.items():
        route = endpoint.route
        wires = {parameter.wire for parameter in endpoint.parameters}
        assert route.until is None or route.until in wires, name
        assert (route.weight in UNITS["data"]) is (name not in UNPRICED), name
        assert "{" not in path_pattern(endpoint).pattern
        assert inspect.iscoroutinefunction(endpoint.function) == endpoint.single


def test_wrong_names_in_a_record_are_errors() -> None:
    """A route whose record does not exist fails at first use, naming the command."""
    with pytest.raises(NameError, match=COMMAND):
        _types_of({"rows": "NoSuchModel"}, {})
