"""Decoding of bodies: a page or a DecodeError with its place; models of users."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Generic, Literal, NewType, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.core.paging.checkpoint import MAX_TOKEN
from chainapi.errors import ChainAPIError, ConfigurationError, DecodeError
from chainapi.models import Contract, Erc20Contract, MetricPoint, UnknownContract, converter
from chainapi.models.codec import DecodedPage, PageDecoder, decode_resource
from chainapi.models.convert import row_type
from chainapi.models.error_body import EXCERPT, MESSAGES, decode_error, excerpt
from chainapi.models.unions import wire_name

T = TypeVar("T")


@pytest.fixture(autouse=True)
def fresh_converter() -> Iterator[None]:
    """Isolate the hooks of each test."""
    yield
    converter.cache_clear()
    row_type.__globals__["_row_type"].cache_clear()


def rows(model: Any, *values: Any) -> list[Any]:
    """Decode a page of rows of `model`."""
    return page(json.dumps({"blocks": values}).encode(), model).rows


def page(body: bytes, model: Any = None, items: str | None = "blocks") -> DecodedPage:
    """Decode a page."""
    return PageDecoder(model, items).decode(body)


def points(body: bytes) -> DecodedPage:
    """Decode a page of a metric."""
    others = (("status", int), ("last_run", int))
    return PageDecoder(MetricPoint, "results", others).decode(body)


def refused(decode: Callable[..., object], *arguments: Any) -> DecodeError:
    """Return the DecodeError of a call."""
    with pytest.raises(DecodeError) as caught:
        decode(*arguments)
    assert len(str(caught.value)) <= 2_000
    assert str(caught.value).isprintable()
    return caught.value


# The envelope.


def test_a_page_of_a_metric() -> None:
    """Pages have rows, token and the route's other fields by their names on the wire."""
    decoded = points(
        b'{"results":[{"timestamp":86400,"value":1.5},{"timestamp":0,"value":2}],'
        b'"status":200,"lastRun":90000,"nextPageToken":"t"}'
    )
    assert decoded.rows == [MetricPoint(86_400, 1.5), MetricPoint(0, 2.0)]
    assert type(decoded.rows[1].value) is float
    assert decoded.next_page_token == "t"
    assert decoded.extra == (200, 90_000)


@pytest.mark.parametrize("end", [b"", b',"nextPageToken":null', b',"nextPageToken":""'])
def test_the_ends_of_a_list(end: bytes) -> None:
    """A token that is absent, null or empty means the last page."""
    assert page(b'{"blocks":[1]' + end + b"}").next_page_token is None


@pytest.mark.parametrize("token", ["5", "true", "[]", "{}", "1.5", json.dumps("x" * (MAX_TOKEN + 1))])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    """Tokens have to be texts that fit into a URL."""
    error = refused(page, f'{{"blocks":[],"nextPageToken":{token}}}'.encode())
    assert error.path == "$.nextPageToken"
    assert not error.malformed


def test_the_longest_token_is_taken() -> None:
    """Tokens may have any characters up to the greatest length."""
    token = "&#\n+%" * (MAX_TOKEN // 5)
    assert page(json.dumps({"blocks": [], "nextPageToken": token}).encode()).next_page_token == token


def test_a_list_field_may_be_null() -> None:
    """Null stands for an empty list, with a token too."""
    decoded = page(b'{"blocks":null,"nextPageToken":"t"}')
    assert (decoded.rows, decoded.next_page_token) == ([], "t")


def test_missing_others_are_none() -> None:
    """A further field of the envelope that is missing or null is None."""
    assert points(b'{"results":[],"status":null}').extra == (None, None)


def test_others_are_those_of_their_page() -> None:
    """Each page has its own further fields, also after a page with the same ones or without any."""
    decoder = PageDecoder(MetricPoint, "results", (("status", int), ("last_run", int)))
    found = [
        decoder.decode(b'{"results":[],%b"status":200}' % last_run).extra[1]
        for last_run in (b'"lastRun":7,', b'"lastRun":7,', b"", b'"lastRun":8,', b'"lastRun":7,')
    ]
    assert found == [7, 7, None, 8, 7]
    fault = refused(decoder.decode, b'{"results":[],"lastRun":"x"}')
    assert fault.path == "$.lastRun"


def test_equal_bodies_have_equal_digests() -> None:
    """Digests are equal exactly for equal bodies."""
    assert page(b'{"blocks":[1]}').digest == page(b'{"blocks":[1]}').digest
    assert page(b'{"blocks":[1]}').digest != page(b'{"blocks":[2]}').digest


# Which field holds the list.


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"blocks": [1]}, "blocks"),
        ({"n": 1, "utxos": [1], "nextPageToken": "t", "x": None}, "utxos"),
        ({"chains": [], "more": None}, "chains"),
        ({"transactions": None, "n": 1}, "transactions"),
    ],
)
def test_the_only_list_is_found(body: dict[str, Any], found: str) -> None:
    """The only list of the first page is the list field, or else the only null.

    This holds without `items`; later pages keep to the same field.
    """
    decoder = PageDecoder()
    assert decoder.items is None
    assert decoder.decode(json.dumps(body).encode()).rows == (body[found] or [])
    assert decoder.items == found
    assert decoder.decode(json.dumps({found: [5], "other": [6]}).encode()).rows == [5]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"a": [], "b": []}, r"several fields could hold the rows: choose one with items= \(a, b\)"),
        ({"a": None, "b": None}, r"\(a, b\)"),
        ({"a": 1, "b": "x"}, r"no field holds a list; the fields are: a, b$"),
        ({"nextPageToken": "t"}, r"the fields are: none$"),
        ({'a"\x1b': []}, r"the name of the list field cannot be used: a"),
        ([], "expected an object, got list"),
        (None, "expected an object, got NoneType"),
        ("ok", "expected an object, got str"),
        (5, "expected an object, got int"),
        ({"message": ["no"], "error": "Not Found", "statusCode": 404}, "an error body"),
        ({"message": ["no"], "statusCode": 404}, "an error body"),
        ({"error": "Not Found", "statusCode": 404, "blocks": []}, "an error body"),
    ],
)
def test_a_page_without_a_clear_list(body: Any, reason: str) -> None:
    """An ambiguous list field is an error with the candidates.

    An error body in a 200 is no page of messages.
    """
    decoder = PageDecoder()
    error = refused(decoder.decode, json.dumps(body).encode())
    assert error.path == "$"
    assert decoder.items is None
    with pytest.raises(DecodeError, match=reason):
        raise error


