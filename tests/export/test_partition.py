"""Partitions of a folder: rows in the folders of their source and day, as Hive names them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
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

from chainapi.api.catalogue import ROUTES
from chainapi.errors import ConfigurationError, ExportError, IncompleteExportError
from chainapi.export import export
from chainapi.export.formats import format_of
from chainapi.export.manifest import MANIFEST
from chainapi.export.partition import NULL, folder_of, time_columns
from chainapi.models.timestamps import OptionalUTCDatetime
from chainapi.simulator import Simulator
from chainapi.tables.columns import columns_of
from tests.export.test_export import blocks_of
from tests.ledger import ADDRESS, Ledger
from tests.sessions import Answering, reaching, simulated

CHAINS = (1, 43114)
TEXTS = ("jsonl", "csv", "parquet")


def files_of(folder: Path, suffix: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each file, by its name below the folder."""
    read = format_of(suffix).read
    return {str(path.relative_to(folder)): [*read(path)] for path in folder.rglob(f"*.{suffix}")}


def day_of(seconds: int) -> str:
    """Return the date of a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


@pytest.mark.parametrize("suffix", TEXTS)
async def test_rows_are_in_the_folders_of_their_source_and_day(suffix: str, tmp_path: Path) -> None:
    """Each row is once in the folder of its source and its day, and later runs add files."""
    simulator = Simulator(chains=CHAINS, rows=120, latency=1.0)
    async with simulated(simulator) as session:
        for rows, new in ((240, 0), (7, 7)):
            simulator.insert("/v1/chains/1/blocks", new)
            options: Any = {"format": suffix, "partition": ["source", "day"], "part_rows": 100}
            result = await export(session.data.evm.blocks, CHAINS, tmp_path, page_size=10, **options)
            assert result.rows == rows
    files = files_of(tmp_path, suffix)
    found = Counter[tuple[str, int]]()
    for name, rows_of_file in files.items():
        source, day, part = name.split("/")
        assert part.startswith("part-0000")
        numbers = [int(row["block_number"]) for row in rows_of_file]
        assert numbers == sorted(numbers, reverse=True)
        assert all("source" not in row for row in rows_of_file)
        if suffix == "jsonl":
            assert {f"day={day_of(row['block_timestamp'])}" for row in rows_of_file} == {day}
        found.update((source.removeprefix("source="), number) for number in numbers)
    assert found.total() == len(found) == 247
    assert found.keys() >= blocks_of(simulator, 120, CHAINS)
    assert len({name.rpartition("/")[0] for name in files}) == 4
    assert len({name.rpartition("/")[2] for name in files}) >= 3


async def test_the_manifest_has_the_partition_of_each_file(tmp_path: Path) -> None:
    """An entry has the values of the keys, the rows of its file, and the exact range of their times."""
    simulator = Simulator(chains=CHAINS, rows=120)
    async with simulated(simulator) as session:
        await export(session.data.evm.blocks, CHAINS, tmp_path, partition=["day"])
    entries = [json.loads(line) for line in (tmp_path / MANIFEST).read_text().splitlines()]
    assert len(entries) == 2
    for entry in entries:
        rows = [*format_of("jsonl").read(tmp_path / entry["name"])]
        day = entry["partition"]["day"]
        assert entry["name"] == f"day={day}/part-00001.jsonl"
        assert (entry["part"], entry["rows"]) == (1, len(rows))
        assert {day_of(row["block_timestamp"]) for row in rows} == {day}
        assert entry["sources"] == [
            {"source": chain, "rows": len(times), "lowest": min(times), "highest": max(times)}
            for chain in map(str, CHAINS)
            if (times := [row["block_timestamp"] for row in rows if row["source"] == chain])
        ]


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "day"}, "partition= must be a list of keys, not 'day'"),
        ({"partition": ["source", "week"]}, "'week', which is no key: choose from source, year, month, day"),
        ({"partition": []}, "partition= has no key: leave it out"),
        ({"partition": ["day", "day"]}, "partition= has a key twice"),
        ({"partition": ["day"], "out": "b.jsonl"}, r"applies to a folder, and .*b\.jsonl is a file"),
        ({"partition": ["day"], "format": "sqlite"}, "and the files are sqlite: leave it out"),
        (
            {"partition": ["day"], "fields": ["gas_used"]},
            "'day', which needs the time of each row: add 'block_timestamp' to fields=",
        ),
        ({"partition": ["day"], "walk": "chains"}, "the time of each row: they have none; leave the key out"),
        ({"partition": ["day"], "walk": "list"}, "these rows have no columns; name a route"),
        (
            {"partition": ["source"], "format": "csv", "fields": ["gas_used"]},
            "a row without a value would be an empty line",
        ),
    ],
)
async def test_what_cannot_be_divided_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Keys that the rows or the files lack are refused before the first request."""
    answering = Answering()
    given = {"out": "folder", "walk": "blocks", **options}
    async with reaching(answering) as session:
        walks: dict[str, tuple[Callable[..., Any], list[Any]]] = {
            "blocks": (session.data.evm.blocks, [1]),
            "chains": (session.data.chains, [{}]),
            "list": (session.data.list, ["/v1/rows"]),
        }
        walk, over = walks[given.pop("walk")]
        with pytest.raises(ConfigurationError, match=message):
            await export(walk, over, tmp_path / given.pop("out"), **given)
    assert answering.requests == []


