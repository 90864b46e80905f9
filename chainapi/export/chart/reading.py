"""Charts of files that may come from anywhere: nothing in them is executed.

One pass finds the kinds of the columns, a second one reads the points.
"""

from __future__ import annotations

import csv
import math
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from errno import ENOENT
from gzip import GzipFile
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec

from chainapi._text import printable
from chainapi.core.extras import missing_extra
from chainapi.core.numbers import is_of
from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.chart.series import MANY, Chart, Point, name_of, scaled, visible
from chainapi.export.text import zstandard

__all__ = ["read_chart"]

Row: TypeAlias = Mapping[str, Any]

SAMPLE = 1_000  # first rows, which decide the kind of each column that has a value in them
LISTED = 5  # labels in an error message
LABELS = ("source", "chain")  # columns that name a series: of exports, of the output of `chainapi tps`
NULL = "__HIVE_DEFAULT_PARTITION__"
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
    with _local(path) as place:
        files = _files_in(place)
        with closing(_rows(place, files)) as rows:
            kinds = _kinds(rows, (x, y) if x and y else ())
        if not kinds:
            raise ConfigurationError(f"{place} has no rows to plot")
        x = _column(place, kinds, "x", "time", x, "")
        y = _column(place, kinds, "y", "number", y, x)
        found = _series(place, _rows(place, files, (x, y, *LABELS)), x, y, frozenset(series))
        metrics = {next((word for word in label.split("/") if word in UNITS), y) for label in found}
        shown = metrics.pop() if y == "value" and len(metrics) == 1 else y
        times, title = kinds[x] == "time", place.resolve().name
        return scaled(Chart(x, shown, found, times=times, unit=UNITS.get(shown, ""), title=title))


def _series(
    place: Path, rows: Iterable[Row], x: str, y: str, wanted: frozenset[str]
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
    """Return the kind of each column: "time", "number", "other", or empty.

    The first rows decide; of a column without a value in them, the first value after them.
    """
    kinds: dict[str, str] = {}
    for count, row in enumerate(rows):
        if count >= SAMPLE and all(kinds.get(name) for name in named or kinds):
            break
        for name, value in row.items():
            before = kinds.setdefault(name, "")
            if value is not None and (count < SAMPLE or not before):
                kind, _ = _coordinate(value)
                mixed = "other" if "other" in (before, kind) else "number"
                kinds[name] = kind if before in ("", kind) else mixed
    for name, kind in kinds.items():
        if kind == "number" and name.lower().endswith("timestamp"):
            kinds[name] = "time"
    return kinds


def _column(place: Path, kinds: Mapping[str, str], axis: str, kind: str, named: str | None, but: str) -> str:
    """Return the column of an axis: the named one, or the only other one of a kind."""
    drawn = {name: kind for name, kind in kinds.items() if kind in ("time", "number") and name not in LABELS}
    names = [named] if named else [name for name, found in drawn.items() if found == kind and name != but]
    if len(names) == 1 and names[0] in drawn:
        return names[0]
    found = f"no column {named!r} to draw" if named else f"{len(names) or 'no'} columns of {kind}s"
    listed = ", ".join(f"{printable(name)} ({kind})" for name, kind in drawn.items())
    raise ConfigurationError(f"{place} has {found}: choose a column for {axis}; there are {listed or 'none'}")


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
        number = float(value) if is_text or is_of(value, (int, float, Decimal)) else math.nan
    except (ValueError, OverflowError):  # such as the 31st of February
        number = math.nan
    return ("number", number) if math.isfinite(number) else ("other", 0.0)


# Files and folders


@contextmanager
def _local(given: Path | str) -> Iterator[Path]:
    """Yield the local path of a file or folder; one at a URL is downloaded."""
    url = str(given)
    if "://" not in url:
        yield Path(given)
        return
    shown = _PASSWORD.sub("://", url.partition("?")[0])
    if shown != url or "::" in url:
        raise ConfigurationError(
            f"{shown} was given with a password, a query or several file systems: pass credentials in the"
            " environment or the configuration of one file system"
        )
    with TemporaryDirectory(prefix="chainapi-") as folder:
        try:
            copy = _download(url, folder)
        except ConfigurationError:
            raise
        except FileNotFoundError:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), url) from None
        except Exception as error:  # noqa: BLE001 - a driver may show credentials
            if isinstance(error, ImportError) and (error.name or "").startswith("fsspec"):
                raise missing_extra(f"{url} needs", "fsspec", "fsspec") from None
            if isinstance(error, ImportError) or "Protocol not known" in str(error):
                raise ConfigurationError(f"{url} cannot be opened by fsspec: {error}") from None
            reason = isinstance(error, OSError) and error.errno and os.strerror(error.errno)
            raise ExportError(f"{url} cannot be read: {reason or type(error).__name__}") from None
        try:
            yield copy
        except ConfigurationError as error:  # which names the copy
            raise ConfigurationError(str(error).replace(str(copy), url.rstrip("/"))) from None


