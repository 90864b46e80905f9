"""Columns of tables: names and types follow from the model, and cells are the values of the rows."""

from __future__ import annotations

import enum
import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Annotated, Any, Literal, NewType

import attrs
import pyarrow as pa
from attrs import frozen

import chainapi.json
from chainapi import MetricPoint, models
from chainapi.models import EvmBlock, NativeTransaction, PrimaryNetworkTransaction, Validator
from tests.answers import page_of, table_of
from tests.documents import RETURNED, Maker
from tests.models.classes import class_of

EMPTY = b'{"rows":[]}'


def types_of(model: Any, amounts: str = "text") -> dict[str, str]:
    """Return the type of each column of a model, as a list without rows has it."""
    schema = table_of(EMPTY, model, amounts=amounts).schema
    return {field.name: str(field.type) for field in schema}


def cells_of(model: Any, *rows: Any) -> list[dict[str, Any]]:
    """Return the cells of a table of rows, which are JSON values."""
    cells: list[dict[str, Any]] = table_of(json.dumps({"rows": rows}).encode(), model).to_pylist()
    return cells


# All models


def is_cell(cell: Any, value: Any, kind: Any) -> bool:
    """Return whether a cell has a value of a row, in a column of a type."""
    if value is None or cell is None:
        return cell is None and value is None
    if pa.types.is_struct(kind):
        return all(is_cell(cell[one.name], attribute(value, one.name), one.type) for one in kind)
    if pa.types.is_list(kind):
        return len(cell) == len(value) and all(map(is_cell, cell, value, [kind.value_type] * len(cell)))
    if pa.types.is_timestamp(kind):
        return bool(cell == datetime.fromtimestamp(value, UTC))
    if pa.types.is_string(kind) and not isinstance(value, str):
        if isinstance(value, dict):  # JSON of records has null for a missing field
            value = {name: one.to_dict() if attrs.has(type(one)) else one for name, one in value.items()}
        return bool(cell == str(value) or json.loads(cell) == json.loads(chainapi.json.dumps(value)))
    if pa.types.is_string(kind):
        return cell in (value, json.dumps(value))
    return bool(cell == value or cell == float(value))


def attribute(row: Any, column: str) -> Any:
    """Return the value of a row in a column; None if its kind has no such field."""
    return getattr(row, column, None) if column != "from" else getattr(row, "from_", None)


def fault_of(model: Any, seeds: range, amounts: Any = "text") -> str | None:
    """Return the column of a model whose cells are not the values of its rows, or None."""
    page = page_of(json.dumps({"rows": [Maker(seed).value(model) for seed in seeds]}).encode(), model)
    table = page.to_arrow(amounts=amounts)
    table.validate(full=True)
    for field in table.schema:
        values = [None if field.name == "extra" else attribute(row, field.name) for row in page]
        if not all(map(is_cell, table[field.name].to_pylist(), values, [field.type] * len(page))):
            return str(field.name)
    fields = [field.name.rstrip("_") for field in attrs.fields(model)] if attrs.has(model) else []
    return None if table.column_names[: len(fields)] == fields else "the names of the columns"


def test_tables_of_every_route_have_the_values_of_its_rows() -> None:
    """Each column has the values of its field, by its name in Python; a missing value is null."""
    seeds = range(4)
    failures = [f"{name}: {fault}" for name, model in RETURNED.items() if (fault := fault_of(model, seeds))]
    assert not failures
    forms = product((EvmBlock, NativeTransaction, PrimaryNetworkTransaction), ("decimal", "float"))
    assert not [form for model, form in forms if fault_of(model, range(6), form) is not None]


def test_names_of_amounts() -> None:
    """A whole number is an amount of any size if its name says so; counters and identifiers have 64 bits."""
    amounts = ("value", "total_supply", "base_fee_per_gas", "token_id", "Balance", "fees_")
    numbers = ("fee_count", "reward_id", "height", "evaluation", "id", "balance_index", "gas_used", "nonce")
    fields = {name: attrs.field(type=int) for name in (*amounts, *numbers)}
    found = types_of(attrs.make_class("Row", fields))
    wanted = {name.rstrip("_"): "string" for name in amounts} | dict.fromkeys(numbers, "int64")
    assert found == wanted
    assert types_of(attrs.make_class("Row", {"fees": attrs.field(type=float)})) == {"fees": "double"}