async def test_a_label_that_no_folder_can_have(tmp_path: Path) -> None:
    """A source with a long label, or that of null, is refused before the first request, or fails alone."""
    simulator = Simulator(chains=CHAINS, rows=20)
    paths = ["/v1/chains/1/blocks", "/v1/chains/1/blocks?" + "x" * 200]
    async with simulated(simulator) as session:
        with pytest.raises(ConfigurationError, match="is too long for the name of a folder"):
            await export(session.data.list, paths, tmp_path / "b", partition=["source"])
        with pytest.raises(ConfigurationError, match="readers of partitions take for null"):
            await export(session.data.list, [NULL], tmp_path / "b", partition=["source"])
        with pytest.raises(IncompleteExportError):
            await export(session.data.list, iter(paths), tmp_path / "b", partition=["source"])
    assert [*files_of(tmp_path / "b", "jsonl")] == ["source=%2Fv1%2Fchains%2F1%2Fblocks/part-00001.jsonl"]


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


@pytest.mark.rule
@pytest.mark.parametrize(
    ("route", "names"),
    [
        ("data.evm.transfers", ["block_timestamp"]),
        ("data.primary_network.utxos", ["block_timestamp", "timestamp"]),
        ("data.primary_network.vertices", ["vertex_timestamp"]),
        ("data.evm.address_transactions", ["native_transaction"]),
        ("data.icm.messages", ["source_transaction", "destination_transaction"]),
        ("data.primary_network.validators", []),  # the times at which a validation starts and ends
        ("data.nfts.tokens", []),
    ],
)
def test_the_time_of_a_row(route: str, names: list[str]) -> None:
    """The time is that of the row by its usual names, else that of a record in it."""
    assert [column.name for column in time_columns(columns_of(ROUTES[route].rows))] == names


@pytest.mark.rule
def test_names_of_folders() -> None:
    """Values are escaped as in URLs, and null has the name that readers know."""
    assert (
        folder_of(["source", "day"], ("a/ü b=c", "2026-11-20")) == "source=a%2F%C3%BC%20b%3Dc/day=2026-11-20"
    )
    assert folder_of(["day"], (None,)) == f"day={NULL}"


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


async def folder_of_rows(folder: Path, suffix: str, partition: list[str] | None) -> None:
    """Export rows of three days, an invalid one, and in a later run one with a column more."""
    rows: list[dict[str, Any]] = [
        {"height": height, "value": str(2**256 - 1), "timestamp": time, "text": "é"}
        for height, time in enumerate(TIMES)
    ]
    sources = ["/v1/mainnet/a=b", "/v1/fuji"]
    options: dict[str, Any] = {"format": suffix, "partition": partition, "on_invalid": "raw"}
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


@pytest.mark.parametrize("partition", [None, ["source", "day"]])
@pytest.mark.parametrize("suffix", TEXTS)
async def test_programs_read_a_folder(suffix: str, partition: list[str] | None, tmp_path: Path) -> None:
    """Programs have the same values and types, beside a manifest, invalid rows and a column added later."""
    await folder_of_rows(tmp_path, suffix, partition)
    assert hidden_in(tmp_path) == {"_export", MANIFEST, "_invalid-00001.ndjson"}
    wanted = Counter(
        repr(sorted({**row, "source": source, **({"day": day} if partition else {})}.items()))
        for source, heights in (("/v1/mainnet/a=b", (0, 1, 2)), ("/v1/fuji", (0, 1, 2)), ("/v1/later", (1,)))
        for row, day in (row_of(height, source, suffix) for height in heights)
    )
    for program, read in READERS.items():
        if (program, suffix) in READ:
            rows = read(tmp_path, suffix, partition)
            assert Counter(repr(sorted(map(plain, row.items()))) for row in rows) == wanted, program


def hidden_in(folder: Path) -> set[str]:
    """Return the names in a folder that readers skip."""
    return {path.name for path in folder.glob("_*")}


def row_of(height: int, source: str, suffix: str) -> tuple[dict[str, Any], date | None]:
    """Return a row as programs read it, and its day."""
    seconds = TIMES[height]
    time = None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    row = {
        "height": height,
        "value": str(2**256 - 1),
        "timestamp": seconds if suffix == "jsonl" else time,
        "text": "é",
        "more": 5 if source == "/v1/later" else None,
    }
    return row, None if time is None else time.date()


def plain(item: tuple[str, Any]) -> tuple[str, Any]:
    """Return a column of a row, a time with Python's own time zone."""
    name, value = item
    return name, value.astimezone(UTC) if isinstance(value, datetime) else value
