"""Rows as plain values: dicts by names in Python, and objects as the service sends them."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs
import msgspec
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from chainapi import models
from chainapi.api.catalogue import ROUTES
from chainapi.errors import DecodeError
from chainapi.json import dumps
from chainapi.models import EvmBlock, Invalid, MetricPoint, Money, NativeTransaction, RichAddress, Unknown
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.plain import to_dict, to_wire
from chainapi.models.unions import tags_of
from tests.documents import Maker
from tests.models.test_extra import Newsmaker, body_of, records_in
from tests.simulator.test_routes import Caller

NAMES = sorted({*dir(models)} - {"Invalid", "Unknown", "converter"})
ROWS = st.builds(
    lambda name, seed, news: row_of(getattr(models, name), seed, news=news),
    st.sampled_from(NAMES),
    st.integers(0, 10**6),
    st.booleans(),
)
READ = [name for name, declared in ROUTES.items() if declared.rows is not str]


def row_of(model: Any, seed: int, *, news: bool = False, whole: bool = False) -> tuple[Any, Any]:
    """Return a model, and a row of it that is decoded from JSON made by a seed."""
    maker = (Newsmaker if news else Maker)(seed, whole=whole)
    return model, decode_resource(body_of(maker.value(model)), model)


@given(ROWS)
def test_a_row_in_the_forms_of_the_service_decodes_to_itself(made: tuple[Any, Any]) -> None:
    """Decoding the JSON of `to_wire()` returns an equal row, `extra` at all depths included."""
    model, row = made
    again = decode_resource(dumps(row.to_wire()), model)
    assert again == row
    assert [one.extra for one in records_in(again)] == [one.extra for one in records_in(row)]


@pytest.mark.parametrize("name", READ)
def test_rows_are_written_as_they_were_received(name: str) -> None:
    """`to_wire()` of the rows of every route equals the JSON from which they were decoded."""
    declared = ROUTES[name]
    body = Caller(seed=5).route(name)
    if declared.single:
        assert to_wire(decode_resource(json.dumps(body).encode(), declared.rows)) == body
    else:
        route = declared.route
        page = PageDecoder(route.model, route.items, route.extra).decode(json.dumps(body).encode())
        assert to_wire(page.rows) == body[route.items or "chains"]


@given(ROWS)
def test_dicts_have_the_values_of_all_fields(made: tuple[Any, Any]) -> None:
    """`to_dict()` has each field of a record by its name in Python, at any depth, and no other."""
    _, row = made
    if isinstance(row, Unknown):
        return
    assert _as_before(row.to_dict(), row)


def _as_before(plain: Any, value: Any) -> bool:
    if isinstance(value, list):
        return len(plain) == len(value) and all(map(_as_before, plain, value))
    if isinstance(value, dict):
        return plain.keys() == value.keys() and all(_as_before(plain[key], value[key]) for key in value)
    if attrs.has(type(value)) and not isinstance(value, Unknown):
        names = [field.name for field in attrs.fields(type(value))]
        return [*plain] == names and all(_as_before(plain[name], getattr(value, name)) for name in names)
    return bool(plain == to_dict(value)) and type(plain) is not Unknown


def test_a_transaction_in_both_forms() -> None:
    """Names and types of both forms: amounts are whole numbers in Python and texts on the wire."""
    _, row = row_of(NativeTransaction, 1, whole=True)
    row = attrs.evolve(row, value=10**30, to=None, from_=RichAddress(address="0x1"), method=None)
    plain, wire = row.to_dict(), row.to_wire()
    assert (plain["value"], plain["from_"]["address"], plain["method"]) == (10**30, "0x1", None)
    assert (wire["value"], wire["from"], wire["to"]) == (str(10**30), {"address": "0x1"}, None)
    assert wire["blockTimestamp"] == plain["block_timestamp"] == row.block_timestamp
    assert "method" not in wire


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ("12.34", 12.34),
        ("0.1234567890123456789", Decimal("0.1234567890123456789")),
        ("1e400", Decimal("1e400")),
    ],
)
def test_decimals_that_are_numbers_keep_their_digits(value: str, wire: float | Decimal) -> None:
    """A decimal that the services send as a number is a float only if it loses no digit."""
    row = Money(currency_code="usd", value=Decimal(value))
    assert row.to_wire() == {"currencyCode": "usd", "value": wire}
    assert type(row.to_wire()["value"]) is type(wire)
    assert decode_resource(dumps(row), Money) == row


def test_rows_without_a_record() -> None:
    """Rows of unknown kinds and invalid ones are as they were received, or named as their attributes."""
    raw = {"txHash": "0x1", "from": {"someName": 1}}
    for row in (Unknown(raw), Invalid(raw, DecodeError("odd"))):
        assert row.to_wire() == raw
        assert row.to_dict() == {"tx_hash": "0x1", "from_": {"someName": 1}}
        assert all(getattr(row, name) == value for name, value in row.to_dict().items())
    assert Invalid("text", DecodeError("odd")).to_dict() == Invalid("text", DecodeError("odd")).to_wire()


@pytest.mark.parametrize(
    "wire", ["tx_hash", "chainID", "blockURL", "NodeID", "a_bC", "topic1", "pass", "x-y"]
)
def test_each_field_of_a_row_without_a_record_is_an_attribute(wire: str) -> None:
    """A field whose name in JSON is not in camel case is an attribute by its name in to_dict(), too."""
    for row in (Unknown({wire: 1}), Invalid({wire: 1}, DecodeError("odd"))):
        (name,) = row.to_dict()
        assert getattr(row, name) == 1
        assert not hasattr(row, "missing")
        assert copy(row) == row
    assert not hasattr(Invalid("text", DecodeError("odd")), "t")


class Colour(Enum):
    """A class of a user's, for a field."""

    RED = "red"


