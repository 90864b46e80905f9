"""Routes by name on the command line: descriptions, calls, estimates, completion."""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs
import pytest
from attrs import fields
from hypothesis import given
from hypothesis import strategies as st

import chainapi as package
from chainapi import Limit, Session
from chainapi.api.catalogue import ROUTES, WRITES
from chainapi.cli import FAILED, WRONG_USAGE
from chainapi.cli.estimate import read_limit
from chainapi.cli.names import is_path, method_of, plain, read_values, resolve
from chainapi.core.url import query_params
from chainapi.errors import ConfigurationError
from chainapi.models import ChainInfo, EvmBlock, HealthCheck, HealthIndicator, Money, Unknown
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.cli.terminal import BLOCKS, Fixed, chainapi
from tests.cli.terminal import environment as environment
from tests.cli.terminal import plain as seen
from tests.programs import program

UTXOS_V2 = "data.primary_network.utxos_v2"
BLOCK_NAMES = [
    "data.evm.block",
    "data.evm.block_transactions",
    "data.evm.blocks",
    "data.evm.blocks_of_all_chains",
]
UTXOS = "data.primary_network.utxos"


class Recorder(Fixed):
    """A transport with one response for all requests, which it records."""

    def __init__(self, body: object) -> None:
        super().__init__(200, body)
        self.asked: list[str] = []

    async def send(self, request: Request) -> Response:
        """Answer."""
        self.asked.append(request.url.removeprefix("https://simulator.invalid/"))
        return await super().send(request)


# Names


@pytest.mark.parametrize("name", ROUTES)
def test_each_name_leads_to_its_route_and_method(name: str) -> None:
    """Names of the catalogue each resolve to a session method with that route."""
    assert resolve(name) is ROUTES[name]
    assert method_of(Session(), name).endpoint is ROUTES[name]  # type: ignore[attr-defined]
    assert not is_path(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("data.evm.bloks", "did you mean 'data.evm.blocks'?"),
        ("blocks", "did you mean 'data.evm.blocks'?"),
        ("primary_network.utxos", "did you mean 'data.primary_network.utxos'?"),
        ("zzz", "`chainapi routes` shows all names"),
        ("v1/chains", "a path begins with '/'"),
    ],
)
def test_unknown_name_is_an_error_with_a_suggestion(name: str, message: str) -> None:
    """A name that does not exist is refused with the nearest one that does."""
    with pytest.raises(ConfigurationError, match=f"no route is named {name!r}: ") as caught:
        resolve(name)
    assert str(caught.value).endswith(message)


# Values


@pytest.mark.parametrize(
    ("name", "words", "params", "values"),
    [
        ("data.evm.blocks", ["43114"], [], {"chain_id": "43114"}),
        ("data.evm.blocks", [], ["chain_id=43114"], {"chain_id": "43114"}),
        ("data.evm.blocks", ["43114"], ["page_size=7"], {"chain_id": "43114", "page_size": 7}),
        ("data.evm.blocks", ["43114"], ["pageSize=7"], {"chain_id": "43114", "page_size": 7}),
        (
            UTXOS,
            ["fuji", "p-chain"],
            ["addresses=a,b", "addresses=c", "min_utxo_amount=0.5"],
            {
                "network": "fuji",
                "blockchain_id": "p-chain",
                "addresses": ["a", "b", "c"],
                "min_utxo_amount": 0.5,
            },
        ),
        (UTXOS, ["fuji", "p-chain"], ["min_utxo_amount=2"], {"min_utxo_amount": 2}),
        ("data.evm.erc20_balances", ["1", "0x"], ["filter_spam_tokens=false"], {"filter_spam_tokens": False}),
        ("data.evm.erc20_balances", ["1", "0x"], ["filter_spam_tokens=true"], {"filter_spam_tokens": True}),
    ],
)
def test_values_are_read_as_the_route_takes_them(
    name: str, words: list[str], params: list[str], values: dict[str, Any]
) -> None:
    """Words fill the path in its order; --param fills any parameter.

    --param takes the name in Python or the one on the wire.
    """
    found = read_values(name, words, params)
    assert {key: found[key] for key in values} == values
    assert {key: type(found[key]) for key in values} == {key: type(value) for key, value in values.items()}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1700000000", 1_700_000_000),
        ("2026-01-01", 1_767_225_600),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600),
        ("2026-01-01T00:00:00Z", 1_767_225_600),
    ],
)
def test_times_are_seconds_or_iso_dates(text: str, seconds: int) -> None:
    """A timestamp is Unix seconds or an ISO date, in UTC unless it has a zone."""
    words = ["43114", "activeAddresses"]
    assert (
        read_values("metrics.chains.metric", words, [f"start_timestamp={text}"])["start_timestamp"] == seconds
    )