@pytest.mark.parametrize(
    "items", ["nextPageToken", 'a"b', "a\\b", "a\nb", "a\ud800", 5, b"blocks", ["blocks"]]
)
def test_bad_names_of_a_list_field(items: Any) -> None:
    """Impossible names of a list field are refused before any request."""
    with pytest.raises(ConfigurationError, match=r"^items="):
        PageDecoder(None, items)


# D1 to D14: what can be wrong with a body.

METRIC = b'{"results":[{"timestamp":1,"value":2.0},%s]}'


@pytest.mark.parametrize(
    ("row", "path"),
    [
        (b'{"timestamp":1}', "$.results[1].value"),
        (b'{"value":1}', "$.results[1].timestamp"),
        (b'{"timestamp":null,"value":1}', "$.results[1].timestamp"),
        (b'{"timestamp":1,"value":null}', "$.results[1].value"),
        (b'{"timestamp":"1","value":1}', "$.results[1].timestamp"),
        (b'{"new":0,"timestamp":"1","value":1}', "$.results[1].timestamp"),
        (b'{"timestamp":1,"value":"1.5"}', "$.results[1].value"),
        (b'{"timestamp":true,"value":1}', "$.results[1].timestamp"),
        (b'{"timestamp":1,"value":false}', "$.results[1].value"),
        (b'{"timestamp":1.5,"value":1}', "$.results[1].timestamp"),
        (b'{"timestamp":1e18,"value":1}', "$.results[1].timestamp"),
        (b'{"timestamp":9007199254740993.0,"value":1}', "$.results[1].timestamp"),
        (b'{"timestamp":1,"value":[]}', "$.results[1].value"),
        (b'{"timestamp":1,"value":1e400}', "$.results[1].value"),
        (b'{"timestamp":' + b"1" * 5_000 + b',"value":1}', "$.results[1].timestamp"),
        (b"null", "$.results[1]"),
        (b"5", "$.results[1]"),
        (b"[]", "$.results[1]"),
    ],
)
def test_wrong_rows_are_refused_with_their_place(row: bytes, path: str) -> None:
    """Wrong rows are refused with their JSON path and no part of the body.

    A field may be missing, null, of a wrong type, or out of range.
    """
    error = refused(points, METRIC % row)
    assert error.path == path
    assert not error.malformed
    assert len(str(error).removesuffix(error.advice)) < 120


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"{}", "$.results"),
        (b"null", "$"),
        (b"[]", "$"),
        (b'"ok"', "$"),
        (b"5", "$"),
        (b'{"results":{}}', "$.results"),
        (b'{"results":"x"}', "$.results"),
        (b'{"results":[],"status":"fine"}', "$.status"),
        (b'{"results":[],"lastRun":1.5}', "$.lastRun"),
        (b'{"message":["no"],"error":"Not Found","statusCode":404}', "$.results"),
    ],
)
def test_wrong_envelopes_are_refused(body: bytes, path: str) -> None:
    """Wrong envelopes raise an error instead of an empty page.

    This includes an error body in a 200.
    """
    assert refused(points, body).path == path


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"<html>",
        b"NaN",
        b'{"results":[{"timestamp":1,"value":NaN}]}',
        b'{"results":[{"timestamp":1,"value":-Infinity}]}',
        b'{"results":[]} trailing',
        b'{"results":[]}{}',
        b'{"results":[',
        b'{"results":[],}',
        b"{'results':[]}",
        b'\xef\xbb\xbf{"results":[]}',
        '{"results":[]}'.encode("utf-16"),
        b'{"results":[],"nextPageToken":"\xff"}',
        b'{"results":[],"nextPageToken":"\\ud800"}',
        b'{"results":[],"nextPageToken":"a\\udfffb"}',
        b'{"results":[],"nextPageToken":"a\nb"}',
        b"\x1f\x8b\x08\x00",
    ],
)
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    """Bodies that are no JSON raise an error that a retry may heal.

    Such a body may have been damaged on its way.
    """
    error = refused(points, body)
    assert error.malformed
    assert error.path == ("$.results[0]" if b"[{" in body else "$")
    assert refused(decode_resource, body).malformed


