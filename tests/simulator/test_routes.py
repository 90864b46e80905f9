"""Simulated routes: each serves rows of its model in pages, as catalogued."""

from __future__ import annotations

import json
import operator
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainapi import ROUTES, Session
from chainapi._api.endpoint import Endpoint
from chainapi.errors import ChainAPIError
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.simulator import Anomalies, Settings, Simulator
from chainapi.transport import Request, Response
from tests.api.test_routes import kinds_of, method_of
from tests.documents import Maker, body_of, request_to, values

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning")

NAMES = sorted(ROUTES)
LISTS = [name for name in NAMES if not ROUTES[name].single]
SINGLES = [name for name in NAMES if ROUTES[name].single]
ROWS, POINTS = 23, 19
# Chain 7 is the one that `values` draws. Lists whose number of rows is not the setting's:
CHAINS = (43114, 7, 43113)
SELECTED = 14  # of 23 addresses, by the subquery of `values`
OTHERWISE = {
    "data.chains": len(CHAINS),
    "metrics.chains.list": len(CHAINS),
    "metrics.looking_glass.composite_query": SELECTED,
    "metrics.looking_glass.composite_query_v1": SELECTED,
}
BLOCK_ROWS = "data.evm.block_transactions"
SIZES = {name: POINTS if ROUTES[name].route.items == "results" else ROWS for name in LISTS} | OTHERWISE
GROWING = [name for name in LISTS if name not in (*OTHERWISE, BLOCK_ROWS)]
EPOCH = Settings().epoch

Json = dict[str, Any]


def simulator(**settings: Any) -> Simulator:
    """Make a simulator of small lists in which nothing is forbidden."""
    return Simulator(**{"rows": ROWS, "points": POINTS, "chains": CHAINS, "forbidden": (), **settings})


def session_with(sim: Simulator) -> Session:
    """Make a session that reaches a simulator in memory."""
    return Session(**sim.arguments())


def arguments(declared: Endpoint, *, optional: bool = False) -> Json:
    """Return arguments that the route takes, by their names in Python."""
    return values(declared, Maker(seed=1), optional=optional)


def path_of(name: str) -> str:
    """Return a path of a route, with its service before it, after the method unless that is GET."""
    declared = ROUTES[name]
    path = declared.route.path
    for parameter in declared.parameters:
        if parameter.in_path:
            path = path.replace(f"{{{parameter.wire}}}", str(arguments(declared)[parameter.name]))
    method = "" if declared.route.method == "GET" else f"{declared.route.method} "
    return f"{method}/{name.partition('.')[0]}{path}"


def place_of(name: str) -> str:
    """Return a path of a route as `Simulator.rows_of` takes it."""
    return short(name)


def needed_by(name: str) -> Json:
    """Return the values that a query of a route must have, by their names on the wire."""
    declared = ROUTES[name]
    given = {one.wire: arguments(declared)[one.name] for one in declared.parameters if one.required}
    if declared.route.method != "GET":
        return body_of(declared, {**arguments(declared)})
    wanted = [one.wire for one in declared.parameters if one.required and not one.in_path]
    texts = {wire: ",".join(value) if isinstance(value, list) else value for wire, value in given.items()}
    return {wire: texts[wire] for wire in wanted}


def full(place: str) -> str:
    """Return the path of a place with its service: of a route by its name, or of a path without one."""
    if "/" not in place:
        return path_of(place)
    method, _, path = place.rpartition(" ")
    if path.startswith(("/v1/", "/v2/")):
        path = ("/metrics" if path.startswith(("/v1/avg_tps/", "/v2/")) else "/data") + path
    return f"{method} {path}".strip()


def short(place: str) -> str:
    """Return the path of a place without its service, after the method unless that is GET."""
    method, _, path = full(place).rpartition(" ")
    return f"{method} /{path.split('/', 2)[2]}".strip()


def request(place: str, *, key: str | None = "simulated-key", **query: Any) -> Request:
    """Return a request to a place, with the required parameters of a route by its name."""
    asked = request_to(full(place), query if "/" in place else {**needed_by(place), **query})
    return Request(asked.method, asked.url, {} if key is None else {"x-data-api-key": key}, asked.body)