@pytest.mark.parametrize(
    ("name", "words", "params", "message"),
    [
        ("data.evm.blocks", [], [], "missing chain_id; usage: data.evm.blocks CHAIN_ID"),
        (
            "data.primary_network.chain_ids",
            [],
            [],
            "missing network, addresses; usage: data.primary_network.chain_ids NETWORK --param addresses=",
        ),
        ("data.evm.blocks", ["1", "2"], [], "'2' is one value too many; usage: data.evm.blocks CHAIN_ID"),
        ("data.chains", ["1"], [], "'1' is one value too many; usage: data.chains"),
        ("data.evm.blocks", ["1"], ["chain_id=2"], "chain_id takes one value, not 2"),
        ("data.evm.blocks", ["1"], ["page_size=7", "pageSize=7"], "page_size takes one value, not 2"),
        ("data.evm.blocks", ["1"], ["page_size=x"], "page_size='x' is invalid: it must be a whole number"),
        ("data.evm.blocks", ["1"], ["page_size=101"], "page_size=101 is not from 1 to 100"),
        ("data.evm.blocks", ["1"], ["page_sise=1"], "did you mean 'page_size'?"),
        ("data.evm.blocks", ["1"], ["page_size"], "--param 'page_size' must be NAME=VALUE"),
        (UTXOS, ["fugi", "p-chain"], [], "network='fugi' is not known; did you mean 'fuji'?"),
        (UTXOS, ["fuji", "p-chain"], ["min_utxo_amount=x"], "is invalid: it must be a number"),
        (
            "data.evm.erc20_balances",
            ["1", "0x"],
            ["filter_spam_tokens=yes"],
            "filter_spam_tokens='yes' is invalid: it must be true or false",
        ),
        (
            "metrics.chains.metric",
            ["1", "activeAddresses"],
            ["start_timestamp=soon"],
            "it must be a whole number or an ISO date such as 2026-01-31",
        ),
        ("metrics.chains.metric", ["1", "activeAddresses"], ["start_timestamp=-1"], "is not from 0 on"),
    ],
)
def test_invalid_value_is_named(name: str, words: list[str], params: list[str], message: str) -> None:
    """A missing, surplus, unknown or invalid value is one error that names it."""
    with pytest.raises(ConfigurationError) as caught:
        read_values(name, words, params)
    assert message in str(caught.value)


def test_values_need_not_be_whole() -> None:
    """Values are checked without a request; missing values are no error."""
    assert read_values(UTXOS, ["fuji"], whole=False) == {"network": "fuji"}
    with pytest.raises(ConfigurationError, match="network"):
        read_values(UTXOS, ["fugi"], whole=False)


WITH_RECORDS = {name for name, one in ROUTES.items() if any(part.union for part in one.parameters)}


@given(st.sampled_from(sorted(ROUTES.keys() - WITH_RECORDS)), st.data())
def test_words_that_a_route_takes_are_sent_as_they_are(name: str, data: st.DataObject) -> None:
    """Values written as words and parsed again are sent exactly as given."""
    endpoint = resolve(name)
    segments = [one for one in endpoint.parameters if one.in_path]
    others = [one for one in endpoint.parameters if not one.in_path]
    given_ = {one.name: data.draw(values_of(one)) for one in endpoint.parameters}
    words = [str(given_[one.name]) for one in segments]
    params = [f"{one.name}={word(given_[one.name])}" for one in others]
    read = read_values(name, words, params)
    assert set(read) == set(given_)
    for one in endpoint.parameters:
        assert query_params({"x": read[one.name]}) == query_params({"x": one.checked(given_[one.name])})