def test_blocks_and_transactions() -> None:
    """Timestamps are times in UTC; `from_` is the column ``from``; a point has two columns and `extra`."""
    block = types_of(EvmBlock)
    assert [*block] == [*(field.name for field in attrs.fields(EvmBlock)), "extra"]
    found = (block["block_timestamp"], block["block_number"], block["base_fee"])
    assert found == ("timestamp[ms, tz=UTC]", "int64", "string")
    transaction = types_of(NativeTransaction)
    assert "from_" not in transaction
    assert transaction["from"].startswith("struct<name: string, symbol: string, decimals: int64")
    point = {"timestamp": "timestamp[ms, tz=UTC]", "value": "double", "extra": "string"}
    assert types_of(MetricPoint) == point


def test_kinds_of_a_union_share_a_table() -> None:
    """Unions have the columns of all kinds, each once, and one for what a kind does not name."""
    union = types_of(PrimaryNetworkTransaction)
    assert {"tx_hash", "evm_inputs", "vertices", "node_id", "extra"} <= {*union}
    balances = types_of(models.PrimaryNetworkBalances)["balances"]
    for name in ("unlocked_unstaked", "unlocked", "atomic_memory_locked"):
        assert f"{name}: " in balances


def known_cells(model: Any, row: Any) -> dict[str, Any]:
    """Return the cells of a row that have a value."""
    return {name: cell for name, cell in cells_of(model, row)[0].items() if cell is not None}


def test_an_unknown_kind_loses_nothing() -> None:
    """Unknown rows put plain values into fitting columns, and the rest into ``extra``."""
    fitting: Any = {"txHash": "0x1", "blockNumber": str(2**63 - 1), "delegationFeePercent": "2.50"}
    other: Any = {"nodeId": 5, "news": [1.5, {"blockNumber": 1}], "value": 7, "startTimestamp": "soon"}
    other |= {"endTimestamp": 1.5, "estimatedReward": True, "extra": 1, "amountStaked": None}
    cells = known_cells(PrimaryNetworkTransaction, fitting | other)
    assert json.loads(cells.pop("extra")) == {name: one for name, one in other.items() if one is not None}
    made = {"tx_hash": "0x1", "block_number": 2**63 - 1, "delegation_fee_percent": Decimal("2.5")}
    assert cells == made
    for raw, known in (
        ({"amountStaked": str(2**256)}, {"amount_staked": str(2**256)}),
        ({"txHash": "x"}, {"tx_hash": "x"}),
        ({"blockTimestamp": 10**12}, {}),
        ({"stakePercentage": 2**70 + 1, "delegationFee": "NaN"}, {}),
        ({"stakePercentage": "1"}, {}),
    ):
        cells = known_cells(Validator, raw)
        assert (json.loads(cells.pop("extra", "{}")), cells) == ({} if known else raw, known), raw


def test_fields_that_no_record_names() -> None:
    """Unnamed fields are JSON in the column ``extra``; those of inner records stand in their places."""
    fields = Maker(1, whole=True).record(EvmBlock)
    rows = cells_of(EvmBlock, fields, {**fields, "news": {"a": 2**70}, "burned": "5"}, fields)
    assert [row.pop("extra") for row in rows] == [None, f'{{"news":{{"a":{2**70}}},"burned":"5"}}', None]
    assert rows[0] == rows[1] == rows[2]
    value = Maker(1, whole=True).record(NativeTransaction)
    sender = {**Maker(1, whole=True).value(models.RichAddress), "rank": 3}
    assert cells_of(NativeTransaction, {**value, "from": sender})[0]["extra"] == '{"from":{"rank":3}}'
    details = Maker(1, whole=True).record(models.EvmTransaction)
    transfer = Maker(1, whole=True).record(models.Erc20TransferDetails)
    details["erc20Transfers"] = [transfer, {**transfer, "news": 1}]
    extra = cells_of(models.EvmTransaction, details)[0]["extra"]
    assert json.loads(extra) == {"erc20Transfers": [{}, {"news": 1}]}
    health = {"status": "ok", "info": {"db": {"status": "up", "news": 1}, "cache": {"status": "up"}}}
    extra = cells_of(models.HealthCheck, health)[0]["extra"]
    assert json.loads(extra)["info"]["db"] == {"news": 1}
    points = [{"timestamp": 1, "value": 2.5}, {"timestamp": 2, "value": 0.5, "partial": True}]
    assert [row["extra"] for row in cells_of(MetricPoint, *points)] == [None, '{"partial":true}']


