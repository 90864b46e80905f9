"""Rows as JSON objects of their columns.

A row is encoded once, when it is fetched. The encoded row is a line of JSON lines without its source; the
other formats decode its values (`chainapi.tables.rows`).
"""

from __future__ import annotations

import re
import types
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from chainapi._text import printable, quoted
from chainapi.core.numbers import is_number, whole_of
from chainapi.errors import ColumnValueError, ConfigurationError
from chainapi.models.exact_json import encode_json
from chainapi.models.invalid import Invalid
from chainapi.models.plain import to_wire
from chainapi.models.records import AnyRecord, unnamed
from chainapi.models.schema import Field, Type, row_classes
from chainapi.models.unions import Unknown, tags_of, wire_name
from chainapi.tables.columns import (
    SOURCE,
    Column,
    chosen_columns,
    columns_of,
    free_name,
    has_extra,
    named_fields,
)
from chainapi.tables.types import INT64, YEARS, Amounts, Kind, fraction_text, hexadecimal, whole_text

__all__ = ["INVALID", "Codec"]

INVALID = b"!"  # before the JSON of an invalid row, which is written to a separate file

# Values of types that JSON lacks, in models of users, are encoded as their texts.
_ENCODER = msgspec.json.Encoder(decimal_format="string", enc_hook=str)


class Codec:
    """Encoder of rows as JSON objects by column name, all columns or chosen ones.

    Amounts have the form of their choice, decimals are texts. Fields that a record does not name are in the
    column ``extra``, by their own names. A row of an unknown kind of a union has values in the known columns
    if they fit, and its other fields in ``extra``.

    Attributes:
        model: model of the rows.
        columns: columns of the rows, or those of `fields` in their order, ``extra`` last; empty if the model
            has no fields.

    Raises:
        ConfigurationError: the rows lack one of the `fields`.

    """

    def __init__(
        self,
        model: Any,
        amounts: Amounts = "text",
        on_invalid: Literal["raise", "raw"] = "raise",
        fields: Sequence[str] | None = None,
    ) -> None:
        self.model = model
        columns = columns_of(model, amounts)
        extra = columns[-1].name if has_extra(model) else None
        self.columns = columns if fields is None else chosen_columns(columns, fields, last=extra)
        self._raw = on_invalid == "raw"
        chosen = {column.name: column for column in self.columns}
        self._extra = extra if extra in chosen else None
        self._shapes = {kind: _Shape(kind, chosen, (SOURCE,), self._extra) for kind in row_classes(model)}
        self._known = {wire_name(one.name): one for one in columns if one.name != extra}

    def encode(self, row: Any) -> bytes:
        """Return a row as a JSON object; that of an invalid row begins with `INVALID`.

        Raises:
            ColumnValueError: a value does not fit its column; with ``on_invalid="raw"`` the row is invalid.
            ConfigurationError: the row is no row of the model.

        """
        return self.encode_lines([row])[:-1]

    def encode_lines(self, rows: Sequence[Any]) -> bytes:
        """Return rows as JSON lines, each encoded as `encode` does.

        Rows of one class are encoded together.

        Raises:
            ColumnValueError: a value does not fit its column; with ``on_invalid="raw"`` its row is invalid.
            ConfigurationError: a row is no row of the model.

        """
        kinds = {*map(type, rows)}
        if len(kinds) == 1:
            return self._encode_alike(kinds.pop(), rows)
        made = [b""] * len(rows)
        for kind in kinds:
            places = [place for place, row in enumerate(rows) if type(row) is kind]
            lines = self._encode_alike(kind, [rows[place] for place in places])
            for place, line in zip(places, lines.split(b"\n"), strict=False):
                made[place] = line
        return b"".join(line + b"\n" for line in made)

    def _encode_alike(self, kind: type, rows: Sequence[Any]) -> bytes:
        """Encode rows of one class."""
        shape = self._shapes.get(kind)
        if shape is None:
            return b"".join(self._encode_other(row) + b"\n" for row in rows)
        try:
            return shape.encode(rows)
        except (msgspec.ValidationError, _Misfit):
            return b"".join(self._encode_one(shape, place, row) for place, row in enumerate(rows))

    def _encode_one(self, shape: _Shape, place: int, row: Any) -> bytes:
        try:
            return shape.encode([row])
        except msgspec.ValidationError as error:
            reason, _, path = str(error).partition(" - at `")
            fault = _fault(shape, row, path.removesuffix("`").removeprefix("$[0]"), reason)
        except _Misfit as misfit:
            fault = _fault(shape, row, misfit.path)
        if self._raw:
            return _invalid(fault.path, fault.reason, to_wire(row)) + b"\n"
        raise fault.changed(row=place, advice=_ADVICE)

    def _encode_other(self, row: Any) -> bytes:
        """Encode a row that is no record of the model."""
        if isinstance(row, Invalid):
            return _invalid(row.error.path, row.error.reason, row.raw)
        if not self.columns:
            return encode_json(_as_object(row)) if self.model is None else _ENCODER.encode(_as_object(row))
        if isinstance(row, Unknown) and tags_of(self.model):
            return _ENCODER.encode(self._of_unknown(row.raw))
        if self.model is str:
            return _ENCODER.encode({"value": row if isinstance(row, str) else encode_json(row).decode()})
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
        if self._extra is not None:
            made[self._extra] = msgspec.Raw(encode_json(extra)) if extra else None
        return {column.name: made[column.name] for column in self.columns if column.name in made}