_PASSWORD = re.compile(r"://[^/]*:[^/]*@")


def _download(url: str, folder: str) -> Path:
    """Copy what is at a URL, unless it is a local file, and return its path."""
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

    system, path = url_to_fs(url)
    if isinstance(system, LocalFileSystem):
        return Path(path)
    path = path.rstrip("/")
    copy = Path(folder, path.rpartition("/")[2] or "files")
    system.invalidate_cache()
    if _format_of(path) and not url.endswith("/"):
        system.get_file(path, str(copy))
        return copy
    for name in _rows_in(url, (found.removeprefix(path).lstrip("/") for found in system.find(path))):
        target = Path(copy, name)
        if target.resolve().is_relative_to(copy.resolve()):  # an object may have any name
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(f"{path}/{name}", str(target))
    return copy


def _files_in(place: Path) -> Sequence[str]:
    """Return the files of rows below a folder; for a file, an empty name."""
    if place.is_dir():
        found = (path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
        return _rows_in(str(place), found)
    if not place.exists() and (_format_of(place.name) or not place.suffix):
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(place))
    if not _format_of(place.name):
        raise ConfigurationError(f"unknown file format {str(place)!r}: choose one of {', '.join(FORMATS)}")
    return [""]


def _rows_in(place: str, names: Iterable[str]) -> list[str]:
    """Return the files of rows, without hidden ones and those of other tools."""
    found = sorted(name for name in names if _format_of(name) and not re.search(r"(^|/)[_.]", name))
    formats = sorted({f".{_format_of(name)}" for name in found})
    if not formats:
        raise ConfigurationError(f"{place} has no files of rows ({', '.join(FORMATS)}) to plot")
    if len(formats) > 1:
        raise ConfigurationError(
            f"{place} has files of several formats ({', '.join(formats)}): name one of them"
        )
    return found


def _rows(place: Path, files: Sequence[str], columns: Collection[str] = ()) -> Generator[Row, None, None]:
    """Yield the rows of all files; other columns may be left out.

    The name of a folder, such as ``source=43114``, may have the label that the rows lack.
    """
    for name in files:
        pairs = (folder.partition("=") for folder in name.split("/")[:-1])
        label = {key: "" if value == NULL else unquote(value) for key, _, value in pairs if key in LABELS}
        for row in _read(place / name, columns):
            yield {**label, **row} if label else row


# Formats

FORMATS = ("jsonl", "csv", "parquet", "sqlite", "duckdb", "jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst")
BATCH_ROWS = 8_192
LONGEST = 64 << 20  # characters of a line, or of a cell
BUSY = 5.0  # seconds to wait for another program to end its transaction
CONFINED: dict[str, Any] = {
    "memory_limit": "512MB",
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}


def _format_of(path: str) -> str | None:
    first, *suffixes = path.rpartition("/")[2].lower().split(".")
    for count in (2, 1):
        name = ".".join(suffixes[-count:])
        if name in FORMATS and (first or len(suffixes) > count):
            return name
    return None


