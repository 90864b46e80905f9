"""Rows of classes of a user's in files and tables: one line a row, and every digit."""

from __future__ import annotations

import enum
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import field, make_class
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models import L1Validator, Transfer
from tests.answers import exported, page_of, table_of
from tests.documents import Maker
from tests.models.classes import class_of
from tests.tables.test_pages import ODD

DIGITS = "0.1234567890123456789"


@pytest.fixture
def lines_of(tmp_path: Path) -> Any:
    """Return a function that exports rows as JSON lines, and returns them without their label."""

    def lines(model: Any, *rows: bytes) -> list[Any]:
        out = tmp_path / f"{len([*tmp_path.iterdir()])}.jsonl"
        text = exported(b'{"rows": [%b]}' % b",\n".join(rows), out, model).read_text("utf-8")
        found = [json.loads(line, parse_float=Decimal) for line in text.splitlines()]
        assert [line.pop("source") for line in found] == ["/v1/x"] * len(rows)
        return found

    return lines


class Block(BaseModel):
    """A Pydantic class."""

    model_config = ConfigDict(alias_generator=to_camel)
    block_number: int
    fees: Decimal = Decimal(0)


Color = enum.Enum("Color", {"RED": "red"})
# Structs: with a part that is left as it is in the response, and with one that is named as a label of lines.
RAW_ROW: Any = msgspec.defstruct("RawRow", [("name", str), ("rest", msgspec.Raw)])
RAW_ROWS = msgspec.defstruct(
    "RawRows", [("first", RAW_ROW), ("more", dict[str, RAW_ROW], {}), ("rows", list[RAW_ROW], [])]
)
SOURCED: Any = msgspec.defstruct("Sourced", [("source", str)], tag="sourced")
OTHER: Any = msgspec.defstruct("Other", [], tag="other")
# Records in columns of JSON: a private attribute, and a field that the service may leave out.
PRIVATE = make_class("Private", {"_x": field(type=int)})
DEFAULTED = class_of("dataclass", x=int, y=(int, 0))
MAPPED = class_of("attrs class", private=dict[str, PRIVATE], defaulted=dict[str, DEFAULTED])  # type: ignore[valid-type]
ABSENT = class_of("attrs class", number=(int | msgspec.UnsetType, msgspec.UNSET))
FREE = class_of("attrs class", anything=Any, named=dict[str, Any], listed=list[Any])


SPACED = b'{"a":\n\t[1,\r\n %b]}' % DIGITS.encode()
PLAIN = {"a": [1, Decimal(DIGITS)]}
RAW, RAW_PLAIN = b'{"name": "n", "rest": %b}' % SPACED, {"name": "n", "rest": PLAIN}
LINES: list[tuple[Any, bytes, Any]] = [
    (RAW_ROW, RAW, RAW_PLAIN),
    (
        RAW_ROWS,
        b'{"first": %b, "more": {"k": %b}, "rows": [%b]}' % (RAW, RAW, RAW),
        {"first": RAW_PLAIN, "more": {"k": RAW_PLAIN}, "rows": [RAW_PLAIN]},
    ),
    (RAW_ROW | int, RAW, RAW_PLAIN),
    (
        MAPPED,
        b'{"private": {"k": {"x": 1}}, "defaulted": {"k": {"x": 1}}}',
        {"private": {"k": {"_x": 1}}, "defaulted": {"k": {"x": 1, "y": 0}}},
    ),
    (
        Block,
        b'{"blockNumber": "1000000000000000000000000000000", "fees": "0.10"}',
        {"blockNumber": 10**30, "fees": "0.10"},
    ),
    (tuple[int, str], b'[1, "a"]', {"value": [1, "a"]}),
    (set[int], b"[1, 1]", {"value": [1]}),
    (date, b'"2024-01-01"', {"value": "2024-01-01"}),
    (Color, b'"red"', {"value": "red"}),
    (Decimal, b'"1.50"', {"value": "1.50"}),
    (ABSENT, b"{}", {"number": None}),
    (SOURCED | OTHER, b'{"type": "sourced", "source": "s"}', {"type": "sourced", "source_": "s"}),
    (SOURCED | None, b'{"type": "sourced", "source": "s"}', {"type": "sourced", "source_": "s"}),
    (dict[str, Any], b'{"source": "s", "Source_": 1.50}', {"source__": "s", "Source_": 1.5}),
    (dict[str, Any], b'{"n": "\\"source\\"", "in": {"source": 1}}', {"n": '"source"', "in": {"source": 1}}),
    (list[str], b'["source"]', {"value": ["source"]}),
    (None, b'{"a": 1180591620717411303424}', {"a": 2**70}),
    (None, b'"x"', {"value": "x"}),
    (None, b"null", {"value": None}),
    (None, b"12345678901234567890.5", {"value": Decimal("12345678901234567890.5")}),
]


