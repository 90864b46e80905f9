"""Partitions of a folder: rows in the folders of their source and day, as Hive names them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
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
from hypothesis import given
from hypothesis import strategies as st

from chainapi import Pages
from chainapi.api.catalogue import ROUTES
from chainapi.errors import ArgumentError, ConfigurationError, ExportError, IncompleteExportError
from chainapi.export import export
from chainapi.export.chart import read_chart
from chainapi.export.formats import format_of, without_source
from chainapi.export.manifest import MANIFEST
from chainapi.export.part_records import PageRecord
from chainapi.export.partition import KEYS, NULL, Partitioner, folder_of, time_columns
from chainapi.models.timestamps import OptionalUTCDatetime
from chainapi.simulator import Simulator
from chainapi.tables.codec import Codec
from chainapi.tables.columns import columns_of
from tests.export.test_export import blocks_of
from tests.export.typed import typed_rows
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


async def test_another_partition_is_another_export(tmp_path: Path) -> None:
    """Other keys are refused with both, and no request is sent."""
    simulator = Simulator(chains=CHAINS, rows=20)
    async with simulated(simulator) as session:
        await export(session.data.evm.blocks, CHAINS, tmp_path, partition=["source"])
        requests = simulator.stats.requests
        with pytest.raises(ExportError, match=r"partition= was source, is day\. Use the same"):
            await export(session.data.evm.blocks, CHAINS, tmp_path, partition=["day"])
    assert simulator.stats.requests == requests


async def test_lists_without_rows_have_no_files(tmp_path: Path) -> None:
    """An export without rows makes no folder, and the next run has nothing to do."""
    async with reaching(Answering(b'{"blocks":[]}')) as session:
        for _ in range(2):
            result = await export(session.data.evm.blocks, CHAINS, tmp_path, partition=["day"])
            assert (result.rows, result.written) == (0, ())
    assert hidden_in(tmp_path) == {"_export", MANIFEST}
    assert files_of(tmp_path, "jsonl") == {}


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


async def test_columns_with_the_name_of_a_key_are_refused(tmp_path: Path) -> None:
    """A column that has the name of a key would be hidden by the name of the folder."""

    @frozen(kw_only=True)
    class Dated:
        day: str | None = None
        timestamp: int | None = None

        time = OptionalUTCDatetime("timestamp")

    async with reaching(Answering()) as session:
        with pytest.raises(ConfigurationError, match="'day', which is a column of the rows too"):
            await export(session.data.list, ["/v1/x"], tmp_path / "b", model=Dated, partition=["day"])


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


@pytest.mark.parametrize("keys", [None, ["source"]])
@pytest.mark.parametrize("more", [{"chain_id": "\udcff"}, {"path": "/v1/chains/1/blocks", "key": "\udcff"}])
async def test_a_source_that_is_not_utf_8(
    more: dict[str, str], keys: list[str] | None, tmp_path: Path
) -> None:
    """A source whose words are not UTF-8 is refused before the first request, or fails alone."""
    simulator = Simulator(chains=CHAINS, rows=20)
    async with simulated(simulator) as session:
        by_path = "path" in more
        walk: Callable[..., Pages[Any]] = session.data.list if by_path else session.data.evm.blocks
        good = {"path": "/v1/chains/1/blocks"} if by_path else {"chain_id": "1"}
        with pytest.raises(ConfigurationError, match=r"^source .* is not UTF-8"):
            await export(walk, [good, more], tmp_path / "b", partition=keys)
        assert simulator.stats.requests == 0
        with pytest.raises(IncompleteExportError) as caught:
            await export(walk, iter([good, more]), tmp_path / "b", partition=keys)
    assert [type(error) for error in caught.value.failures.values()] == [ArgumentError]
    lines = [line for path in (tmp_path / "b").rglob("part-*") for line in path.read_text().splitlines()]
    assert len(lines) == 20


# The time of a row


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


DAYS = st.none() | st.integers(-800, 800).map(lambda hours: hours * 3_600)


@frozen(kw_only=True)
class Event:
    number: int
    timestamp: int | None = None

    time = OptionalUTCDatetime("timestamp")


COLUMNS = columns_of(Event)


def page_of(number: int, rows: list[Event]) -> PageRecord:
    """Return the record of a page whose list has the order of the times."""
    times = [row.timestamp for row in rows if row.timestamp is not None]
    whole = len(times) == len(rows)
    lowest, highest = (str(min(times)), str(max(times))) if whole else (None, None)
    fields: dict[str, Any] = dict.fromkeys(PageRecord.__struct_fields__, 0)
    return PageRecord(**{**fields, "number": number, "rows": len(rows), "lowest": lowest, "highest": highest})


@given(
    pages=st.lists(st.lists(DAYS, min_size=1, max_size=6), max_size=4),
    keys=st.lists(st.sampled_from(KEYS), min_size=1, unique=True),
)
def test_each_row_is_in_one_partition(pages: list[list[int | None]], keys: list[str]) -> None:
    """Every row is in the partition of its time, in the order of the pages, with exact ranges."""
    numbers: Iterator[int] = iter(range(100))
    rows = {
        place: [Event(number=next(numbers), timestamp=time) for time in times]
        for place, times in enumerate(pages)
    }
    records = [("a/b", page_of(place, found)) for place, found in rows.items()]

    def read(page: PageRecord) -> bytes:
        return Codec(Event).encode_lines(rows[page.number])

    def value(key: str, time: int | None) -> str | None:
        if key == "source":
            return "a/b"
        date = None if time is None else datetime.fromtimestamp(time, UTC).date()
        return (
            None if date is None else date.strftime({"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d"}[key])
        )

    found = list[int]()
    for values, parts in Partitioner(keys, COLUMNS).divide(records, read):
        events = [json.loads(line) for one in parts for line in one.of(read(one.page)).splitlines()]
        assert [event["number"] for event in events] == sorted(event["number"] for event in events)
        assert {tuple(value(key, event["timestamp"]) for key in keys) for event in events} == {values}
        assert sum(one.rows for one in parts) == len(events)
        for one in parts:
            times = [json.loads(line)["timestamp"] for line in one.of(read(one.page)).splitlines()]
            if None not in [row.timestamp for row in rows[one.page.number]]:
                assert (one.lowest, one.highest) == (str(min(times)), str(max(times)))
        found += [event["number"] for event in events]
    assert sorted(found) == [*range(sum(map(len, pages)))]


def test_names_of_folders() -> None:
    """Values are escaped as in URLs, and null has the name that readers know."""
    assert (
        folder_of(["source", "day"], ("a/ü b=c", "2026-11-20")) == "source=a%2F%C3%BC%20b%3Dc/day=2026-11-20"
    )
    assert folder_of(["day"], (None,)) == f"day={NULL}"


@pytest.mark.parametrize("suffix", TEXTS)
def test_files_without_a_source(suffix: str, tmp_path: Path) -> None:
    """Files without the column are read with their kinds, and continued by rows with more columns."""
    form, old, new = without_source(format_of(suffix)), tmp_path / f"old.{suffix}", tmp_path / f"new.{suffix}"
    form.write(old, columns_of(Row), [("a", Codec(Row).encode_lines([Row(height=1, value=2**70)], "a"))])
    grown = columns_of(Grown)
    form.write(new, grown, [("b", Codec(Grown).encode_lines([Grown(height=2, more=3)], "b"))], old)
    found = typed_rows(form, new, grown)
    assert [[*row] for row in found] == [[column.name for column in grown]] * 2
    assert [(row["height"], row["value"], row["more"]) for row in found] == [(1, 2**70, None), (2, None, 3)]
    if suffix != "jsonl":
        with pytest.raises(ConfigurationError, match="is not a"):
            format_of(suffix).write(tmp_path / f"other.{suffix}", grown, [], new)


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


@pytest.mark.parametrize("keys", [["source", "year", "day"], ["month"]])
async def test_a_chart_of_a_partitioned_folder(keys: list[str], tmp_path: Path) -> None:
    """A chart has a line for each source; the values of other keys are no axis."""
    simulator = Simulator(chains=CHAINS, rows=120)
    async with simulated(simulator) as session:
        await export(session.data.evm.blocks, CHAINS, tmp_path, partition=keys, format="parquet")
    chart = read_chart(tmp_path, y="gas_used")
    assert (chart.x, chart.y, set(chart.series)) == ("block_timestamp", "gas_used", {"1", "43114"})
    async with simulated(simulator) as session:
        await export(session.metrics.avg_tps, CHAINS, tmp_path / "tps", partition=keys, format="csv")
    chart = read_chart(tmp_path / "tps")
    assert (chart.x, chart.y, set(chart.series)) == ("timestamp", "value", {"1", "43114"})
