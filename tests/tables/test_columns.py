"""Columns of row models, and rows as JSON objects of them."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType

import attrs
import msgspec
import pytest
from attrs import frozen

from chainapi import models
from chainapi.models import EvmBlock, MetricPoint, NativeTransaction, Unknown
from chainapi.models.codec import decode_resource
from chainapi.models.schema import fields_of
from chainapi.models.timestamps import UTCDatetime
from chainapi.models.unions import tags_of
from chainapi.tables.codec import Codec
from chainapi.tables.columns import Column
from chainapi.tables.rows import json_text, reader
from tests.documents import Maker

RAW = {"Invalid", "Unknown"}
RECORDS = [name for name in sorted({*models.__all__} - RAW) if attrs.has(getattr(models, name))]
UNIONS = [name for name in models.__all__ if tags_of(getattr(models, name))]


def made(model: Any, seed: int) -> Any:
    """Return a row of a model."""
    return decode_resource(json.dumps(Maker(seed).value(model)).encode(), model)


def kinds(model: Any) -> dict[str, str]:
    """Return the kind of each column of a model."""
    return {column.name: column.kind for column in Codec(model).columns}


def encoded(model: Any, row: Any) -> Any:
    """Return a row as JSON, with exact whole numbers."""
    return json.loads(Codec(model).encode_lines([row]), parse_float=Decimal)


def plain(value: Any) -> Any:
    """Return the expected JSON of a row: Python names without trailing underscores, amounts as texts."""
    if attrs.has(type(value)):
        return {
            field.name.rstrip("_"): str(found)
            if field.amount and (found := getattr(value, field.name)) is not None
            else plain(getattr(value, field.name))
            for field in fields_of(type(value))
        }
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, Decimal) else value


# All models


@pytest.mark.parametrize("name", [*RECORDS, *UNIONS])
def test_rows_of_every_model_are_their_columns(name: str) -> None:
    """Each row of each model becomes an object of its columns and loses nothing."""
    model = getattr(models, name)
    codec = Codec(model)
    names = [column.name for column in codec.columns]
    for seed in range(10):
        row = made(model, seed)
        body = json.loads(codec.encode_lines([row]))
        assert {*body} <= {*names}
        assert [*body] == names or name in UNIONS
        assert body.pop("extra", None) is None
        assert body == plain(row)


def test_whole_numbers_of_every_model() -> None:
    """Whole numbers have 64 bits, and amounts have more.

    Counts, heights, identifiers, times and gas are the numbers of 64 bits.
    """
    found: dict[str, set[str]] = {}

    def look(columns: Sequence[Column]) -> None:
        for column in columns:
            found.setdefault(column.kind, set()).add(column.name)
            look(column.fields)

    for name in RECORDS:
        look(Codec(getattr(models, name)).columns)
    assert found["digits"] == {
        *("amount", "amount_delegated", "amount_staked", "balance", "balance_change", "balance_threshold"),
        *("base_fee", "base_fee_per_gas", "current_supply", "delegation_capacity", "fees_spent", "gas_cost"),
        *(
            "delegation_reward_amount",
            "estimated_annual_staking_reward",
            "estimated_gross_reward",
            "gas_price",
        ),
        *(
            "estimated_net_reward",
            "estimated_reward",
            "gas_spent",
            "gross_reward",
            "max_fee_per_gas",
            "weight",
        ),
        *("l1_validator_fee_balance_threshold", "l1_validators_accrued_fees", "max_priority_fee_per_gas"),
        *("net_reward", "receipt_effective_gas_price", "remaining_balance", "token_id", "value"),
        *("total_amount_staked", "validation_reward_amount"),
    }
    assert {"block_number", "chain_id", "gas_used", "gas_limit", "nonce", "threshold"} <= found["integer"]
    assert {name for name in found["time"] if not name.endswith("timestamp")} == set()


def test_blocks_and_transactions() -> None:
    """Times are the fields with a datetime property; `from_` is the column ``from``."""
    block = kinds(EvmBlock)
    assert [*block] == [*(field.name for field in attrs.fields(EvmBlock)), "extra"]
    assert (block["block_timestamp"], block["block_number"], block["base_fee"]) == (
        "time",
        "integer",
        "digits",
    )
    transaction = {column.name: column for column in Codec(NativeTransaction).columns}
    assert "from_" not in transaction
    assert transaction["from"].kind == "struct"
    assert [field.name for field in transaction["from"].fields][:3] == ["name", "symbol", "decimals"]
    assert kinds(MetricPoint) == {"timestamp": "time", "value": "float", "extra": "json"}
    point = encoded(MetricPoint, MetricPoint(5, 1.5))
    assert point == {"timestamp": 5, "value": Decimal("1.5"), "extra": None}


def test_kinds_of_a_union_share_a_table() -> None:
    """Unions have the columns of all kinds, each once, and one for unknown kinds."""
    union = kinds(models.PrimaryNetworkTransaction)
    assert {"tx_hash", "evm_inputs", "vertices", "node_id"} <= {*union}
    assert union["extra"] == "json"
    (balances,) = (
        column for column in Codec(models.PrimaryNetworkBalances).columns if column.name == "balances"
    )
    assert {"unlocked_unstaked", "unlocked", "atomic_memory_locked"} <= {
        field.name for field in balances.fields
    }


def test_an_unknown_kind_loses_nothing() -> None:
    """Unknown rows put plain values into fitting columns, and the rest into ``extra``."""
    raw = {
        "txHash": "0x1",
        "blockNumber": str(2**63 - 1),
        "blockTimestamp": None,
        "nodeId": 5,
        "blockHash": "0x2",
        "amountStaked": None,
        "news": [1.5, {"blockNumber": 1}],
        "delegationFeePercent": "2.50",
        "value": 7,
        "startTimestamp": "soon",
        "endTimestamp": 1.5,
        "estimatedReward": True,
        "extra": 1,
    }
    assert encoded(models.PrimaryNetworkTransaction, Unknown(raw)) == {
        "tx_hash": "0x1",
        "block_number": 2**63 - 1,
        "block_hash": "0x2",
        "delegation_fee_percent": "2.50",
        "extra": {
            "nodeId": 5,
            "news": [Decimal("1.5"), {"blockNumber": 1}],
            "value": 7,
            "extra": 1,
            "startTimestamp": "soon",
            "endTimestamp": Decimal("1.5"),
            "estimatedReward": True,
        },
    }
    large = Unknown({"blockNumber": 2**63, "blockTimestamp": 10**12})
    assert encoded(models.PrimaryNetworkTransaction, large) == {"extra": large.raw}
    staked = encoded(models.Validator, Unknown({"amountStaked": str(2**256)}))
    assert staked == {"amount_staked": str(2**256), "extra": None}
    assert encoded(models.Validator, Unknown({"txHash": "x"})) == {"tx_hash": "x", "extra": None}
    odd = Unknown({"stakePercentage": 2**70 + 1, "delegationFee": "NaN", "uptimePerformance": 3})
    assert encoded(models.Validator, odd) == {
        "uptime_performance": 3,
        "extra": {"stakePercentage": 2**70 + 1, "delegationFee": "NaN"},
    }
    for text in ("1_0", " 10 ", "\u0661"):
        raw = {"delegationFee": text}
        assert encoded(models.Validator, Unknown(raw)) == {"extra": raw}
    worded = Unknown({"delegationFee": "two", "stakePercentage": "1"})
    assert encoded(models.Validator, worded) == {"extra": worded.raw}


# Models of users


class Colour(enum.Enum):
    RED = "red"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


Height = NewType("Height", int)


@frozen
class Inner:
    value: int
    source: str = ""


@frozen
class Empty:
    pass


@frozen
class Own:
    _hidden: int
    from_: Annotated[str, "sender"]
    source: str | None
    Source: str
    height: Height
    share: float
    both: int | float
    either: int | str
    whole: Literal[1, 2]
    word: Literal["a", "b"] | None
    odd: Literal[1, "a"]
    colour: Colour
    mixed: Mixed
    at: datetime
    inner: Inner | None
    empty: Empty
    inners: tuple[Inner, ...]
    pair: tuple[int, str]
    words: list[str | None] | None
    anything: list[Any]
    named: dict[str, int]
    foreign: complex
    again: Own | None
    seen: int
    ratio: Decimal

    seen_at = UTCDatetime("seen")


def own(**changed: Any) -> Own:
    """Return a row of a user's class."""
    values: dict[str, Any] = {
        "hidden": 1,
        "from_": "a",
        "source": "s",
        "Source": "t",
        "height": Height(2),
        "share": 1.5,
        "both": 1,
        "either": "x",
        "whole": 1,
        "word": None,
        "odd": "a",
        "colour": Colour.RED,
        "mixed": Mixed.ONE,
        "at": datetime(2024, 1, 1, tzinfo=UTC),
        "inner": Inner(10**77),
        "empty": Empty(),
        "inners": (Inner(1), Inner(2)),
        "pair": (1, "a"),
        "words": ["a", None],
        "anything": [1, None],
        "named": {"a": 1},
        "foreign": 1j,
        "again": None,
        "seen": 5,
        "ratio": Decimal("0.10"),
    }
    return Own(**{**values, **changed})


