"""Simulated writes: bodies that are refused, and what stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chainapi import WRITES
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response
from tests.documents import Maker, body_of, values
from tests.simulator.test_routes import Caller, Json, refused

WEBHOOKS = "/data/v1/webhooks"
COMPOSITE = "/metrics/v2/lookingGlass/compositeQuery"
UTXOS = "/data/v1/networks/fuji/blockchains/p-chain/utxos"
VALIDATORS: Json = {
    "eventType": "validator_activity",
    "url": "x",
    "network": "fuji",
    "metadata": {"keyType": "nodeId", "keys": ["NodeID-1"], "subEvents": {"validatorActivitySubEvents": []}},
}
WEBHOOK: Json = body_of(
    WRITES["data.webhooks.create"],
    values(WRITES["data.webhooks.create"], Maker(seed=1)),
)


def sent(caller: Caller, method: str, path: str, body: Any = None) -> Response:
    """Return the answer to a request with a body, which may be bytes."""
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"x-data-api-key": "simulated-key"}
    return caller.send(Request(method, f"https://simulator.invalid{path}", headers, content))


def created(caller: Caller) -> str:
    """Create a webhook, and return its path."""
    response = sent(caller, "POST", WEBHOOKS, WEBHOOK)
    assert response.status == 201
    return f"{WEBHOOKS}/{json.loads(response.body)['id']}"


PARAMS: Json = {"minBalance": "1", "subjectAddress": "0xa"}
QUERY: Json = {
    "operator": "OR",
    "queries": [{"id": "1", "type": "LatestBalanceStarsArena", "params": PARAMS}],
}
AGGREGATE = "/data/v1/signatureAggregator/fuji/aggregateSignatures"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (WEBHOOKS, b"{", "the body is not valid JSON"),
        (WEBHOOKS, b"[]", "the body must be a JSON object"),
        (WEBHOOKS, {}, "the body is of an unknown kind"),
        (WEBHOOKS, {**WEBHOOK, "eventType": "odd"}, "the body is of an unknown kind"),
        (WEBHOOKS, {**WEBHOOK, "url": 5}, "the body: $.url Expected `str`, got `int`"),
        (WEBHOOKS, {**WEBHOOK, "metadata": {}}, "the body: $.metadata.addresses missing"),
        (
            WEBHOOKS,
            {**VALIDATORS, "network": "moon"},
            "the body.network must be one of the following values: mainnet, fuji",
        ),
        (COMPOSITE, {"operator": "AND"}, "queries should not be empty"),
        (COMPOSITE, {"operator": "AND", "queries": []}, "queries must be an array, and not empty"),
        (COMPOSITE, {"operator": "XOR", "queries": [{}]}, "each value in queries is of an unknown kind"),
        (COMPOSITE, {**QUERY, "operator": "XOR"}, "operator must be one of the following values: AND, OR"),
        (COMPOSITE, {**QUERY, "pageSize": 10_001}, "pageSize must be from 1 to 10000"),
        (COMPOSITE, {**QUERY, "pageSize": "5"}, "pageSize must be a int"),
        (UTXOS, {}, "addresses should not be empty"),
        (UTXOS, {"addresses": ["a"]}, "addresses must be a str"),
        (AGGREGATE, {"quorumPercentage": 5}, "either message or justification must be provided"),
    ],
)
def test_bad_bodies_are_refused(path: str, body: Any, said: str) -> None:
    """A POST with a bad body is a 400 with its reason, and no webhook is made."""
    caller = Caller()
    before = caller.walk("data.webhooks.list")
    assert refused(sent(caller, "POST", path, body)) == (400, said)
    assert caller.walk("data.webhooks.list") == before
    assert sent(caller, "POST", COMPOSITE, QUERY).status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PATCH", "", {"status": "odd"}, 400),
        ("PATCH", "", {"includeLogs": "yes"}, 400),
        ("PATCH", "/addresses", {}, 400),
        ("PATCH", "/addresses", {"addresses": []}, 400),
        ("PATCH", "/addresses", {"addresses": "0xa"}, 400),
        ("PATCH", "/addresses", {"addresses": [5]}, 400),
        ("DELETE", "/addresses", {"addresses": ["0xunknown"]}, 404),
        ("PUT", "", {}, 405),
        ("POST", "/addresses", {}, 405),
        ("HEAD", "", None, 405),
    ],
)
def test_changes_that_are_refused(method: str, path: str, body: Any, status: int) -> None:
    """A bad change has its status, and changes nothing."""
    caller = Caller()
    webhook = created(caller)
    before = caller.body(webhook)
    assert sent(caller, method, webhook + path, body).status == status
    assert caller.body(webhook) == before


def test_addresses_belong_to_webhooks_of_evm_chains() -> None:
    """A webhook of another type has no addresses to add."""
    caller = Caller()
    webhook = json.loads(sent(caller, "POST", WEBHOOKS, VALIDATORS).body)["id"]
    answer = sent(caller, "PATCH", f"{WEBHOOKS}/{webhook}/addresses", {"addresses": ["0xa"]})
    assert refused(answer) == (400, "only webhooks of the type address_activity have addresses")


def test_a_webhook_of_the_beginning_changes_too() -> None:
    """A webhook that no write created is changed everywhere it is shown, and others are not."""
    caller = Caller(rows=5)
    rows = caller.walk("data.webhooks.list")
    path = f"{WEBHOOKS}/{rows[2]['id']}"
    assert sent(caller, "PATCH", path, {"name": "mine"}).status == 200
    assert caller.body(path)["name"] == "mine"
    assert caller.walk("data.webhooks.list") == [*rows[:2], {**rows[2], "name": "mine"}, *rows[3:]]


def test_pages_of_changed_webhooks_have_tokens() -> None:
    """The list of webhooks has pages after a write too, and a row stays the same row."""
    caller = Caller(rows=5)
    for _ in range(3):
        created(caller)
    rows = caller.walk("data.webhooks.list", pageSize=3)
    assert len(rows) == 8
    assert rows == caller.walk("data.webhooks.list", pageSize=100)
    active = caller.walk("data.webhooks.list", status="active")
    assert [row["status"] for row in active[:3]] == ["active"] * 3


def test_both_utxo_routes_show_the_same_outputs() -> None:
    """UTXOs by POST are those by GET, in larger pages."""
    caller = Caller(rows=300)
    page = json.loads(sent(caller, "POST", f"{UTXOS}?pageSize=300", {"addresses": "P-fuji1x"}).body)
    assert page["utxos"] == caller.world.rows_of("/v1/networks/fuji/blockchains/p-chain/utxos", {})
    assert sent(caller, "POST", f"{UTXOS}?pageSize=1025", {"addresses": "P-fuji1x"}).status == 400


def test_faults_are_aimed_at_methods() -> None:
    """A fault of a route with POST does not meet the GET of its path."""
    caller = Caller(faults=[Fault(route="data.webhooks.create", status=503)])
    assert sent(caller, "GET", WEBHOOKS).status == 200
    assert sent(caller, "POST", WEBHOOKS, WEBHOOK).status == 503
    caller.sim.faults = (Fault(route="/v1/webhooks", status=502),)
    assert sent(caller, "GET", WEBHOOKS).status == sent(caller, "POST", WEBHOOKS, WEBHOOK).status == 502


def test_rows_of_a_list_with_post() -> None:
    """The rows of a list that POST reads are found by method and path, and by its body."""
    simulator = Simulator(rows=40)
    query = {"id": "1", "type": "LatestBalanceStarsArena", "params": {}}
    rows = simulator.rows_of("POST /v2/lookingGlass/compositeQuery", queries=[query], operator="AND")
    assert 0 < len(rows) < 40
    with pytest.raises(ValueError, match="cannot insert"):
        simulator.insert("POST /v2/lookingGlass/compositeQuery", 1)
