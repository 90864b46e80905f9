"""Values of columns as Python objects, columns of files, errors of all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from attrs import frozen

from chainapi.errors import ConfigurationError, ExportError
from chainapi.export.formats import Dropped
from chainapi.models.timestamps import utc_datetime
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.types import A_MODEL, Kind, bytes_of

__all__ = [
    "DAMAGED",
    "DAY",
    "NESTED",
    "Tally",
    "check_written",
    "date_of",
    "extended",
    "header",
    "kept",
    "loads",
    "lost",
    "not_a_table",
    "parsed",
    "require",
    "typed_row",
    "unlike",
    "value_of",
]

T = TypeVar("T")

NESTED: frozenset[Kind] = frozenset(
    {"json", "struct", "list"}
)  # kinds that are JSON text in files that know no records

loads: Callable[[str | bytes], Any] = msgspec.json.Decoder().decode


# Files and their columns


def header(columns: Sequence[Column], *, source: bool = True) -> list[str]:
    """Return the names of the columns of a file, ``source`` in front if it has it."""
    return [SOURCE, *(column.name for column in columns)][not source :]


def extended(found: Sequence[str], columns: Sequence[Column], *, source: bool = True) -> list[Column] | None:
    """Return the columns of a file in its order, followed by those that it lacks.

    Return None if the file has a column that is not among them, or not ``source`` in front as it should.
    """
    by_name = {column.name: column for column in columns}
    names = found[1:] if source else found
    if (source and list(found[:1]) != [SOURCE]) or not by_name.keys() >= {*names}:
        return None
    return [by_name.pop(name) for name in names] + [*by_name.values()]


def kept(rows: Iterable[T], dropped: Dropped) -> Iterator[T]:
    """Yield the rows of a file without those at some indices."""
    return (row for place, row in enumerate(rows) if place not in dropped)


def require(columns: Sequence[Column], name: str) -> None:
    """Refuse rows whose columns are not known.

    Raises:
        ConfigurationError: `columns` is empty.

    """
    if not columns:
        raise ConfigurationError(
            f"{name} files need columns, and those of these rows are not known: "
            f"name a route, pass {A_MODEL}, or write JSON lines (jsonl)"
        )


def unlike(path: Path, name: str) -> ConfigurationError:
    """Return the error for a file that no export with these columns wrote."""
    return ConfigurationError(f"{path} is not a {name} file of an export with these columns")


def not_a_table(path: Path, what: str) -> ConfigurationError:
    """Return the error for a file whose ``rows`` is a view or a virtual table."""
    return ConfigurationError(
        f"{path} has {what} in place of a table of rows: reading it would run code of the file, which may"
        " read other files or never end. Copy the rows into a table of another file"
    )


# Files that are read back


DAMAGED = -1  # in place of the checksum of a file whose end cannot be read


@frozen
class Tally:
    """Number of rows, and a checksum of their values."""

    rows: int
    checksum: int


KEPT = "All rows are kept in the journal"


def check_written(path: Path, written: Tally, found: Tally, kept: str = KEPT) -> int:
    """Return the number of rows of a file that has what was written.

    Raises:
        ExportError: it has other rows.

    """
    if found == written:
        return found.rows
    difference = (
        "other values in them" if found.rows == written.rows else f"{written.rows:,} were written to it"
    )
    raise lost(path, f"{found.rows:,} rows when it is read back, but {difference}", kept)


def lost(path: Path, found: str, kept: str = KEPT) -> ExportError:
    """Return the error for a file that has something else than was written."""
    return ExportError(
        f"{path} has {found}: the disk or the file system lost some of them. {kept}: check the disk, and "
        "start the same export again"
    )


# Values


DAY = 86_400  # seconds
_EPOCH = date(1970, 1, 1).toordinal()


@lru_cache(maxsize=4_096)
def date_of(day: int) -> str:
    """Return the date of a day, counted from 1970, in ISO 8601."""
    return date.fromordinal(_EPOCH + day).isoformat()


def typed_row(
    row: Mapping[str, Any], columns: Sequence[Column], *, json_texts: bool = False
) -> dict[str, Any]:
    """Return a row of a file with the kinds of its columns.

    A column that the file lacks is None, except ``source``. With `json_texts`, ``json`` values are strings.
    """
    values = {
        column.name: value_of(column, row.get(column.name), json_texts=json_texts) for column in columns
    }
    return {SOURCE: row[SOURCE], **values} if SOURCE in row else values


def parsed(row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """Return a row of a file that has records, lists and other JSON as JSON text."""
    nested = {column.name for column in columns if column.kind in NESTED}
    return {name: loads(value) if value and name in nested else value for name, value in row.items()}


def value_of(column: Column, value: Any, *, json_texts: bool = False) -> Any:
    """Return the value of a column as a Python object."""
    if value is None:
        return None
    if column.kind == "struct":
        return {
            field.name: value_of(field, value.get(field.name), json_texts=json_texts)
            for field in column.fields
        }
    if column.kind == "list":
        return [value_of(column.fields[0], item, json_texts=json_texts) for item in value]
    if column.kind == "json":
        return loads(value) if json_texts else value
    return _SCALARS[column.kind](value)


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, str) and value.endswith("Z"):
        return datetime.fromisoformat(value)
    return utc_datetime(int(value))


def _boolean(value: Any) -> bool:
    return value == "true" if isinstance(value, str) else bool(value)


def _bytes32(value: Any) -> int:
    return int.from_bytes(bytes_of(value) if isinstance(value, str) else value, "big")


_SCALARS: Mapping[Kind, Callable[[Any], Any]] = {
    "integer": int,
    "digits": int,
    "whole": int,
    "bytes32": _bytes32,
    "float": float,
    "decimal": Decimal,
    "boolean": _boolean,
    "text": str,
    "time": _time,
}
