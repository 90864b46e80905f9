"""File formats: the rows that are read are exactly the rows that were written."""

from __future__ import annotations

import json
import sqlite3
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainapi import models
from chainapi.errors import ConfigurationError
from chainapi.export.formats import FORMATS, Format, format_of
from chainapi.models import EvmBlock, Unknown
from chainapi.models.codec import decode_resource
from chainapi.models.timestamps import OptionalUTCDatetime
from chainapi.models.unions import tags_of
from chainapi.tables.codec import Codec
from chainapi.tables.columns import columns_of
from chainapi.tables.types import AMOUNTS, YEARS, Amounts
from tests.documents import Maker
from tests.export.typed import typed_rows

WITH_COLUMNS = tuple(name for name in FORMATS if format_of(name).needs_columns)


@frozen(kw_only=True)
class Inner:
    value: int | None = None
    text: str | None = None
    timestamp: int | None = None
    anything: Any = None

    time = OptionalUTCDatetime("timestamp")


@frozen(kw_only=True)
class Odd:
    """A row with a column of each kind."""

    number: int | None = None
    value: int | None = None
    share: float | None = None
    exact: Decimal | None = None
    truth: bool | None = None
    text: str | None = None
    timestamp: int | None = None
    anything: Any = None
    inner: Inner | None = None
    inners: list[Inner | None] | None = None
    words: list[str | None] | None = None
    amounts: list[list[int]] | None = None
    from_: str | None = None

    time = OptionalUTCDatetime("timestamp")


def expected(value: Any, field: str = "") -> Any:
    """Return the expected value of a row after reading."""
    if attrs.has(type(value)):
        return {
            one.name.rstrip("_"): expected(getattr(value, one.name), one.name)
            for one in attrs.fields(type(value))
        }
    if isinstance(value, list) and field != "anything":
        return [expected(item, field) for item in value]
    if field.endswith("timestamp") and isinstance(value, int):
        return datetime.fromtimestamp(value, UTC)
    return value


def rows_of(
    model: Any, rows: Sequence[Any], source: str = "s", amounts: Amounts = "text"
) -> list[tuple[str, bytes]]:
    """Return the input of a format: each row by itself, and all others at once."""
    codec = Codec(model, amounts)
    return [(source, codec.encode_lines(some, source)) for some in (rows[:1], rows[1:]) if some]


def written(
    form: Format,
    path: Path,
    model: Any,
    rows: Sequence[Any],
    *,
    previous: Path | None = None,
    source: str = "s",
    amounts: Amounts = "text",
) -> list[dict[str, Any]]:
    """Write rows and return the rows that are read."""
    columns = columns_of(model, amounts)
    form.write(path, columns, rows_of(model, rows, source, amounts), previous)
    return typed_rows(form, path, columns)


