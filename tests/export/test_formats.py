"""Contract of the formats: values of every kind and size, written by an export and read by other programs.

`decoded` is the table of types of the documentation. A new format needs a reader in `contract`, and a column
of that table.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import define, field, frozen, make_class
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.errors import ConfigurationError, ExportError
from chainapi.export import export
from chainapi.simulator import Simulator
from chainapi.testing import run
from chainapi.transport import Request, Response
from tests.export.contract import FORMATS, read
from tests.ledger import Ledger, block
from tests.sessions import reaching, simulated

AMOUNTS = ("text", "decimal", "float")
PATHS = ("/v1/a", "/v1/b")
each_format = pytest.mark.parametrize("name", FORMATS)


@frozen(kw_only=True)
class Inner:
    value: int | None = None
    text: str | None = None
    anything: Any = None


@frozen(kw_only=True)
class Odd:
    """A row with a column of each kind."""

    number: int | None = None
    value: int | None = None
    share: float | None = None
    exact: Decimal | None = None
    truth: bool | None = None
    text: str | None = None
    anything: Any = None
    inner: Inner | None = None
    inners: list[Inner | None] | None = None
    words: list[str | None] | None = None
    numbers: list[list[int]] | None = None
    from_: str | None = None


def class_with(**hints: Any) -> Any:
    """Return a class of rows with optional fields of these types."""
    return make_class("Row", {name: field(type=hint, default=None) for name, hint in hints.items()})


INNER = {"value": "amount", "text": "text", "anything": "JSON"}
KINDS: Mapping[str, Any] = {
    "source": "text",
    "number": "whole",
    "value": "amount",
    "share": "float",
    "exact": "decimal",
    "truth": "boolean",
    "text": "text",
    "anything": "JSON",
    "inner": INNER,
    "inners": [INNER],
    "words": ["text"],
    "numbers": [["whole"]],
    "from": "text",
}


def decoded(kind: Any, cell: Any, name: str, amounts: str) -> Any:
    """Return the value of a cell of a file, whose type has to be that of the documentation."""
    if cell is None or (name == "csv" and cell == "" and kind != "text"):
        return None
    if isinstance(kind, dict | list) and name in ("csv", "sqlite"):
        return decoded(kind, json.loads(cell), "jsonl", amounts)
    if isinstance(kind, dict):
        assert [*cell] == [*kind]
        return {one: decoded(kind[one], cell[one], name, amounts) for one in kind}
    if isinstance(kind, list):
        return [decoded(kind[0], one, name, amounts) for one in cell]
    typed = name in ("parquet", "duckdb")
    if kind == "amount":
        return amount(cell, name, amounts, typed=typed)
    if kind == "JSON":
        return cell if name == "jsonl" else json.loads(cell)
    if kind == "decimal":
        return exactly(Decimal, cell) if typed else Decimal(exactly(str, cell))
    if name == "csv":
        return plain_text(kind, cell)
    if kind == "boolean" and name == "sqlite":
        return {0: False, 1: True}[exactly(int, cell)]
    return exactly({"text": str, "whole": int, "float": float, "boolean": bool}[kind], cell)


def plain_text(kind: str, cell: str) -> Any:
    """Return the value of a cell of CSV."""
    if kind == "boolean":
        return {"true": True, "false": False}[cell]
    return {"text": str, "whole": int, "float": float}[kind](cell)


def amount(cell: Any, name: str, amounts: str, *, typed: bool) -> int:
    """Return the amount of a cell."""
    match amounts:
        case "float":
            return int(float(cell) if name == "csv" else exactly(float, cell))
        case "decimal" if typed:
            return int(exactly(Decimal, cell))
    return int(exactly(str, cell))


def exactly(kind: type, value: Any) -> Any:
    """Return a value of exactly this type: True is not 1."""
    assert type(value) is kind, value
    return value


@define
class Rows:
    """Service that has the rows of each path."""

    rows: Mapping[str, Sequence[Any]]
    requests: list[str] = field(factory=list[str])

    async def send(self, request: Request) -> Response:
        """Answer with all rows of a path."""
        self.requests.append(request.url)
        return Response(200, {}, json.dumps({"rows": self.rows[urlsplit(request.url).path]}).encode())

    async def aclose(self) -> None:
        """Close nothing."""


async def exported(out: Path, rows: Mapping[str, Sequence[Any]], model: Any = Odd, **options: Any) -> Any:
    """Export the rows of these paths."""
    async with reaching(Rows(rows)) as session:
        return await export(session.data.list, [*rows], out, model=model, **options)


# Values of every kind

WHOLE = st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "",
        '"',
        ",",
        "a\nb",
        "a\r\nb",
        "\r",
        "\0",
        "é",
        "🙂",
        "=1+1",
        " ",
        "null",
        "'",
        "\ufeff",
        "\\",
        "\u2028",
    ]
)
FRACTIONS = st.decimals(-(10**9), 10**9, places=18) | st.sampled_from(
    [Decimal(f"{'9' * 20}.{'9' * 18}"), Decimal("1E-18"), Decimal("-1E+19"), Decimal("1.50")]
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
BIG: Mapping[str, st.SearchStrategy[int]] = {
    "text": st.integers(0, 5) | st.integers() | st.sampled_from([2**256 - 1, -(10**99)]),
    "decimal": st.integers(0, 5) | st.integers(1 - 10**38, 10**38 - 1),
    "float": st.integers(-5, 5) | st.integers(-(2**53), 2**53) | st.just(2**255),
}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return the values of a strategy, or None."""
    return st.none() | strategy