def test_models_of_users() -> None:
    """User classes have columns by their annotations; inexact ones become JSON."""
    assert kinds(Own) == {
        "hidden": "integer",
        "from": "text",
        "source_": "text",
        "Source__": "text",
        "height": "integer",
        "share": "float",
        "both": "json",
        "either": "json",
        "whole": "integer",
        "word": "text",
        "odd": "json",
        "colour": "text",
        "mixed": "json",
        "at": "text",
        "inner": "struct",
        "empty": "json",
        "inners": "list",
        "pair": "json",
        "words": "list",
        "anything": "json",
        "named": "json",
        "foreign": "json",
        "again": "json",
        "seen": "time",
        "ratio": "decimal",
    }
    row = encoded(Own, own())
    assert [*row] == [*kinds(Own)]
    assert (row["source_"], row["Source__"], row["hidden"], row["from"]) == ("s", "t", 1, "a")
    assert row["inner"] == {"value": str(10**77), "source": ""}
    assert (row["inners"][1]["value"], row["colour"], row["ratio"]) == ("2", "red", "0.10")
    assert (row["at"], row["foreign"]) == ("2024-01-01T00:00:00Z", "1j")


@frozen
class Place:
    rowid: int


@frozen
class Numbered:
    oid: int
    rowid: int
    RowID: str
    _rowid_: str
    place: Place


