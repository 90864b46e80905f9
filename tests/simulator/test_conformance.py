"""Conformance of simulated answers to both services' documents, and its check."""

from __future__ import annotations

from typing import Any

import pytest

from chainapi._tooling.openapi import Document, find_documents
from tests.simulator import conform
from tests.simulator.test_routes import Caller, fields_of

DOCUMENTS = find_documents()
CHECKERS = conform.checkers(DOCUMENTS)

Json = dict[str, Any]


def test_answers_fit() -> None:
    """Answers of each route, and bodies of requests, fit the model and the JSON Schema if present."""
    wrong = {name: conform.misfits(name, CHECKERS[name], seeds=[0], rows=6) for name in conform.DECLARED}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_examples_fit() -> None:
    """Examples in the documents fit the models, with optional fields and without."""
    assert conform.misfits_of_examples(DOCUMENTS) == []


# What the documents say and the models do not: held without the documents, too


ALWAYS = {
    "data.evm.blocks_of_all_chains": ("blocks", "chainId"),
    "data.evm.transactions_of_all_chains": ("transactions", "chainId"),
    "data.evm.all_latest_blocks": ("blocks", "chainId"),
    "data.evm.all_latest_transactions": ("transactions", "chainId"),
    "data.evm.erc20_balances": ("erc20TokenBalances", "tokenReputation"),
    "data.evm.chains_of_address": (
        "indexedChains",
        "chainId status chainName description vmName rpcUrl isTestnet networkToken",
    ),
}


def test_what_the_services_always_send_is_never_left_out() -> None:
    """Fields that the documents require are in every row, if optional in the model; tokens are whole."""
    for name, (where, fields) in ALWAYS.items():
        rows = [row for seed in range(5) for row in Caller(seed=seed).body(name)[where]]
        assert all({*fields.split()} <= set(row) and None not in row.values() for row in rows), name
    tokens = [row["networkToken"] for row in Caller().body("data.evm.chains_of_address")["indexedChains"]]
    deployments = [Caller(seed=seed).body("data.evm.deployment") for seed in range(9)]
    tokens += [one["networkTokenDetails"]["networkToken"] for one in deployments]
    assert all({"name", "symbol", "decimals"} <= set(token) for token in tokens)


def test_active_validators_have_a_place() -> None:
    """An active validator always has a geolocation."""
    rows = Caller().body("data.primary_network.validators", pageSize=50)["validators"]
    active = [row for row in rows if row["validationStatus"] == "active"]
    assert active
    assert all(isinstance(row["geolocation"], dict) for row in active)


def test_numbers_are_texts_where_the_services_send_texts() -> None:
    """Numbers are texts exactly in the fields that the services send as texts.

    An output's index is a text on the X-Chain and a number on the P-Chain; a page's height is a text.
    """
    caller = Caller()
    kinds = {
        chain: {type(value) for name, value in fields_of(caller.body(path)) if name == "outputIndex"}
        for chain in ("p-chain", "x-chain")
        for path in [f"/data/v1/networks/mainnet/blockchains/{chain}/transactions"]
    }
    assert kinds == {"p-chain": {int}, "x-chain": {str}}
    assert isinstance(caller.body("data.primary_network.l1_validators")["blockHeight"], str)


def test_networks_have_the_name_that_an_answer_lists() -> None:
    """Networks have the one name that an answer lists, whichever the request uses."""
    usage = "/data/v1/primaryNetworkRpcUsageMetrics"
    activity = "/data/v1/networks/{}/blockchains/p-chain/lastActivityTimestampByAddresses"
    for path, network, named in (
        (usage, "fuji", "testnet"),
        (usage, "testnet", "testnet"),
        (activity.format("testnet"), "testnet", "fuji"),
        (activity.format("mainnet"), "mainnet", "mainnet"),
    ):
        assert Caller().body(path, network=network, addresses="a")["network"] == named


def test_messages_of_unknown_origin_name_the_contract_as_their_route_does() -> None:
    """Messages of unindexed sources name their contract in another field in a list than alone."""
    for name, field in (
        ("data.teleporter.messages", "icmContractAddress"),
        ("data.teleporter.address_messages", "icmContractAddress"),
        ("data.teleporter.message", "teleporterContractAddress"),
    ):
        bodies = [Caller(seed=seed).body(name) for seed in range(30)]
        rows = [row for body in bodies for row in body.get("messages", [body])]
        unknown = [row for row in rows if row["status"] == "delivered_source_not_indexed"]
        assert unknown
        assert all(("icmContractAddress" in row, field in row) == (field[0] == "i", True) for row in unknown)


# The check itself


def a_document(schema: Json) -> Document:
    """Return a document with one route, whose answer has a schema."""
    answer = {"content": {"application/json": {"schema": schema}}}
    content = {
        "servers": [{"url": "https://data.example.com"}],
        "paths": {"/v1/chains/{chainId}/blocks": {"get": {"responses": {"200": answer}}}},
        "components": {"schemas": {"Row": {"required": ["blockHash"]}}},
    }
    return Document(content, "data")


ROW = {"$ref": "#/components/schemas/Row"}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"required": ["blocks"]}, []),
        ({"required": ["rows", "blocks"]}, ["document: $: required ['rows']"]),
        (
            {"properties": {"blocks": {"items": {"properties": {"txCount": {"type": "string"}}}}}},
            ["document: blocks.*.txCount: type string, not int"],
        ),
        (
            {"properties": {"blocks": {"items": {"properties": {"chainId": {"enum": ["1"]}}}}}},
            ["document: blocks.*.chainId: enum ['1'], not 7"],
        ),
        ({"properties": {"blocks": {"maxItems": 1}}}, ["document: blocks: maxItems 1"]),
        (
            {"properties": {"blocks": {"items": {"oneOf": [{"oneOf": [{"type": "null"}]}, ROW, ROW]}}}},
            [],
        ),
        (
            {
                "properties": {
                    "blocks": {
                        "items": {
                            "anyOf": [
                                {"type": "null", "maxProperties": 1},
                                {"minimum": 0, "maxProperties": 2},
                            ]
                        }
                    }
                }
            },
            ["document: blocks.*: maxProperties 2"],
        ),
    ],
)
def test_misfits_are_reported(schema: Json, said: list[str]) -> None:
    """Misfits are one line each with their path; a union needs one fitting variant."""
    check = conform.checkers([a_document(schema)])["data.evm.blocks"]
    assert conform.misfits("data.evm.blocks", check, seeds=[0], rows=3) == said


def test_answers_are_held_to_their_models() -> None:
    """A body that does not fit its model is a misfit, with documents or without."""
    check = conform.checkers([])
    for name, body in [("data.evm.blocks", b'{"blocks":[{}]}'), ("data.avax_supply", b"{}")]:
        (line,) = check[name].misfits(body)
        assert line.startswith("model: ")