def test_a_row_of_any_model_is_one_line(lines_of: Any) -> None:
    """A row of any class is one JSON object a line; one that is no object has the column ``value``."""
    failures = [
        f"{model}: {found}"
        for model, sent, wanted in LINES
        if (found := lines_of(model, sent, sent)) != [wanted, wanted]
    ]
    assert not failures


def test_numbers_of_any_json_stay_numbers(lines_of: Any) -> None:
    """A value of any JSON has the digits that were sent, in files and in tables."""
    values = [DIGITS, "12345678901234567890.5", "0.5", *(odd for odd in ODD if "ud800" not in odd)]
    rows = [f'{{"anything": {one}, "named": {{"a": [{one}]}}, "listed": [{one}, null]}}' for one in values]
    wanted = [json.loads(row, parse_float=Decimal) for row in rows]
    assert lines_of(FREE, *map(str.encode, rows)) == wanted
    body = f'{{"rows": [{",".join(rows)}]}}'.encode()
    for table in (table_of(body, FREE), page_of(body, FREE).to_arrow()):
        found = [
            {
                name: None if cell is None else json.loads(cell, parse_float=Decimal)
                for name, cell in row.items()
            }
            for row in table.to_pylist()
        ]
        assert found == wanted
    unknown = [f'{{"genesisData": {one}, "news": [{one}]}}' for one in values if one != "null"]
    lines = lines_of(Transfer, *map(str.encode, unknown))
    assert [line["extra"] for line in lines] == [json.loads(one, parse_float=Decimal) for one in unknown]
    record = {**Maker(1, whole=True).record(L1Validator), "blsCredentials": {"weight": 5}}
    content = json.dumps(record).replace('"weight": 5', f'"weight": {DIGITS}').encode()
    assert lines_of(L1Validator, content)[0]["bls_credentials"] == {"weight": Decimal(DIGITS)}


def test_inferred_types_change_no_value() -> None:
    """Rows without a model have inferred types; where values have none in common, an error names it."""
    rows = [{"a": True, "b": 0.5, "c": [None, 1.5], "d": {"x": True, "y": 2.5}, "e": None}] * 2
    assert table_of(json.dumps({"rows": rows}).encode()).to_pylist() == rows
    long = "1234567890123456789012345678901234567890.5"
    for first, second in (
        *(("0.5", "true"), ("true", "0.5"), ("[0.5, true]", "[]"), (long, long), (f"[{long}]", "[]")),
        *(('{"b": [0.5]}', '{"b": [false]}'), ('{"b": {"c": 0.5}}', '{"b": {"c": true}}')),
    ):
        body = f'{{"rows": [{{"a": {first}, "z": 1}}, {{"a": {second}, "z": 1}}]}}'.encode()
        with pytest.raises(ConfigurationError, match=r"'a'.*pass model="):
            table_of(body)


def test_rows_nested_too_deeply() -> None:
    """Rows of any depth become a table or raise DecodeError, with a model or without one."""
    refused = 0
    for levels in (300, 600, *range(900, 1_020, 15)):
        deep = b"[" * levels + b"]" * levels
        body = b'{"rows": [{"anything": %b, "named": {}, "listed": []}]}' % deep
        for model in (FREE, None):
            try:
                assert table_of(body, model).num_rows == 1
            except DecodeError as fault:
                refused += 1
                assert fault.reason == "nested too deeply"  # noqa: PT017 - some are not refused
    assert refused


def test_rows_without_columns(tmp_path: Path) -> None:
    """Rows of a TypedDict or a Pydantic class have inferred types in a table, and no file with columns."""
    named = class_of("TypedDict", name=str, fees=Decimal)
    for model, sent in ((named, {"name": "n", "fees": "0.5"}), (Block, {"blockNumber": 1, "fees": "0.5"})):
        body = json.dumps({"rows": [sent]}).encode()
        assert table_of(body, model)["fees"].to_pylist() == [Decimal("0.5")]
        with pytest.raises(ConfigurationError, match="columns"):
            exported(body, tmp_path / "out.parquet", model)
