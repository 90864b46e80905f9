"""Exported files in other programs: pyarrow, pandas, polars and DuckDB read the same types and values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
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
from tests.export.typed import typed_rows

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


@frozen(kw_only=True)
class Grown(Row):
    more: int | None = None
    token_value: int | None = None


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


@pytest.mark.parametrize("amounts", AMOUNTS)
def test_a_database_of_duckdb(amounts: Amounts, tmp_path: Path) -> None:
    """A DuckDB database has the types of the Parquet files, and rows that were added later too."""
    path, columns = tmp_path / "f.duckdb", columns_of(Row, amounts)
    previous = None
    for number, rows in enumerate(parts(amounts)):
        lines = [("43114", Codec(Row, amounts).encode_lines(rows, "43114"))]
        made = tmp_path / f"{number}.duckdb"
        format_of(path).write(made, columns, lines, previous)
        previous = made
    (tmp_path / "parquet").mkdir()
    written(tmp_path / "parquet", amounts, "parquet")
    with closing(duckdb.connect(previous or path, read_only=True)) as database:
        found = database.execute("SELECT value FROM rows").fetchall()
        kinds = database.execute("SELECT column_name, column_type FROM (DESCRIBE rows)").fetchall()
        other = database.execute(
            "SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM read_parquet(?))",
            [str(tmp_path / "parquet" / "*.parquet")],
        ).fetchall()
    wanted = [None, None, amount(amounts, 1), None, amount(amounts, LAST[amounts])]
    assert [value for (value,) in found] == wanted
    assert kinds == other


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


@pytest.mark.parametrize("amounts", AMOUNTS)
def test_types_of_sqlite(amounts: Amounts, tmp_path: Path) -> None:
    """SQLite has one type for the amounts of all parts."""
    wanted = {"text": "text", "decimal": "text", "float": "real", "binary": "blob"}[amounts]
    found, value = set[str](), None
    for path in written(tmp_path, amounts, "sqlite"):
        with closing(sqlite3.connect(path)) as database:
            found |= {kind for (kind,) in database.execute("SELECT DISTINCT typeof(value) FROM rows")}
            (value,) = database.execute("SELECT value FROM rows ORDER BY rowid DESC LIMIT 1").fetchone()
    assert found == {wanted, "null"}
    large = amount(amounts, LAST[amounts])
    assert value == (str(large) if amounts == "decimal" else large)


# A model that gained fields


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "sqlite", "duckdb"])
def test_a_file_gains_columns(suffix: str, tmp_path: Path) -> None:
    """New columns follow those of an earlier file, whose rows have None there."""
    old, new = tmp_path / f"old.{suffix}", tmp_path / f"new.{suffix}"
    form, columns = format_of(old), columns_of(Grown)
    form.write(
        old, columns_of(Row), [("a", Codec(Row).encode_lines([Row(text='x"\ny'), Row(height=1)], "a"))]
    )
    lines = Codec(Grown).encode_lines([Grown(more=2, token_value=LARGE)], "b")
    assert form.write(new, columns, [("b", lines)], old) == 3
    found = typed_rows(form, new, columns)
    assert [(row["text"], row["height"], row["more"], row["token_value"]) for row in found] == [
        ('x"\ny', None, None, None),
        (None, 1, None, None),
        (None, None, 2, LARGE),
    ]
    assert [row["more"] for row in typed_rows(form, old, columns)] == [None, None]


@frozen(kw_only=True)
class FeeInUnits(Fee):
    unit: str | None = None


@frozen(kw_only=True)
class Inside(Row):
    fee: FeeInUnits | None = None
    fees: list[FeeInUnits] | None = None  # type: ignore[assignment]


@pytest.mark.parametrize("suffix", ["parquet", "sqlite", "duckdb", "csv", "jsonl"])
def test_records_gain_fields(suffix: str, tmp_path: Path) -> None:
    """New fields of records inside are None in earlier rows."""
    old, new = tmp_path / f"old.{suffix}", tmp_path / f"new.{suffix}"
    form, columns = format_of(old), columns_of(Inside)
    row = Row(fee=Fee(value=1), fees=[Fee(value=2)])
    form.write(old, columns_of(Row), [("a", Codec(Row).encode_lines([row, Row()], "a"))])
    grown = Inside(fee=FeeInUnits(value=3, unit="wei"), fees=[])
    form.write(new, columns, [("a", Codec(Inside).encode_lines([grown], "a"))], old)
    assert [(found["fee"], found["fees"]) for found in typed_rows(form, new, columns)] == [
        ({"value": 1, "unit": None}, [{"value": 2, "unit": None}]),
        (None, None),
        ({"value": 3, "unit": "wei"}, []),
    ]