POINT = b'{"timestamp":1,"value":2.0}'


@pytest.mark.parametrize("body", [b"", b" ", POINT + b"," + POINT, POINT + b",", b"," + POINT])
def test_a_typed_resource_is_one_value(body: bytes) -> None:
    """An empty body and several values are no resource, also where rows have a fast path."""
    assert refused(decode_resource, body, MetricPoint).malformed
    assert decode_resource(POINT, MetricPoint) == MetricPoint(1, 2.0)


@pytest.mark.parametrize("nested", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_deep_nesting_is_refused(nested: bytes) -> None:
    """A body deeper than the stack raises DecodeError for any nesting."""
    for decode in (page, points, decode_resource, PageDecoder().decode):
        refused(decode, nested)
        refused(decode, b'{"results":[],"blocks":[],"x":' + nested)
    assert decode_error(nested)[0] == ""


def test_extremes_that_are_fine() -> None:
    """Extreme JSON is decoded exactly.

    Unknown fields, duplicate keys (the last wins), -0, NUL, and integers of any size are valid.
    """
    decoded = points(
        b'{"results":[{"timestamp":-5,"value":-0,"new":{"a":[1]}}],"results2":0,"status":1,"status":2}'
    )
    assert decoded.rows == [MetricPoint(-5, 0.0)]
    assert decoded.extra == (2, None)
    big = page(b'{"blocks":[9007199254740993,1000000000000000000000000000001,"\\u0000",1e300,"42.42"]}')
    assert big.rows == [2**53 + 1, 10**30 + 1, "\0", 1e300, "42.42"]
    assert type(big.rows[0]) is int


@settings(max_examples=150)
@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_decode_or_raise_decode_error(body: bytes) -> None:
    """Any bytes give a page or a DecodeError, and no other exception."""
    for decode in (page, points, decode_resource, PageDecoder().decode):
        try:
            decode(body)
        except DecodeError as error:
            assert error.path.startswith("$")  # noqa: PT017 - most bodies raise none
    error_type, messages = decode_error(body, "key")
    assert len(error_type) <= 10 * EXCERPT
    assert len(messages) <= MESSAGES


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
FIELDS = st.sampled_from(
    [
        "blocks",
        "results",
        "nextPageToken",
        "status",
        "lastRun",
        "message",
        "error",
        "statusCode",
        "timestamp",
        "value",
    ]
)


@pytest.mark.untraced
@settings(max_examples=100)
@given(JSON | st.dictionaries(FIELDS, JSON | st.lists(st.dictionaries(FIELDS, JSON))))
def test_any_json_decodes_or_raises_decode_error(value: Any) -> None:
    """Any JSON is decoded to the rows that were sent, or raises DecodeError."""
    body = json.dumps(value).encode()
    for decode in (page, points, PageDecoder().decode):
        try:
            decoded = decode(body)
        except DecodeError as error:
            assert str(error).isprintable()  # noqa: PT017 - some bodies raise none
        else:
            assert decoded.next_page_token == (value.get("nextPageToken") or None)
    try:
        assert decode_resource(body) == value
    except DecodeError as error:
        assert error.malformed  # noqa: PT017 - halves of characters
    decode_error(body, "key")


@pytest.mark.parametrize("timestamp", [0, -1, -62_135_596_800, 1_700_000_000, 253_402_300_799])
def test_times_in_the_calendar(timestamp: int) -> None:
    """A timestamp from the year 1 to 9999 is an aware datetime in UTC."""
    time = points(b'{"results":[{"timestamp":%d,"value":1}]}' % timestamp).rows[0].time
    assert time.tzinfo is UTC
    assert (time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() == timestamp


@pytest.mark.parametrize("timestamp", [1_700_000_000_000, 1_515_000_000_000, -(10**12), 10**18, -(10**30)])
def test_times_outside_the_calendar(timestamp: int) -> None:
    """Timestamps outside of the calendar decode; only their datetime is an error.

    An example is milliseconds in place of seconds.
    """
    point = points(b'{"results":[{"timestamp":%d,"value":1}]}' % timestamp).rows[0]
    assert point.timestamp == timestamp
    with pytest.raises(ValueError, match=f"timestamp {timestamp} is outside the years 1 to 9999"):
        _ = point.time


# Single resources.


def test_resources() -> None:
    """A resource is plain JSON, a model, or a list of models."""
    assert decode_resource(b'{"a":[1,null]}') == {"a": [1, None]}
    assert decode_resource(b'{"gasUsed":"5"}', Gas) == Gas(5)
    assert decode_resource(b'[{"gasUsed":5}]', list[Gas]) == [Gas(5)]
    assert refused(decode_resource, b'{"gasUsed":[]}', Gas).path == "$.gasUsed"
    assert refused(decode_resource, b'{"gasUsed":0}', Checked).path == "$"
    assert refused(decode_resource, b'{"gas":"x"}', Converted).path == "$.gas"
    assert refused(decode_resource, b"5", Converted).path == "$"


# Models of users.


class Kind(enum.Enum):
    """Enumeration of a user."""

    COIN = "coin"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> Kind:
        return cls.OTHER


class Closed(enum.Enum):
    """Enumeration without a place for new values."""

    COIN = "coin"


@frozen
class Gas:
    """A whole number with a name of two words."""

    gas_used: int


@frozen
class Checked:
    """A model with a validator."""

    gas_used: int = field(validator=attrs.validators.gt(0))


@frozen
class Block:
    """A model with nearly everything that msgspec can do."""

    tx_count: int
    block_hash: str = ""
    base_fee_per_gas: int | None = None
    price: Decimal | None = None
    mined_at: datetime | None = None
    gas: Gas | None = None
    gas_list: list[Gas] = field(factory=list)
    gas_sequence: Sequence[Gas] = field(factory=list)
    gas_by_name: Mapping[str, Gas] = field(factory=dict)
    by_number: dict[int, int] = field(factory=dict)
    pair: tuple[int, ...] = ()
    kind: Kind = Kind.COIN
    number_or_text: int | str | None = None
    number_or_time: int | datetime | None = None
    truth_or_number: bool | int | None = None
    small: Annotated[int, msgspec.Meta(le=9)] = 0
    gas_annotated: Annotated[Gas | None, "a note"] = None
    mode: Literal["a", "b"] = "a"
    uuid: UUID | None = None
    anything: Any = None
    blockNumber: int = 0  # noqa: N815 - as on the wire


def test_names_in_python_and_on_the_wire() -> None:
    """A field is decoded from its Python name in camel case, or as it is."""
    assert wire_name("tx_count") == "txCount"
    assert wire_name("txCount") == "txCount"
    assert wire_name("from_") == "from"
    assert wire_name("_x") == "_x"
    assert wire_name("base_fee_per_gas") == "baseFeePerGas"


def test_an_attrs_class_of_everything() -> None:
    """An attrs class decodes fields of each supported type.

    The types are optional, nested, list, mapping, enumeration, date and decimal.
    """
    (block,) = rows(
        Block,
        {
            "txCount": 5,
            "blockHash": "0xab",
            "baseFeePerGas": "340282366920938463463374607431768211456",
            "price": "42.42",
            "minedAt": "2024-01-01T00:00:00Z",
            "gas": {"gasUsed": 1},
            "gasList": [{"gasUsed": "2"}],
            "gasSequence": [{"gasUsed": 3}],
            "gasByName": {"a_b": {"gasUsed": 4}},
            "byNumber": {"7": "8"},
            "pair": [1, "2"],
            "kind": "unheard of",
            "numberOrText": "12",
            "numberOrTime": 6,
            "truthOrNumber": "7",
            "small": 9,
            "gasAnnotated": {"gasUsed": 5},
            "mode": "b",
            "uuid": "12345678-1234-5678-1234-567812345678",
            "anything": {"a": [1]},
            "blockNumber": "77",
            "unknown": "ignored",
        },
    )
    assert block == Block(
        tx_count=5,
        block_hash="0xab",
        base_fee_per_gas=2**128,
        price=Decimal("42.42"),
        mined_at=datetime(2024, 1, 1, tzinfo=UTC),
        gas=Gas(1),
        gas_list=[Gas(2)],
        gas_sequence=[Gas(3)],
        gas_by_name={"a_b": Gas(4)},
        by_number={7: 8},
        pair=(1, 2),
        kind=Kind.OTHER,
        number_or_text="12",
        number_or_time=6,
        truth_or_number=7,
        small=9,
        gas_annotated=Gas(5),
        mode="b",
        uuid=UUID("12345678-1234-5678-1234-567812345678"),
        anything={"a": [1]},
        blockNumber=77,
    )


Height = NewType("Height", int)


@frozen
class Noted:
    """A model with types behind other names and notes."""

    height: Height
    small: Annotated[int, msgspec.Meta(le=9)] | None = None
    named: Annotated[int, "seconds"] = 0
    pair: tuple[Height, str] = (Height(0), "")


@frozen
class Foreign:
    """A model with types that only cattrs can make."""

    height: Height
    either: Annotated[int | None, msgspec.Meta(le=9)] = None
    recent: deque[int] = field(factory=deque[int])


@frozen
class Listed:
    """A class with listed texts that look like other values."""

    height: int
    status: Literal["null", "true", "open"] | None = None
    states: list[Literal["NULL", "on"] | None] = field(factory=list)
    either: int | bool = 0  # so that the fast path cannot take the class


def test_listed_texts_stay_texts() -> None:
    """The listed text "null" is no null, beside whole numbers that come as texts."""
    sent = {"height": "7", "status": "null", "states": ["NULL", None, "on"]}
    assert rows(Listed, sent) == [Listed(7, "null", ["NULL", None, "on"])]
    assert rows(Listed, {"height": 7, "status": None}) == [Listed(7)]


def test_digits_behind_names_and_notes() -> None:
    """Whole numbers keep their digits under any type alias, and their constraints."""
    (row,) = rows(Noted, {"height": "7", "small": "9", "named": "8", "pair": ["3", "x"]})
    assert row == Noted(Height(7), 9, 8, (Height(3), "x"))
    foreign = {"height": "7", "either": "9", "recent": ["1", 2]}
    assert rows(Foreign, foreign) == [Foreign(Height(7), 9, deque([1, 2]))]
    for wrong in ({"small": "10"}, {"named": 1.5}, {"named": True}, {"pair": ["3", 4]}):
        with pytest.raises(DecodeError):
            rows(Noted, {"height": 7, **wrong})


def test_defaults_of_an_attrs_class() -> None:
    """Defaults replace fields that are missing on the wire."""
    assert rows(Block, {"txCount": 0}) == [Block(0)]


@pytest.mark.parametrize("digits", [0, -5, 2**53 + 1, 2**64, -(2**64), 10**18, 10**77])
def test_whole_numbers_are_exact_in_both_forms(digits: int) -> None:
    """Whole numbers beyond 64 bits are exact as numbers and as strings of digits."""
    assert rows(Gas, {"gasUsed": digits}, {"gasUsed": str(digits)}) == [Gas(digits), Gas(digits)]
    assert rows(Converted, {"gas": digits}, {"gas": str(digits)}) == [Converted(digits)] * 2


NO_NUMBERS = ["", "x", "1.0", "1.5", "1e3", " 1", "1\n", "1_000", "0x1", "007", "+1", "٣", "null", "true"]


@pytest.mark.parametrize("text", [*NO_NUMBERS, "1" * 4_301])
def test_texts_that_are_no_whole_number(text: str) -> None:
    """Texts other than digits are refused as whole numbers.

    null and true in quotes are no numbers either.
    """
    for model, name in ((Gas, "gasUsed"), (Converted, "gas")):
        error = refused(rows, model, {name: 1}, {name: text})
        assert error.path == f"$.blocks[1].{name}"
        assert error.reason == "Expected `int`, got `str`"
    assert refused(rows, Block, {"txCount": 1, "baseFeePerGas": text}).path == "$.blocks[0].baseFeePerGas"


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({}, "txCount"),
        ({"txCount": None}, "txCount"),
        ({"txCount": True}, "txCount"),
        ({"txCount": 1.0}, "txCount"),
        ({"txCount": 1, "blockHash": None}, "blockHash"),
        ({"txCount": 1, "blockHash": 5}, "blockHash"),
        ({"txCount": 1, "gas": {}}, "gas.gasUsed"),
        ({"txCount": 1, "gas": {"gasUsed": "x"}}, "gas.gasUsed"),
        ({"txCount": 1, "gasList": [{"gasUsed": 1}, {"gasUsed": []}]}, "gasList[1].gasUsed"),
        ({"txCount": 1, "gasSequence": [{"gas_used": 1}]}, "gasSequence[0].gasUsed"),
        ({"txCount": 1, "gasByName": {"secret": {"gasUsed": None}}}, "gasByName[...].gasUsed"),
        ({"txCount": 1, "small": 10}, "small"),
        ({"txCount": 1, "mode": "c"}, "mode"),
        ({"txCount": 1, "minedAt": "yesterday"}, "minedAt"),
        ({"txCount": 1, "truthOrNumber": "true"}, "truthOrNumber"),
    ],
)
def test_wrong_types_are_reported_by_their_names_on_the_wire(row: dict[str, Any], path: str) -> None:
    """Error paths have the names and indices of the body."""
    assert refused(rows, Block, {"txCount": 0}, row).path == f"$.blocks[1].{path}"


