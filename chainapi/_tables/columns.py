"""Columns of row models: the names and the kinds of their fields.

Formats know the columns alone, and never see models. A column has one kind for ever, so a type too
(`chainapi._tables.types`): it follows from the model and from the choice of amounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from attrs import evolve, frozen

from chainapi._tables.types import A_MODEL, AMOUNT_KINDS, INT64, Amounts, Kind
from chainapi._text import nearest, quoted
from chainapi.errors import ConfigurationError
from chainapi.models.records import Record
from chainapi.models.schema import Field, Type, fields_of, row_classes
from chainapi.models.unions import tags_of

__all__ = [
    "EXTRA",
    "SOURCE",
    "TAKEN",
    "Column",
    "changes",
    "checked_names",
    "chosen_columns",
    "columns_of",
    "described",
    "free_name",
    "has_extra",
    "has_json",
    "named_fields",
]

SOURCE = "source"  # the first column of every file: the label of the series that a row is of
TAKEN = (SOURCE, "rowid")  # of no field: the other is the number of a row in SQLite and DuckDB
EXTRA = "extra"  # the last column of our models: fields that the model does not name


@frozen
class Column:
    """Column: its name, its kind, and the columns in it; every column may hold None.

    - ``integer``: a whole number of 64 bits
    - ``digits``, ``whole``: a whole number as text, as decimal(38, 0) (`Amounts`)
    - ``float``, ``boolean``, ``text``; ``decimal``: an exact fraction, decimal(38, 18)
    - ``time``: Unix time in whole seconds, of the years 1 to 9999
    - ``json``: any JSON value
    - ``struct``: a record, its columns are `fields`; ``list``: its entries are the only one of `fields`
    """

    name: str
    kind: Kind
    fields: tuple[Column, ...] = ()


def columns_of(model: Any, amounts: Amounts = "text") -> tuple[Column, ...]:
    """Return the columns of the rows of a model; empty if the model has no fields.

    A union has one table for all of its kinds. The last column of our records is `EXTRA`.
    """
    if model is str:
        return (Column("value", "text"),)
    kinds = row_classes(model)
    columns = _table(_record(kind, taken=TAKEN) for kind in kinds)
    if has_extra(model):
        columns += (Column(free_name(EXTRA, {column.name.lower() for column in columns}), "json"),)
    return tuple(_chosen(column, AMOUNT_KINDS[amounts]) for column in columns)


def has_json(column: Column) -> bool:
    """Return whether a column has JSON of any type, or a column in it."""
    return column.kind == "json" or any(map(has_json, column.fields))


def chosen_columns(
    columns: Sequence[Column], names: Sequence[str], last: str | None = None
) -> tuple[Column, ...]:
    """Return the columns with these names, in the order of the names.

    The one named `last` is at the end.

    Raises:
        ConfigurationError: a name is unknown or names a nested field, or the rows have no columns.

    """
    if not columns:
        raise ConfigurationError(
            f"fields= does not apply: these rows have no columns; leave it out, or pass {A_MODEL}"
        )
    known = {column.name: column for column in columns}
    faults = [_fault_of(name, known) for name in names if name not in known]
    if faults:
        raise ConfigurationError(f"fields= does not fit the rows: {'; '.join(faults)}")
    return tuple(known[name] for name in sorted(names, key=lambda name: name == last))


def _fault_of(name: str, known: Mapping[str, Column]) -> str:
    """Return why no column has this name, and what to choose instead."""
    if name == SOURCE:
        return f"{SOURCE!r} is always the first column: leave it out"
    outer = known.get(name.partition(".")[0])
    if outer is not None:
        return f"{quoted(name)} is inside of a column: choose {outer.name!r} as a whole"
    near = nearest(name, known)
    return f"{quoted(name)} is no column; {'the nearest are' if near else 'choose from'} " + ", ".join(
        map(repr, near or known)
    )


def checked_names(argument: str, what: str, given: Any) -> tuple[str, ...] | None:
    """Return an argument that is a list of different names, or None.

    Raises:
        ConfigurationError: it is something else.

    """
    if given is None:
        return None
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{argument}= must be a list of {what}s, not {quoted(given)}")
    names = tuple[Any, ...](given)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ConfigurationError(f"{argument}= must have {what}s, not {quoted(wrong[0])}")
    if not names:
        raise ConfigurationError(f"{argument}= has no {what}: leave it out")
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigurationError(f"{argument}= has {quoted(twice)} twice: leave one of them out")
    return names


def has_extra(model: Any) -> bool:
    """Return whether a model has the column `extra`, for fields that it does not name."""
    return bool(tags_of(model)) or any(issubclass(kind, Record) for kind in row_classes(model))


def named_fields(model: type, taken: Iterable[str] = ()) -> Iterator[tuple[str, Field]]:
    """Yield the fields of a record with the names of their columns.

    The names differ from each other and from those in `taken`.
    """
    used = {*taken}
    for field in fields_of(model):
        yield free_name(field.name, used), field


def free_name(attribute: str, used: set[str]) -> str:
    """Return the name of a column, and add it to those in use.

    Databases ignore the case of letters.
    """
    name = attribute.strip("_") or attribute
    while name.lower() in used:
        name += "_"
    used.add(name.lower())
    return name


# Until an export chooses, amounts are ``digits``.

_TEXTS = (datetime, date, time, timedelta, UUID, bytes, bytearray)  # types with a string as their JSON
_KINDS: Mapping[str, Kind] = {
    "boolean": "boolean",
    "integer": "integer",
    "float": "float",
    "decimal": "decimal",
    "text": "text",
}


def _record(model: type, within: tuple[type, ...] = (), taken: Iterable[str] = ()) -> tuple[Column, ...]:
    return tuple(
        _column(name, field.type, (*within, model), field) for name, field in named_fields(model, taken)
    )


def _column(name: str, kind: Type, within: tuple[type, ...], field: Field | None = None) -> Column:
    """Return the column of a value.

    A value that is no `field` is an entry of a list.
    """
    if kind.kind == "list":
        item = _column("item", kind.item, within)
        return Column(name, "json") if item.kind == "json" else Column(name, "list", (item,))
    if kind.kind == "record" and kind.hint not in within and fields_of(kind.hint):
        return Column(name, "struct", _record(kind.hint, within))
    scalar = _scalar(kind)
    if field is not None and scalar == "integer":
        scalar = "time" if field.timestamp else "digits" if field.amount else scalar
    return Column(name, scalar)


def _scalar(kind: Type) -> Kind:
    if kind.kind in ("literal", "enum"):
        values = [value for value in kind.choices if value is not None]
        given = {*map(type, values)}
        if given == {int} and INT64[0] <= min(values) and max(values) <= INT64[1]:
            return "integer"
        return "text" if given == {str} else "json"
    return "text" if kind.hint in _TEXTS else _KINDS.get(kind.kind, "json")


def _merged(one: Column, other: Column) -> Column:
    """Return a column wide enough for both."""
    if one == other:
        return one
    kinds = {one.kind, other.kind}
    if kinds == {"integer", "digits"}:
        return Column(one.name, "digits")
    if kinds == {"struct"}:
        return Column(one.name, "struct", _table([one.fields, other.fields]))
    if kinds == {"list"}:
        item = _merged(one.fields[0], other.fields[0])
        if item.kind != "json":
            return Column(one.name, "list", (item,))
    return Column(one.name, "json")


def _table(kinds: Iterable[Sequence[Column]]) -> tuple[Column, ...]:
    """Return one table for records of several kinds."""
    columns: dict[str, Column] = {}
    for kind in kinds:
        for column in kind:
            columns[column.name] = _merged(columns.get(column.name, column), column)
    return tuple(columns.values())


def _chosen(column: Column, amount: Kind) -> Column:
    fields = tuple(_chosen(field, amount) for field in column.fields)
    return evolve(column, kind=amount if column.kind == "digits" else column.kind, fields=fields)


# Columns that grow

Description: TypeAlias = dict[str, Any]


def described(columns: Sequence[Column]) -> Description:
    """Return the kinds of columns by their names, as a JSON value.

    A record is a dict of the same form, and a list has the description of its entries.
    """
    return {column.name: _described(column) for column in columns}


def _described(column: Column) -> Any:
    if column.kind == "struct":
        return described(column.fields)
    return [_described(column.fields[0])] if column.kind == "list" else column.kind


def changes(old: Description, new: Description, above: str = "") -> list[str]:
    """Return the differences, as phrases, that keep rows of both from sharing a file.

    A column that is new is no such difference: rows without it hold None.
    """
    found: list[str] = []
    for name, kind in old.items():
        if name not in new:
            found.append(f"column {above}{name} is gone")
        else:
            found += _changed(f"{above}{name}", kind, new[name])
    return found


def _changed(path: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return changes(old, new, f"{path}.")
    if isinstance(old, list) and isinstance(new, list):
        return _changed(f"{path}[]", old[0], new[0])
    return [] if old == new else [f"column {path} was {_word(old)}, is {_word(new)}"]


def _word(kind: Any) -> str:
    return "a record" if isinstance(kind, dict) else "a list" if isinstance(kind, list) else str(kind)
