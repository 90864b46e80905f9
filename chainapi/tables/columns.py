"""Columns of row models, rows as JSON objects, and the values of their columns.

A row is encoded as JSON once, when it is fetched; file formats never see models. The columns define what
formats have in common: the name and the kind of each field, and whether a whole number often does not fit
into 64 bits (`chainapi.models.schema.is_amount`).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec
from attrs import frozen

from chainapi.core.numbers import is_number, whole_of
from chainapi.errors import ConfigurationError
from chainapi.models.exact_json import encode_json
from chainapi.models.invalid import Invalid
from chainapi.models.records import NULL
from chainapi.models.schema import Field, Type, fields_of, row_classes
from chainapi.models.unions import Unknown, tags_of, wire_name

__all__ = [
    "EXTRA",
    "INVALID",
    "SOURCE",
    "Codec",
    "Column",
    "Kind",
    "json_text",
    "unpacker",
]

Kind: TypeAlias = Literal[
    "integer", "big", "float", "decimal", "boolean", "text", "time", "json", "struct", "list"
]

SOURCE = "source"  # the first column of every file: the label of the series that a row is of
INVALID = b"!"  # before the JSON of an invalid row, which is written to a separate file
EXTRA = "extra"  # in rows of a union: fields of an unknown kind beyond the known columns


@frozen
class Column:
    """Column: its name, its kind, and the columns in it; every column may hold None.

    - ``integer``: a whole number that usually fits into 64 bits; ``big``: one that often does not
    - ``float``, ``boolean``, ``text``; ``decimal``: an exact fraction
    - ``time``: Unix time in whole seconds
    - ``json``: any JSON value
    - ``struct``: a record, its columns are `fields`; ``list``: its entries are the only one of `fields`
    """

    name: str
    kind: Kind
    fields: tuple[Column, ...] = ()


# Columns of models. Beside each column stands its mirror: the type from which msgspec writes its JSON.
# The mirror of a record is a private Struct with the record's attributes under the names of the columns.

_Mirrored: TypeAlias = tuple[Column, Any]

_TEXTS = (datetime, date, time, timedelta, UUID, bytes, bytearray)  # types with a text as their JSON
_KINDS: Mapping[str, Kind] = {
    "boolean": "boolean",
    "integer": "integer",
    "float": "float",
    "decimal": "decimal",
    "text": "text",
}


def _record(
    model: type, within: tuple[type, ...] = (), taken: Iterable[str] = ()
) -> tuple[tuple[Column, ...], Any]:
    """Return the columns of a record and its mirror; no column has a name in `taken`."""
    columns, fields, used = [], [], {*taken}
    for field in fields_of(model):
        column, mirror = _column(_free(field.name, used), field.type, (*within, model), field)
        columns.append(column)
        fields.append((field.name, mirror, msgspec.field(name=column.name, default=None)))
    return tuple(columns), msgspec.defstruct("Mirror", fields, kw_only=True, gc=False)


def _free(attribute: str, used: set[str]) -> str:
    """Return the name of a column; databases ignore the case of letters."""
    name = attribute.strip("_") or attribute
    while name.lower() in used:
        name += "_"
    used.add(name.lower())
    return name


def _column(name: str, kind: Type, within: tuple[type, ...], field: Field | None = None) -> _Mirrored:
    """Return the column of a value, and its mirror.

    A value that is no `field` is an entry of a list.
    """
    if kind.kind == "list":
        return _list(name, _column("item", kind.item, within))
    if kind.kind == "record" and kind.hint not in within and fields_of(kind.hint):
        fields, mirror = _record(kind.hint, within)
        return Column(name, "struct", fields), mirror | None
    scalar = _scalar(kind)
    if field is not None and scalar == "integer":
        scalar = "time" if field.timestamp else "big" if field.amount else scalar
    return Column(name, scalar), Any


def _list(name: str, item: _Mirrored) -> _Mirrored:
    column, mirror = item
    if column.kind == "json":
        return Column(name, "json"), Any
    whole: Any = Any if mirror is Any else types.GenericAlias(list, (mirror,)) | None
    return Column(name, "list", (column,)), whole


def _scalar(kind: Type) -> Kind:
    if kind.kind in ("literal", "enum"):
        given = {type(value) for value in kind.choices if value is not None}
        return "text" if given == {str} else "integer" if given == {int} else "json"
    return "text" if kind.hint in _TEXTS else _KINDS.get(kind.kind, "json")


def _merged(one: Column, other: Column) -> Column:
    """Return a column wide enough for both."""
    if one == other:
        return one
    kinds = {one.kind, other.kind}
    if kinds == {"integer", "big"}:
        return Column(one.name, "big")
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


# JSON of rows.


class Codec:
    """Encoder of rows as JSON objects by column name.

    Whole numbers are exact, decimals are texts. A row of an unknown kind of a union has values in the known
    columns if they fit; its other fields are in the column ``extra``, by their own names.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        tables = {kind: _record(kind, taken=(SOURCE,)) for kind in row_classes(model)}
        self._mirrors = {kind: mirror for kind, (_, mirror) in tables.items()}
        self.columns = _table(columns for columns, _ in tables.values())
        if tags_of(model):
            self.columns += (Column(EXTRA, "json"),)
        elif model is str:
            self.columns = (Column("value", "text"),)
        self._known = {wire_name(column.name): column for column in self.columns if column.name != EXTRA}
        self._check: Callable[[bytes], object] = unpacker(self.columns, nested=True)
        self._check_lines = msgspec.json.Decoder(_struct(self.columns, nested=True)).decode_lines
        self._pages = {kind: types.GenericAlias(list, (mirror,)) for kind, mirror in self._mirrors.items()}

    def encode_lines(self, rows: Sequence[Any]) -> bytes:
        """Return rows as JSON lines, as `encode` encodes each of them.

        Raises:
            ConfigurationError: a value does not fit its column.

        """
        kinds = {type(row) for row in rows}
        page = self._pages.get(next(iter(kinds))) if self.columns and len(kinds) == 1 else None
        if page is None:
            return b"".join(self.encode(row) + b"\n" for row in rows)
        try:
            made = _ENCODER.encode_lines(msgspec.convert(rows, page, from_attributes=True))
            self._check_lines(made)
        except msgspec.ValidationError as error:
            raise self._unfit(error) from None
        return made

    def encode(self, row: Any) -> bytes:
        """Return a row as a JSON object; that of an invalid row begins with `INVALID`.

        Raises:
            ConfigurationError: a value does not fit its column.

        """
        if isinstance(row, Invalid):
            return INVALID + encode_json({"path": row.error.path, "error": row.error.reason, "row": row.raw})
        if not self.columns:
            return encode_json(_as_object(row)) if self.model is None else _ENCODER.encode(_as_object(row))
        mirror = self._mirrors.get(type(row))
        if mirror is None:
            mirror, row = Any, self._without_mirror(row)
        try:
            made = _ENCODER.encode(msgspec.convert(row, mirror, from_attributes=True))
            self._check(made)
        except msgspec.ValidationError as error:
            raise self._unfit(error) from None
        return made

    def _unfit(self, error: msgspec.ValidationError) -> ConfigurationError:
        name = getattr(self.model, "__name__", self.model)
        return ConfigurationError(f"a row of {name} does not fit its columns: {error}")

    def _without_mirror(self, row: Any) -> dict[str, Any]:
        if isinstance(row, Unknown):
            return self._of_unknown(row.raw)
        if self.model is str:
            return {"value": row if isinstance(row, str) else encode_json(row).decode()}
        raise ConfigurationError(f"a row is a {type(row).__name__}, the columns are those of {self.model!r}")

    def _of_unknown(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        extra = dict(raw)
        for wire, column in self._known.items():
            value = _fitting(column.kind, raw.get(wire))
            if value is not None:
                made[column.name] = value
            if value is not None or raw.get(wire) is None:
                extra.pop(wire, None)
        return {**made, EXTRA: msgspec.Raw(encode_json(extra)) if extra else None}


# Values of types that JSON lacks, in models of users, are encoded as their texts.
_ENCODER = msgspec.json.Encoder(decimal_format="string", enc_hook=str)


def _as_object(row: Any) -> Any:
    """Return a row without columns as a JSON object.

    The name ``source`` stays free for the label.
    """
    if not isinstance(row, dict):
        return {"value": row} if isinstance(row, str | int | float | Decimal | list | None) else row
    if SOURCE not in row:
        return row
    used = {name.lower() for name in row}
    return {_free(SOURCE, used) if name == SOURCE else name: value for name, value in row.items()}


def _fitting(kind: Kind, value: Any) -> Any:
    """Return a JSON value for a column of this kind, or None if it does not fit.

    A value that would have to change does not fit.
    """
    if kind in ("integer", "big", "time"):
        return whole_of(value)
    if kind == "float" and is_number(value):
        return value if abs(value) < 2**53 or value == _nearest_float(value) else None
    if kind == "decimal" and type(value) in (int, float, str, Decimal):
        return _decimal_text(str(value))
    if kind == "json":
        return None if value is None else msgspec.Raw(encode_json(value))
    return value if type(value) is _PLAIN.get(kind) else None


def _nearest_float(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


_PLAIN: Mapping[Kind, type] = {"text": str, "boolean": bool}


def _decimal_text(text: str) -> str | None:
    try:
        return text if Decimal(text).is_finite() else None
    except InvalidOperation:
        return None


# Values of columns.


def unpacker(columns: Sequence[Column], *, nested: bool) -> Callable[[bytes], tuple[Any, ...]]:
    """Return a function from an encoded row to its values, in column order.

    The row is as `Codec` encodes it. Whole numbers and times are int, decimals are texts, and a value of a
    ``json`` column is raw JSON, for `json_text`. Records and lists are raw JSON too; with `nested`, a record
    is a Struct, whose values `msgspec.structs.astuple` returns in the order of its columns.
    """
    decoder = msgspec.json.Decoder(_struct(columns, nested))

    def unpack(row: bytes) -> tuple[Any, ...]:
        return msgspec.structs.astuple(decoder.decode(row))

    return unpack


def json_text(raw: msgspec.Raw | None) -> str | None:
    """Return raw JSON as text, null as None."""
    return None if raw is None or raw == NULL else bytes(raw).decode()


_SCALARS: Mapping[Kind, Any] = {
    "integer": int | None,
    "big": int | None,
    "time": int | None,
    "float": float | None,
    "boolean": bool | None,
    "decimal": str | None,
    "text": str | None,
}


def _struct(columns: Sequence[Column], nested: bool) -> Any:
    fields = [
        (f"c{number}", _wire(column, nested), msgspec.field(name=column.name, default=None))
        for number, column in enumerate(columns)
    ]
    return msgspec.defstruct("Row", fields, gc=False)


def _wire(column: Column, nested: bool) -> Any:
    if column.kind in _SCALARS:
        return _SCALARS[column.kind]
    if nested and column.kind == "struct":
        return _struct(column.fields, nested) | None
    if nested and column.kind == "list":
        return types.GenericAlias(list, (_wire(column.fields[0], nested),)) | None
    return msgspec.Raw