def test_validators_speak() -> None:
    """Validators that refuse a value raise DecodeError with the row."""
    error = refused(rows, Checked, {"gasUsed": 1}, {"gasUsed": 0})
    assert error.path == "$.blocks[1]"
    assert "must be > 0" in error.reason


@frozen
class Nested:
    """A model around one with a validator."""

    inner_part: Checked


def test_a_place_inside_of_an_object_that_was_decoded() -> None:
    """Errors in nested objects have their JSON path by the names on the wire."""
    assert refused(rows, Nested, {"innerPart": {"gasUsed": 0}}).path == "$.blocks[0].innerPart"


def test_enumerations_without_a_place_for_new_values() -> None:
    """Closed enumerations refuse a new value in a short and printable error."""
    model = attrs.make_class("Model", {"kind": attrs.field(type=Closed)})
    assert rows(model, {"kind": "coin"})[0].kind is Closed.COIN
    assert refused(rows, model, {"kind": "\x1b[2J" + "x" * 5_000}).path == "$.blocks[0].kind"


# Through cattrs.


@frozen
class Converted:
    """A model with a converter."""

    gas: int = field(converter=int)


@frozen
class Odd:
    """A model with types that only cattrs supports."""

    weird: int = field(alias="other_name")
    _hidden_part: int
    gas_total: int = field(converter=int)
    ratio: float = 1.0
    label: str = ""
    flag: bool = False
    mined_at: datetime | None = None
    gas_list: list[Gas] = field(factory=list)
    gas_by_name: dict[str, Gas] = field(factory=dict)
    later: int = field(init=False, default=9)


