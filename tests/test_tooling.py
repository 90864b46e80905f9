"""The tools that compare records with documents: each kind of difference is noticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chainapi._tooling import compare, generate
from chainapi._tooling.openapi import Document, snake

PATH = "/v1/chains/{chainId}/blocks"


def a_document() -> dict[str, Any]:
    """Return a document with one route, as our record has it."""
    numbers = (
        "blockNumber",
        "baseFee",
        "gasUsed",
        "gasLimit",
        "gasCost",
        "feesSpent",
        "cumulativeTransactions",
    )
    fields: dict[str, Any] = {
        name: {"type": "string"} for name in (*numbers, "chainId", "blockHash", "parentHash")
    }
    fields |= {name: {"type": "number"} for name in ("blockTimestamp", "txCount")}
    required = [*fields]
    fields |= {name: {"type": "number"} for name in ("blockTimestampMilliseconds", "blockMinDelayExcess")}
    answer = {
        "required": ["blocks"],
        "properties": {
            "nextPageToken": {"type": "string"},
            "blocks": {"type": "array", "items": {"$ref": "#/components/schemas/EvmBlock"}},
        },
    }
    size = {"type": "integer", "default": 10, "minimum": 1, "maximum": 100}
    get = {
        "x-execution-weight": "small",
        "parameters": [
            {"in": "query", "name": "pageToken", "schema": {"type": "string"}},
            {"in": "query", "name": "pageSize", "schema": size},
            {"in": "path", "name": "chainId", "required": True, "schema": {"type": "string"}},
        ],
        "responses": {"200": {"content": {"application/json": {"schema": answer}}}},
    }
    return {
        "servers": [{"url": "https://data.example.com"}],
        "paths": {PATH: {"get": get, "post": {}}},
        "components": {"schemas": {"EvmBlock": {"properties": fields, "required": required}}},
    }


def differences(content: dict[str, Any], tmp_path: Path) -> list[str]:
    """Return the differences of the one route that have no reason."""
    place = tmp_path / "document.json"
    place.write_text(json.dumps(content), "utf-8")
    found = compare.compare([Document.read(place)])
    return [str(one) for one in found if one.reason is None and one.what != "not in the document"]


def test_the_same_is_the_same(tmp_path: Path) -> None:
    """A document that says what the record says differs in nothing without a reason."""
    assert differences(a_document(), tmp_path) == []


def change(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return what puts a value at a place of the document; None takes the place out."""

    def apply(content: dict[str, Any]) -> None:
        *parents, last = path.split(" ")
        at: Any = content
        for name in parents:
            at = at[int(name)] if isinstance(at, list) else at[name]
        key: Any = int(last) if isinstance(at, list) else last
        if value is None:
            del at[key]
        else:
            at[key] = value

    return apply


GET = f"paths {PATH} get"
BLOCK = "components schemas EvmBlock"
ANSWER = f"{GET} responses 200 content application/json schema properties"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (change(f"{GET} x-execution-weight", "xl"), "weight: data.evm.blocks: 'small' is 'xl'"),
        (change(f"{GET} deprecated", True), "deprecated: data.evm.blocks: False is True"),
        (change(f"{GET} parameters 1 schema maximum", 500), "bounds: data.evm.blocks pageSize"),
        (change(f"{GET} parameters 1 schema maximum", 500), "default: data.evm.blocks pageSize"),
        (change(f"{GET} parameters 1 schema type", "string"), "type: data.evm.blocks pageSize"),
        (change(f"{GET} parameters 1 required", True), "required: data.evm.blocks pageSize"),
        (change(f"{GET} parameters 1 name", "size"), "parameter: data.evm.blocks size: not ours"),
        (change(f"{GET} parameters 1 name", "size"), "parameter: data.evm.blocks pageSize: ours only"),
        (change(f"{GET} parameters 2 in", "query"), "place: data.evm.blocks chainId"),
        (change(f"{GET} parameters 2 schema enum", ["1"]), "values: data.evm.blocks chainId"),
        (change(f"{ANSWER} more", {"type": "string"}), "envelope: data.evm.blocks more: not ours"),
        (change(f"{BLOCK} properties txCount", None), "field: data.evm.blocks EvmBlock.txCount: ours only"),
        (
            change(f"{BLOCK} properties size", {"type": "number"}),
            "field: data.evm.blocks EvmBlock.size: not ours",
        ),
        (change(f"{BLOCK} properties txCount type", "boolean"), "type: data.evm.blocks EvmBlock.txCount"),
        (change(f"{BLOCK} properties blockHash enum", ["0x"]), "values: data.evm.blocks EvmBlock.blockHash"),
        (
            change(f"{BLOCK} required 0", None),
            "required: data.evm.blocks EvmBlock.blockNumber: True is False",
        ),
        (
            change(f"{BLOCK} required 8", None),
            "key: data.evm.blocks block_hash: EvmBlock need not have blockHash",
        ),
        (change(f"{BLOCK} required 0", "blockMinDelayExcess"), "EvmBlock.blockMinDelayExcess: False is True"),
        (
            change("paths /v1/news", {"get": a_document()["paths"][PATH]["get"]}),
            "not in the records: data /v1/news",
        ),
    ],
)
def test_each_difference_is_noticed(
    changed: Callable[[dict[str, Any]], None], said: str, tmp_path: Path
) -> None:
    """One change of the document is one line that names the place."""
    content = copy.deepcopy(a_document())
    changed(content)
    assert any(said in line for line in differences(content, tmp_path))


def test_what_the_document_lacks_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command counts what has no reason, tells it, and fails; examples are decoded on request."""
    place = tmp_path / "document.json"
    place.write_text(json.dumps(a_document()), "utf-8")
    assert compare.main([str(place), "--examples"]) == 76
    told = capsys.readouterr().out
    assert "not in the document: data.evm.block: /v1/chains/{chainId}/blocks/{blockId}" in told
    assert "76 of them without a reason" in told
    assert "2 answers of examples, 0 of them cannot be decoded" in told


@pytest.mark.parametrize(
    ("wire", "name"),
    [("blockNumber", "block_number"), ("erc20Token", "erc20_token"), ("l1ValidationId", "l1_validation_id")],
)
def test_names_become_those_of_python(wire: str, name: str) -> None:
    """The generator writes names of the wire as Python does."""
    assert snake(wire) == name


@pytest.mark.parametrize(
    ("name", "docstring"),
    [
        ("EvmBlock", "An EVM block."),
        ("Erc20Transfer", "An ERC-20 transfer."),
        ("XChainVertex", "An X-Chain vertex."),
        ("Rewards", "Rewards."),
    ],
)
def test_docstrings_are_made_by_rule(name: str, docstring: str) -> None:
    """The generator describes a class by its name, never by the document's text."""
    assert generate.sentence(name) == docstring