def values_of(one: Any) -> st.SearchStrategy[Any]:
    """Return values that a parameter takes."""
    if one.choices:
        value: st.SearchStrategy[Any] = st.sampled_from(one.choices)
    elif bool in one.kinds:
        value = st.booleans()
    elif int in one.kinds and (one.bounds or str not in one.kinds):
        bounds = one.bounds
        least, most = (int(bounds.least), bounds.most) if bounds else (0, None)
        value = st.integers(least, int(most) if most else 2**80)
        if datetime in one.kinds:
            value = st.integers(least, 4_000_000_000)
    else:
        value = st.text("abcxyz0189-_", min_size=1, max_size=12)
    return st.lists(value, min_size=1, max_size=3) if one.many else value


def word(value: Any) -> str:
    """Return a value as it is written on a command line."""
    ((_, text),) = query_params({"x": value})
    return text


# Rows


def test_rows_keep_every_digit() -> None:
    """Rows keep whole numbers, decimals as texts and nested records as objects.

    Records may be nested in lists and maps.
    """
    check = HealthCheck(status="ok", info={"db": HealthIndicator(status="up")})
    assert plain(Money(currency_code="usd", value=Decimal("1.10")))["value"] == "1.10"
    assert plain(check)["info"]["db"]["status"] == "up"
    assert plain([2**80, ("a", None)]) == [2**80, ["a", None]]


def test_row_of_an_unknown_kind_is_its_raw_object() -> None:
    """A row outside of all models is printed unchanged."""
    raw = {"ercType": "ERC-9999", "amount": 2**80, "nested": {"a": [1]}}
    assert plain(Unknown(raw)) == raw
    outcome = chainapi("list", "data.nfts.tokens", "43114", "0x1", transport=Fixed(200, {"tokens": [raw]}))
    assert (outcome.code, outcome.rows) == (0, [raw])


# chainapi list NAME


def test_list_by_name_prints_the_fields_of_the_model() -> None:
    """Rows have the path, names and types of the model."""
    rows = chainapi("list", "data.evm.blocks", "43114", "--limit", "20", "--page-size", "7").rows
    raw = chainapi("list", BLOCKS, "--limit", "20").rows
    assert list(rows[0]) == [field.name for field in fields(EvmBlock)]
    assert [row["block_number"] for row in rows] == [int(row["blockNumber"]) for row in raw]
    assert [row["block_hash"] for row in rows] == [row["blockHash"] for row in raw]


def test_list_by_name_requests_full_pages() -> None:
    """`list` by name requests pages of the largest size unless --page-size sets one."""
    transport = Recorder({"blocks": []})
    assert chainapi("list", "data.evm.blocks", "43114", transport=transport).code == 0
    assert transport.asked == ["data/v1/chains/43114/blocks?pageSize=100"]


def test_list_by_name_sends_what_it_is_given() -> None:
    """`list` by name sends path values and parameters by their names on the wire."""
    transport = Recorder({"utxos": []})
    params = ["addresses=a,b", "addresses=c", "asset_id=x", "includeSpent=true"]
    options = [part for param in params for part in ("--param", param)]
    outcome = chainapi("list", UTXOS, "fuji", "p-chain", *options, transport=transport)
    assert (outcome.code, outcome.err) == (0, "")
    (url,) = map(urlsplit, transport.asked)
    assert url.path == "data/v1/networks/fuji/blockchains/p-chain/utxos"
    assert dict(parse_qsl(url.query)) == {
        "pageSize": "100",
        "addresses": "a,b,c",
        "assetId": "x",
        "includeSpent": "true",
    }


def test_list_by_name_reaches_the_metrics() -> None:
    """The service follows from the name, without an option."""
    rows = chainapi("list", "metrics.avg_tps", "43114", "--limit", "2").rows
    assert [row["timestamp"] for row in rows] == [1_767_225_600, 1_767_139_200]


def test_list_of_a_single_resource_prints_it() -> None:
    """`list` of a single resource prints one line of JSON, or an indented object.

    A terminal gets the indented object.
    """
    outcome = chainapi("list", "data.chain", "43114")
    (chain,) = outcome.rows
    assert (chain["chain_id"], chain["status"], chain["network_token"]["symbol"]) == (43114, "OK", "AVAX")
    drawn = seen(chainapi("list", "data.chain", "43114", tty=True).out)
    assert len(drawn) > 10
    assert json.loads("\n".join(drawn)) == chain