ODD: dict[str, Any] = {"other_name": 1, "hiddenPart": "2", "gasTotal": "3"}


def test_converters_aliases_and_private_names() -> None:
    """Converters run, aliases are the exact wire name, private names lose underscores."""
    row = ODD | {"ratio": 2, "minedAt": "2024-01-01T00:00:00Z", "gasList": [{"gasUsed": "7"}], "new": 1}
    assert rows(Odd, row) == [Odd(1, 2, 3, 2.0, mined_at=datetime(2024, 1, 1, tzinfo=UTC), gas_list=[Gas(7)])]


@pytest.mark.parametrize(
    ("row", "path", "reason"),
    [
        ({}, "other_name", "missing"),
        (ODD | {"hiddenPart": None}, "hiddenPart", "Expected `int`, got `NoneType`"),
        (ODD | {"hiddenPart": True}, "hiddenPart", "Expected `int`, got `bool`"),
        (ODD | {"hiddenPart": 1.5}, "hiddenPart", "Expected `int`, got `float`"),
        (ODD | {"ratio": "1"}, "ratio", "Expected `float`, got `str`"),
        (ODD | {"ratio": True}, "ratio", "Expected `float`, got `bool`"),
        (ODD | {"label": None}, "label", "Expected `str`, got `NoneType`"),
        (ODD | {"flag": 1}, "flag", "Expected `bool`, got `int`"),
        (ODD | {"gasList": [{"gasUsed": 1}, {}]}, "gasList[1].gasUsed", "missing"),
        (ODD | {"gasByName": {"a": {"gasUsed": "x"}}}, "gasByName['a'].gasUsed", "Expected `int`, got `str`"),
        (ODD | {"ratio": 10**400}, "ratio", "int too large to convert to float"),
    ],
)
def test_wrong_types_through_cattrs(row: dict[str, Any], path: str, reason: str) -> None:
    """Wrong types raise the same errors in a model that cattrs reads.

    Their paths have the names on the wire.
    """
    error = refused(rows, Odd, ODD, row)
    assert (error.path, error.reason) == (f"$.blocks[1].{path}", reason)


