"""Partitions of a folder: rows in the folders of their source and day, as Hive names them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from attrs import frozen

from chainapi import ROUTES
from chainapi.errors import ConfigurationError, ExportError, IncompleteExportError
from chainapi.export import export
from chainapi.models.timestamps import OptionalUTCDatetime
from chainapi.simulator import Simulator
from tests.export.contract import day_of, read
from tests.ledger import ADDRESS, Ledger
from tests.sessions import Answering, reaching, simulated
from tests.simulator.test_routes import CHAINS as ALL_CHAINS
from tests.simulator.test_routes import arguments

CHAINS = (1, 43114)
TEXTS = ("jsonl", "csv", "parquet")
NULL = "__HIVE_DEFAULT_PARTITION__"  # what readers take for null


def files_of(folder: Path, suffix: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each file, by its name below the folder."""
    paths = folder.rglob(f"part-*.{suffix}")
    return {path.relative_to(folder).as_posix(): read(path, suffix) for path in paths}


# What is refused


async def test_a_label_that_no_folder_can_have(tmp_path: Path) -> None:
    """A source of an iterator whose label is too long for a folder fails alone."""
    simulator = Simulator(chains=CHAINS, rows=20)
    paths = ["/v1/chains/1/blocks", "/v1/chains/1/blocks?" + "x" * 200]
    async with simulated(simulator) as session:
        with pytest.raises(IncompleteExportError):
            await export(session.data.list, iter(paths), tmp_path / "b", partition=["source"])
    assert [*files_of(tmp_path / "b", "jsonl")] == ["source=%2Fv1%2Fchains%2F1%2Fblocks/part-00000001.jsonl"]


async def test_folders_that_the_file_system_takes_for_one(tmp_path: Path) -> None:
    """Sources that differ in case alone are refused where the file system ignores it; no row is lost."""
    lower, upper = f"0x{'a' * 40}", f"0x{'A' * 40}"

    async def run(*addresses: str) -> None:
        sources = [(1, address) for address in addresses]
        await export(session.data.evm.erc20_transactions, sources, tmp_path, partition=["source"])

    async with reaching(Ledger([1, 2])) as session:
        await run(ADDRESS)
        (tmp_path / f"source=1%2F{lower}").mkdir()
        link = tmp_path / f"source=1%2F{upper}"  # in place of such a file system
        link.symlink_to(tmp_path / f"source=1%2F{lower}")
        with pytest.raises(ExportError, match=r"are one folder on this file system, .*'source'"):
            await run(lower, upper)
        link.unlink()
        await run(lower, upper)
    assert [len(rows) for rows in files_of(tmp_path, "jsonl").values()] == [2, 2, 2]


# The time of a row


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("data.evm.blocks", ["block_timestamp"]),
        ("data.primary_network.utxos", ["block_timestamp", "timestamp"]),
        ("data.primary_network.vertices", ["vertex_timestamp"]),
        ("data.evm.address_transactions", ["native_transaction.block_timestamp"]),
        ("data.icm.messages", ["source_transaction.timestamp", "destination_transaction.timestamp"]),
        ("data.primary_network.validators", []),  # the times at which a validation starts and ends
        ("data.nfts.tokens", []),
    ],
)
async def test_the_time_of_a_row(name: str, paths: list[str], tmp_path: Path) -> None:
    """The time is that of the row by its usual names, else that of a record in it."""
    async with simulated(Simulator(seed=5, rows=9, chains=ALL_CHAINS)) as session:
        walk: Any = reduce(getattr, name.split("."), session)
        exporting = export(walk, [arguments(ROUTES[name])], tmp_path, format="jsonl", partition=["day"])
        if not paths:
            with pytest.raises(ConfigurationError, match="'day', which needs the time of each row"):
                await exporting
            return
        assert (await exporting).rows > 0
    for part, rows in files_of(tmp_path, "jsonl").items():
        for row in rows:
            time = next((one for path in paths if (one := value_at(row, path)) is not None), None)
            assert part.split("/")[0] == f"day={NULL if time is None else day_of(time)}"


def value_at(row: Any, path: str) -> Any:
    """Return the value of a field, or of one inside of a record."""
    return reduce(lambda found, name: (found or {}).get(name), path.split("."), row)


# Folders in other programs


@frozen(kw_only=True)
class Row:
    height: int | None = None
    value: int | None = None
    timestamp: int | None = None
    text: str | None = None

    time = OptionalUTCDatetime("timestamp")


@frozen(kw_only=True)
class Grown(Row):
    more: int | None = None


TIMES = (1_795_132_799, 1_795_132_800, None)  # the last second of 2026-11-19, the first of the next day
LARGE = 2**256 - 1
AMOUNTS: dict[str, tuple[int, Any]] = {  # of each form the largest one, and what programs read
    "text": (LARGE, str(LARGE)),
    "decimal": (10**38 - 1, Decimal(10**38 - 1)),
    "float": (2**200, float(2**200)),
}


