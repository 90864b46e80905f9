"""Exported files in other programs: pyarrow, pandas, polars and DuckDB read the same types and values."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from attrs import frozen

from chainapi.export.formats import format_of
from chainapi.models.timestamps import OptionalUTCDatetime
from chainapi.tables.codec import Codec
from chainapi.tables.columns import columns_of
from chainapi.tables.types import AMOUNTS, Amounts

LARGE = 2**256 - 1


@frozen(kw_only=True)
class Fee:
    value: int | None = None


@frozen(kw_only=True)
class Row:
    height: int | None = None
    value: int | None = None
    price: Decimal | None = None
    share: float | None = None
    timestamp: int | None = None
    text: str | None = None
    fee: Fee | None = None
    fees: list[Fee] | None = None

    time = OptionalUTCDatetime("timestamp")


# Parts whose first rows are null or small.
LAST: dict[Amounts, int] = {"text": LARGE, "decimal": 10**38 - 1, "float": 2**200, "binary": LARGE}


def parts(amounts: Amounts) -> list[list[Row]]:
    """Return the rows of three parts."""
    large = LAST[amounts]
    full = Row(
        height=2**63 - 1,
        value=large,
        price=Decimal("12345678901234567890.123456789012345678"),
        share=0.1,
        timestamp=253402300799,
        text="é",
        fee=Fee(value=large),
        fees=[Fee(), Fee(value=large)],
    )
    return [[Row(), Row()], [Row(height=1, value=1, fee=Fee(value=1))], [Row(), full]]


def written(folder: Path, amounts: Amounts, suffix: str) -> list[Path]:
    """Write the parts, each as a file."""
    paths = []
    for number, rows in enumerate(parts(amounts), 1):
        paths.append(folder / f"part-{number:05}.{suffix}")
        lines = [("43114", Codec(Row, amounts).encode_lines(rows, "43114"))]
        format_of(paths[-1]).write(paths[-1], columns_of(Row, amounts), lines)
    return paths


def amount(amounts: Amounts, value: int) -> Any:
    """Return the value that other programs read."""
    return {
        "text": str(value),
        "decimal": Decimal(value),
        "float": float(value),
        "binary": value.to_bytes(32) if value >= 0 else None,
    }[amounts]


READERS: dict[str, Callable[[Path], list[Any]]] = {
    "pyarrow": lambda folder: pq.read_table(folder)["value"].to_pylist(),
    "pandas": lambda folder: [
        None if value is None or value != value else value for value in pd.read_parquet(folder)["value"]
    ],
    "polars": lambda folder: pl.read_parquet(folder / "*.parquet")["value"].to_list(),
    "duckdb": lambda folder: [
        value
        for (value,) in duckdb.execute(f"SELECT value FROM read_parquet('{folder}/*.parquet')").fetchall()
    ],
}


@pytest.mark.parametrize("amounts", AMOUNTS)
@pytest.mark.parametrize("program", READERS)
def test_amounts_of_parquet_files(amounts: Amounts, program: str, tmp_path: Path) -> None:
    """Every program reads the amounts of a folder of Parquet files exactly, whatever the first rows are."""
    paths = written(tmp_path, amounts, "parquet")
    schemas = [pq.read_schema(path) for path in paths]
    assert schemas == schemas[:1] * 3
    wanted = [None, None, amount(amounts, 1), None, amount(amounts, LAST[amounts])]
    assert READERS[program](tmp_path) == wanted


def test_types_of_parquet_files(tmp_path: Path) -> None:
    """Every program has the same types for the columns of a folder."""
    written(tmp_path, "text", "parquet")
    assert {field.name: str(field.type) for field in pq.read_table(tmp_path).schema} == {
        "source": "string",
        "height": "int64",
        "value": "string",
        "price": "decimal128(38, 18)",
        "share": "double",
        "timestamp": "timestamp[ms, tz=UTC]",
        "text": "string",
        "fee": "struct<value: string>",
        "fees": "list<element: struct<value: string>>",
    }
    assert {name: str(kind) for name, kind in pl.read_parquet(tmp_path / "*.parquet").schema.items()} == {
        "source": "String",
        "height": "Int64",
        "value": "String",
        "price": "Decimal(precision=38, scale=18)",
        "share": "Float64",
        "timestamp": "Datetime(time_unit='ms', time_zone='UTC')",
        "text": "String",
        "fee": "Struct({'value': String})",
        "fees": "List(Struct({'value': String}))",
    }
    found = duckdb.execute(f"DESCRIBE SELECT * FROM read_parquet('{tmp_path}/*.parquet')").fetchall()
    kinds = {name: kind for name, kind, *_ in found}
    assert kinds == {
        "source": "VARCHAR",
        "height": "BIGINT",
        "value": "VARCHAR",
        "price": "DECIMAL(38,18)",
        "share": "DOUBLE",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "text": "VARCHAR",
        "fee": 'STRUCT("value" VARCHAR)',
        "fees": 'STRUCT("value" VARCHAR)[]',
    }
    frame = pd.read_parquet(tmp_path)
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    assert [*frame["price"]][-1] == Decimal("12345678901234567890.123456789012345678")


def test_lines_of_json(tmp_path: Path) -> None:
    """Programs read amounts of JSON lines as texts with all digits."""
    *_, path = written(tmp_path, "text", "jsonl")
    assert [json.loads(line)["value"] for line in path.read_text().splitlines()] == [None, str(LARGE)]
    assert pl.read_ndjson(path)["value"].to_list() == [None, str(LARGE)]
    (low, high) = duckdb.execute(f"SELECT value FROM read_json('{path}')").fetchall()
    assert (low, high) == ((None,), (str(LARGE),))
    frame = pd.read_json(path, lines=True, dtype={"value": str})
    assert [*frame["value"]][1] == str(LARGE)


def test_a_csv_file(tmp_path: Path) -> None:
    """Programs read amounts of CSV with all digits once they are given their types."""
    *_, path = written(tmp_path, "text", "csv")
    assert [*pd.read_csv(path, dtype={"value": str})["value"]][1] == str(LARGE)
    assert pl.read_csv(path, schema_overrides={"value": pl.String})["value"].to_list() == [None, str(LARGE)]
    found = duckdb.execute(f"SELECT value FROM read_csv('{path}', types={{'value': 'VARCHAR'}})").fetchall()
    assert found == [(None,), (str(LARGE),)]


# A model that gained fields