def test_list_by_name_prints_a_table() -> None:
    """A terminal gets the fields of the model as columns."""
    text = seen(chainapi("list", "data.evm.blocks", "43114", "--limit", "3", tty=True).out)
    assert text[0].split()[:2] == ["chain_id", "block_number"]
    assert sum(line.startswith("43114 ") for line in text) == 3


def test_list_of_texts_prints_them() -> None:
    """Rows that are no records are printed unchanged."""
    outcome = chainapi(
        "list", "data.webhooks.addresses", "id", transport=Fixed(200, {"addresses": ["a", "b"]})
    )
    assert (outcome.code, outcome.rows) == (0, ["a", "b"])


def test_list_by_name_goes_on_where_it_failed() -> None:
    """`list` by name continues a failed walk with the printed command.

    The command prints exactly the missing rows, however often it fails.
    """
    simulator = Simulator(limit=3)
    command = ["list", "data.evm.blocks", "43114", "--param", "page_size=10", "--limit", "65"]
    words, rows, at = [*command, "--max-wait", "0"], [], 0.0
    for given_, left in ((30, "35"), (30, "5")):
        outcome = chainapi(*words, transport=simulator.transport(), at=at)
        assert (outcome.code, len(outcome.rows)) == (FAILED, given_)
        rows += outcome.rows
        program, *words = shlex.split(outcome.err.splitlines()[-1].partition("to continue: ")[2])
        assert (program, words[:3]) == ("chainapi", command[:3])
        assert words[words.index("--limit") + 1] == left
        at += 100.0
    last = chainapi(*words, transport=simulator.transport(), at=at)
    assert last.code == 0
    assert rows + last.rows == chainapi(*command, transport=Simulator().transport()).rows


@pytest.mark.parametrize("single", [False, True])
def test_deprecated_route_is_reported_in_one_line(single: bool) -> None:
    """A deprecated route prints one line on standard error and no Python warning."""
    name = "data.teleporter.message" if single else "data.teleporter.messages"
    body = {"a": 1} if single else {"messages": [{"a": 1}]}
    outcome = chainapi("list", name, *["x"] * single, transport=Fixed(200, body))
    assert (outcome.code, outcome.rows) == (0, [{"a": 1}])
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"chainapi: {name} is deprecated: the service will remove /v1/teleporter/messages")


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["data.evm.bloks"], "did you mean 'data.evm.blocks'?"),
        (["data.evm.blocks"], "missing chain_id"),
        (["data.evm.blocks", "1", "--api", "metrics"], "--api does not apply"),
        (["data.evm.blocks", "1", "--items", "blocks"], "--items does not apply"),
        (["data.evm.blocks", "1", "--page-size", "101"], "--page-size 101 is not from 1 to 100"),
        (
            ["data.evm.blocks", "1", "--page-size", "7", "--param", "page_size=7"],
            "page_size takes one value, not 2",
        ),
        (["data.chain", "1", "--page-size", "7"], "page_size"),
        (["data.chain", "1", "--all"], "--all does not apply: data.chain returns a single resource"),
        (["data.chain", "1", "--resume", "{}"], "--resume does not apply"),
        ([BLOCKS, "43114"], "VALUE does not apply"),
        ([BLOCKS, "--param", "pageSize=7"], "--param pageSize=7 does not apply: give --page-size"),
        ([BLOCKS, "--param", "pageToken=x"], "--param pageToken=x does not apply: the walk sets it"),
        ([BLOCKS, "--param", "pagesize=7"], "--param pagesize=7 is not a query parameter, see --help"),
        (
            [BLOCKS, "--param", "start_block=7"],
            "start_block=7 is not a query parameter: those of the services have no underscore, see --help",
        ),
        (["data.evm.blocks", "1", "--resume", "{}"], "--resume: this is no checkpoint"),
    ],
)
def test_list_refuses_wrong_usage(tokens: list[str], message: str) -> None:
    """`list` refuses options and values that do not apply, in one line, unsent."""
    outcome = chainapi("list", *tokens, transport=Fixed(500, {}))
    assert (outcome.code, outcome.out) == (WRONG_USAGE, "")
    (line,) = outcome.err.splitlines()
    assert message in line


# chainapi routes


