"""Column values as Python objects, and shared errors of the file formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from chainapi.errors import ConfigurationError
from chainapi.models.timestamps import utc_datetime
from chainapi.tables.columns import SOURCE, Column

__all__ = ["NESTED", "header", "loads", "not_a_table", "require", "unlike", "value_of"]

NESTED = frozenset({"json", "struct", "list"})  # kinds that are JSON text in files that know no records

loads: Callable[[str | bytes], Any] = msgspec.json.Decoder().decode


def header(columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns of a file."""
    return [SOURCE, *(column.name for column in columns)]


def require(columns: Sequence[Column], name: str) -> None:
    """Refuse rows whose columns are not known.

    Raises:
        ConfigurationError: `columns` is empty.

    """
    if not columns:
        raise ConfigurationError(
            f"{name} files need columns, and those of these rows are not known: "
            "name a route, pass model= with a class, or write JSON lines (jsonl)"
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


def value_of(column: Column, value: Any, *, json_texts: bool = False) -> Any:
    """Return the value of a column as a Python object.

    With `json_texts`, ``json`` values are texts.
    """
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


def _time(value: Any) -> datetime | int:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, str) and value.endswith("Z"):
        return datetime.fromisoformat(value)
    try:
        return utc_datetime(int(value))
    except ValueError:
        return int(value)


def _boolean(value: Any) -> bool:
    return value == "true" if isinstance(value, str) else bool(value)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "integer": int,
    "big": int,
    "float": float,
    "decimal": Decimal,
    "boolean": _boolean,
    "text": str,
    "time": _time,
}