class Caller:
    """Calls a simulator in memory at the time that the test sets.

    A place is the name of a route, or a path, with its service or without, after the method unless that is
    GET.
    """

    defaults: ClassVar[Json] = {"rows": ROWS, "points": POINTS, "chains": CHAINS, "forbidden": ()}

    def __init__(self, *anomalies: Anomalies, **settings: Any) -> None:
        self.now = 0.0
        self.sim = Simulator(**{**self.defaults, **settings}, anomalies=anomalies, now=lambda: self.now)
        self.world = self.sim._world

    def response(self, place: str, *, key: str | None = "simulated-key", **query: Any) -> Response:
        """Return the answer to a request that is sent and delivered in one moment."""
        return self.send(request(place, key=key, **query))

    def send(self, asked: Request) -> Response:
        """Return the answer to a request that the test made."""
        call = self.world.sent(asked, self.now)
        answer = self.world.answer(call, self.now)
        self.world.delivered(call, answer.response, self.now)
        return answer.response

    def content(self, place: str, **query: Any) -> bytes:
        """Return the bytes of a successful answer."""
        response = self.response(place, **query)
        assert response.status in (200, 201), response.body
        return response.body

    def body(self, place: str, **query: Any) -> Json:
        """Return the body of a successful answer."""
        decoded: Json = loads(self.content(place, **query))
        return decoded

    def rows(self, place: str, **query: Any) -> list[Any]:
        """Return the rows of one page."""
        return rows_in(self.body(place, **query))

    def pages(self, place: str, **query: Any) -> Iterator[list[Any]]:
        """Yield the rows of each page."""
        while True:
            page = self.body(place, **query)
            yield rows_in(page)
            if "nextPageToken" not in page:
                return
            query["pageToken"] = page["nextPageToken"]

    def walk(self, place: str, **query: Any) -> list[Any]:
        """Return the rows of all pages."""
        return [row for rows in self.pages(place, **query) for row in rows]


def loads(body: bytes) -> Any:
    """Decode JSON without loss of digits."""
    return json.loads(body, parse_float=Decimal)


def rows_in(page: Json) -> list[Any]:
    """Return the rows of the body of a page."""
    return next(value for value in page.values() if isinstance(value, list))