@pytest.mark.parametrize("row", [None, 5, "x", []])
def test_rows_that_are_no_objects_through_cattrs(row: Any) -> None:
    """A row of another type is a DecodeError with its index."""
    error = refused(rows, Odd, ODD, row)
    assert error.path == "$.blocks[1]"
    assert error.reason == f"Expected `object`, got `{type(row).__name__}`"


@frozen
class CheckedConverted:
    """A model with a validator that runs after its converter."""

    gas_used: int = field(converter=int, validator=attrs.validators.gt(0))


def test_validators_speak_through_cattrs() -> None:
    """Validators that refuse a value through cattrs raise DecodeError with the row."""
    error = refused(rows, CheckedConverted, {"gasUsed": 1}, {"gasUsed": 0})
    assert error.path == "$.blocks[1]"
    assert "must be > 0" in error.reason


@frozen
class Tree:
    """A model that contains itself."""

    node_name: str
    child_nodes: list[Tree] = field(factory=list)


def test_recursive_models() -> None:
    """Models may contain themselves."""
    tree = {"nodeName": "a", "childNodes": [{"nodeName": "b"}]}
    assert rows(Tree, tree) == [Tree("a", [Tree("b")])]
    broken = {"nodeName": "a", "childNodes": [{"nodeName": 5}]}
    assert refused(rows, Tree, broken).path == "$.blocks[0].childNodes[0].nodeName"


@frozen
class Box(Generic[T]):
    """A generic model."""

    my_item: T


def test_generic_models() -> None:
    """Generic models are decoded by their type arguments."""
    assert rows(Box[int], {"myItem": "5"}) == [Box(5)]
    assert refused(rows, Box[int], {"myItem": "x"}).path == "$.blocks[0].myItem"


@frozen
class Loose:
    """A model whose default is not of its type."""

    block_height: int = None  # type: ignore[assignment]
    copied: list[int] = attrs.Factory(lambda self: [self.block_height], takes_self=True)


@frozen
class Sloppy:
    """A model whose default is not of its type, and nothing else."""

    block_height: int = None  # type: ignore[assignment]


def test_defaults_of_another_type() -> None:
    """Defaults may have another type than their field, and may come from a factory."""
    assert rows(Sloppy, {}) == [Sloppy()]
    assert rows(Loose, {"blockHeight": "4"}) == [Loose(4)]
    model = attrs.make_class(
        "Made", {"a_b": attrs.field(default=attrs.Factory(lambda self: [self], takes_self=True), type=int)}
    )
    assert rows(model, {"aB": 5})[0].a_b == 5


@define
class Twice:
    """A model with two fields of one name on the wire."""

    block_number: int = 0
    blockNumber: int = 0  # noqa: N815 - as on the wire


def test_two_fields_of_one_name() -> None:
    """Two fields may share one name on the wire: both are read from it."""
    assert rows(Twice, {"blockNumber": 5}) == [Twice(5, 5)]


def test_fields_without_annotations() -> None:
    """Fields without a type take any value."""
    model = attrs.make_class("Old", ["a", "b_c"])
    assert rows(model, {"a": 1, "bC": [2]}) == [model(1, [2])]


@frozen
class Host:
    """Model with a type that neither msgspec nor cattrs supports."""

    ip_address: IPv4Address
    heard_at: datetime | None = None


def test_foreign_types_need_a_hook() -> None:
    """A foreign type without a hook is refused before any request.

    With a hook the row is decoded.
    """
    with pytest.raises(ConfigurationError, match=r"IPv4Address.*no structure hook: register one"):
        PageDecoder(Host, "blocks")
    converter().register_structure_hook(IPv4Address, lambda value, _: IPv4Address(value))
    assert rows(Host, {"ipAddress": "10.0.0.1"}) == [Host(IPv4Address("10.0.0.1"))]
    error = refused(rows, Host, {"ipAddress": "10.0.0.1"}, {"ipAddress": "10.0.0.256"})
    assert error.path == "$.blocks[1].ipAddress"
    assert "not permitted" in error.reason