def test_routes_are_lines_of_json() -> None:
    """Each route is a line of JSON with all its properties."""
    rows = {row["name"]: row for row in chainapi("routes").rows}
    assert list(rows) == [*ROUTES, *WRITES]
    for name, endpoint in {**ROUTES, **WRITES}.items():
        row, route = rows[name], endpoint.route
        assert (row["path"], row["weight"], row["units"]) == (route.path, route.weight, route.units)
        assert (row["single"], row["deprecated"]) == (endpoint.single, route.deprecated)
        assert (row["method"], row["idempotency"]) == (route.method, route.idempotency.value)
        assert row["reads"] == (name in ROUTES)
        assert [one["name"] for one in row["parameters"]] == [one.name for one in endpoint.parameters]
    blocks = rows["data.evm.blocks"]
    assert (blocks["model"], blocks["units"]) == ("EvmBlock", 10)
    assert rows["data.webhooks.addresses"]["model"] == "str"
    chain_id, page_size = blocks["parameters"]
    assert (chain_id["required"], chain_id["in_path"], chain_id["types"]) == (True, True, ["int", "str"])
    assert (page_size["wire"], page_size["bounds"], page_size["default"]) == ("pageSize", [1, 100], 100)
    network = rows[UTXOS]["parameters"][0]
    assert network["choices"] == ["mainnet", "fuji", "testnet"]


@pytest.mark.parametrize("text", ["evm.b", "EVM.B", "/blocks", "chainid}/BLOCKS"])
def test_routes_are_found_by_name_or_path(text: str) -> None:
    """A text finds the routes that have it in their name or path, in any case."""
    found = [row["name"] for row in chainapi("routes", text).rows]
    low = text.lower()
    assert found == [name for name in ROUTES if low in name or low in ROUTES[name].route.path.lower()]
    assert "data.evm.blocks" in found
    assert len(found) < len(ROUTES)


def test_no_route_found_is_a_failure() -> None:
    """A text in no name or path is an error with exit code 1."""
    outcome = chainapi("routes", "zzz")
    assert (outcome.code, outcome.out) == (FAILED, "")
    assert outcome.err == "chainapi: no route has 'zzz' in its name or path: `chainapi routes` shows all\n"


def test_routes_are_a_table_on_a_terminal() -> None:
    """A terminal shows names, parameters, results, units, and deprecated routes."""
    text = seen(chainapi("routes", "evm.blocks", tty=True).out)
    assert text[0].split() == ["route", "parameters", "returns", "units"]
    assert text[-1].split() == ["data.evm.blocks", "chain_id", "[page_size]", "Pages[EvmBlock]", "10"]
    assert "(deprecated)" in chainapi("routes", "teleporter", tty=True).out
    assert "(deprecated)" not in chainapi("routes", "data.icm.", tty=True).out


def test_one_route_is_shown_in_detail() -> None:
    """A route by its whole name has path, parameters with bounds, and row fields."""
    text = seen(chainapi("routes", "data.evm.blocks", tty=True).out)
    assert text[1] == "GET /v1/chains/{chainId}/blocks, returns Pages[EvmBlock]"
    assert text[2] == "weight: small, 10 units a request"
    lines = [line.split() for line in text]
    assert ["chain_id", "int", "or", "str", "required"] in lines
    assert ["page_size", "int,", "from", "1", "to", "100", "100"] in lines
    assert ["block_number", "int"] in lines
    (row,) = chainapi("routes", "data.evm.blocks", "--json", tty=True).rows
    assert list(row["fields"]["EvmBlock"]) == [field.name for field in fields(EvmBlock)]


def test_writes_are_shown_and_not_called() -> None:
    """Routes that write are in the list and in detail; commands that read refuse them by their reason."""
    assert "(writes)" in chainapi("routes", "webhooks.create", tty=True).out
    assert "(writes)" not in chainapi("routes", "webhooks.get", tty=True).out
    text = seen(chainapi("routes", "data.webhooks.deactivate", tty=True).out)
    assert text[1] == "DELETE /v1/webhooks/{id}, returns Webhook | None"
    assert text[2] == "writes: idempotent, called from Python only"
    outcome = chainapi("list", "data.webhooks.create")
    assert outcome.code == WRONG_USAGE
    assert "it writes, and is called from Python only: session.data.webhooks.create()" in outcome.err


SUBQUERY = {
    "id": "1",
    "type": "LatestBalanceStarsArena",
    "params": {"minBalance": "1", "subjectAddress": "0xa"},
}