# Models of users


Colour = enum.Enum("Colour", {"RED": "red"})
Mixed = enum.Enum("Mixed", {"ONE": 1, "TWO": "two"})
Weight = enum.Enum("Weight", {"ONE": 1, "MOST": 2**70})
Height = NewType("Height", int)
Empty = attrs.make_class("Empty", [])


@frozen
class Inner:
    """A record in a row."""

    value: int
    source: str = ""


@frozen
class Chain:
    """A record that contains itself."""

    again: Chain | None


INNER = "struct<value: string, source: string>"
LARGE = {"value": str(10**77), "source": ""}
NOW = "2024-01-01T00:00:00Z"
# A field and its type, its column and the type of that, a value in JSON and its cell.
COLUMNS: list[tuple[str, Any, str, str, Any, Any]] = [
    ("_hidden", int, "hidden", "int64", 1, 1),
    ("from_", Annotated[str, "sender"], "from", "string", "a", "a"),
    ("source", str | None, "source_", "string", "s", "s"),  # exports have a column of that name
    ("Source", str, "Source__", "string", "t", "t"),
    ("height", Height, "height", "int64", "2", 2),
    ("share", float, "share", "double", 1.5, 1.5),
    ("both", int | float, "both", "string", 1, "1"),
    ("either", int | str, "either", "string", "x", '"x"'),
    ("whole", Literal[1, 2], "whole", "int64", 1, 1),
    ("word", Literal["a", "b"] | None, "word", "string", None, None),
    ("odd", Literal[1, "a"], "odd", "string", "a", '"a"'),
    ("colour", Colour, "colour", "string", "red", "red"),
    ("mixed", Mixed, "mixed", "string", 1, "1"),
    ("weight", Weight, "weight", "string", 2**70, str(2**70)),
    ("at", datetime, "at", "string", NOW, NOW),
    ("inner", Inner | None, "inner", INNER, {"value": 10**77}, LARGE),
    ("empty", Empty, "empty", "string", {}, "{}"),
    ("inners", tuple[Inner, ...], "inners", f"list<element: {INNER}>", [{"value": str(10**77)}], [LARGE]),
    ("pair", tuple[int, str], "pair", "string", [1, "a"], '[1,"a"]'),
    ("words", list[str | None] | None, "words", "list<element: string>", ["a", None], ["a", None]),
    ("anything", list[Any], "anything", "string", [1, None], "[1,null]"),
    ("named", dict[str, int], "named", "string", {"a": 1}, '{"a":1}'),
    ("again", Chain | None, "again", "struct<again: string>", {"again": None}, {"again": None}),
    ("ratio", Decimal, "ratio", "decimal128(38, 18)", "0.10", Decimal("0.10")),
]


def test_models_of_users() -> None:
    """User classes have columns by their annotations, and no `extra`; what has no exact type is JSON."""
    own = attrs.make_class("Own", {name: attrs.field(type=hint) for name, hint, *_ in COLUMNS})
    assert types_of(own) == {column: kind for _, _, column, kind, _, _ in COLUMNS}
    sent = {name.strip("_"): value for name, *_, value, _ in COLUMNS}
    assert cells_of(own, {**sent, "more": 1}) == [{column: cell for _, _, column, *_, cell in COLUMNS}]


@frozen
class Place:
    """A record whose field has a name of a database."""

    rowid: int


@frozen
class Numbered:
    """A class whose fields have names that databases have for the number of a row."""

    oid: int
    rowid: int
    RowID: str
    _rowid_: str
    place: Place


def test_names_of_columns() -> None:
    """A name that hides the number of a row in SQLite and DuckDB is changed; any other is kept."""
    assert [*types_of(Numbered)] == ["oid", "rowid_", "RowID__", "rowid___", "place"]
    assert cells_of(class_of("dataclass", value=int), {"value": str(2**200)}) == [{"value": str(2**200)}]
    assert cells_of(class_of("Struct", block_number=int), {"blockNumber": "7"}) == [{"block_number": 7}]