def test_hooks_win_over_msgspec() -> None:
    """Hooks override msgspec for its own types and for models, wherever they occur."""
    converter().register_structure_hook(datetime, lambda value, _: datetime.fromtimestamp(value, UTC))
    converter().register_structure_hook(Gas, lambda value, _: Gas(int(value.removesuffix(" gas"))))
    (block,) = rows(Block, {"txCount": 1, "minedAt": 0, "gas": "5 gas"})
    assert block == Block(1, mined_at=datetime(1970, 1, 1, tzinfo=UTC), gas=Gas(5))
    assert rows(Gas, "6 gas") == [Gas(6)]
    assert refused(rows, Gas, "x gas").path == "$.blocks[0]"
    assert refused(rows, Gas, 5).path == "$.blocks[0]"


def test_a_hook_for_whole_numbers() -> None:
    """A hook for int replaces the strict reading of whole numbers."""
    converter().register_structure_hook(int, lambda value, _: int(value, 16))
    assert rows(Gas, {"gasUsed": "0xff"}) == [Gas(255)]


def test_a_hook_reaches_rows_of_several_kinds() -> None:
    """Hooks apply to all kinds of a union, and an error has the number of its row."""
    converter().register_structure_hook(int, lambda value, _: int(value, 16))
    unknown = {"address": "0xa", "ercType": "UNKNOWN"}
    token = {"address": "0xb", "ercType": "ERC-20", "decimals": "12"}
    made = rows(Contract, token, unknown, token)
    assert [type(row) for row in made] == [Erc20Contract, UnknownContract, Erc20Contract]
    assert made[0].decimals == 0x12
    assert refused(rows, Contract, token, unknown, {**token, "decimals": "x"}).path == "$.blocks[2].decimals"


def test_a_converter_without_hooks_changes_nothing() -> None:
    """The converter without hooks leaves models on the fast decoder."""
    converter()
    assert row_type(Block).wire is not Any
    assert rows(Block, {"txCount": "1", "kind": "coin"}) == [Block(1)]


# Other kinds of models.


class Struct(msgspec.Struct, rename="camel"):
    """A Struct of msgspec, with names of its own."""

    tx_count: int
    wrapped: dict[str, int] = {}


@dataclasses.dataclass
class Data:
    """A dataclass, named as on the wire."""

    txCount: int  # noqa: N815 - as on the wire
    note: str = ""


@dataclasses.dataclass
class DataOfAttrs:
    """A dataclass that holds an attrs class."""

    gas: list[Gas]


@dataclasses.dataclass
class Loop:
    """A dataclass that holds itself."""

    more: Loop | None = None


class Typed(TypedDict):
    """A TypedDict, named as on the wire."""

    txCount: int


@pytest.mark.parametrize(
    ("model", "row", "made"),
    [
        (Struct, {"txCount": 5}, Struct(5)),
        (Data, {"txCount": 5, "x": 1}, Data(5)),
        (DataOfAttrs, {"gas": [{"gasUsed": "5"}]}, DataOfAttrs([Gas(5)])),
        (Loop, {"more": {"more": None}}, Loop(Loop())),
        (Typed, {"txCount": 5}, {"txCount": 5}),
        (dict[str, int], {"a": "5"}, {"a": 5}),
        (dict[str, Gas], {"a": {"gasUsed": 5}}, {"a": Gas(5)}),
        (int, "5", 5),
        (str, "5", "5"),
        (Gas | None, None, None),
        (None, {"any": ["thing"]}, {"any": ["thing"]}),
        (Any, 5, 5),
    ],
)
def test_models_of_other_kinds(model: Any, row: Any, made: Any) -> None:
    """Structs, dataclasses, TypedDicts, mappings and plain types are models too."""
    assert rows(model, row, row) == [made, made]


@pytest.mark.parametrize(
    ("model", "row", "path"),
    [
        (Struct, {"txCount": "5.0"}, "$.blocks[1].txCount"),
        (Data, {}, "$.blocks[1].txCount"),
        (DataOfAttrs, {"gas": [{"gasUsed": None}]}, "$.blocks[1].gas[0].gasUsed"),
        (Typed, {"txCount": []}, "$.blocks[1].txCount"),
        (int, "x", "$.blocks[1]"),
    ],
)
def test_wrong_rows_of_models_of_other_kinds(model: Any, row: Any, path: str) -> None:
    """Errors of these models have the JSON path as well."""
    good = {Struct: {"txCount": 1}, Data: {"txCount": 1}, DataOfAttrs: {"gas": []}, Typed: {"txCount": 1}}
    assert refused(rows, model, good.get(model, 1), row).path == path


class Plain:
    """Class that no decoder can construct."""


@frozen
class Undefined:
    """A model with an unresolvable annotation."""

    gas: Nowhere  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