def _read(path: Path, columns: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a file; other columns may be left out."""
    name = str(_format_of(path.name))
    path.open("rb").close()  # its errors say more than those of a database
    try:
        yield from _READERS[name.partition(".")[0]](path, columns)
    except ConfigurationError:
        raise
    except ModuleNotFoundError as error:
        raise missing_extra(f"{name} files need", (error.name or "").partition(".")[0], name) from None
    except Exception as error:  # each library has errors of its own
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = printable(str(error).partition("\n")[0], 200)
        raise ConfigurationError(f"{path} is damaged, in use, or not a {name} file: {reason}") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a text file, plain or compressed."""
    suffix = path.suffix.lower()
    with path.open("rb") as raw:
        file: Any = GzipFile(fileobj=raw) if suffix == ".gz" else raw
        with zstandard().ZstdFile(raw) if suffix == ".zst" else file as text:
            yield text


def _jsonl(path: Path, _columns: Collection[str]) -> Iterator[Row]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _opened(path) as file:
        yield from map(decode, iter(lambda: file.readline(LONGEST), b""))


def _csv(path: Path, _columns: Collection[str]) -> Iterator[Row]:
    before = csv.field_size_limit(LONGEST)  # lists in a cell are long
    try:
        with _opened(path) as file, TextIOWrapper(file, "utf-8-sig", newline="") as text:
            cells = csv.reader(iter(lambda: text.readline(LONGEST), ""), strict=True)
            names = next(cells, [])
            for row in cells:
                yield dict(zip(names, (cell or None for cell in row), strict=True))
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path, columns: Collection[str]) -> Iterator[Row]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=_chosen(file.schema_arrow.names, columns)):
            yield from batch.to_pylist()


def _sqlite(path: Path, columns: Collection[str]) -> Iterator[Row]:
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None)) as database:
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA query_only = ON")
        listed = database.execute("SELECT lower(name), type, rootpage FROM main.sqlite_master").fetchall()
        stored = [kind == "table" and root > 0 for name, kind, root in listed if name == "rows"]
        info = database.execute("PRAGMA main.table_xinfo(rows)").fetchall()
        _check_plain(stored == [True] and not any(hidden for *_, hidden in info), path)
        yield from _selected(database, "main", [name for _, name, *_ in info], columns)


def _duckdb(path: Path, columns: Collection[str]) -> Iterator[Row]:
    import duckdb

    if path.with_name(f"{path.name}.wal").exists():
        raise ValueError("rows are in the log beside it: open it with DuckDB, run CHECKPOINT, and close it")
    with closing(duckdb.connect(path, read_only=True, config=CONFINED)) as database:
        # The file may have views of the same names as those of the system, which are named in full.
        query = "SELECT schema_name, {} FROM system.main.{}()"

        def listed(view: str, columns: str) -> list[list[Any]]:
            found = database.execute(query.format(columns, view)).fetchall()
            return [rest for schema, name, *rest in found if (schema, name.lower()) == ("main", "rows")]

        places = listed("duckdb_tables", "table_name, database_name")
        info = listed("duckdb_columns", "table_name, column_name, is_generated")
        _check_plain(bool(places) and not any(computed for _, computed in info), path)
        yield from _selected(database, _quoted(places[0][0]), [name for name, _ in info], columns)


def _check_plain(plain: bool, path: Path) -> None:
    """Refuse rows that the file would have to compute."""
    if not plain:
        raise ConfigurationError(
            f"{path} has no plain table named rows. A view, a virtual table or a generated column would run"
            " code of the file, which may read other files or never end: copy the rows into another file"
        )


def _selected(database: Any, place: str, names: Sequence[str], columns: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a table of a database."""
    names = _chosen(names, columns)
    found = database.execute(f"SELECT {', '.join(map(_quoted, names))} FROM {place}.rows")  # noqa: S608
    while batch := found.fetchmany(BATCH_ROWS):
        yield from (dict(zip(names, values, strict=True)) for values in batch)


def _chosen(names: Sequence[str], columns: Collection[str]) -> Sequence[str]:
    """Return the columns that are wanted; all of them if these are none."""
    return [name for name in names if name in columns] or names


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_READERS: Mapping[str, Callable[[Path, Collection[str]], Iterator[Row]]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
    "sqlite": _sqlite,
    "duckdb": _duckdb,
}
