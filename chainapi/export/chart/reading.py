"""Charts of files that may come from anywhere: nothing in them is executed.

One pass finds the kinds of the columns, a second one reads the points.
"""

from __future__ import annotations

import csv
import gzip
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from decimal import Decimal
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec

from chainapi._text import printable
from chainapi.core.extras import missing_extra
from chainapi.core.numbers import is_of
from chainapi.errors import ConfigurationError
from chainapi.export.bucket import checked_url
from chainapi.export.chart.series import HUGE, MANY, Chart, Point, name_of, visible
from chainapi.export.database import quoted_name
from chainapi.export.layout import FORMATS, suffix_format
from chainapi.export.log import Storage
from chainapi.export.partition import NULL
from chainapi.export.target import target_of
from chainapi.export.text import zstandard

__all__ = ["read_chart"]

Row: TypeAlias = Mapping[str, Any]

SAMPLE = 1_000  # first rows, which decide the kind of each column that has a value in them
LISTED = 5  # labels in an error message
LABELS = ("source", "chain")  # columns that name a series: of exports, of the output of `chainapi tps`
UNITS: Mapping[str, str] = {  # of columns and metrics, where the documents of the services state them
    name: unit
    for unit, names in {
        "addresses": "activeAddresses activeSenders cumulativeAddresses",
        "contracts": "contracts cumulativeContracts",
        "delegators": "delegatorCount",
        "deployers": "cumulativeDeployers deployers",
        "gas": "gasUsed gas_limit gas_used",
        "gas/s": "avgGps maxGps",
        "nAVAX": "amount_delegated balance_change delegation_capacity remaining_balance",
        "transactions": "cumulativeTxCount txCount",
        "transactions/s": "avgTps maxTps",
        "validators": "validatorCount",
    }.items()
    for name in names.split()
}


def read_chart(
    path: Path | str, x: str | None = None, y: str | None = None, series: Collection[str] = ()
) -> Chart:
    """Return a chart of exported rows: one column over another, for each source.

    Memory does not grow with the number of rows.

    Args:
        path: a file, or a folder with the parts of an export; or the URL of one.
        x: column of the horizontal axis; by default the only column of times.
        y: column of the vertical axis; by default the only other column of numbers.
        series: labels or names of the sources to read; all by default.

    Raises:
        ConfigurationError: the format is unknown, a file is damaged or in use, the rows have no such column
            or source, there are no rows, or the default of an axis is ambiguous; the URL is invalid, or a
            package is missing.
        ExportError: a file at a URL cannot be read.
        OSError: a file cannot be read.

    """
    storage, place, names = _found(path)
    with ExitStack() as stack:
        stack.callback(storage.close)  # deletes the copies of files at a URL
        files = [(name, storage.address(name), stack.enter_context(storage.fetched(name))) for name in names]
        kinds = _kinds(_rows(files), (x, y) if x and y else ())
        if not kinds:
            raise ConfigurationError(f"{place} has no rows to plot")
        x = _column(place, kinds, "x", "time", x, "")
        y = _column(place, kinds, "y", "number", y, x)
        found = _series(place, _rows(files, (x, y, *LABELS)), x, y, frozenset(series))
    metrics = {next((word for word in label.split("/") if word in UNITS), y) for label in found}
    shown = metrics.pop() if y == "value" and len(metrics) == 1 else y
    title = Path(place).resolve().name
    return Chart(x, shown, found, times=kinds[x] == "time", unit=UNITS.get(shown, ""), title=title)


def _series(
    place: str, rows: Iterable[Row], x: str, y: str, wanted: frozenset[str]
) -> dict[str, list[Point]]:
    """Return the points of each source, or of those that are wanted."""
    series: dict[str, list[Point]] = defaultdict(list)
    labels: dict[str, bool] = {}  # whether each is drawn
    for row in rows:
        named = next((row[name] for name in LABELS if name in row), None)
        label = "" if named is None else str(named)
        if label not in labels:
            labels[label] = not wanted or not wanted.isdisjoint((label, name_of(label)))
        (across_kind, across), (up_kind, up) = _coordinate(row.get(x)), _coordinate(row.get(y))
        if labels[label] and "other" not in (across_kind, up_kind):
            points = series[label]
            points.append((across, up))
            if len(points) >= MANY:
                points[:] = visible(points)
    if missing := sorted(wanted.difference(labels, map(name_of, labels))):
        some = ", ".join(printable(label, 40) for label in sorted(labels)[:LISTED])
        more = f" and {len(labels) - LISTED:,} more" if len(labels) > LISTED else ""
        raise ConfigurationError(f"{place} has no rows of {missing[0]!r}; its sources are {some}{more}")
    if not series:
        raise ConfigurationError(f"{place} has no row with a number in {x!r} and in {y!r}")
    return {label: visible(points) for label, points in series.items()}