@pytest.mark.parametrize("model", [Plain, object, 5, "Block", [], {}, Plain(), list[Plain], Undefined, Host])
def test_what_is_no_model_is_refused(model: Any) -> None:
    """Types that cannot be models are refused before any request.

    This holds for pages and for resources.
    """
    for decode in (lambda: PageDecoder(model, "blocks"), lambda: decode_resource(b"{}", model)):
        with pytest.raises(ConfigurationError, match=r"^model=") as caught:
            decode()
        assert isinstance(caught.value, ChainAPIError)


@pytest.mark.untraced
@settings(max_examples=60)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["txCount", "gas", "gasUsed", "gasList", "other_name", "hiddenPart", "gasTotal", "nodeName"]
            ),
            JSON,
        )
    )
)
def test_any_rows_make_models_or_raise_decode_error(values: list[Any]) -> None:
    """Any JSON rows become models of each kind, or raise DecodeError with the place."""
    body = json.dumps({"blocks": values}).encode()
    for model in (Block, Odd, Tree, Struct, Data, DataOfAttrs):
        try:
            made = page(body, model).rows
        except DecodeError as error:
            assert error.path.startswith("$")  # noqa: PT017 - some rows raise none
        else:
            assert [type(row) for row in made] == [model] * len(values)


# Error bodies.

SECRET = "k3y'\"\\<&>/e"


@pytest.mark.parametrize(
    ("body", "error", "messages"),
    [
        (b'{"message":["a","b"],"error":"Bad Request","statusCode":400}', "Bad Request", ("a", "b")),
        (b'{"message":"a","error":"Bad Request"}', "Bad Request", ("a",)),
        (b'{"error":"Bad Request"}', "Bad Request", ()),
        (b'{"message":null}', "", ()),
        (b'{"message":5,"error":6}', "", ("5",)),
        (b'{"message":[true,{"a":[null]},"x"]}', "", ("true", '{"a":[null]}', "x")),
        (b"{}", "", ()),
        (b"", "", ()),
        (b"  \n", "", ()),
        (b"<html>no</html>", "", ("<html>no</html>",)),
        (b"[1]", "", ("[1]",)),
        (b'"no"', "", ('"no"',)),
        (b"\xff\xfe", "", ("\ufffd\ufffd",)),
        (b'{"message":["%s {0} %(a)s"]}', "", ("%s {0} %(a)s",)),
        (b'{"message":["\\u001b[2J\\u009b\\n"],"error":"\\u0007"}', "\\x07", ("\\x1b[2J\\x9b\\n",)),
        (b'{"message":["ok"],"nextPageToken":"t"}', "", ("ok",)),
    ],
)
def test_error_bodies(body: bytes, error: str, messages: tuple[str, ...]) -> None:
    """Error bodies of any form give their messages, safe to print.

    Forms are texts, lists, numbers, HTML and nothing.
    """
    assert decode_error(body) == (error, messages)


def test_error_bodies_are_bounded() -> None:
    """Error bodies give a bounded number of bounded texts."""
    long = "x" * 1_000_000
    assert decode_error(long.encode()) == ("", ("x" * EXCERPT + "…",))
    error, messages = decode_error(json.dumps({"message": [long[:999]] * 1_000, "error": long}).encode())
    assert error == "x" * EXCERPT + "…"
    assert messages == ("x" * EXCERPT + "…",) * MESSAGES


def test_an_error_body_that_nests() -> None:
    """Error bodies nested to the decoder's limit give one short message."""
    for depth in range(sys.getrecursionlimit() // 2, sys.getrecursionlimit() + 9):
        _, messages = decode_error(b'{"message":' + b'{"a":' * depth + b"1" + b"}" * (depth + 1))
        assert len(messages) == 1
        assert len(messages[0]) <= EXCERPT + 1


@pytest.mark.parametrize(
    "body",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps([SECRET]),
        json.dumps({"message": SECRET, "error": SECRET}),
        json.dumps({"message": [SECRET, {"key": SECRET, SECRET: [SECRET]}]}),
        f"<p>{SECRET.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}</p>",
        "https://example.com/?key=k3y%27%22%5C%3C%26%3E%2Fe",
        " " * 590 + SECRET,
        "x" * (EXCERPT - 3) + SECRET,
    ],
)
def test_an_echoed_key_is_masked(body: str) -> None:
    """A key that the service echoes is masked in messages, in any encoding."""
    error, messages = decode_error(body.encode(), SECRET)
    assert "k3y" not in error + "".join(messages)
    assert "k3y" not in excerpt(body, SECRET)


@pytest.mark.parametrize("length", [300, 600, 2_400, 4_096])
@pytest.mark.parametrize("lead", [0, 299, 599, 2_399])
def test_a_long_key_is_masked_before_the_cut(length: int, lead: int) -> None:
    """A long key is masked before a long body is cut, so no part of it is left."""
    for times in (1, 3):
        _, messages = decode_error(b"x" * lead + b"K" * length * times, "K" * length)
        assert "K" not in messages[0]


def test_a_float_beyond_the_range_of_floats_is_refused() -> None:
    """A number that no float can hold is a fault in every record: it does not become infinite."""

    @frozen
    class Price:
        value: float
        change: float | None = None

    assert decode_resource(b'{"value":1,"change":null}', Price) == Price(1.0)
    for body in (b'{"value":1e400}', b'{"value":1,"change":-1e400}', b'{"value":"1"}', b'{"value":"NaN"}'):
        with pytest.raises(DecodeError):
            decode_resource(body, Price)