def test_the_name_of_a_row_in_a_database_is_taken() -> None:
    """A column that would hide the number of a row in SQLite and DuckDB has another name in every format."""
    row = encoded(Numbered, Numbered(1, 2, "a", "b", Place(3)))
    assert row == {"oid": 1, "rowid_": 2, "RowID__": "a", "rowid___": "b", "place": {"rowid": 3}}
    assert [*row] == [*kinds(Numbered)]


@dataclasses.dataclass
class Data:
    value: int


class Record(msgspec.Struct, rename="camel"):
    block_number: int


@frozen
class Nameless:
    value: NotThere  # type: ignore[name-defined]  # noqa: F821 # pyright: ignore[reportUndefinedVariable]


def test_other_classes_have_columns_too() -> None:
    """Dataclasses and Structs have columns by their Python names.

    A field with an unresolved annotation is JSON.
    """
    assert kinds(Data) == {"value": "digits"}
    assert encoded(Data, Data(2**200)) == {"value": str(2**200)}
    assert encoded(Record, Record(7)) == {"block_number": 7}
    assert kinds(Nameless) == {"value": "json"}


def test_rows_without_columns() -> None:
    """Plain JSON rows have no columns and are written unchanged.

    Each has room for the name of its source.
    """
    assert (
        Codec(None).columns
        == Codec(dict).columns
        == Codec(dict[str, int]).columns
        == Codec(int).columns
        == ()
    )
    assert encoded(None, {"a": 2**70}) == {"a": 2**70}
    assert encoded(None, {"source": 1, "SOURCE_": 2}) == {"source__": 1, "SOURCE_": 2}
    assert [encoded(None, row) for row in ("x", 1, None, [1])] == [
        {"value": value} for value in ("x", 1, None, [1])
    ]


def test_rows_that_are_texts() -> None:
    """Texts have one column; a row that is no text after all is stored as JSON."""
    assert kinds(str) == {"value": "text"}
    assert [encoded(str, row)["value"] for row in ("x", 'q"', 7)] == ["x", 'q"', "7"]


def test_values_come_back_in_the_order_of_columns() -> None:
    """Reading returns the values of all columns, and JSON as it was written.

    A missing value is None.
    """
    codec = Codec(models.PrimaryNetworkTransaction)
    read = reader(codec.columns, nested=False)
    lines = codec.encode_lines([Unknown({"txHash": "x", "news": {"a": 2**70}}), Unknown({})])
    values = dict(zip((column.name for column in codec.columns), read(lines), strict=True))
    assert values["tx_hash"] == ("x", None)
    assert values["block_number"] == (None, None)
    assert [*map(json_text, values["extra"])] == [f'{{"news":{{"a":{2**70}}}}}', None]
    assert json_text(msgspec.Raw(b"null")) is json_text(None) is None
    assert read(b"") == [()] * len(codec.columns)


@pytest.mark.parametrize("digits", ["0.1234567890123456789", "12345678901234567890.5", "1E+400"])
def test_plain_numbers_are_written_with_all_their_digits(digits: str) -> None:
    """Rows without a model, and of unknown kinds, keep exact numbers."""
    row = {"n": Decimal(digits), "inner": [Decimal(digits)]}
    lines = f'{{"n":{digits},"inner":[{digits}]}}\n{{"value":{digits}}}\n'
    assert Codec(None).encode_lines([row, Decimal(digits)]) == lines.encode()
    unknown = Unknown({"genesisData": row, "news": row})
    made = Codec(models.PrimaryNetworkTransaction).encode_lines([unknown])
    assert made.count(f"[{digits}]".encode()) == 2
    odd = encoded(
        models.Validator, Unknown({"stakePercentage": Decimal(digits), "uptimePerformance": 10**400})
    )
    assert odd["extra"] == {"stakePercentage": Decimal(digits), "uptimePerformance": 10**400}