# Columns


def _kinds(rows: Iterable[Row], named: Collection[str]) -> dict[str, str]:
    """Return the kind of each column: "time", "number" or "other".

    The first rows decide; of a column without a value in them, the first value after them.
    """
    found: dict[str, set[str]] = {}
    for count, row in enumerate(rows):
        if count >= SAMPLE and all(found.get(name) for name in named or found):
            break
        for name, value in row.items():
            kinds = found.setdefault(name, set())
            if value is not None and (count < SAMPLE or not kinds):
                kinds.add(_coordinate(value)[0])
    return {name: _kind(name, kinds) for name, kinds in found.items()}


def _kind(name: str, kinds: Collection[str]) -> str:
    """Return the kind of a column by the kinds of its values."""
    if not kinds or "other" in kinds:
        return "other"
    return "time" if kinds == {"time"} or name.lower().endswith("timestamp") else "number"


def _column(place: str, kinds: Mapping[str, str], axis: str, kind: str, named: str | None, but: str) -> str:
    """Return the column of an axis: the named one, or the only other one of a kind."""
    drawn = {name: kind for name, kind in kinds.items() if kind != "other" and name not in LABELS}
    names = [named] if named else [name for name, found in drawn.items() if found == kind and name != but]
    if len(names) == 1 and names[0] in drawn:
        return names[0]
    found = f"no column {named!r} to draw" if named else f"{len(names) or 'no'} columns of {kind}s"
    listed = ", ".join(f"{printable(name)} ({kind})" for name, kind in drawn.items())
    raise ConfigurationError(
        f"{place} has {found}: choose a column with {axis}= (--{axis}); there are {listed or 'none'}"
    )


_DIGITS = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def _coordinate(value: Any) -> tuple[str, float]:
    """Return the kind of a value, and where on an axis it is; times are seconds."""
    try:
        if isinstance(value, str) and _TIME.fullmatch(value):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return "time", (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        is_text = isinstance(value, str) and _DIGITS.fullmatch(value)
        if is_text or is_of(value, (int, float, Decimal)):
            number = float(value)
            return ("number", number) if abs(number) <= HUGE else ("other", 0.0)
    except (ValueError, OverflowError):  # such as the 31st of February
        pass
    return "other", 0.0


# Files


def _found(given: Path | str) -> tuple[Storage, str, list[str]]:
    """Return the folder of the files, the address given, and their names.

    A URL is a folder if it ends with a slash, or without a suffix of a format.
    """
    url, (folder, _, name) = str(given), str(given).rpartition("/")
    if "://" in url and suffix_format(name):
        checked_url(url, ())  # as a whole: the name may have a password
        return target_of(f"{folder}/", None).storage, url, [name]
    target = target_of(given, None)
    if isinstance(target.address, Path):
        target.address.stat()  # its error names what is missing
    names = [target.name] if target.name else _with_rows(target.storage)
    return target.storage, str(target.address), names


def _with_rows(folder: Storage) -> list[str]:
    """Return the names of the files with rows in a folder, without hidden ones."""
    names = folder.names(below=True)
    found = [name for name in names if suffix_format(name) and not re.search(r"(^|/)[_.]", name)]
    formats = sorted({f".{suffix_format(name)}" for name in found})
    if len(formats) > 1:
        fault = f"files of several formats ({', '.join(formats)}): name one of them"
        raise ConfigurationError(f"{folder.address()} has {fault}")
    if not found:
        raise ConfigurationError(f"{folder.address()} has no files of rows ({', '.join(FORMATS)}) to plot")
    return found


def _rows(files: Iterable[tuple[str, str, Path]], columns: Collection[str] = ()) -> Iterator[Row]:
    """Yield the rows of all files; other columns may be left out.

    The name of a folder, such as ``source=43114``, may have the label that the rows lack.
    """
    for name, address, path in files:
        pairs = (folder.partition("=") for folder in name.split("/")[:-1])
        label = {key: "" if value == NULL else unquote(value) for key, _, value in pairs if key in LABELS}
        for row in _read(name, address, path, columns):
            yield {**label, **row} if label else row


# Formats

BATCH_ROWS = 8_192
LONGEST = 64 << 20  # characters of a line, or of a cell
BUSY = 5.0  # seconds to wait for another program to end its transaction


def _read(name: str, address: str, path: Path, columns: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a file; other columns may be left out."""
    form = str(suffix_format(name))
    path.open("rb").close()  # its errors say more than the errors of a database
    try:
        yield from _READERS[form.partition(".")[0]](path, columns)
    except ConfigurationError as error:
        raise ConfigurationError(f"{address} cannot be drawn: {error}") from None
    except ModuleNotFoundError as error:
        raise missing_extra(f"{form} files need", (error.name or "").partition(".")[0], form) from None
    except Exception as error:  # each library has errors of its own
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = printable(str(error).partition("\n")[0], 200)
        raise ConfigurationError(f"{address} is damaged, in use, or not a {form} file: {reason}") from error


def _opened(path: Path) -> Any:
    """Open a text file, plain or compressed."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.open(path)
    return zstandard().open(path) if suffix == ".zst" else path.open("rb")


def _jsonl(path: Path, _columns: Collection[str]) -> Iterator[Row]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _opened(path) as lines:
        yield from map(decode, iter(lambda: lines.readline(LONGEST), b""))


def _csv(path: Path, _columns: Collection[str]) -> Iterator[Row]:
    before = csv.field_size_limit(LONGEST)  # lists in a cell are long
    try:
        with TextIOWrapper(_opened(path), "utf-8-sig", newline="") as lines:
            cells = csv.reader(iter(lambda: lines.readline(LONGEST), ""), strict=True)
            names = next(cells, [])
            for row in cells:
                if len(row) != len(names):
                    raise ValueError(f"line {cells.line_num} has {len(row)} cells, the header {len(names)}")
                yield dict(zip(names, (cell or None for cell in row), strict=True))
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path, columns: Collection[str]) -> Iterator[Row]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as rows:
        for batch in rows.iter_batches(BATCH_ROWS, columns=_chosen(rows.schema_arrow.names, columns)):
            yield from batch.to_pylist()


def _sqlite(path: Path, columns: Collection[str]) -> Iterator[Row]:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None)) as database:
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA query_only = ON")
        listed = database.execute("SELECT lower(name), type, rootpage FROM main.sqlite_master").fetchall()
        stored = [kind == "table" and root > 0 for name, kind, root in listed if name == "rows"]
        info = database.execute("PRAGMA main.table_xinfo(rows)").fetchall()
        _require_plain_table(plain=stored == [True] and not any(hidden for *_, hidden in info))
        yield from _selected(database, "main", [name for _, name, *_ in info], columns)