def same(one: Any, other: Any) -> bool:
    """Tell whether values are equal and of the same types; True is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [*one] == [*other] and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    """Return each of the formats."""
    return format_of(request.param)


# Whatever the values

WHOLE = st.none() | st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", '"', ",", "a\nb", "a\r\nb", "\r", "\0", "é", "🙂", "=1+1", " ", "null", "'", "\ufeff", "\\"]
)
FRACTIONS = (
    st.none()
    | st.decimals(-(10**9), 10**9, places=18)
    | st.sampled_from(
        [Decimal(f"{'9' * 20}.{'9' * 18}"), Decimal("1E-18"), Decimal("-1E+19"), Decimal("1.50")]
    )
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TIMES = st.none() | st.integers(0, 2**31) | st.sampled_from([*YEARS, -1])
BIG: dict[Amounts, st.SearchStrategy[int | None]] = {
    "text": st.none() | st.integers(0, 5) | st.integers() | st.sampled_from([2**256 - 1, -(10**99)]),
    "decimal": st.none() | st.integers(0, 5) | st.integers(1 - 10**38, 10**38 - 1),
    "float": st.none() | st.integers(-5, 5) | st.integers(-(2**53), 2**53) | st.just(2**255),
    "binary": st.none() | st.integers(0, 5) | st.integers(0, 2**256 - 1) | st.just(2**256 - 1),
}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
INNER = st.builds(Inner, text=st.none() | TEXTS, timestamp=TIMES, anything=ANY)
ODD = st.builds(
    Odd,
    number=WHOLE,
    share=st.none() | FLOATS,
    exact=FRACTIONS,
    truth=st.none() | st.booleans(),
    text=st.none() | TEXTS,
    timestamp=TIMES,
    anything=ANY,
    inner=st.none() | INNER,
    inners=st.none() | st.lists(st.none() | INNER, max_size=3),
    words=st.none() | st.lists(st.none() | TEXTS, max_size=3),
    amounts=st.none() | st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2), max_size=2),
    from_=st.none() | TEXTS,
)


def valued(row: Odd, data: st.DataObject, amounts: Amounts) -> Odd:
    """Return a row with amounts, in the records in it too."""
    row = attrs.evolve(row, value=data.draw(BIG[amounts]))
    if row.inner is not None:
        row = attrs.evolve(row, inner=attrs.evolve(row.inner, value=data.draw(BIG[amounts])))
    return row


@pytest.mark.parametrize("amounts", AMOUNTS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(ODD, max_size=4), second=st.lists(ODD, max_size=4), source=TEXTS, data=st.data())
def test_what_is_read_is_what_was_written(
    form: Format, amounts: Amounts, first: list[Odd], second: list[Odd], source: str, data: st.DataObject
) -> None:
    """Rows of any values are read exactly and in order, with each choice of amounts.

    This includes the rows of an earlier file to which others were added.
    """
    first, second = ([valued(row, data, amounts) for row in rows] for rows in (first, second))
    with TemporaryDirectory() as directory:
        old, new = Path(directory, f"old{form.suffix}"), Path(directory, f"new{form.suffix}")
        wanted = [{"source": source, **floating(expected(row), amounts)} for row in (*first, *second)]
        found = written(form, old, Odd, first, source=source, amounts=amounts)
        assert same(found, wanted[: len(first)])
        assert same(written(form, new, Odd, second, source=source, previous=old, amounts=amounts), wanted)


def floating(row: Any, amounts: Amounts) -> Any:
    """Return an expected row whose amounts are floats, if that is the choice."""
    if amounts != "float" or row is None:
        return row
    value = None if row["value"] is None else float(row["value"])
    return {**row, "value": value, **({"inner": floating(row["inner"], amounts)} if "inner" in row else {})}


def named(name: str) -> Any:
    """Return a model by its name, with twelve rows of it.

    The rows of a union include an unknown one.
    """
    model = getattr(models, name)
    rows = [decode_resource(json.dumps(Maker(seed).value(model)).encode(), model) for seed in range(12)]
    return model, [*rows, Unknown({"txHash": "x", "news": [10**30]})] if tags_of(model) else rows


UNIONS = [name for name in models.__all__ if tags_of(getattr(models, name))]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *zip(UNIONS, cycle(FORMATS), strict=False),
        *(("EvmBlock", form) for form in FORMATS),
        *(("EvmTransaction", form) for form in FORMATS),
    ],
    indirect=["form"],
)
def test_rows_of_models(name: str, form: Format, tmp_path: Path) -> None:
    """Rows of our models are read exactly; a union has one table for all kinds."""
    model, rows = named(name)
    names = ["source", *(column.name for column in Codec(model).columns)]
    first = written(form, tmp_path / "1", model, rows[:5])
    found = written(form, tmp_path / "2", model, rows[5:], previous=tmp_path / "1")
    assert [*found[0]] == names
    assert same(first, found[:5])
    for row, read in zip(rows, found, strict=True):
        known = {"tx_hash": "x"} if "tx_hash" in names else {}
        wanted = (
            {**known, "extra": {"news": [10**30]} if known else {"txHash": "x", "news": [10**30]}}
            if isinstance(row, Unknown)
            else expected(row)
        )
        assert lenient({name: value for name, value in read.items() if value is not None}) == lenient(
            {"source": "s", **{name: value for name, value in wanted.items() if value is not None}}
        )


def lenient(value: Any) -> Any:
    """Remove None values: records of one kind in one table have the fields of all."""
    if isinstance(value, dict):
        return {name: lenient(item) for name, item in value.items() if item is not None}
    return [lenient(item) for item in value] if isinstance(value, list) else value


def test_rows_that_are_texts(form: Format, tmp_path: Path) -> None:
    """Rows that are texts have one column."""
    assert written(form, tmp_path / "f", str, ["a", ""]) == [
        {"source": "s", "value": "a"},
        {"source": "s", "value": ""},
    ]


def test_a_file_without_rows(form: Format, tmp_path: Path) -> None:
    """A file without rows is valid, and rows can be added to it."""
    assert written(form, tmp_path / "1", Odd, []) == []
    assert len(written(form, tmp_path / "2", Odd, [Odd()], previous=tmp_path / "1")) == 1


def test_the_bytes_are_the_same(form: Format, tmp_path: Path) -> None:
    """Bytes of a file depend on its rows alone, except in DuckDB.

    DuckDB writes counts and dates into its blocks.
    """
    for name in ("1", "2"):
        written(form, tmp_path / name, Odd, [Odd(value=1, text="x", inners=[Inner(text="y")])] * 100)
    if form.name != "duckdb":
        assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_what_is_in_the_way_is_replaced(form: Format, tmp_path: Path) -> None:
    """A leftover file at the target is no part of the new one."""
    written(form, tmp_path / "f", Odd, [Odd(number=1)] * 3)
    assert [row["number"] for row in written(form, tmp_path / "f", Odd, [Odd(number=2)])] == [2]


# The files themselves


def block(number: int, **changed: Any) -> EvmBlock:
    """Return a block."""
    values: dict[str, Any] = {field.name: number for field in attrs.fields(EvmBlock)}
    return EvmBlock(**{**values, "block_hash": f"0x{number:x}", "parent_hash": "é", **changed})


def test_the_lines_of_json(tmp_path: Path) -> None:
    """Lines of JSON are the encoded row, with its source first."""
    path = tmp_path / "f.jsonl"
    codec = Codec(None)
    pages: dict[str, list[Any]] = {'a"b': [{"x": 1}, {}], "c": [{"x": []}]}
    lines = [(label, codec.encode_lines(rows, label)) for label, rows in pages.items()]
    assert format_of(path).write(path, (), lines) == 3
    assert path.read_text() == '{"source":"a\\"b","x":1}\n{"source":"a\\"b"}\n{"source":"c","x":[]}\n'
    assert [*format_of(path).read(path)][1:] == [{"source": 'a"b'}, {"source": "c", "x": []}]


def test_the_text_of_csv(tmp_path: Path) -> None:
    """CSV cells: quoted texts, ISO 8601 times, nothing for None, JSON for the rest."""
    path = tmp_path / "f.csv"
    rows = [
        Odd(number=1, value=2**256, share=0.5, exact=Decimal("1.50"), truth=True, text='=a"\n', timestamp=5),
        Odd(text="", anything={"a": 1}, inner=Inner(value=1), words=["x", None], truth=False),
    ]
    format_of("csv").write(path, Codec(Odd).columns, rows_of(Odd, rows, "43114"))
    assert path.read_bytes().decode() == (
        "source,number,value,share,exact,truth,text,timestamp,anything,inner,inners,words,amounts,from\n"
        f'"43114",1,{2**256},0.5,1.50,true,"=a""\n",1970-01-01T00:00:05Z,,,,,,\n'
        '"43114",,,,,false,"",,"{""a"":1}",'
        '"{""value"":""1"",""text"":null,""timestamp"":null,""anything"":null}",,"[""x"",null]",,\n'
    )
    assert [*format_of("csv").read(path)][1]["text"] == ""
    assert [*format_of("csv").read(path)][1]["number"] is None


def test_the_table_of_sqlite(tmp_path: Path) -> None:
    """SQLite types: INTEGER for whole numbers, TEXT for amounts and decimals."""
    path = tmp_path / "f.sqlite"
    rows = [Odd(number=1, value=5, exact=Decimal("0.10"), share=2.0, truth=True, timestamp=7), Odd(number=2)]
    written(format_of("sqlite"), path, Odd, rows)
    asked = "SELECT typeof(number), typeof(value), typeof(exact), typeof(share), truth, timestamp FROM rows"
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(asked).fetchone() == ("integer", "text", "text", "real", 1, 7)


def type_names(path: Path) -> dict[str, str]:
    """Return the types of the columns of a Parquet file."""
    return {field.name: str(field.type) for field in pq.read_schema(path)}


def test_the_types_of_parquet(tmp_path: Path) -> None:
    """Columns have the types of their kinds if all values fit."""
    path = tmp_path / "f.parquet"
    written(format_of(path), path, Odd, [Odd(number=1, value=1, exact=Decimal("1.5"), timestamp=1)])
    inner = "struct<value: string, text: string, timestamp: timestamp[ms, tz=UTC], anything: string>"
    assert type_names(path) == {
        "source": "string",
        "number": "int64",
        "value": "string",
        "share": "double",
        "exact": "decimal128(38, 18)",
        "truth": "bool",
        "text": "string",
        "timestamp": "timestamp[ms, tz=UTC]",
        "anything": "string",
        "inner": inner,
        "inners": f"list<element: {inner}>",
        "words": "list<element: string>",
        "amounts": "list<element: list<element: int64>>",
        "from": "string",
    }
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


# Large ones


def many(rows: int) -> Iterator[tuple[str, bytes]]:
    """Yield rows that are made while they are written."""
    codec = Codec(EvmBlock)
    encoded = codec.encode_lines([block(10**6, block_hash="0x" + "ab" * 32, fees_spent=10**20)], "43114")
    return (("43114", encoded) for _ in range(rows))


POOLS: list[Any] = []  # buffers may be freed after the test, and need their pool then


def peak(form: Format, path: Path, rows: int, previous: Path | None = None) -> int:
    """Return the peak memory of writing in bytes, Arrow's included."""
    pool = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(pool)
    POOLS.append(counted)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        form.write(path, Codec(EvmBlock).columns, many(rows), previous)
        return tracemalloc.get_traced_memory()[1] + (counted.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(pool)


@pytest.mark.untraced
def test_memory_does_not_grow_with_the_rows(
    form: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with ten times as many rows, or with an earlier file."""
    monkeypatch.setattr("chainapi.export.formats.arrow.GROUP_ROWS", 1_000)
    monkeypatch.setattr("chainapi.export.formats.arrow.BATCH_BYTES", 200_000)
    monkeypatch.setattr("chainapi.export.formats.arrow.SLICE_BYTES", 50_000)
    for module in ("arrow", "parquet", "duckdb"):
        monkeypatch.setattr(f"chainapi.export.formats.{module}.BATCH_ROWS", 250)
    peaks: list[int] = []
    for rows in (1_000, 10_000):
        first = peak(form, tmp_path / f"{rows}", rows)
        peaks.append(max(first, peak(form, tmp_path / "added", 1_000, tmp_path / f"{rows}")))
    assert peaks[1] < 1.3 * peaks[0] + 2**20


@pytest.mark.untraced
def test_rows_come_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet row groups have about 100,000 rows, or fewer if the rows are large."""
    path = tmp_path / "f.parquet"
    form = format_of(path)
    form.write(path, Codec(EvmBlock).columns, many(110_000))
    groups = pq.ParquetFile(path).metadata
    sizes = [groups.row_group(number).num_rows for number in range(groups.num_row_groups)]
    assert sum(sizes) == 110_000
    assert len(sizes) == 2
    assert 100_000 <= sizes[0] < 108_193
    monkeypatch.setattr("chainapi.export.formats.arrow.GROUP_BYTES", 1_000)
    monkeypatch.setattr("chainapi.export.formats.arrow.BATCH_BYTES", 1_000)
    monkeypatch.setattr("chainapi.export.formats.arrow.SLICE_BYTES", 1_000)
    form.write(path, Codec(EvmBlock).columns, many(100))
    assert pq.ParquetFile(path).metadata.num_row_groups > 10


# What is refused


@pytest.mark.parametrize(
    "name", ["blocks", "blocks.xlsx", "", ".csv", "DIR/", "b.gz", ".jsonl.gz", "b.parquet.gz"]
)
def test_unknown_formats(name: str) -> None:
    """An unknown name or suffix is refused, and the formats are listed."""
    with pytest.raises(ConfigurationError, match=f"choose one of {', '.join(FORMATS)}"):
        format_of(name)


def test_formats_by_name_or_suffix(form: Format) -> None:
    """Formats are found by name and by suffix of a path, in any case."""
    found = [format_of(text) for text in (form.name, f"x/y{form.suffix}", Path(f"y{form.suffix.upper()}"))]
    assert found == [form] * 3


@pytest.mark.parametrize(
    ("name", "package"), [("parquet", "pyarrow"), ("duckdb", "duckdb"), ("duckdb", "pyarrow")]
)
def test_a_missing_extra_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra raises an error with the package to install."""
    for module in ("arrow", "parquet", "duckdb"):
        monkeypatch.delitem(sys.modules, f"chainapi.export.formats.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"need {package}, .* pip install 'chainapi\[{name}\]'"):
        format_of(name)


def test_missing_zstandard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Zstandard, .zst files are refused with the extra to install, and .gz files work."""
    for module in ("compression", "backports"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=r"zst files need .* pip install 'chainapi\[zstd\]'"):
        format_of("jsonl.zst")
    assert format_of("jsonl.gz").suffix == ".jsonl.gz"


def test_another_missing_module_is_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import errors of chainapi are not mistaken for a missing extra."""
    monkeypatch.delitem(sys.modules, "chainapi.export.formats.csv", raising=False)
    monkeypatch.setitem(sys.modules, "zlib", None)
    with pytest.raises(ModuleNotFoundError):
        format_of("csv")


@pytest.mark.parametrize("name", WITH_COLUMNS)
def test_rows_without_columns_are_refused(name: str, tmp_path: Path) -> None:
    """Rows without columns are refused by all formats except JSON lines.

    The error has the remedy.
    """
    with pytest.raises(ConfigurationError, match=f"{name} files need columns, .* name a route, pass model="):
        format_of(name).write(tmp_path / "f", (), [("s", b"{}\n")])


# Text that has no rows, or one of other columns: a reader of rows with any columns takes it.
READABLE = {
    "jsonl": (b"", b"{}\n"),
    "csv": (b"", b"1\n", b"{}\n"),
    **{name: (b"",) for name in FORMATS if "." in name},
}


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\n", b"1\n", b'"open\n', b"{}\n", b"source,other\n1,2,3\n"]
)
def test_what_is_no_file_of_the_format(form: Format, content: bytes, tmp_path: Path) -> None:
    """A file of another format is refused as input and as earlier file, untouched."""
    path = tmp_path / f"foreign{form.suffix}"
    path.write_bytes(content)
    columns = Codec(Odd).columns
    if content not in READABLE.get(form.name, ()):
        with pytest.raises(ConfigurationError, match=r"is not a .* file of an export with these columns"):
            list(form.read(path))
    if form.needs_columns:
        with pytest.raises(ConfigurationError, match=r"is not a .* file of an export with these columns"):
            form.write(tmp_path / "new", columns, rows_of(Odd, [Odd()]), path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", WITH_COLUMNS)
def test_files_of_other_columns(name: str, tmp_path: Path) -> None:
    """A file of other columns is refused as an earlier file."""
    form = format_of(name)
    written(form, tmp_path / "blocks", EvmBlock, [block(1)])
    with pytest.raises(ConfigurationError, match="with these columns"):
        form.write(tmp_path / "f", Codec(Odd).columns, rows_of(Odd, [Odd()]), tmp_path / "blocks")


def test_files_that_are_not_there(form: Format, tmp_path: Path) -> None:
    """Missing files and directories raise OSError, and no file is made."""
    with pytest.raises(FileNotFoundError):
        list(form.read(tmp_path / "none"))
    with pytest.raises(OSError, match="none"):
        form.write(tmp_path / "none" / "f", Codec(Odd).columns, rows_of(Odd, [Odd()]))
    assert [*tmp_path.iterdir()] == []


def test_a_csv_with_a_torn_record(tmp_path: Path) -> None:
    """CSV records with a wrong number of cells, or no end, are refused when read."""
    path = tmp_path / "f.csv"
    for torn in ('"s"\n', '"s","a'):
        path.write_text('source,value\n"s","a"\n' + torn)
        found = format_of("csv").read(path)
        assert next(found) == {"source": "s", "value": "a"}
        with pytest.raises(ConfigurationError, match="is not a csv file"):
            next(found)
