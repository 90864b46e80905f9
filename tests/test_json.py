"""JSON of rows: hooks of json and orjson, schemas for Pydantic, handlers of FastAPI."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import orjson
import pytest
from fastapi import FastAPI
from fastapi.responses import Response
from httpx import ASGITransport, AsyncClient
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter, ValidationError

from chainapi import models
from chainapi.errors import DecodeError
from chainapi.json import default, dumps
from chainapi.models import EvmBlock, Invalid, MetricPoint, Transfer, Unknown
from tests.answers import resource_of
from tests.documents import RETURNED, Maker
from tests.models.test_plain import row_of

HUGE = 2**64


def has_huge_numbers(value: Any) -> bool:
    """Return whether a JSON value has whole numbers of more than 64 bits, which orjson refuses."""
    if isinstance(value, dict | list):
        return any(map(has_huge_numbers, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and not -(2**63) <= value < HUGE


def test_the_hooks_and_pydantic_write_rows_that_decode_to_themselves() -> None:
    """Rows of every route come back equal from `json`, orjson and Pydantic."""
    failures = []
    for number, (name, model) in enumerate(RETURNED.items()):
        row, adapter = row_of(model, number), TypeAdapter[Any](model)
        written = [json.dumps([row], default=default).encode()[1:-1], adapter.dump_json(row)]
        if not has_huge_numbers(row.to_wire()):
            written.append(orjson.dumps([row], default=default)[1:-1])
        if any(resource_of(one, model) != row for one in written) or adapter.validate_python(row) is not row:
            failures.append(name)
        if adapter.validate_json(written[1]) != row:
            failures.append(name)
        schema = adapter.json_schema()
        if adapter.json_schema(mode="serialization") != schema:
            failures.append(name)
        if list(Draft202012Validator(schema).iter_errors(json.loads(written[1]))):
            failures.append(f"{name}: JSON schema")
    assert not failures


def test_numbers_are_exact_in_all_encoders() -> None:
    """Amounts are texts with all digits; decimals are numbers in `dumps` and texts elsewhere."""
    row = resource_of(b'{"currencyCode": "usd", "value": 0.1234567890123456789}', models.Money)
    assert dumps([row]) == b'[{"currencyCode":"usd","value":0.1234567890123456789}]'
    for encoded in (json.dumps(row, default=default).encode(), orjson.dumps(row, default=default)):
        assert json.loads(encoded)["value"] == "0.1234567890123456789"
    block = row_of(EvmBlock, 1, whole=True)
    assert json.loads(dumps(block))["blockNumber"] == str(block.block_number)


def test_other_values_are_refused_by_the_hook() -> None:
    """The hook writes rows only: an error names any other type."""
    with pytest.raises(TypeError, match="a set is no row"):
        json.dumps({1}, default=default)
    assert default(Decimal("1.50")) == "1.50"


# Pydantic


class Report(BaseModel):
    """A model of a user's, with rows as fields."""

    newest: EvmBlock
    points: list[MetricPoint] = []
    transfer: Transfer | None = None


@pytest.fixture
def made() -> Report:
    """Return a report with rows, one of them with a field that its record does not name."""
    block = resource_of(json.dumps(Maker(4, whole=True).value(EvmBlock) | {"new": [1]}).encode(), EvmBlock)
    transfer = row_of(models.Erc20Transfer, 2, whole=True)
    return Report(newest=block, points=[MetricPoint(1, 2.5)], transfer=transfer)


def test_a_model_has_rows_as_fields(made: Report) -> None:
    """A Pydantic model takes rows unchanged, and reads back what it writes as JSON or as dicts."""
    assert made.newest.extra == {"new": [1]}
    again = Report.model_validate_json(made.model_dump_json())
    assert again == made
    assert again.newest.extra == made.newest.extra
    assert Report.model_validate(made.model_dump()) == made
    assert made.model_dump()["newest"] == made.newest.to_dict()
    assert json.loads(made.model_dump_json())["newest"] == made.newest.to_wire()
    assert made.model_dump(mode="json")["newest"] == made.newest.to_wire()


def test_a_list_of_one_value_may_grow() -> None:
    """Pydantic reads a new value of a field with one known value, unless it names the kind of the row."""
    for kind, field in ((models.Erc20Token, "ercType"), (models.CChainExportTransaction, "txType")):
        adapter = TypeAdapter[Any](kind)
        row = adapter.validate_python(row_of(kind, 1).to_wire() | {field: "new"})
        assert row.to_wire()[field] == "new"
        assert adapter.validate_json(adapter.dump_json(row)) == row


def test_rows_that_no_record_fits() -> None:
    """Unknown rows are made of any object, invalid ones only of rows; both are written as received."""
    unknown = TypeAdapter(Unknown)
    assert unknown.validate_python({"a": 1}) == Unknown({"a": 1})
    assert unknown.dump_json(Unknown({"aB": 1})) == b'{"aB":1}'
    invalid = TypeAdapter(EvmBlock | Invalid)
    row = Invalid({"blockNumber": "x"}, DecodeError("odd"))
    assert invalid.validate_python(row) is row
    assert invalid.dump_json(row) == b'{"blockNumber":"x"}'
    with pytest.raises(ValidationError, match="EvmBlock"):
        invalid.validate_python({"blockNumber": "x"})


def test_a_wrong_field_is_named(made: Report) -> None:
    """The error of a field has its path in the names of the service."""
    given = json.loads(made.model_dump_json())
    given["newest"]["gasUsed"] = "many"
    with pytest.raises(ValidationError) as caught:
        Report.model_validate(given)
    assert [error["loc"] for error in caught.value.errors()] == [("newest", "gasUsed")]


# FastAPI


def client(made: Report) -> AsyncClient:
    """Return a client of an application whose handlers return rows."""
    application = FastAPI()

    @application.get("/block")
    async def block() -> EvmBlock:
        return made.newest

    @application.get("/blocks")
    async def blocks() -> list[EvmBlock]:
        return [made.newest]

    @application.get("/model", response_model=list[EvmBlock])
    async def model() -> Any:
        return [made.newest]

    @application.get("/any")
    async def unannotated():  # type: ignore[no-untyped-def]
        return made.newest

    @application.get("/bytes")
    async def plain() -> Response:
        return Response(dumps([made.newest]), media_type="application/json")

    @application.post("/report")
    async def posted(given: Report) -> Report:
        return given

    return AsyncClient(transport=ASGITransport(application), base_url="http://test")


async def test_handlers_return_rows(made: Report) -> None:
    """FastAPI handlers return a row or a list of rows, and read models with rows in them."""
    wire = made.newest.to_wire()
    body = json.loads(made.model_dump_json())
    async with client(made) as reached:
        assert (await reached.get("/block")).json() == wire
        assert (await reached.get("/any")).json() == made.newest.to_dict(), "by its names in Python"
        for path in ("/blocks", "/model", "/bytes"):
            assert (await reached.get(path)).json() == [wire]
        assert (await reached.post("/report", json=body)).json() == body
        del body["newest"]["blockNumber"]
        refused = await reached.post("/report", json=body)
        schemas = (await reached.get("/openapi.json")).json()["components"]["schemas"]
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "newest", "blockNumber"]
    assert schemas["EvmBlock"]["properties"]["gasUsed"]["type"] == "string"