def fields_of(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each field of a JSON value at any depth, with its name."""
    if isinstance(value, dict):
        record: Json = value
        for inner, entry in record.items():
            if inner != "genesisData":  # which is of another make
                yield from fields_of(entry, inner)
    elif isinstance(value, list):
        for entry in value:
            yield from fields_of(entry, name)
    else:
        yield name, value


def refused(response: Response) -> tuple[int, str]:
    """Return the status and the message of an error."""
    error = json.loads(response.body)
    return response.status, error["message"][0]


# Every route, through a session


async def failures(names: Iterable[str], check: Callable[[str], Awaitable[None]]) -> list[str]:
    """Return what failed of a check, by the names of routes."""
    failed = list[str]()
    for name in names:
        try:
            await check(name)
        except (AssertionError, ChainAPIError) as error:
            failed.append(f"{name}: {error}")
    return failed


async def test_every_list_is_walked_to_its_end() -> None:
    """A list yields all its rows of its model, each once, in pages of any size."""

    async def check(name: str) -> None:
        declared = ROUTES[name]
        given = arguments(declared)
        if declared.page_size is not None:
            given["page_size"] = 7
        async with session_with(simulator(metrics_page_size=7)) as session:
            pages = [page async for page in method_of(session, name)(**given)]
            rows = [row async for row in method_of(session, name)(**given).items()]
        assert rows == [row for page in pages for row in page]
        assert {type(row) for row in rows} <= set(kinds_of(declared.route.model))
        if name == BLOCK_ROWS:
            assert len(rows) <= 4
            return
        assert len(rows) == SIZES[name]
        if declared.page_size is not None:
            full, rest = divmod(len(rows), 7)
            assert [len(page) for page in pages] == [7] * full + [rest] * (rest > 0)
        if declared.route.descending_key:
            order = operator.attrgetter(declared.route.descending_key)
            assert all(order(a) >= order(b) for a, b in pairwise(rows))
        assert set(pages[0].extra) == {other for other, _ in declared.route.extra}

    assert await failures(LISTS, check) == []


async def test_every_parameter_is_taken() -> None:
    """Each route takes all its parameters, or none but the required ones; resources fit their model."""

    async def check(name: str) -> None:
        declared = ROUTES[name]
        async with session_with(simulator()) as session:
            for optional in (False, True) if declared.single else (True,):
                made = method_of(session, name)(**arguments(declared, optional=optional))
                row = await (made if declared.single else made.collect())
                assert not declared.single or type(row) in kinds_of(declared.route.model)

    assert await failures(NAMES, check) == []


def test_each_kind_of_a_union_is_made() -> None:
    """Rows of a union have all of its kinds."""
    rows = Caller(rows=100).walk("data.primary_network.validators")
    assert {row["validationStatus"] for row in rows} == {"active", "completed", "pending", "removed"}


# The same seed, the same bytes


async def test_rows_follow_from_the_seed() -> None:
    """Rows depend on the seed alone, not on the order of requests."""
    warm, cold, other = Caller(seed=1), Caller(seed=1), Caller(seed=2)
    for name in NAMES[::7]:
        warm.body(name)

    async def check(name: str) -> None:
        pages = [caller.body(name) for caller in (warm, cold, other)]
        for page in pages:
            page.pop("nextPageToken", None)
        assert pages[0] == pages[1] != pages[2]

    assert await failures(reversed(NAMES), check) == []


@given(name=st.sampled_from(GROWING), size=st.integers(1, 100), added=st.integers(0, 5))
def test_a_row_stays_the_same_row(name: str, size: int, added: int) -> None:
    """A row is unaffected by the page size and by rows added at the head."""
    before = Caller().walk(name)
    caller = Caller()
    caller.sim.insert(short(name), added)
    query = {} if ROUTES[name].page_size is None else {"pageSize": size}
    rows = caller.walk(name, **query)
    assert len(rows) == SIZES[name] + added
    assert rows[added:] == before


# What rows look like

HEX = r"0x[0-9a-f]+"
LOOKS: list[tuple[str, str]] = [
    (".*NodeId|nodeId|nodeIds", r"NodeID-[1-9A-HJ-NP-Za-km-z]{33}|node_id-\d+"),
    ("(block|tx|parent)Hash", r"0x[0-9a-f]{64}|[1-9A-HJ-NP-Za-km-z]{50}|tx_hash-\d+"),
    ("validationIdHex|messageId", r"0x[0-9a-f]{64}|message_id-\d+"),
    ("(contract|deployer|relayerReward|owner)Address", r"0x[0-9a-f]{40}"),
    ("subnetId|vmId|utxoId", r"[1-9A-HJ-NP-Za-km-z]{50}|subnet_id-\d+"),
    ("ownerAddresses", r"(avax|fuji)1[02-9ac-hj-np-z]{38}"),
    ("blockNumber|gas(Used|Price)|amount.*|balance|tokenId|nonce", r"\d+"),
    ("methodHash|input|publicKey|signature", HEX + "|"),
    (".*(Uri|Url)|url|officialSite", r"(https|wss)://.+"),
    ("lastUpdated|nextDate", r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z"),
    ("orgId|logId|apiKeyId", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("(circulating|total)Supply|stakingRatio", r"\d+\.\d+"),
    ("chainId|(source|destination)EvmChainId", "|".join(map(str, CHAINS))),
]


def test_values_look_like_what_their_fields_are_named() -> None:
    """Values have the form that their field names: hash, address, amount or time."""
    wrong = list[object]()
    for name in NAMES:
        page = Caller().body(name)
        page.pop("nextPageToken", None)
        for field, value in fields_of(page):
            looks = [look for pattern, look in LOOKS if re.fullmatch(pattern, field)]
            right = all(isinstance(value, str) and re.fullmatch(look, value) for look in looks)
            if field.lower().endswith("timestamp"):
                right = type(value) is int and abs(value - EPOCH) < 400 * 86_400
            if field.endswith("Milliseconds"):
                right = abs(int(value) / 1_000 - EPOCH) < 86_400
            if field == "evmChainId":
                right = value in CHAINS
            if not right:
                wrong.append((name, field, value))
    assert wrong == []


def test_tokens_and_chains_have_names_that_belong_together() -> None:
    """Chains have their native tokens, and tokens their symbols and decimals, on every route."""
    caller = Caller(chains=(43114, 53935, 7), rows=30)
    chains = caller.body("/data/v1/chains")["chains"]
    natives = [chain["networkToken"] for chain in chains]
    assert [token["symbol"] for token in natives][:2] == ["AVAX", "JEWEL"]
    assert [token["name"] for token in natives][:2] == ["Avalanche", "Jewel"]
    for chain, token in zip(chains, natives, strict=True):
        path = f"/data/v1/chains/{chain['chainId']}/addresses/0xa/balances:getNative"
        balance = caller.body(path)["nativeTokenBalance"]
        known = (token["name"], token["symbol"], 18)
        assert (balance["name"], balance["symbol"], balance["decimals"]) == known
    tokens = caller.walk("data.evm.erc20_balances")
    assert {("USD Coin", "USDC", 6), ("Wrapped AVAX", "WAVAX", 18)} <= {
        (row["name"], row["symbol"], row["decimals"]) for row in tokens
    }
    assert len({row["name"] for row in tokens}) == len({row["symbol"] for row in tokens}) > 5
    invented = [
        (name, field, value)
        for name in NAMES
        for field, value in fields_of(Caller(rows=20).body(name))
        if re.fullmatch(r"alpha|beta|gamma|delta|TOK|(Token|Chain) \d+", str(value))
    ]
    assert invented == []


def test_fields_that_may_be_missing_are_missing_at_times() -> None:
    """Optional fields are missing in some rows; required ones are in all."""
    rows = Caller(rows=100).walk("data.evm.erc20_balances")
    assert 50 < len([row for row in rows if "logoUri" in row]) < 100
    assert all("name" in row for row in rows)


def test_what_the_request_names_is_in_the_answer() -> None:
    """Rows and resources repeat the values of path and query in fields of that name."""
    caller = Caller()
    token = caller.body("/data/v1/chains/7/nfts/collections/0xabc/tokens/12")
    assert (token["address"], token["tokenId"]) == ("0xabc", "12")
    rows = caller.body("/data/v1/chains/7/nfts/collections/0xabc/tokens")["tokens"]
    assert {row["address"] for row in rows} == {"0xabc"}
    balance = caller.body("/data/v1/chains/7/addresses/0xabc/balances:getNative", currency="eur")
    assert balance["nativeTokenBalance"]["chainId"] == "7"
    validators = caller.body("/data/v1/networks/fuji/validators/NodeID-7", validationStatus="removed")
    seen = {(row["nodeId"], row["validationStatus"]) for row in validators["validators"]}
    assert seen == {("NodeID-7", "removed")}
    blocks = caller.body("/data/v1/networks/fuji/blockchains/c-chain/blocks")
    assert blocks["chainInfo"] == {"chainName": "c-chain", "network": "fuji"}
    block = caller.body("/data/v1/networks/fuji/blockchains/c-chain/blocks/77")
    assert (
        block["blockNumber"],
        caller.body("/data/v1/networks/fuji/blockchains/c-chain/blocks/2Abc")["blockHash"],
    ) == ("77", "2Abc")
    logs = caller.body("/data/v1/apiLogs", responseCode=418, chainId="x", requestType="rpc")["logs"]
    assert {(row["responseCode"], row["requestType"]) for row in logs} == {(418, "rpc")}
    assert {row.get("chainId", "x") for row in logs} == {"x"}


def test_what_lies_deeper_repeats_what_holds_for_all() -> None:
    """Nested records repeat chain, network and currency, but no identifier of the row."""
    caller = Caller()
    rows = caller.body("/data/v1/chains/7/addresses/0xabc/balances:listErc20", currency="eur", pageSize=23)
    assert {value for name, value in fields_of(rows) if name == "currencyCode"} == {"eur"}
    summary = caller.body("/metrics/v2/icm/summary", srcBlockchainId="2Abc")
    assert summary["result"]["srcBlockchainId"] == "2Abc"
    transactions = [
        caller.body(f"/data/v1/networks/fuji/blockchains/p-chain/transactions/{name}") for name in "abcdef"
    ]
    assert [row["txHash"] for row in transactions] == [*"abcdef"]
    outputs = [output for row in transactions for output in row["consumedUtxos"]]
    assert not {output["txHash"] for output in outputs} & {*"abcdef"}
    assert {output["addresses"][0][:5] for output in outputs} == {"fuji1"}


def test_rows_are_of_the_requested_chain() -> None:
    """Rows of the chains of a network have the kinds of their chain, which has several names."""
    caller = Caller()
    for chain, kind in (("p-chain", "unlockedUnstaked"), ("x-chain", "unlocked")):
        path = f"/data/v1/networks/mainnet/blockchains/{chain}"
        assert kind in caller.body(f"{path}/balances")["balances"]
        rows = caller.body(f"{path}/transactions")["transactions"]
        assert {"amountStaked" in row for row in rows} == {chain == "p-chain"}
    for known, chain in (
        ("yH8D7ThNJkxmtkuv2jgBa4P1Rn3Qpr4pPr7QYNfcdoS6k6HWp", "c-chain"),
        ("11111111111111111111111111111111LpoYY", "p-chain"),
    ):
        named = caller.body(f"/data/v1/networks/testnet/blockchains/{known}/utxos")
        assert named["utxos"] == caller.body(f"/data/v1/networks/fuji/blockchains/{chain}/utxos")["utxos"]
        assert named["chainInfo"] == {"chainName": chain, "network": "testnet"}


# Resources that are in a list, too


def test_a_block_is_the_one_of_the_list() -> None:
    """A block is found by number and by hash, at any age, but not before it exists."""
    caller = Caller()
    rows = caller.body("/data/v1/chains/7/blocks", pageSize=100)["blocks"]
    for row in (rows[0], rows[5], rows[-1]):
        assert caller.body(f"/data/v1/chains/7/blocks/{row['blockNumber']}") == row
        assert caller.body(f"/data/v1/chains/7/blocks/{row['blockHash']}") == row
    older = caller.body(f"/data/v1/chains/7/blocks/{rows[-1]['parentHash']}")
    assert older["blockHash"] == rows[-1]["parentHash"]
    assert int(older["blockNumber"]) < int(rows[-1]["blockNumber"])
    assert caller.body("/data/v1/chains/7/blocks/0")["blockNumber"] == "0"
    following = f"/data/v1/chains/7/blocks/{int(rows[0]['blockNumber']) + 1}"
    assert refused(caller.response(following))[0] == 404
    caller.world.insert("/v1/chains/7/blocks", 1)
    assert caller.body(following)["parentHash"] == rows[0]["blockHash"]


def test_a_block_has_the_transactions_that_it_counts() -> None:
    """The transactions of a block are those of the chain's list that lie in it."""
    caller = Caller()
    listed = caller.body("/data/v1/chains/7/transactions", pageSize=100)["transactions"]
    for block in caller.body("/data/v1/chains/7/blocks", pageSize=5)["blocks"]:
        path = f"/data/v1/chains/7/blocks/{block['blockHash']}/transactions"
        rows = caller.body(path, pageSize=0)["transactions"]
        assert len(rows) == block["txCount"]
        assert rows == [row for row in listed if row["blockHash"] == block["blockHash"]]


def test_chains_have_one_record_in_both_services() -> None:
    """Chains have one name and the same identifiers in each record of both services."""
    caller = Caller()
    rows = caller.body("/metrics/v2/chains")["chains"]
    assert [row["evmChainId"] for row in rows] == list(CHAINS)
    assert [row["network"] for row in rows] == ["mainnet", "mainnet", "testnet"]
    assert caller.body("/metrics/v2/chains/7") == rows[1]
    other = caller.body("/data/v1/chains/7")
    assert (rows[1]["subnetId"], rows[1]["chainName"]) == (other["subnetId"], other["chainName"])
    for chain in caller.body("data.evm.chains_of_address")["indexedChains"]:
        alone = caller.body(f"/data/v1/chains/{chain['chainId']}")
        assert [chain[name] == alone[name] for name in ("subnetId", "chainName", "isTestnet")] == [True] * 3


# What a query selects

METRIC = "/metrics/v2/chains/7/metrics/activeAddresses"


def test_points_lie_as_far_apart_as_requested() -> None:
    """Points of a series are one interval apart, the newest at or before the epoch."""
    for interval, step in (("hour", 3_600), ("day", 86_400), ("week", 604_800)):
        rows = Caller().rows(METRIC, timeInterval=interval)
        assert 0 <= EPOCH - rows[0]["timestamp"] < step
        assert {a["timestamp"] - b["timestamp"] for a, b in pairwise(rows)} == {step}


def test_block_bounds_take_in_what_lies_within() -> None:
    """Block bounds select exactly the transfers of the walk within them."""
    caller = Caller()
    rows = caller.walk("data.evm.erc20_transactions")
    first, last = rows[9]["blockNumber"], rows[4]["blockNumber"]
    assert caller.walk("data.evm.erc20_transactions", startBlock=first, endBlock=last) == rows[4:10]


def test_walks_are_ascending_on_request() -> None:
    """sortOrder=asc yields the oldest row first and added rows last."""
    for name in ("data.primary_network.blockchains", "data.primary_network.utxos"):
        caller = Caller()
        down = caller.walk(name)
        first = caller.body(name, sortOrder="asc")
        caller.sim.insert(short(name), 2)
        query = {"sortOrder": "asc", "pageToken": first["nextPageToken"]}
        rows = rows_in(first) + caller.walk(name, **query)
        assert (rows[:ROWS], len(rows)) == (down[::-1], ROWS + 2)


def test_values_are_as_large_as_their_metric() -> None:
    """Counts are large whole numbers, rates per second have decimals, and sums never fall."""
    for metric, kind, least in (("avgTps", Decimal, 0), ("txCount", int, 1_000)):
        rows = Caller().body(f"/metrics/v2/chains/7/metrics/{metric}")["results"]
        assert {type(row["value"]) for row in rows} == {kind}
        assert min(row["value"] for row in rows) > least
    rows = Caller().body("/metrics/v2/chains/7/metrics/cumulativeTxCount")["results"]
    numbers = [row["value"] for row in rows]
    assert numbers == sorted(numbers, reverse=True)
    assert {type(number) for number in numbers} == {int}


def test_pages_have_10_rows_by_default() -> None:
    """Default pages of the Data API have 10 rows, or all of a list without sizes.

    A metric has a default size of its own.
    """
    caller = Caller(metrics_page_size=12)
    sizes = {name: len(caller.rows(name)) for name in GROWING}
    assert {size for name, size in sizes.items() if name.startswith("metrics.")} == {12}
    assert sizes.pop("data.primary_network.chain_ids") == ROWS
    assert {size for name, size in sizes.items() if name.startswith("data.")} == {10}


# What is refused


REFUSED: list[tuple[str, Json, int, str]] = [
    (METRIC, {"pageSize": 2161}, 400, "pageSize must not be greater than 2160"),
    (METRIC, {"pageSize": "many"}, 400, "pageSize must be an integer number"),
    (METRIC, {"startTimestamp": -1}, 400, "startTimestamp must not be less than 0"),
    (METRIC, {"endTimestamp": "now"}, 400, "endTimestamp must be an integer number"),
    (METRIC, {"timeInterval": "year"}, 400, "timeInterval must be one of the following values: hour, day,"),
    ("/metrics/v2/networks/moon/metrics/validatorCount", {}, 400, "network must be one of the following"),
    ("/data/v1/chains", {"network": "moon"}, 400, "network must be one of the following values"),
    ("/data/v1/chains/7/transactions", {"status": ""}, 400, "status must be one of the following values"),
    ("/metrics/v2/chains/8/metrics/txCount", {}, 404, "chain 8 does not exist"),
    ("/metrics/v2/chains/seven", {}, 400, "chainId must be a number string"),
    ("/data/v1/chains/8/blocks/1", {}, 404, "chain 8 does not exist"),
    ("/data/v1/chains/7/addresses//transactions", {}, 404, "Cannot GET /v1/chains/7/addresses//transactions"),
    ("/metrics/v2/chains/7/contracts/0x/balances", {}, 400, "threshold should not be empty"),
    ("/data/v1/primaryNetworkRpcUsageMetrics", {}, 400, "network should not be empty"),
    ("/data/v1/networks/fuji/subnets", {"pageSize": 10_001}, 400, "pageSize must not be greater than 10000"),
    ("/data/v1/chains/7/blocks/1/transactions", {"pageSize": -1}, 400, "pageSize must not be less than 0"),
    ("/data/v1/chains/7/blocks", {"pageSize": 0}, 400, "pageSize must not be less than 1"),
    ("/data/v1/chains/7/blocks", {"pageSize": 101}, 400, "pageSize must not be greater than 100"),
    ("/data/v1/chains/7/blocks", {"pageSize": "9" * 5000}, 400, "pageSize must be an integer number"),
    (
        "/data/v1/networks/fuji/blockchains/p-chain/transactions:listStaking",
        {"txTypes": "BaseTx,Nonsense"},
        400,
        "txTypes must be one of the following values: AddValidatorTx",
    ),
]


def test_what_a_route_does_not_take_is_refused() -> None:
    """Invalid values, unknown values and chains, and missing parameters are refused in words."""
    for path, query, status, message in REFUSED:
        got, said = refused(Caller().response(path, **query))
        assert (got, said[: len(message)]) == (status, message), path


QUERIES = st.dictionaries(
    st.sampled_from(sorted({one.wire for declared in ROUTES.values() for one in declared.parameters})),
    st.one_of(st.text(max_size=8), st.integers().map(str), st.sampled_from(["asc", "week", "hourly", ""])),
    max_size=4,
)


def test_unknown_parameters_are_ignored() -> None:
    """Unknown parameters of any value change nothing."""
    caller = Caller()
    messages = caller.body("/data/v1/icm/messages", startTimestamp="then", id="7", sortOrder="asc")[
        "messages"
    ]
    assert messages == caller.body("/data/v1/icm/messages")["messages"]
    series = "/metrics/v2/networks/fuji/metrics/validatorCount"
    assert caller.body(series, timeInterval="year")["results"] == caller.body(series)["results"]


@example(name="data.nfts.token", segment="00", query={})
@given(name=st.sampled_from(NAMES), segment=st.text(max_size=8), query=QUERIES)
def test_any_question_has_an_answer(name: str, segment: str, query: dict[str, str]) -> None:
    """Any path and query get rows of the model, or an error."""
    declared = ROUTES[name]
    path = declared.route.path.replace("{chainId}", "7")
    path = re.sub(r"\{\w+\}", quote(segment, safe=""), path)
    response = Caller().response(f"/{name.partition('.')[0]}{path}", **query)
    assert response.status in (200, 400, 404)
    model, kinds = declared.route.model, set(kinds_of(declared.route.model))
    if response.status == 200 and declared.single:
        assert type(decode_resource(response.body, model)) in kinds
    elif response.status == 200:
        decoder = PageDecoder(model, declared.route.items, declared.route.extra)
        assert {type(row) for row in decoder.decode(response.body).rows} <= kinds


# Limits that count units


def test_units_are_counted_by_the_weight_of_the_route() -> None:
    """`weighted` charges the units of a route of each service, or one if its cost is unknown.

    A request above the remaining units gets 429, and cheaper ones still succeed.
    """
    caller = Caller(limit=200, weighted=True, metrics_limit=250)
    names = ("data.evm.blocks", "data.chains", "data.primary_network.details", "data.avax_supply")
    places = [*names, "/data/v1/health-check", "/data/v1/nothing", "POST /data/v1/webhooks"]
    left = [caller.response(place).headers["ratelimit-remaining"] for place in places]
    assert left == ["190", "189", "89", "88", "68", "67", "47"]
    dear = caller.response("data.primary_network.details")
    assert (dear.status, dear.headers["retry-after"]) == (429, "60")
    assert caller.response("data.chains").headers["ratelimit-remaining"] == "46"
    caller.now = 60.0
    assert caller.response("data.primary_network.details").headers["ratelimit-remaining"] == "100"
    metric = "/v2/chains/7/metrics/txCount"
    assert [caller.response(metric).status for _ in range(3)] == [200, 200, 429]
    assert caller.response("/v2/nothing").status == 404


# How it is loaded


@pytest.mark.adapter
def test_records_are_loaded_when_a_route_needs_them() -> None:
    """The import of the simulator loads no route and no server; a request loads its own records alone."""
    script = (
        "import sys\n"
        "from chainapi.transport import Request\n"
        "from chainapi.simulator import Settings, World\n"
        "groups = ('chain_metrics', 'common', 'evm', 'icm', 'primary_network', 'usage', 'webhooks')\n"
        "def loaded():\n"
        "    return [name for name in groups if 'chainapi.models.' + name in sys.modules]\n"
        "world = World(Settings())\n"
        "print('chainapi._api.catalogue' in sys.modules, loaded())\n"
        "balance = '/data/v1/chains/43114/addresses/0x1/balances:getNative'\n"
        "for path in ('/metrics/v1/avg_tps/43114', '/data/v1/chains', balance):\n"
        "    request = Request('GET', 'https://x' + path, {'x-data-api-key': 'simulated-key'})\n"
        "    answer = world.answer(world.sent(request, 0.0), 0.0)\n"
        "    assert answer.response.status == 200\n"
        "    print(loaded())\n"
        "print('aiohttp.web' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False []\n[]\n['common']\n['common', 'evm']\nFalse\n"