def test_records_of_a_request_are_json_on_the_command_line() -> None:
    """A list with POST is read by its name; a record is given as its JSON."""
    queries = f"queries={json.dumps(SUBQUERY)}"
    command = ("list", "metrics.looking_glass.composite_query", "--param", "operator=OR", "--limit", "3")
    outcome = chainapi(*command, "--param", queries)
    assert outcome.code == 0
    assert len(outcome.rows) == 3
    assert chainapi("list", UTXOS_V2, "fuji", "p-chain", "--param", "addresses=a,b", "--limit", "2").code == 0
    refused = chainapi(*command, "--param", "queries={}x")
    assert refused.code == WRONG_USAGE
    assert "is not the JSON of one of its records" in refused.err


def test_types_are_shown_as_they_are_declared() -> None:
    """Types of fields have the same text before and after rows are made."""
    assert chainapi("list", "data.chain", "43114").code == 0
    attrs.resolve_types(ChainInfo, include_extras=True)
    (row,) = chainapi("routes", "data.chain").rows
    shown = row["fields"]["ChainInfo"]
    assert (shown["chain_id"], shown["status"]) == ("int | None", "str | None")


def test_kinds_of_rows_are_shown_one_by_one() -> None:
    """Rows of several kinds have the fields of each; lists and deprecation are shown."""
    (row,) = chainapi("routes", "data.evm.transfers").rows
    assert list(row["fields"]) == ["Erc20Transfer", "Erc721Transfer", "Erc1155Transfer"]
    assert "list of str" in chainapi("routes", UTXOS, tty=True).out
    assert "deprecated: " in chainapi("routes", "data.teleporter.messages", tty=True).out
    assert chainapi("routes", "data.webhooks.addresses").rows[0]["fields"] == {}
    assert "weight" not in chainapi("routes", "data.health_check", tty=True).out


@pytest.mark.parametrize("name", ROUTES)
def test_each_route_can_be_shown(name: str) -> None:
    """Descriptions of all routes can be printed as JSON and as text."""
    (row,) = chainapi("routes", name).rows
    assert row["name"] == name
    text = chainapi("routes", name, tty=True)
    assert text.code == 0
    assert ROUTES[name].route.path in "".join(seen(text.out))
    assert "Annotated" not in text.out


# chainapi estimate


