"""Rows of classes of a user's as JSON lines and tables: one line a row, and every digit."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, make_dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest
from attrs import frozen
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

import chainapi.json
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models import L1Validator
from chainapi.models.codec import PageDecoder
from chainapi.models.plain import to_dict, to_wire
from chainapi.tables.build import builder_of, table_of
from chainapi.tables.codec import Codec
from chainapi.tables.pages import ColumnarDecoder
from chainapi.tables.structs import StructDecoder
from tests.documents import Maker

DIGITS = "0.1234567890123456789"


class RawRow(msgspec.Struct):
    """A Struct with a field that is left as it is in the response."""

    name: str
    rest: msgspec.Raw


class RawRows(msgspec.Struct):
    """A Struct with such a Struct inside, and with several of them."""

    first: RawRow
    more: dict[str, RawRow] = {}


class RawLists(msgspec.Struct):
    """A Struct with a list of such Structs."""

    rows: list[RawRow]


SPACED = b'{"a":\n\t[1,\r\n %b]}' % DIGITS.encode()
PLAIN = {"a": [1, Decimal(DIGITS)]}


def decoded(model: Any, *rows: bytes) -> list[Any]:
    """Return the rows of a page."""
    return PageDecoder(model, "rows").decode(b'{"rows": [%b]}' % b",\n".join(rows)).rows


def lines_of(model: Any, rows: list[Any]) -> list[Any]:
    """Return rows as exports write them, without their label."""
    lines, invalid = Codec(model).encode_page(rows, "label")
    assert invalid == b""
    found = [json.loads(line, parse_float=Decimal) for line in lines.split(b"\n")[:-1]]
    assert [line.pop("source") for line in found] == ["label"] * len(rows)
    return found


@pytest.mark.parametrize(
    ("model", "sent", "wanted"),
    [
        (RawRow, b'{"name": "n", "rest": %b}' % SPACED, {"name": "n", "rest": PLAIN}),
        (
            RawRows,
            b'{"first": {"name": "n", "rest": %b}, "more": {"k": {"name": "m", "rest": %b}}}'
            % (SPACED, SPACED),
            {"first": {"name": "n", "rest": PLAIN}, "more": {"k": {"name": "m", "rest": PLAIN}}},
        ),
        (
            RawLists,
            b'{"rows": [{"name": "n", "rest": %b}]}' % SPACED,
            {"rows": [{"name": "n", "rest": PLAIN}]},
        ),
        (RawRow | int, b'{"name": "n", "rest": %b}' % SPACED, {"name": "n", "rest": PLAIN}),
    ],
    ids=["struct", "nested", "list", "union"],
)
def test_raw_json_is_one_line(model: Any, sent: bytes, wanted: Any) -> None:
    """Raw JSON of a response with line ends is one line of a file, one cell of a table, and JSON of a row."""
    rows = decoded(model, sent, sent)
    assert lines_of(model, rows) == [wanted, wanted]
    assert json.loads(chainapi.json.dumps(rows), parse_float=Decimal) == [wanted, wanted]
    if model is RawRow:
        cells = table_of(rows, model, "text").to_pylist()
        assert [json.loads(cell["rest"], parse_float=Decimal) for cell in cells] == [PLAIN, PLAIN]


@dataclass
class Defaulted:
    """A dataclass with a field that the service may leave out."""

    x: int
    y: int = 0


@frozen
class Private:
    """A class with a private attribute."""

    _x: int


@frozen
class Mapped:
    """A class with records in columns of JSON."""

    private: dict[str, Private]
    defaulted: dict[str, Defaulted]


def test_records_in_json_have_all_fields() -> None:
    """JSON of a dict of records has private attributes and defaults of those records too."""
    rows = decoded(Mapped, b'{"private": {"k": {"x": 1}}, "defaulted": {"k": {"x": 1}}}')
    assert lines_of(Mapped, rows) == [{"private": {"k": {"_x": 1}}, "defaulted": {"k": {"x": 1, "y": 0}}}]


@frozen
class Free:
    """A class with fields of any JSON."""

    anything: Any
    named: dict[str, Any]
    listed: list[Any]


@pytest.mark.parametrize("number", [DIGITS, "12345678901234567890.5", "1e400", "0.5", "18446744073709551616"])
def test_numbers_of_any_json_stay_numbers(number: str) -> None:
    """A number in JSON of any type is written with the digits that were sent, in files and in tables."""
    sent = f'{{"anything": {number}, "named": {{"a": [{number}]}}, "listed": [{number}]}}'.encode()
    wanted = json.loads(sent, parse_float=Decimal)
    rows = decoded(Free, sent)
    assert lines_of(Free, rows) == [wanted]
    codec = Codec(Free)
    assert codec.structs is not None
    structs = StructDecoder(codec.structs, Free, "rows").decode(b'{"rows": [%b]}' % sent).rows
    assert codec.encode_lines(structs) == codec.encode_lines(rows)
    page = ColumnarDecoder(Free, "rows").decode(b'{"rows": [%b]}' % sent)
    builder = builder_of(Free, "text", [], lenient=False)
    builder.add(page, [0])
    for table in (builder.table(), table_of(rows, Free, "text")):
        cells = {name: json.loads(cell, parse_float=Decimal) for name, cell in table.to_pylist()[0].items()}
        assert cells == wanted


class Weight(enum.Enum):
    """An enumeration with a number beyond 64 bits."""

    ONE = 1
    MOST = 2**70


class Edge(enum.Enum):
    """An enumeration with the greatest number of 64 bits."""

    ONE = 1
    MOST = 2**63 - 1


@pytest.mark.parametrize("make", [attrs.make_class, make_dataclass])
@pytest.mark.parametrize(("hint", "text"), [(Weight, True), (Edge, False)])
def test_enumerations_of_long_numbers(make: Any, hint: Any, text: bool) -> None:
    """Members beyond 64 bits are read and written; their column has JSON, that of others whole numbers."""
    hints = {"one": hint, "many": list[hint], "maybe": hint | None}
    annotated = {name: attrs.field(type=kind) for name, kind in hints.items()}
    model = make("Row", annotated if make is attrs.make_class else [*hints.items()])
    sent = {"one": hint.MOST.value, "many": [1, hint.MOST.value], "maybe": None}
    rows = decoded(model, json.dumps(sent).encode())
    assert (rows[0].one, rows[0].many, rows[0].maybe) == (hint.MOST, [hint.ONE, hint.MOST], None)
    assert json.loads(chainapi.json.dumps(rows[0])) == sent
    (cells,) = table_of(rows, model, "text").to_pylist()
    assert cells == ({"one": str(2**70), "many": f"[1,{2**70}]", "maybe": None} if text else sent)
    assert json.loads(Codec(model).encode_lines(rows)) == sent


def test_a_struct_with_a_long_number_in_an_enumeration_is_refused() -> None:
    """A model that msgspec alone can make, and cannot read, is refused before a request."""
    model = msgspec.defstruct("Row", [("weight", Weight)])
    with pytest.raises(ConfigurationError, match="has no structure hook"):
        decoded(model, b'{"weight": 1}')


def test_numbers_of_any_json_in_our_records() -> None:
    """The same holds for records of the package."""
    sent = {**Maker(1, whole=True).record(L1Validator), "blsCredentials": {"weight": 5}}
    body = json.dumps(sent).replace('"weight": 5', f'"weight": {DIGITS}').encode()
    assert lines_of(L1Validator, decoded(L1Validator, body))[0]["bls_credentials"] == {
        "weight": Decimal(DIGITS)
    }


class Block(BaseModel):
    """A Pydantic class."""

    model_config = ConfigDict(alias_generator=to_camel)
    block_number: int
    fees: Decimal = Decimal(0)


def test_rows_of_pydantic_are_objects() -> None:
    """Rows of Pydantic classes are JSON objects with the names of the service, in files too."""
    rows = decoded(Block, b'{"blockNumber": "%b", "fees": "0.10"}' % str(10**30).encode())
    wanted = {"blockNumber": 10**30, "fees": "0.10"}
    assert lines_of(Block, rows) == [wanted]
    assert json.loads(chainapi.json.dumps({"rows": rows})) == {"rows": [wanted]}
    assert json.loads(json.dumps(rows, default=chainapi.json.default)) == [wanted]
    assert to_wire(rows) == [wanted]
    assert to_dict(rows) == [{"block_number": 10**30, "fees": Decimal("0.10")}]


class Color(enum.Enum):
    """An enumeration."""

    RED = "red"


@frozen
class Keyed:
    """A class with keys that are no plain texts."""

    colors: dict[Color, int]
    places: dict[int, str]


def test_keys_have_their_form_in_json() -> None:
    """Keys of other types are written as the service sends them, so that the row decodes to itself."""
    rows = decoded(Keyed, b'{"colors": {"red": 1}, "places": {"5": "x"}}')
    assert to_wire(rows) == [{"colors": {"red": 1}, "places": {"5": "x"}}]
    assert decoded(Keyed, chainapi.json.dumps(rows[0])) == rows


@pytest.mark.parametrize(
    "values",
    [
        [0.5, True],
        [True, 0.5],
        [[0.5, True]],
        [{"b": [0.5]}, {"b": [False]}],
        [{"b": {"c": 0.5}}, {"b": {"c": True}}],
        [Decimal("1234567890123456789012345678901234567890.5")],
        [[Decimal("1234567890123456789012345678901234567890.5")]],
    ],
)
def test_inferred_types_change_no_value(values: list[Any]) -> None:
    """Booleans beside numbers, and decimals of more than 38 digits: an error names the column."""
    with pytest.raises(ConfigurationError, match=r"'a'.*pass model="):
        table_of([{"a": value, "z": 1} for value in values], None, "text")


def test_booleans_beside_other_columns() -> None:
    """Columns of booleans, of null and of numbers are inferred as before."""
    rows = [{"a": True, "b": 0.5, "c": [None, 1.5], "d": {"x": True, "y": 2.5}, "e": None}] * 2
    assert table_of(rows, None, "text").to_pylist() == rows


def test_rows_nested_too_deeply() -> None:
    """Rows of any depth become a table or raise DecodeError, with a model or without one."""
    refused = 0
    for levels in range(300, 1_020, 12):
        sent = b'{"anything": %b, "named": {}, "listed": []}' % (b"[" * levels + b"]" * levels)
        for model in (Free, None):
            try:
                assert table_of(decoded(model, sent), model, "text").num_rows == 1
            except DecodeError as fault:
                refused += 1
                assert fault.reason == "nested too deeply"  # noqa: PT017 - some are not refused
    assert refused


@frozen
class Absent:
    """A class whose field may be left out without a value of its own."""

    number: int | msgspec.UnsetType = msgspec.UNSET


class Tagged(msgspec.Struct, tag="x", tag_field="kind"):
    """A Struct with a tag."""

    number: int


@pytest.mark.parametrize(
    ("model", "sent", "wanted"),
    [
        (tuple[int, str], b'[1, "a"]', {"value": [1, "a"]}),
        (set[int], b"[1, 1]", {"value": [1]}),
        (date, b'"2024-01-01"', {"value": "2024-01-01"}),
        (Color, b'"red"', {"value": "red"}),
        (Decimal, b'"1.50"', {"value": "1.50"}),
        (Absent, b"{}", {}),
    ],
    ids=str,
)
def test_a_row_of_any_model_is_an_object(model: Any, sent: bytes, wanted: Any) -> None:
    """A row that is no object in JSON has the column ``value``, and one without values is empty."""
    assert lines_of(model, decoded(model, sent, sent)) == [wanted, wanted]


class Sourced(msgspec.Struct, tag="sourced"):
    """A Struct with a field that is named like the label of a line."""

    source: str


class Other(msgspec.Struct, tag="other"):
    """A Struct of another kind."""


@pytest.mark.parametrize(
    ("model", "sent", "wanted"),
    [
        (Sourced | Other, b'{"type": "sourced", "source": "s"}', {"type": "sourced", "source_": "s"}),
        (Sourced | None, b'{"type": "sourced", "source": "s"}', {"type": "sourced", "source_": "s"}),
        (dict[str, Any], b'{"source": "s", "Source_": 1.50}', {"source__": "s", "Source_": 1.5}),
        (
            dict[str, Any],
            b'{"n": "\\"source\\"", "in": {"source": 1}}',
            {"n": '"source"', "in": {"source": 1}},
        ),
        (list[str], b'["source"]', {"value": ["source"]}),
    ],
    ids=str,
)
def test_the_label_has_its_name_alone(model: Any, sent: bytes, wanted: Any) -> None:
    """A field ``source`` of a row without columns has another name in a line, which has a label."""
    line = Codec(model).encode_lines(decoded(model, sent), "s-1")
    assert msgspec.json.decode(line) == {"source": "s-1", **wanted}
    assert line.count(b'"source":') == 1 + (b'"in"' in sent)


def test_rows_of_structs_decode_to_themselves() -> None:
    """A tag is written, and a value that is left out is not."""
    for model, sent in ((Tagged, b'{"kind": "x", "number": 5}'), (Absent, b"{}"), (Absent, b'{"number": 5}')):
        rows = decoded(model, sent)
        assert to_wire(rows) == [json.loads(sent)]
        assert decoded(model, chainapi.json.dumps(rows[0])) == rows
