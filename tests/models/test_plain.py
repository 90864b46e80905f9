"""Rows as plain values: dicts by names in Python, and objects as the service sends them."""

from __future__ import annotations

import json
import pickle
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import reduce
from typing import Any

import attrs
import msgspec
import pytest
from attrs import field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import ROUTES
from chainapi.errors import DecodeError
from chainapi.json import dumps
from chainapi.models import Invalid, MetricPoint, NativeTransaction, RichAddress, Unknown
from chainapi.simulator import Simulator
from tests.answers import decoded, refused, resource_of, rows_of
from tests.documents import LISTS, RECORDS, UNIONS, Maker, values
from tests.models.test_extra import Newsmaker, body_of, records_in
from tests.sessions import simulated

MODELS = {**RECORDS, **UNIONS}
NAMES = sorted(MODELS)


def row_of(model: Any, seed: int, *, news: bool = False, whole: bool = False) -> Any:
    """Return a row of a model that is decoded from JSON made by a seed."""
    maker = (Newsmaker if news else Maker)(seed, whole=whole)
    return resource_of(body_of(maker.value(model)), model)


@settings(max_examples=50)
@given(st.sampled_from(NAMES), st.integers(0, 10**6), st.booleans())
def test_a_row_in_the_form_of_the_service_decodes_to_itself(name: str, seed: int, news: bool) -> None:
    """Decoding the JSON of `to_wire()` returns an equal row, `extra` at all depths included."""
    model, row = MODELS[name], row_of(MODELS[name], seed, news=news)
    again = resource_of(dumps(row.to_wire()), model)
    assert again == row
    assert [one.extra for one in records_in(again)] == [one.extra for one in records_in(row)]
    if not isinstance(row, Unknown):
        assert is_plain(row.to_dict(), row)


def is_plain(plain: Any, value: Any) -> bool:
    """Return whether a dict has each field of a record by its name in Python, at any depth, and no other."""
    if isinstance(value, list):
        return len(plain) == len(value) and all(map(is_plain, plain, value))
    if isinstance(value, dict):
        return plain.keys() == value.keys() and all(is_plain(plain[key], value[key]) for key in value)
    if attrs.has(type(value)) and not isinstance(value, Unknown):
        keys = {field.name: field.name.removesuffix("_") for field in attrs.fields(type(value))}
        within = all(is_plain(plain[key], getattr(value, name)) for name, key in keys.items())
        return [*plain] == [*keys.values()] and within
    return type(plain) is not Unknown and bool(plain == value)


@pytest.mark.filterwarnings("ignore:.*is deprecated.*:DeprecationWarning")
async def test_rows_are_written_as_they_were_received() -> None:
    """`to_wire()` of the rows of every list of the simulator equals the JSON of its response."""
    failures = []
    async with simulated(Simulator(rows=5, points=5, chains=[7, 43114], forbidden=())) as session:
        for name in LISTS:
            method: Any = reduce(getattr, name.split("."), session)
            page = await anext(method(**values(ROUTES[name], Maker(1), optional=False)))
            sent = page.raw[ROUTES[name].route.items or "chains"]
            if ROUTES[name].rows is not str and [row.to_wire() for row in page] != sent:
                failures.append(name)
    assert not failures


def test_a_transaction_in_both_forms() -> None:
    """Names and types of both forms: amounts are whole numbers in Python and texts on the wire."""
    row = row_of(NativeTransaction, 1, whole=True)
    row = attrs.evolve(row, value=10**30, to=None, from_=RichAddress(address="0x1"), method=None)
    plain, wire = row.to_dict(), row.to_wire()
    assert (plain["value"], plain["from"]["address"], plain["method"]) == (10**30, "0x1", None)
    assert (wire["value"], wire["from"], wire["to"]) == (str(10**30), {"address": "0x1"}, None)
    assert wire["blockTimestamp"] == plain["block_timestamp"] == row.block_timestamp
    assert "method" not in wire


def test_rows_without_a_record() -> None:
    """Rows of unknown kinds and invalid ones are as they were received, or named as their attributes."""
    raw = {"txHash": "0x1", "from": {"someName": 1}}
    for row in (Unknown(raw), Invalid(raw, DecodeError("odd"))):
        assert row.to_wire() == raw
        assert row.to_dict() == {"tx_hash": "0x1", "from": {"someName": 1}}
        assert all(getattr(row, name) == value for name, value in row.to_dict().items())
    text = Invalid("text", DecodeError("odd"))
    assert text.to_dict() == text.to_wire()
    assert not hasattr(text, "t")


def test_each_field_of_a_row_without_a_record_is_an_attribute() -> None:
    """A field whose name in JSON is not in camel case is an attribute by its name in to_dict(), too."""
    for wire in ("tx_hash", "chainID", "blockURL", "NodeID", "a_bC", "topic1", "pass", "x-y"):
        for row in (Unknown({wire: 1}), Invalid({wire: 1}, DecodeError("odd"))):
            (name,) = row.to_dict()
            assert getattr(row, name) == 1
            assert not hasattr(row, "missing")
            assert copy(row) == pickle.loads(pickle.dumps(row)) == row


Colour = Enum("Colour", {"RED": "red"})


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
    """`chainapi.json` writes rows of a user's classes by the names of the service; JSON lacks no value."""
    since = datetime(2024, 1, 1, tzinfo=UTC)
    visit = Visit(1, Decimal("0.5"), (Colour.RED,), Place("x", since), {"a": MetricPoint(1, 2.0)}, count=None)
    wire = {
        "blockNumber": 1,
        "price": 0.5,
        "colours": ["red"],
        "place": {"name": "x", "since": "2024-01-01T00:00:00Z"},
        "points": {"a": {"timestamp": 1, "value": 2.0}},
        "count": None,
    }
    assert json.loads(dumps([visit])) == [wire]
    assert decoded(Visit, wire) == [visit]
    kind = msgspec.defstruct("Kind", [("block_number", int)], rename="camel")
    assert dumps(kind(3)) == b'{"blockNumber":3}'
    with pytest.raises(TypeError, match="object"):
        dumps({"a": [object()]})


def test_rows_of_own_classes_decode_to_themselves() -> None:
    """Tags, keys of other types and raw JSON are written as they came; what was left out is not written."""
    number: Any = int | msgspec.UnsetType
    absent = attrs.make_class("Absent", {"number": field(type=number, default=msgspec.UNSET)})
    keys = {"colours": field(type=dict[Colour, int]), "places": field(type=dict[int, str])}
    for model, sent in (
        (
            msgspec.defstruct("Tagged", [("number", int)], tag="x", tag_field="kind"),
            b'{"kind":"x","number":5}',
        ),
        (absent, b"{}"),
        (absent, b'{"number":5}'),
        (attrs.make_class("Keyed", keys), b'{"colours":{"red":1},"places":{"5":"x"}}'),
        (msgspec.defstruct("RawRow", [("rest", msgspec.Raw)]), b'{"rest":{"a":[1,0.1234567890123456789]}}'),
    ):
        rows = rows_of(b'{"rows":[%b]}' % sent, model)
        assert dumps(rows) == b"[%b]" % sent
        assert rows_of(b'{"rows":%b}' % dumps(rows), model) == rows


def test_values_nested_too_deeply_are_refused() -> None:
    """A value that is nested deeper than Python can walk raises DecodeError."""
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    for value in (deep, {"a": deep}):
        assert refused(dumps, value).reason == "nested too deeply"