@dataclass
class Place:
    """A dataclass of a user's."""

    name: str
    since: datetime


@frozen
class Visit:
    """An attrs class of a user's, with fields that only users have."""

    block_number: int
    price: Decimal
    colours: tuple[Colour, ...]
    place: Place
    points: dict[str, MetricPoint]
    note: str | None = None
    count: int | None = 5


def test_rows_of_own_classes() -> None:
    """Rows of classes of a user's have the same two forms; values that JSON lacks become texts."""
    since = datetime(2024, 1, 1, tzinfo=UTC)
    visit = Visit(1, Decimal("0.5"), (Colour.RED,), Place("x", since), {"a": MetricPoint(1, 2.0)}, count=None)
    assert to_wire([visit]) == [
        {
            "blockNumber": 1,
            "price": 0.5,
            "colours": ["red"],
            "place": {"name": "x", "since": "2024-01-01T00:00:00Z"},
            "points": {"a": {"timestamp": 1, "value": 2.0}},
            "count": None,
        }
    ]
    plain = to_dict(visit)
    assert plain["place"] == {"name": "x", "since": since}
    assert plain["points"] == {"a": {"timestamp": 1, "value": 2.0}}
    assert (plain["note"], plain["count"], plain["colours"]) == (None, None, [Colour.RED])


def test_a_struct_is_a_row_too() -> None:
    """The names of a Struct in JSON are those that it declares."""
    kind = msgspec.defstruct("Kind", [("block_number", int)], rename="camel")
    assert to_wire(kind(3)) == {"blockNumber": 3}
    assert to_dict(kind(3)) == {"block_number": 3}


def test_values_without_a_form_in_json_are_refused() -> None:
    """A value that JSON cannot represent raises TypeError, inside of rows too."""
    with pytest.raises(TypeError, match="object"):
        to_wire({"a": [object()]})


def test_every_union_has_rows() -> None:
    """The models of these tests include all unions, and so every kind of row."""
    assert {name for name in NAMES if tags_of(getattr(models, name))} >= {"Transfer", "PrimaryNetworkUtxo"}
    assert EvmBlock.__name__ in NAMES


@pytest.mark.parametrize("write", [to_dict, to_wire, dumps])
def test_values_nested_too_deeply_are_refused(write: Callable[[Any], Any]) -> None:
    """A value that is nested deeper than Python can walk raises DecodeError."""
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    for value in (deep, {"a": deep}):
        with pytest.raises(DecodeError, match="nested too deeply"):
            write(value)