async def folder_of_rows(folder: Path, suffix: str, partition: list[str] | None, amounts: Any) -> None:
    """Export rows of three days, an invalid one, and in a later run one with a column more."""
    rows: list[dict[str, Any]] = [
        {"height": height, "value": str(AMOUNTS[amounts][0]), "timestamp": time, "text": "é"}
        for height, time in enumerate(TIMES)
    ]
    sources = ["/v1/mainnet/a=b", "/v1/fuji"]
    options: dict[str, Any] = {
        "format": suffix,
        "partition": partition,
        "on_invalid": "raw",
        "amounts": amounts,
    }
    bad = {"height": "x"}
    async with reaching(Answering(json.dumps({"rows": [*rows, bad]}).encode())) as session:
        await export(session.data.list, sources, folder, model=Row, **options)
    grown = {**rows[1], "more": 5}
    async with reaching(Answering(json.dumps({"rows": [grown]}).encode())) as session:
        await export(session.data.list, ["/v1/later"], folder, model=Grown, **options)


PARTITIONS = pa.schema([("source", pa.string()), ("day", pa.date32())])


def schema_of(folder: Path, partition: list[str] | None) -> Any:
    """Return the columns of the newest part, and those of the names of folders."""
    newest = max(folder.rglob("*.parquet"), key=lambda path: path.name)
    found = pq.read_schema(newest)
    return pa.unify_schemas([found, PARTITIONS]) if partition else found


def hive_of(partition: list[str] | None) -> Any:
    """Return the types of the names of folders, for pyarrow and pandas."""
    return ds.partitioning(PARTITIONS, flavor="hive") if partition else None


def with_pyarrow(folder: Path, suffix: str, partition: list[str] | None) -> Any:
    """Return the rows by pyarrow."""
    schema = schema_of(folder, partition)
    return ds.dataset(folder, schema, format=suffix, partitioning=hive_of(partition)).to_table().to_pylist()


def with_pandas(folder: Path, suffix: str, partition: list[str] | None) -> Any:
    """Return the rows by pandas."""
    options: Any = {"schema": schema_of(folder, partition), "partitioning": hive_of(partition)}
    frame = pd.read_parquet(folder, dtype_backend="pyarrow", **options)
    return pa.Table.from_pandas(frame, preserve_index=False).to_pylist()


def with_polars(folder: Path, suffix: str, partition: list[str] | None) -> Any:
    """Return the rows by polars; the first file has the columns."""
    newest_first = sorted(folder.rglob("*.parquet"), key=lambda path: path.name, reverse=True)
    frame = pl.scan_parquet(
        newest_first,
        missing_columns="insert",
        hive_partitioning=bool(partition),
        hive_schema={"source": pl.String, "day": pl.Date} if partition else None,
    )
    return frame.collect().to_dicts()


def with_duckdb(folder: Path, suffix: str, partition: list[str] | None) -> Any:
    """Return the rows by DuckDB."""
    hive = ", hive_types = {'source': VARCHAR, 'day': DATE}" if partition else ""
    read = {"parquet": "read_parquet", "jsonl": "read_json", "csv": "read_csv"}[suffix]
    found = duckdb.execute(f"FROM {read}('{folder}/**/*.{suffix}', union_by_name = true{hive})")
    names = [name for name, *_ in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


READERS = {"pyarrow": with_pyarrow, "pandas": with_pandas, "polars": with_polars, "duckdb": with_duckdb}
READ = [*((program, "parquet") for program in READERS), ("duckdb", "jsonl"), ("duckdb", "csv")]


@pytest.mark.parametrize(
    ("suffix", "amounts", "partition"),
    [
        *((suffix, "text", partition) for suffix in TEXTS for partition in (None, ["source", "day"])),
        *(("parquet", amounts, None) for amounts in AMOUNTS if amounts != "text"),
    ],
)
async def test_programs_read_a_folder(
    suffix: str, amounts: str, partition: list[str] | None, tmp_path: Path
) -> None:
    """Programs have the same values and types, beside a log, invalid rows and a column added later."""
    await folder_of_rows(tmp_path, suffix, partition, amounts)
    assert hidden_in(tmp_path) == {"_log", "_invalid-00000001.ndjson"}
    wanted = Counter(
        repr(sorted({**row, "source": source, **({"day": day} if partition else {})}.items()))
        for source, heights in (("/v1/mainnet/a=b", (0, 1, 2)), ("/v1/fuji", (0, 1, 2)), ("/v1/later", (1,)))
        for row, day in (row_of(height, source, suffix, amounts) for height in heights)
    )
    for program, reading in READERS.items():
        if (program, suffix) in READ:
            rows = reading(tmp_path, suffix, partition)
            assert Counter(repr(sorted(map(plain, row.items()))) for row in rows) == wanted, program


def hidden_in(folder: Path) -> set[str]:
    """Return the names in a folder that readers skip."""
    return {path.name for path in folder.glob("_*")}


def row_of(height: int, source: str, suffix: str, amounts: str) -> tuple[dict[str, Any], date | None]:
    """Return a row as programs read it, and its day."""
    seconds = TIMES[height]
    time = None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    row = {
        "height": height,
        "value": AMOUNTS[amounts][1],
        "timestamp": seconds if suffix == "jsonl" else time,
        "text": "é",
        "more": 5 if source == "/v1/later" else None,
    }
    return row, None if time is None else time.date()


def plain(item: tuple[str, Any]) -> tuple[str, Any]:
    """Return a column of a row, a time with Python's own time zone."""
    name, value = item
    return name, value.astimezone(UTC) if isinstance(value, datetime) else value