_ADVICE = 'with on_invalid="raw", such rows go into a file of their own'


def _invalid(path: str, error: str, row: Any) -> bytes:
    return INVALID + encode_json({"path": path, "error": error, "row": row})


def _as_object(row: Any) -> Any:
    """Return a row without columns as a JSON object.

    The name ``source`` stays free for the label.
    """
    if not isinstance(row, dict):
        return {"value": row} if isinstance(row, str | int | float | Decimal | list | None) else row
    if SOURCE not in row:
        return row
    used = {name.lower() for name in row}
    return {free_name(SOURCE, used) if name == SOURCE else name: value for name, value in row.items()}


# Shapes of records. msgspec checks a page of rows by converting it into private Structs, and encodes
# those. In between, amounts and decimals become texts.


class _Shape:
    """Struct with the attributes of a record, under the names of its columns.

    Attributes:
        struct: the Struct.
        columns: columns by name.
        attributes: name of the attribute of each column of the record.
        inner: shapes of the records in it, by column.
        changes: column, attribute and change of the values that take another form.

    """

    def __init__(
        self, model: type, columns: Mapping[str, Column], taken: Sequence[str] = (), extra: str | None = None
    ) -> None:
        self.columns = columns
        self.attributes: dict[str, str] = {}
        self.inner: dict[str, _Shape] = {}
        self.changes = list[tuple[str, str, _Change]]()
        named = dict(named_fields(model, taken))
        fields = [self._field(name, named[name]) for name in columns if name in named]
        comma = "," if fields else ""
        self._extra = b"" if extra is None else f'{comma}"{extra}":'.encode()
        self.struct = msgspec.defstruct("Row", fields, kw_only=True, gc=False)

    def encode(self, rows: Sequence[Any]) -> bytes:
        """Return records as JSON lines.

        Raises msgspec.ValidationError or _Misfit if a value does not fit its column.
        """
        made: list[Any] = msgspec.convert(rows, _list_of(self.struct), from_attributes=True)
        self.change(made)
        lines = _ENCODER.encode_lines(made)
        if not self._extra:
            return lines
        if all(getattr(row, "_extra", None) is None for row in rows):  # nearly always
            nothing = self._extra + b"null}\n"
            return nothing.join([line[:-1] for line in lines.split(b"\n")])
        return b"".join(map(self._with_extra, rows, lines.split(b"\n")))

    def _with_extra(self, row: Any, line: bytes) -> bytes:
        found = unnamed(row) if isinstance(row, AnyRecord) else {}
        return line[:-1] + self._extra + (encode_json(found) if found else b"null") + b"}\n"

    def change(self, rows: list[Any]) -> list[Any]:
        """Give the values of Structs the forms of their columns; some Structs may be None."""
        given = rows if None not in rows else [row for row in rows if row is not None]
        for name, attribute, change in self.changes:
            try:
                values = change([*map(attrgetter(attribute), given)])
            except _Misfit as misfit:
                place = [place for place, row in enumerate(rows) if row is not None][misfit.place]
                raise _Misfit(place, f".{name}{misfit.path}") from None
            deque(map(setattr, given, repeat(attribute), values), maxlen=0)  # a loop in C
        return rows

    def at(self, row: Any, path: str) -> tuple[Column | None, Any]:
        """Return the column at a path, such as ``.inners[0].value``, and the value there."""
        shape: _Shape | None = self
        column: Column | None = None
        for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
            if index:
                column, row = column and column.fields[0], [*row][int(index)]
            elif shape is not None:
                column, row = shape.columns[name], getattr(row, shape.attributes[name])
                shape = shape.inner.get(name)
        return column, row

    def _field(self, name: str, field: Field) -> tuple[str, Any, Any]:
        """Return a field of the Struct; keep its attribute and its change."""
        self.attributes[name] = field.name
        kind, change = self._type(self.columns[name], field.type, name)
        if change is not None:
            self.changes.append((name, field.name, change))
        return field.name, kind, msgspec.field(name=name, default=None)

    def _type(self, column: Column, kind: Type, name: str) -> tuple[Any, _Change | None]:
        """Return the type of a column's values for the check, and their change."""
        if column.kind == "struct":
            inner = self.inner[name] = _Shape(kind.hint, {one.name: one for one in column.fields})
            return inner.struct | None, inner.change if inner.changes else None
        if column.kind == "list":
            item, change = self._type(column.fields[0], kind.item, name)
            return _list_of(item) | None, None if change is None else partial(_each, change)
        if column.kind not in _CHECKED or kind.kind in ("enum", "other"):
            return Any, None
        form = _FORMS.get(column.kind)
        return _CHECKED[column.kind] | None, None if form is None else partial(_formed, form)