def rows_with(amounts: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return rows with a value of each kind."""
    inner = st.fixed_dictionaries({"value": optional(BIG[amounts]), "text": optional(TEXTS), "anything": ANY})
    row = st.fixed_dictionaries(
        {
            "number": optional(WHOLE),
            "value": optional(BIG[amounts]),
            "share": optional(FLOATS),
            "exact": optional(FRACTIONS),
            "truth": optional(st.booleans()),
            "text": optional(TEXTS),
            "anything": ANY,
            "inner": optional(inner),
            "inners": optional(st.lists(optional(inner), max_size=3)),
            "words": optional(st.lists(optional(TEXTS), max_size=3)),
            "numbers": optional(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2), max_size=2)),
            "from": optional(TEXTS),
        }
    )
    return st.lists(row, max_size=4)


def sent(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as the service sends it: amounts and decimals are strings."""
    inners = row["inners"] and [one and {**one, "value": text(one["value"])} for one in row["inners"]]
    inner = row["inner"] and {**row["inner"], "value": text(row["inner"]["value"])}
    decimal = None if row["exact"] is None else format(row["exact"], "f")
    return {**row, "value": text(row["value"]), "exact": decimal, "inner": inner, "inners": inners}


def text(value: int | None) -> str | None:
    """Return the digits of an amount."""
    return None if value is None else str(value)


def same(one: Any, other: Any) -> bool:
    """Tell whether values are equal and of the same types."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(
    ("name", "amounts"),
    [
        pytest.param(name, amounts, marks=[] if place % 4 == turn else [pytest.mark.proof])
        for place, name in enumerate(FORMATS)
        for turn, amounts in enumerate(AMOUNTS)
    ],
)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_what_is_read_is_what_was_sent(name: str, amounts: str, data: st.DataObject) -> None:
    """Other programs read exactly the values that the service sent, in order, with each kind of amounts.

    So it is with the rows of a second run, which are added to the file.
    """
    first, second = (data.draw(rows_with(amounts)) for _ in range(2))
    form = name.partition(".")[0]
    with TemporaryDirectory() as folder:
        out = Path(folder, f"rows.{name}")
        lists: dict[str, Any] = dict(zip(PATHS, ([*map(sent, first)], [*map(sent, second)]), strict=True))
        run(exported(out, {PATHS[0]: lists[PATHS[0]]}, amounts=amounts))
        run(exported(out, lists, amounts=amounts))
        found = read(out, name)
    assert all([*row] == [*KINDS] for row in found)
    values = [{one: decoded(kind, row[one], form, amounts) for one, kind in KINDS.items()} for row in found]
    wanted = [
        {"source": path, **row} for path, rows in zip(PATHS, (first, second), strict=True) for row in rows
    ]
    for row in wanted:
        if form == "csv":  # the text of the file tells them apart: see the text of CSV
            row.update({one: row[one] or "" for one in ("text", "from")})
    assert same(values, wanted), (values, wanted)


TIMES = (-62_135_596_800, -1, 0, 1_767_225_600, 253_402_300_799)  # of the years 1 to 9999


@each_format
async def test_times(name: str, tmp_path: Path) -> None:
    """Times from the year 1 to 9999 have their type in each format."""
    out = tmp_path / f"rows.{name}"
    async with reaching(Ledger([*TIMES], block, "blocks")) as session:
        await export(session.data.evm.blocks, [1], out)
    cells = [row["block_timestamp"] for row in read(out, name)]
    match name.partition(".")[0]:
        case "jsonl" | "sqlite":
            found = [exactly(int, cell) for cell in cells]
        case "csv":
            assert all(cell.endswith("Z") for cell in cells)
            found = [datetime.fromisoformat(cell).timestamp() for cell in cells]
        case _:
            assert {cell.utcoffset() for cell in cells} == {UTC.utcoffset(None)}
            found = [cell.timestamp() for cell in cells]
    assert sorted(found) == [*TIMES]


async def test_rows_of_several_kinds(tmp_path: Path) -> None:
    """A list with rows of several kinds has one table, with the rows of the JSON lines in each format."""
    pairs, found = [("mainnet", "p-chain")], dict[str, list[dict[str, Any]]]()
    async with simulated(Simulator(rows=30)) as session:
        for name in ("jsonl", "csv", "parquet", "sqlite"):
            out = tmp_path / f"rows.{name}"
            await export(session.data.primary_network.transactions, pairs, out)
            found[name] = read(out, name)
    assert len({row["tx_type"] for row in found["jsonl"]}) > 2
    columns = [*found["parquet"][0]]
    assert {*columns} >= {name for row in found["jsonl"] for name in row}
    for rows in found.values():
        assert [row["tx_hash"] for row in rows] == [row["tx_hash"] for row in found["jsonl"]]
        assert rows is found["jsonl"] or all([*row] == columns for row in rows)


async def test_rows_that_are_texts(tmp_path: Path) -> None:
    """Rows that are texts have one column."""
    for name in FORMATS:
        out = tmp_path / f"rows.{name}"
        await exported(out, {"/v1/a": ["a", ""]}, str)
        assert read(out, name) == [{"source": "/v1/a", "value": one} for one in ("a", "")], name


@pytest.mark.parametrize(
    "name", ["jsonl", "csv.gz", "parquet", "sqlite", pytest.param("duckdb", marks=pytest.mark.proof)]
)
async def test_a_file_without_rows(name: str, tmp_path: Path) -> None:
    """A file without rows is one of its format, and later runs add rows to it."""
    out = tmp_path / f"rows.{name}"
    await exported(out, {"/v1/a": []})
    assert read(out, name) == []
    await exported(out, {"/v1/a": [], "/v1/b": [{"number": 1}]})
    assert [str(row["number"]) for row in read(out, name)] == ["1"]


@pytest.mark.parametrize("name", [name for name in FORMATS if "sql" not in name and name != "duckdb"])
async def test_equal_rows_give_equal_bytes(name: str, tmp_path: Path) -> None:
    """The bytes of a text or a Parquet file depend on its rows alone."""
    rows = [{"value": "1", "text": "x", "inners": [{"text": "y"}]}] * 100
    one, other = (tmp_path / f"{file}.{name}" for file in ("one", "other"))
    for out in (one, other):
        await exported(out, {"/v1/a": rows})
    content = one.read_bytes()
    assert content == other.read_bytes()
    if name.endswith(".gz"):
        assert content[3:8] == bytes(5), "flags and the time in the header"


# The files themselves


async def test_the_lines_of_json(tmp_path: Path) -> None:
    """Lines of JSON are the rows as they were sent, with their source first."""
    out = tmp_path / "rows.jsonl"
    await exported(out, {"/v1/a": [{"x": 1}, {}], "/v1/b": [{"x": ['"']}]}, None)
    assert sorted(out.read_text().splitlines()) == [
        '{"source":"/v1/a","x":1}',
        '{"source":"/v1/a"}',
        '{"source":"/v1/b","x":["\\""]}',
    ]


async def test_the_text_of_csv(tmp_path: Path) -> None:
    """CSV cells: quoted texts, nothing for None, JSON for records and lists."""
    out = tmp_path / "rows.csv"
    rows: list[dict[str, Any]] = [
        {"number": 1, "value": str(2**256), "share": 0.5, "exact": "1.50", "truth": True, "text": '=a"\n'},
        {"text": "", "anything": {"a": 1}, "inner": {"value": "1"}, "words": ["x", None], "truth": False},
    ]
    await exported(out, {"/v1/a": rows})
    assert out.read_bytes().decode() == (
        "source,number,value,share,exact,truth,text,anything,inner,inners,words,numbers,from\n"
        f'"/v1/a",1,{2**256},0.5,1.50,true,"=a""\n",,,,,,\n'
        '"/v1/a",,,,,false,"","{""a"":1}","{""value"":""1"",""text"":null,""anything"":null}",'
        ',"[""x"",null]",,\n'
    )


async def test_formulas_in_csv_are_texts(tmp_path: Path) -> None:
    """With escape_formulas= no text is a formula for a spreadsheet; numbers stay, and so does the option."""
    out, odd = tmp_path / "rows.csv", ["=1+1", "+1", "-1", "@a", "a=", "'a", "", None]
    rows: list[dict[str, Any]] = [{"number": -1, "text": one} for one in odd]
    await exported(out, {"/v1/a": rows}, fields=["number", "text"], escape_formulas=True)
    texts = ["'=1+1", "'+1", "'-1", "'@a", "a=", "'a", ""]
    lines = [f'"/v1/a",-1,"{one}"\n' for one in texts]
    assert out.read_bytes().decode() == "".join(["source,number,text\n", *lines, '"/v1/a",-1,\n'])
    await exported(out, {"/v1/a": rows, "/v1/b": rows[:1]})
    assert out.read_bytes().decode().endswith('"/v1/b",-1,"\'=1+1"\n')
    with pytest.raises(ExportError, match="escape_formulas= was True, is left out"):
        await exported(out, {"/v1/a": rows}, escape_formulas=False)
    with pytest.raises(ConfigurationError, match="escape_formulas= applies to CSV"):
        await exported(tmp_path / "rows.jsonl", {"/v1/a": rows}, escape_formulas=True)


TYPES = {  # of a Parquet file: by pyarrow, polars and DuckDB
    "source": ("string", "String", "VARCHAR"),
    "number": ("int64", "Int64", "BIGINT"),
    "value": ("string", "String", "VARCHAR"),
    "share": ("double", "Float64", "DOUBLE"),
    "exact": ("decimal128(38, 18)", "Decimal(precision=38, scale=18)", "DECIMAL(38,18)"),
    "truth": ("bool", "Boolean", "BOOLEAN"),
    "anything": ("string", "String", "VARCHAR"),
    "inner": (
        "struct<value: string, text: string, anything: string>",
        "Struct({'value': String, 'text': String, 'anything': String})",
        'STRUCT("value" VARCHAR, "text" VARCHAR, anything VARCHAR)',
    ),
    "words": ("list<element: string>", "List(String)", "VARCHAR[]"),
    "numbers": ("list<element: list<element: int64>>", "List(List(Int64))", "BIGINT[][]"),
}


async def test_the_types_of_columns(tmp_path: Path) -> None:
    """The type of a column follows from the model, in every program, whatever the values are."""
    for rows in ([], [{"number": 1, "value": "1", "exact": "1.5"}]):
        out = tmp_path / f"{len(rows)}.parquet"
        await exported(out, {"/v1/a": rows})
        polars = pl.read_parquet(out).schema
        found = duckdb.execute(f"DESCRIBE SELECT * FROM '{out}'").fetchall()
        types = {
            one.name: (str(one.type), str(polars[one.name]), kind)
            for one, (_, kind, *_) in zip(pq.read_schema(out), found, strict=True)
        }
        assert {name: types[name] for name in TYPES} == TYPES
    await exported(
        tmp_path / "b.sqlite", {"/v1/a": [{"number": 1, "value": "5", "exact": "0.10", "share": 2.0}]}
    )
    with closing(sqlite3.connect(tmp_path / "b.sqlite")) as database:
        kinds = "SELECT typeof(number), typeof(value), typeof(exact), typeof(share) FROM rows"
        assert database.execute(kinds).fetchone() == ("integer", "text", "text", "real")


# What is refused


@pytest.mark.parametrize(
    ("name", "package", "said"),
    [
        ("parquet", "pyarrow", r"parquet files need pyarrow, .* pip install 'chainapi\[parquet\]'"),
        ("duckdb", "duckdb", r"duckdb files need duckdb, .* pip install 'chainapi\[duckdb\]'"),
        ("duckdb", "pyarrow", r"duckdb files need pyarrow, .* pip install 'chainapi\[duckdb\]'"),
        ("jsonl.zst", "backports", r"zst files need .* pip install 'chainapi\[zstd\]'"),
    ],
)
async def test_a_missing_extra_is_named(
    name: str, package: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A format whose package is missing is refused before the first request, with what to install."""
    for module in ("export.parquet", "export.duckdb", "tables.arrow"):
        monkeypatch.delitem(sys.modules, f"chainapi.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "compression", None)  # Zstandard of Python 3.14
    service = Rows({})
    async with reaching(service) as session:
        with pytest.raises(ConfigurationError, match=said):
            await export(session.data.list, ["/v1/a"], tmp_path / f"rows.{name}", model=Odd)
    assert service.requests == []


async def test_names_of_formats(tmp_path: Path) -> None:
    """The suffix of a file sets its format, in any case."""
    await exported(tmp_path / "ROWS.CSV", {"/v1/a": [{"number": 1}]})
    assert [row["number"] for row in read(tmp_path / "ROWS.CSV", "csv")] == ["1"]


@pytest.mark.proof
async def test_groups_of_parquet_have_a_hundred_thousand_rows(tmp_path: Path) -> None:
    """Row groups have at most 100,000 rows, and memory holds one of them."""
    pool: Callable[[], int] = pa.total_allocated_bytes
    await exported(tmp_path / "rows.parquet", {"/v1/a": [{"number": 1}] * 110_000})
    groups = pq.ParquetFile(tmp_path / "rows.parquet").metadata
    sizes = [groups.row_group(number).num_rows for number in range(groups.num_row_groups)]
    assert sum(sizes) == 110_000
    assert max(sizes) <= 100_000
    assert pool() < 64 << 20
