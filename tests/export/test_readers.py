"""Folders of Parquet, JSON lines and CSV in other programs: the same types and values everywhere."""

from __future__ import annotations

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

from tests.export.test_formats import AMOUNTS, exported

LARGE = 2**256 - 1
LAST = {"text": LARGE, "decimal": 10**38 - 1, "float": 2**200, "binary": LARGE}


@frozen(kw_only=True)
class Fee:
    value: int | None = None


@frozen(kw_only=True)
class Row:
    height: int | None = None
    value: int | None = None
    price: Decimal | None = None
    share: float | None = None
    text: str | None = None
    fee: Fee | None = None
    fees: list[Fee] | None = None


def rows(amounts: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of three parts, whose first rows are null or small."""
    large = str(LAST[amounts])
    full = {
        "height": 2**63 - 1,
        "value": large,
        "price": "12345678901234567890.123456789012345678",
        "share": 0.1,
        "text": "é",
        "fee": {"value": large},
        "fees": [{}, {"value": large}],
    }
    return {
        "/v1/a": [{}, {}],
        "/v1/b": [{"height": 1, "value": "1", "fee": {"value": "1"}}],
        "/v1/c": [{}, full],
    }


async def written(folder: Path, amounts: str, suffix: str) -> Path:
    """Export the parts, one by each run, and return the last one."""
    every, sources = rows(amounts), dict[str, Any]()
    for path, found in every.items():
        sources[path] = found
        await exported(folder, sources, Row, amounts=amounts, format=suffix)
    *others, last = sorted(folder.glob("part-*"))  # noqa: ASYNC240
    assert len(others) == 2
    return last


def amount(amounts: str, value: int) -> Any:
    """Return the value that other programs read."""
    return {
        "text": str(value),
        "decimal": Decimal(value),
        "float": float(value),
        "binary": value.to_bytes(32),
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
async def test_amounts_of_parquet_files(amounts: str, tmp_path: Path) -> None:
    """Every program reads the amounts of a folder of Parquet files exactly, whatever the first rows are."""
    await written(tmp_path, amounts, "parquet")
    wanted = [None, None, amount(amounts, 1), None, amount(amounts, LAST[amounts])]
    assert {name: read(tmp_path) for name, read in READERS.items()} == dict.fromkeys(READERS, wanted)


async def test_types_of_parquet_files(tmp_path: Path) -> None:
    """Every program has the same types for the columns of a folder."""
    await written(tmp_path, "text", "parquet")
    polars = pl.read_parquet(tmp_path / "*.parquet").schema
    found = duckdb.execute(f"DESCRIBE SELECT * FROM read_parquet('{tmp_path}/*.parquet')").fetchall()
    types = {
        one.name: (str(one.type), str(polars[one.name]), kind)
        for one, (_, kind, *_) in zip(pq.read_table(tmp_path).schema, found, strict=True)
    }
    assert types == {
        "source": ("string", "String", "VARCHAR"),
        "height": ("int64", "Int64", "BIGINT"),
        "value": ("string", "String", "VARCHAR"),
        "price": ("decimal128(38, 18)", "Decimal(precision=38, scale=18)", "DECIMAL(38,18)"),
        "share": ("double", "Float64", "DOUBLE"),
        "text": ("string", "String", "VARCHAR"),
        "fee": ("struct<value: string>", "Struct({'value': String})", 'STRUCT("value" VARCHAR)'),
        "fees": (
            "list<element: struct<value: string>>",
            "List(Struct({'value': String}))",
            'STRUCT("value" VARCHAR)[]',
        ),
    }
    frame = pd.read_parquet(tmp_path)
    assert [*frame["price"]][-1] == Decimal("12345678901234567890.123456789012345678")


async def test_digits_of_text_files(tmp_path: Path) -> None:
    """Programs read amounts of JSON lines and CSV with all digits, once they are given their types."""
    path = await written(tmp_path / "lines", "text", "jsonl")
    assert pl.read_ndjson(path)["value"].to_list() == [None, str(LARGE)]
    assert duckdb.execute(f"SELECT value FROM read_json('{path}')").fetchall() == [(None,), (str(LARGE),)]
    assert [*pd.read_json(path, lines=True, dtype={"value": str})["value"]][1] == str(LARGE)
    path = await written(tmp_path / "csv", "text", "csv")
    assert [*pd.read_csv(path, dtype={"value": str})["value"]][1] == str(LARGE)
    assert pl.read_csv(path, schema_overrides={"value": pl.String})["value"].to_list() == [None, str(LARGE)]
    found = duckdb.execute(f"SELECT value FROM read_csv('{path}', types={{'value': 'VARCHAR'}})").fetchall()
    assert found == [(None,), (str(LARGE),)]