_Change: TypeAlias = Callable[[list[Any]], list[Any]]


def _list_of(item: Any) -> Any:
    return types.GenericAlias(list, (item,))


class _Misfit(Exception):  # noqa: N818 - becomes an error with the value and the row
    """Value that has no form, at a `path` in one of several rows."""

    def __init__(self, place: int, path: str = "") -> None:
        super().__init__(place, path)
        self.place, self.path = place, path


def _formed(form: Callable[[Any], str], values: list[Any]) -> list[Any]:
    try:
        if None not in values:
            return [*map(form, values)]
        return [None if value is None else form(value) for value in values]
    except ValueError:
        place = next(place for place, value in enumerate(values) if _text_of(form, value, "") == "")
        raise _Misfit(place) from None


def _each(change: _Change, values: list[Any]) -> list[Any]:
    made = list[Any]()
    for place, entries in enumerate(values):
        try:
            made.append(None if entries is None else change(entries))
        except _Misfit as misfit:
            raise _Misfit(place, f"[{misfit.place}]{misfit.path}") from None
    return made


_CHECKED: Mapping[Kind, Any] = {
    "integer": Annotated[int, msgspec.Meta(ge=INT64[0], le=INT64[1])],
    "time": Annotated[int, msgspec.Meta(ge=YEARS[0], le=YEARS[1])],
    "digits": int,
    "whole": int,
    "bytes32": int,
    "float": float,
    "decimal": Decimal,
    "boolean": bool,
    "text": str,
}
_FORMS: Mapping[Kind, Callable[[Any], str]] = {
    "digits": str,
    "whole": whole_text,
    "bytes32": hexadecimal,
    "decimal": fraction_text,
}


# Faults

_REASONS: Mapping[Kind, str] = {
    "integer": "a whole number that is no amount has at most 64 bits",
    "time": "a time is in the years 1 to 9999",
    "whole": 'amounts="decimal" holds 38 digits; amounts="text" holds every whole number',
    "bytes32": 'amounts="binary" holds unsigned numbers of 256 bits; amounts="text" holds every whole number',
    "float": 'amounts="float" holds numbers up to 1.8e308; amounts="text" holds every whole number',
    "decimal": "a decimal has at most 20 digits before its point and 18 behind it",
}
_SHOWN = 200  # characters of a row in an error message


def _fault(shape: _Shape, row: Any, path: str, reason: str = "") -> ColumnValueError:
    """Return the error of a value in a row.

    The reason for a number is that it is out of the range of its column.
    """
    column, value = shape.at(row, path)
    if column is not None and type(value) in (int, float, Decimal):
        reason = _REASONS.get(column.kind, reason)
    shown = printable(encode_json(to_wire(row)).decode("utf-8", "replace"), _SHOWN)
    text = f"{quoted(value)} does not fit its column: {reason}. The row is {shown}"
    return ColumnValueError(text, path=f"${path}")


# Values of rows of unknown kinds


def _fitting(kind: Kind, value: Any) -> Any:
    """Return a value in the form of a column of this kind, or None if it does not fit.

    A value that would have to change does not fit.
    """
    if kind in ("integer", "time"):
        low, high = INT64 if kind == "integer" else YEARS
        number = whole_of(value)
        return number if number is not None and low <= number <= high else None
    if kind in _WHOLE_TEXTS:
        return _text_of(_WHOLE_TEXTS[kind], whole_of(value))
    if kind == "float" and is_number(value):
        return value if abs(value) < 2**53 or value == _nearest_float(value) else None
    if kind == "decimal" and type(value) in (int, float, str, Decimal):
        return _text_of(fraction_text, _decimal_of(str(value)))
    if kind == "json":
        return None if value is None else msgspec.Raw(encode_json(value))
    return value if type(value) is _PLAIN.get(kind) else None


_WHOLE_TEXTS: Mapping[Kind, Callable[[int], str]] = {
    "digits": str,
    "whole": whole_text,
    "bytes32": hexadecimal,
}
_PLAIN: Mapping[Kind, type] = {"text": str, "boolean": bool}


def _text_of(
    form: Callable[[Any], str], value: int | Decimal | None, otherwise: str | None = None
) -> str | None:
    try:
        return None if value is None else form(value)
    except ValueError:
        return otherwise


def _nearest_float(value: float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _decimal_of(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
