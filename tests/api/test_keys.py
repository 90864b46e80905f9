"""Keys of lists: what identifies a row is a row once, and rows that differ in it are several."""

from __future__ import annotations

import asyncio
import json
import operator
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest

from chainapi import ROUTES, Provider
from chainapi.models import Invalid
from tests.api.test_routes import method_of
from tests.documents import LISTS, Maker
from tests.models.lists import Bodies, ListService
from tests.sessions import reaching
from tests.simulator.test_routes import BLOCK_ROWS, arguments, session_with, simulator

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning")

# Attributes of keys that a response may lack; a row without one has no key.
MAY_BE_MISSING = {
    ("data.chains", "chain_id"),
    ("data.evm.blocks_of_all_chains", "chain_id"),
    ("data.evm.all_latest_blocks", "chain_id"),
    ("data.evm.transactions_of_all_chains", "chain_id"),
    ("data.evm.all_latest_transactions", "chain_id"),
}
ALL_CHAINS = {
    "data.evm.blocks_of_all_chains": ("chain_id", "block_hash"),
    "data.evm.all_latest_blocks": ("chain_id", "block_hash"),
    "data.evm.transactions_of_all_chains": ("chain_id", "tx_hash"),
    "data.evm.all_latest_transactions": ("chain_id", "tx_hash"),
}

Json = dict[str, Any]


def wires(path: str) -> list[str]:
    """Return the names in JSON of a path of attributes."""
    words = [name.split("_") for name in path.split(".")]
    return [first + "".join(map(str.capitalize, others)) for first, *others in words]


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


async def walked(name: str, *pages: list[Json], **options: Any) -> list[Any]:
    """Return the rows that a walk yields from the given pages; `options` are further arguments."""
    endpoint = ROUTES[name]
    bodies = tuple({endpoint.route.items or "chains": page} for page in pages)
    async with reaching(Bodies(bodies=bodies)) as session:
        rows: list[Any] = await method_of(session, name)(**arguments(endpoint), **options).collect()
        return rows


async def test_a_list_that_goes_up_is_walked_whole_after_a_restart() -> None:
    """A restart with sort_order="asc" yields rows added at the end, and no row twice."""
    maker = Maker(seed=3, whole=True)
    model = ROUTES["data.primary_network.subnets"].route.model
    rows = [
        {**maker.value(model), "subnetId": str(i), "createBlockTimestamp": 1_700_000_000 + i}
        for i in range(5)
    ]
    service, got = ListService(rows[:4], 3, "subnets"), list[str]()
    async with reaching(service, provider=Provider(page_token_lifetime=timedelta(hours=1))) as session:
        pages = session.data.primary_network.subnets("mainnet", sort_order="asc")
        async for subnet in pages.items():
            got.append(subnet.subnet_id)
            if len(got) == 3:
                await asyncio.sleep(3_601)
                service.rows = rows
    assert (got, pages.restarts) == (["0", "1", "2", "3", "4"], 1)


async def test_an_invalid_row_that_shifts_comes_once() -> None:
    """A row that does not fit its model is left out when the list has shifted it to the next page."""
    for name, path in (
        ("data.evm.address_transactions", "native_transaction.gas_used"),
        ("data.evm.erc721_transactions", "block_timestamp"),
        ("data.evm.blocks", "gas_used"),
    ):
        maker, route = Maker(seed=2, whole=True), ROUTES[name].route
        rows = [maker.value(route.model) for _ in range(4)]
        for number, row in enumerate(rows):
            put(row, route.key[0], f"0x{number}")
            if route.descending_key is not None:
                put(row, route.descending_key, 9 - number)
        put(rows[1], path, {})
        found = await walked(name, rows[:2], rows[1:], on_invalid="raw")
        assert [isinstance(row, Invalid) for row in found] == [False, True, False, False], name


async def test_a_row_that_cannot_be_parsed_has_the_key_of_the_caller() -> None:
    """A row with half of a surrogate pair has the key that a caller names without a model."""
    rows: list[Any] = [{"block_hash": f"0x{number}", "nested": {"number": 9 - number}} for number in range(3)]
    rows[1] = json.dumps(rows[1] | {"text": "\ud800"}).encode()
    service = ListService(rows, 2, by="position")
    service.expect = lambda number: service.grow([rows[0]]) if number == 1 else None
    options: dict[str, Any] = {"key": "block_hash", "descending_key": "nested.number"}
    async with reaching(service) as session:
        found = await session.data.list("/v1/x", items="rows", on_invalid="raw", **options).collect()
    assert [isinstance(row, Invalid) for row in found] == [False, True, False]


async def test_keys_are_unique() -> None:
    """Keys are unique among the rows of each simulated list.

    Each row has a key if its list or its kind has one.
    """
    for name in LISTS:
        endpoint = ROUTES[name]
        given = arguments(endpoint)
        if name == "metrics.networks.metric":
            given["subnet_id"] = "11111111111111111111111111111111LpoYY"
        async with session_with(simulator(rows=60)) as session:
            rows = await method_of(session, name)(**given).collect()
        assert rows or name == BLOCK_ROWS
        read = endpoint.identity.key
        if read is None:
            continue
        keyed = [key for row in rows if (key := read(row)) is not None]
        assert len(set(keyed)) == len(keyed), name
        may_miss = [operator.attrgetter(path) for listed, path in MAY_BE_MISSING if listed == name]
        others = dict(endpoint.route.kind_keys)
        for row in rows:
            lacks = any(value(row) is None for value in may_miss)
            has_none = lacks or not others.get(type(row).__name__, endpoint.route.key)
            assert (read(row) is None) == has_none, name


IDENTIFYING = [
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
]


async def test_one_attribute_identifies_rows() -> None:
    """Rows that differ in one attribute of their key are all yielded."""
    keys = {name: ROUTES[name].route.key for name in LISTS if len(ROUTES[name].route.key) > 1}
    declared = [(name, path) for name, key in keys.items() for path in key]
    for name, path in {*IDENTIFYING, *declared}:
        if path == "erc_type":  # the discriminator of a union
            continue
        row = Maker(seed=2, whole=True).value(ROUTES[name].route.model)
        rows = [deepcopy(row) for _ in range(3)]
        for number, other in enumerate(rows):
            put(other, path, str(number))
        assert len(await walked(name, rows[:2], rows[2:])) == 3, (name, path)