def test_estimate_needs_no_service_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate needs no variables, values or requests."""
    for name in [name for name in os.environ if name.startswith("CHAINAPI_")]:
        monkeypatch.delenv(name)
    outcome = chainapi(
        *("estimate", "data.evm.blocks", "--rows", "1000000"),
        *("--limit", "6000/minute", "--limit", "1200000/day"),
        transport=Fixed(500, {}),
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.rows == [
        {
            "route": "data.evm.blocks",
            "rows": 1_000_000,
            "sources": 1,
            "page_size": 100,
            "requests": 10_000,
            "units": 100_000,
            "minutes": 16.0,
            "day_share": 100_000 / 1_200_000,
        }
    ]


async def test_estimate_is_that_of_the_library() -> None:
    """`estimate` of one source equals the estimate of its stream."""
    limits = [Limit(600, per=60, units=True), Limit(100_000, per=86_400, units=True)]
    cost = Session().data.evm.blocks(43114, page_size=25).estimate(rows=12_345, limits=limits)
    options = ["--rows", "12345", "--page-size", "25", "--limit", "600/60s", "--limit", "100000/day"]
    (row,) = chainapi("estimate", "data.evm.blocks", "43114", *options).rows
    assert (row["requests"], row["units"], row["minutes"], row["day_share"]) == (
        cost.requests,
        cost.units,
        cost.minutes,
        cost.day_share,
    )


def test_estimate_of_several_sources_rounds_each() -> None:
    """Each source has a last page of its own, and a single resource is a request each."""
    (row,) = chainapi("estimate", "data.evm.blocks", "--rows", "101", "--sources", "3").rows
    assert (row["requests"], row["units"]) == (6, 60)
    (row,) = chainapi("estimate", "data.chain", "--rows", "1", "--sources", "500").rows
    assert (row["requests"], row["units"], row["day_share"]) == (500, 500, None)


def test_estimate_without_a_weight_counts_requests() -> None:
    """A route without a weight costs one unit a request, which the table states."""
    (row,) = chainapi("estimate", "metrics.avg_tps", "--rows", "1000", "--page-size", "100").rows
    assert (row["requests"], row["units"]) == (10, 10)
    text = chainapi("estimate", "metrics.avg_tps", "--rows", "10", "--page-size", "100", tty=True).out
    assert "its weight is not known: assumed to be 1" in text


def test_estimate_is_a_table_on_a_terminal() -> None:
    """A terminal gets requests, units, minutes and the share of a day."""
    command = ["estimate", "data.evm.blocks", "--rows", "1000000", "--limit", "1200000/day"]
    lines = [line.split() for line in seen(chainapi(*command, tty=True).out)]
    assert lines[0] == ["requests", "10,000"]
    assert lines[1][:2] == ["units", "100,000"]
    assert lines[2][:2] == ["minutes", "0.0"]
    assert lines[3] == ["share", "of", "a", "day", "8.3%"]
    assert chainapi(*command, "--json", tty=True).rows == chainapi(*command).rows


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("600/60", Limit(600, per=60, units=True)),
        ("100/60s", Limit(100, per=60, units=True)),
        ("100/1.5s", Limit(100, per=1.5, units=True)),
        ("6000/minute", Limit(6_000, per=60, units=True)),
        ("6000/5min", Limit(6_000, per=300, units=True)),
        ("7/hours", Limit(7, per=3_600, units=True)),
        ("7/2h", Limit(7, per=7_200, units=True)),
        ("1_200_000/day", Limit(1_200_000, per=86_400, units=True)),
        ("9/2 days", Limit(9, per=172_800, units=True)),
        ("9/s", Limit(9, per=1, units=True)),
    ],
)
def test_limits_are_read(text: str, limit: Limit) -> None:
    """A limit is an amount in a time, in seconds or in a unit that is named."""
    assert read_limit(text) == limit


@pytest.mark.parametrize(
    "text",
    ["", "600", "600/", "/60", "x/60", "600/x", "600/60ms", "0/60", "600/0", "6/1.2.3", f"{'9' * 400}/60"],
)
def test_what_is_no_limit_is_refused(text: str) -> None:
    """Limits in any other notation are refused with the valid form, or the reason."""
    with pytest.raises(ConfigurationError, match="--limit '"):
        read_limit(text)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["data.evm.blocks"], "--rows"),
        (["data.evm.blocks", "--rows", "0"], "--rows"),
        (["data.evm.blok", "--rows", "1"], "did you mean 'data.evm.block'?"),
        ([BLOCKS, "--rows", "1"], f"the cost of {BLOCKS!r} is not known: give the name of a route"),
        (["data.chains", "--rows", "1"], "give --page-size"),
        (["data.chain", "--rows", "1", "--page-size", "7"], "--page-size does not apply"),
        (["data.evm.blocks", "--rows", "1", "--page-size", "101"], "--page-size 101"),
        (["data.evm.blocks", "1", "2", "--rows", "1"], "one value too many"),
        (["data.evm.blocks", "--rows", "1", "--limit", "5/60"], "a request costs 10 units"),
        (["data.evm.blocks", "--rows", "1", "--limit", "much"], "AMOUNT/TIME"),
    ],
)
def test_estimate_refuses_wrong_usage(tokens: list[str], message: str) -> None:
    """An estimate without enough information is wrong usage in one line."""
    outcome = chainapi("estimate", *tokens)
    assert (outcome.code, outcome.out) == (WRONG_USAGE, "")
    (line,) = outcome.err.splitlines()
    assert message in line


# Completion


def completed(*words: str) -> list[str]:
    """Return the completions of the last word."""
    process = subprocess.run(
        [sys.executable, "-m", "chainapi", "__complete", *words], capture_output=True, text=True, check=True
    )
    lines = process.stdout.partition("\x1fbegin\n")[2].splitlines()
    return [line.partition("\t")[0] for line in lines]


@pytest.mark.untraced
@pytest.mark.parametrize("command", ["list", "estimate", "routes"])
def test_commands_offer_all_names(command: str) -> None:
    """Every argument that takes a route completes its name."""
    assert completed(command, "data.evm.bl") == list(ROUTES)


@pytest.mark.untraced
def test_values_are_offered_where_the_service_lists_them() -> None:
    """Completion after a name offers the values of the parameter in that place."""
    assert completed("list", UTXOS, "fu") == ["mainnet", "fuji", "testnet"]
    assert "p-chain" in completed("list", UTXOS, "fuji", "")
    assert completed("list", UTXOS, "fuji", "p-chain", "") == []
    assert completed("list", "data.evm.blocks", "") == []
    assert completed("list", BLOCKS, "") == []


def test_completion_loads_no_models() -> None:
    """Completion of names loads no models, simulator or plot."""
    code = (
        "import sys; from chainapi.cli import run; run(['__complete', 'list', 'data.']); print(*sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *names, loaded = process.stdout.splitlines()
    assert any(line.startswith("data.evm.blocks\tPages[EvmBlock]") for line in names)
    modules = set(loaded.split())
    assert "chainapi.api.catalogue" in modules
    unwanted = {"chainapi.models.evm", "chainapi.models.common", "chainapi.simulator", "plotext", "difflib"}
    assert not modules & unwanted


@pytest.fixture
def shell_environment(tmp_path: Path) -> dict[str, str]:
    """Return variables that let a shell find the command, and none of the user's."""
    program = tmp_path / "bin" / "chainapi"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m chainapi "$@"\n')
    program.chmod(0o755)
    root = str(Path(package.__file__).parents[1])
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": root, "HOME": str(tmp_path), "TERM": "dumb"}