def _duckdb(path: Path, columns: Collection[str]) -> Iterator[Row]:
    import duckdb

    from chainapi.export.duckdb import SETTINGS

    if path.with_name(f"{path.name}.wal").exists():
        raise ConfigurationError(
            "rows are in the log beside it: open it with DuckDB, run CHECKPOINT, and close it"
        )
    with closing(duckdb.connect(path, read_only=True, config=SETTINGS)) as database:
        # The file may have views with the names of system views, which are named in full.
        query = "SELECT schema_name, {} FROM system.main.{}()"

        def listed(view: str, columns: str) -> list[list[Any]]:
            found = database.execute(query.format(columns, view)).fetchall()
            return [rest for schema, name, *rest in found if (schema, name.lower()) == ("main", "rows")]

        places = listed("duckdb_tables", "table_name, database_name")
        info = listed("duckdb_columns", "table_name, column_name, is_generated")
        _require_plain_table(plain=bool(places) and not any(computed for _, computed in info))
        yield from _selected(database, quoted_name(places[0][0]), [name for name, _ in info], columns)


def _require_plain_table(*, plain: bool) -> None:
    """Refuse rows that the file would have to compute."""
    if not plain:
        raise ConfigurationError(
            "it has no plain table named rows. A view, a virtual table or a generated column would run code"
            " of the file, which may read other files or never end: copy the rows into another file"
        )


def _selected(database: Any, place: str, names: Sequence[str], columns: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a table of a database."""
    names = _chosen(names, columns)
    found = database.execute(f"SELECT {', '.join(map(quoted_name, names))} FROM {place}.rows")  # noqa: S608
    while batch := found.fetchmany(BATCH_ROWS):
        yield from (dict(zip(names, values, strict=True)) for values in batch)


def _chosen(names: Sequence[str], columns: Collection[str]) -> Sequence[str]:
    """Return the columns that are wanted; all of them if these are none."""
    return [name for name in names if name in columns] or names


_READERS: Mapping[str, Callable[[Path, Collection[str]], Iterator[Row]]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
    "sqlite": _sqlite,
    "duckdb": _duckdb,
}