BASH = """
source <(chainapi completion bash)
COMP_WORDS=(chainapi "$@"); COMP_CWORD=$#; COMPREPLY=()
_chainapi
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.untraced
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["es"], ["estimate"]),
        (["list", "data.evm.bl"], BLOCK_NAMES),
        (["estimate", "data.evm.blocks_"], ["data.evm.blocks_of_all_chains"]),
        (["list", UTXOS, "fu"], ["fuji"]),
        (["list", "/v1/ch"], []),
        (["completion", "f"], ["fish"]),
    ],
)
def test_bash_completes(words: list[str], offered: list[str], shell_environment: dict[str, str]) -> None:
    """TAB in bash completes route names by prefix and does not complete paths."""
    process = subprocess.run(
        [program("bash"), "--norc", "-c", BASH, "bash", *words],
        env=shell_environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stderr == ""
    assert sorted(process.stdout.split()) == offered


@pytest.mark.real_time
def test_fish_completes(shell_environment: dict[str, str]) -> None:
    """TAB in fish completes route names by prefix."""
    process = subprocess.run(
        [
            program("fish"),
            "--no-config",
            "-c",
            "chainapi completion fish | source; complete -C 'chainapi list data.evm.bl'",
        ],
        env=shell_environment,
        capture_output=True,
        text=True,
        check=True,
    )
    offered = sorted(line.partition("\t")[0] for line in process.stdout.splitlines())
    assert offered == BLOCK_NAMES


@pytest.mark.real_time
def test_zsh_completes(shell_environment: dict[str, str]) -> None:
    """TAB in zsh completes the only name with the prefix."""
    import pty

    screen, terminal = pty.openpty()
    shell = subprocess.Popen(
        [program("zsh"), "-f", "-i"],
        env={**shell_environment, "PS1": "ready> "},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    try:
        read_until(screen, "ready> ")
        os.write(screen, b"autoload -Uz compinit; compinit -u -D; source <(chainapi completion zsh)\n")
        read_until(screen, "ready> ")
        os.write(screen, b"chainapi estimate data.evm.blocks_\t")
        read_until(screen, "data.evm.blocks_of_all_chains ")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)
        os.close(screen)


def read_until(screen: int, text: str) -> None:
    """Read the output of a shell until it has a text."""
    drawn = ""
    while text not in drawn:
        readable, _, _ = select.select([screen], [], [], 30)
        assert readable, drawn
        drawn += os.read(screen, 4096).decode(errors="replace")


def test_scripts_get_names_from_the_command() -> None:
    """Each script calls the command for names of routes, and so stays current."""
    for shell in ("bash", "zsh", "fish"):
        outcome = chainapi("completion", shell)
        assert (outcome.code, outcome.err) == (0, "")
        assert "__complete" in outcome.out
        assert all(command in outcome.out for command in ("list", "estimate", "routes", "tps"))
    assert chainapi("completion", "tcsh").code == WRONG_USAGE
