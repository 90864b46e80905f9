"""Shapes of records: Structs with their attributes, by the names of columns.

msgspec checks a page of rows by converting it into such Structs, and encodes those. In between, amounts and
decimals become strings. An exact shape checks values as the model does; its Structs replace rows of the model
(`chainapi.tables.structs`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import repeat
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, TypeAlias

import attrs
import msgspec
from msgspec.structs import astuple

from chainapi.models.exact_json import encode_json
from chainapi.models.plain import to_dict
from chainapi.models.records import unnamed
from chainapi.models.row_type import Maker
from chainapi.models.schema import Field, Type, list_of
from chainapi.tables.columns import SOURCE, TAKEN, Column, has_json, named_fields
from chainapi.tables.rows import count_lines
from chainapi.tables.types import INT64, YEARS, Kind, double_of, fraction_text, hexadecimal, whole_text
from chainapi.tables.values import Values, packed

__all__ = ["Misfit", "Shape", "encoded_line", "has_code", "text_of"]

# Values of types that JSON lacks, in models of users, are encoded as strings by `str`.
ENCODER = msgspec.json.Encoder(decimal_format="string", enc_hook=str)

LABEL, UNNAMED = "_label", "_unnamed"  # attributes of a row beside those of its record


class Shape:
    """Struct with the attributes of a record, under the names of its columns.

    Attributes:
        struct: the Struct; an exact one of a row has the label and the unnamed fields too.
        columns: columns by name.
        attributes: name of the attribute of each column of the record.
        inner: shapes of the records in it, by column.
        hidden: columns of the fields that the repr of the record does not show.
        changes: column, attribute and change of the values that take another form.

    Args:
        model: class of the record.
        columns: columns by name; those of other records are left out.
        row: whether the record is a row, not a value in one.
        extra: name of the column of unnamed fields; None without one.
        exact: whether values are checked as the model checks them, and not by their columns alone.
        as_json: whether `change` makes raw JSON of values of ``json`` columns, if the shape is exact.

    Raises:
        TypeError: the shape is exact, and values of the model need more than msgspec checks.

    """

    def __init__(
        self,
        model: type,
        columns: Mapping[str, Column],
        *,
        row: bool = False,
        extra: str | None = None,
        exact: bool = False,
        as_json: bool = False,
    ) -> None:
        if exact and has_code(model):
            raise TypeError(f"{model.__name__} has code that runs when an object is made")
        self.columns = columns
        self.attributes: dict[str, str] = {}
        self.inner: dict[str, Shape] = {}
        self.hidden = set[str]()
        self.changes = list[tuple[str, str, _Change]]()
        self._exact, self._extra, self._as_json = exact, extra, as_json
        named = dict(named_fields(model, TAKEN if row else ()))
        fields = [self._field(name, named[name]) for name in columns if name in named]
        if exact and row:
            fields = _with_more(fields, extra)
        # Keys of rows of several kinds are found by the name of their class.
        self.struct = msgspec.defstruct(model.__name__, fields, kw_only=True, gc=False)
        self._several = list_of(self.struct)
        self._copy: Callable[[Any], Any] = self.struct.__copy__  # type: ignore[attr-defined]
        # Raw JSON is in columns of any JSON alone; what is encoded of other values has no line ends.
        raw = any(has_json(columns[name]) for name in self.attributes)
        self._lines: Callable[[Sequence[Any]], bytes] = encoded_lines if raw else ENCODER.encode_lines

    @property
    def maker(self) -> Maker:
        """Maker of the Structs, which checks their values."""
        return Maker(self.of, self.struct)

    def of(self, rows: Sequence[Any]) -> list[Any]:
        """Return the Structs of records, or of other Structs with their attributes.

        Raises msgspec.ValidationError if a value does not fit its column.
        """
        made: list[Any] = msgspec.convert(rows, self._several, from_attributes=True)
        return made

    def encode(self, rows: Sequence[Any], label: str | None = None) -> bytes:
        """Return rows as JSON lines, with the label of their source in front.

        Raises msgspec.ValidationError or Misfit if a value does not fit its column.
        """
        if type(rows[0]) is not self.struct:
            lines = self._lines(self._changed(self.of(rows)))
            return self._completed(rows, lines, label)
        made = self._changed([*rows])
        if label is not None:
            _set(made, LABEL, repeat(label))
        return self._lines(made)

    def _completed(self, rows: Sequence[Any], lines: bytes, label: str | None) -> bytes:
        """Add label and unnamed fields to the JSON of rows."""
        if label is None and self._extra is None:
            return lines
        head = b"{" if label is None else b'{"%b":%b' % (SOURCE.encode(), msgspec.json.encode(label))
        before = head if label is None else head + b","
        made = list[bytes]()
        for row, line in zip(rows, lines.split(b"\n"), strict=False):
            made.append(head if line == b"{}" else before + line[1:-1])
            if self._extra is not None:
                found = {} if getattr(row, "_extra", msgspec.UNSET) is msgspec.UNSET else unnamed(row)
                more = b"" if made[-1] == b"{" else b","
                name = msgspec.json.encode(self._extra)
                made.append(b"%b%b:%b" % (more, name, encode_json(found) if found else b"null"))
            made.append(b"}\n")
        return b"".join(made)

    def values(self, rows: Sequence[Any], columns: Iterable[Column]) -> list[Values]:
        """Return the values of columns of the record, packed if that is possible.

        Raises msgspec.ValidationError or Misfit if a value does not fit its column.
        """
        given = rows if type(rows[0]) is self.struct else self.of(rows)
        parts = zip(*map(astuple, given), strict=True)
        found = dict(zip(self.struct.__struct_fields__, parts, strict=True))
        changes = {name: change for name, _, change in self.changes}
        made = list[Values]()
        for column in columns:
            values = found[self.attributes[column.name]]
            if column.kind == "digits" and isinstance(numbers := packed("integer", values), bytes):
                made.append(numbers)  # Arrow makes strings of them
            else:
                change = changes.get(column.name)
                made.append(packed(column.kind, values if change is None else change([*values])))
        return made

    def change(self, rows: list[Any]) -> list[Any]:
        """Return copies of Structs with the forms of their columns; some may be None.

        Raises Misfit if a value has no form.
        """
        if NoneType not in {*map(type, rows)}:  # comparing Structs with None takes longer
            return self._changed(rows)
        places = [place for place, row in enumerate(rows) if row is not None]
        try:
            copies = iter(self._changed([rows[place] for place in places]))
        except Misfit as misfit:
            raise Misfit(places[misfit.place], misfit.path) from None
        return [None if row is None else next(copies) for row in rows]

    def _changed(self, rows: list[Any]) -> list[Any]:
        if not rows or not self.changes:
            return rows
        copies = [*map(self._copy, rows)]
        for name, attribute, change in self.changes:
            try:
                values = change([*map(attrgetter(attribute), rows)])
            except Misfit as misfit:
                raise Misfit(misfit.place, f".{name}{misfit.path}") from None
            _set(copies, attribute, values)
        return copies

    def at(self, row: Any, path: str) -> tuple[Column | None, Any, bool]:
        """Return the column at a path, such as ``.inners[0].value``, and the value there.

        The last value is whether the repr of the row shows it.
        """
        shape: Shape | None = self
        column: Column | None = None
        shown = True
        for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
            if index:
                column, row = column and column.fields[0], [*row][int(index)]
            elif shape is not None:
                column, row = shape.columns[name], getattr(row, shape.attributes[name])
                shown = shown and name not in shape.hidden
                shape = shape.inner.get(name)
        return column, row, shown

    def path_of(self, attributes: str) -> str:
        """Return the path of columns for a path of attributes, as msgspec reports it."""
        shape: Shape | None = self

        def column(found: re.Match[str]) -> str:
            nonlocal shape
            name = found[1]
            if shape is not None:
                name = next((one for one, attribute in shape.attributes.items() if attribute == name), name)
                shape = shape.inner.get(name)
            return f".{name}"

        return re.sub(r"\.([^.\[]+)", column, attributes)

    def _field(self, name: str, field: Field) -> tuple[str, Any, Any]:
        """Return a field of the Struct; keep its attribute and its change."""
        self.attributes[name] = field.name
        if not field.shown:
            self.hidden.add(name)
        kind, change = self._type(self.columns[name], field.type, name)
        if change is not None:
            self.changes.append((name, field.name, change))
        return field.name, kind, _optional(name, None)

    def _type(self, column: Column, kind: Type, name: str) -> tuple[Any, _Change | None]:
        """Return the type of a column's values for the check, and their change."""
        found, change = self._given_type(column, kind, name)
        nullable = found is not Any and (kind.optional or not self._exact)
        return (found | None if nullable else found), change

    def _given_type(self, column: Column, kind: Type, name: str) -> tuple[Any, _Change | None]:
        """Return the type of values that are not None, and their change."""
        if column.kind == "struct":
            columns = {one.name: one for one in column.fields}
            inner = self.inner[name] = Shape(kind.hint, columns, exact=self._exact, as_json=self._as_json)
            return inner.struct, inner.change if inner.changes else None
        if column.kind == "list":
            item, change = self._type(column.fields[0], kind.item, name)
            return list_of(item), None if change is None else partial(_each, change)
        if self._exact:
            checked = _exact_type(column, kind)
        elif column.kind == "json":
            return Any, _json if _is_free(kind) else _dicts if _has_objects(kind) else None
        elif column.kind not in _CHECKED or kind.kind in ("enum", "other"):
            return Any, None
        else:
            checked = _CHECKED[column.kind]
        form: Callable[[Any], Any] | None = _FORMS.get(column.kind)
        if column.kind == "float" and self._exact and kind.kind == "integer":
            form = double_of
        if column.kind == "digits":
            return checked, _digits
        if column.kind == "json" and _is_free(kind):
            return checked, _json
        if column.kind == "json" and self._as_json:
            return checked, _typed_json
        return checked, None if form is None else partial(_formed, form)


_Change: TypeAlias = Callable[[list[Any]], list[Any]]


def encoded_lines(rows: Sequence[Any]) -> bytes:
    """Return rows as JSON lines; raw JSON of a response may have line ends."""
    lines = ENCODER.encode_lines(rows)
    return lines if count_lines(lines) == len(rows) else b"".join(encoded_line(row) + b"\n" for row in rows)


def encoded_line(row: Any) -> bytes:
    """Return a row as JSON without line ends."""
    line = ENCODER.encode(row)
    return msgspec.json.format(line, indent=-1) if b"\n" in line else line


class Misfit(Exception):  # noqa: N818 - becomes an error with the value and the row
    """Value that has no form, at a `path` in one of several rows."""

    def __init__(self, place: int, path: str = "") -> None:
        super().__init__(place, path)
        self.place, self.path = place, path


def text_of(form: Callable[[Any], Any], value: int | Decimal | None, otherwise: str | None = None) -> Any:
    """Return a value in a form; `otherwise` if it has none."""
    try:
        return None if value is None else form(value)
    except ValueError:
        return otherwise


def _with_more(fields: list[tuple[str, Any, Any]], extra: str | None) -> list[tuple[str, Any, Any]]:
    """Return the fields of a row: label, fields of the record, unnamed fields.

    Raises TypeError if the record has an attribute of the same name.
    """
    if {LABEL, UNNAMED} & {name for name, *_ in fields}:
        raise TypeError(f"{LABEL} and {UNNAMED} are attributes of all rows")
    label = (LABEL, Any, _optional(SOURCE, msgspec.UNSET))
    more = [] if extra is None else [(UNNAMED, None, _optional(extra, None))]
    return [label, *fields, *more]


def _optional(name: str, default: Any) -> Any:
    return msgspec.field(name=name, default=default)


def _set(rows: Sequence[Any], attribute: str, values: Any) -> None:
    deque(map(setattr, rows, repeat(attribute), values), maxlen=0)  # a loop in C


def has_code(model: type) -> bool:
    """Check for code that may run when an object is made.

    That is a validator, a hook, or a class that is not one of attrs.
    """
    return (
        not attrs.has(model)
        or any(field.validator is not None for field in attrs.fields(model))
        or any(hasattr(model, name) for name in ("__attrs_pre_init__", "__attrs_post_init__"))
    )


def _exact_type(column: Column, kind: Type) -> Any:
    """Return the type that accepts the values of a model that fit their column.

    Raises TypeError if msgspec does not check them alone, or encodes them in another form.
    """
    if any(isinstance(note, msgspec.Meta) for part in kind.parts() for note in part.notes):
        raise TypeError(f"{kind} has constraints")
    if column.kind in ("integer", "time") and kind.kind == "integer":
        return _CHECKED[column.kind]
    if any(part.kind not in _EXACT for part in kind.parts()):
        raise TypeError(f"{kind} has values that msgspec does not check alone")
    return kind.hint


_EXACT = frozenset(
    {"any", "boolean", "integer", "float", "decimal", "text", "literal", "list", "mapping"}
)  # kinds of types that a Struct checks as the model does


def _formed(form: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    try:
        if NoneType not in {*map(type, values)}:
            return [*map(form, values)]
        return [None if value is None else form(value) for value in values]
    except ValueError:
        place = next(place for place, value in enumerate(values) if text_of(form, value, "") == "")
        raise Misfit(place) from None


def _digits(values: list[Any]) -> list[Any]:
    try:
        # The JSON of a list has all digits; it is many times faster than one string after the other.
        encoded = msgspec.json.encode(values)
    except OverflowError:  # beyond 64 bits
        return _formed(str, values)
    texts: list[Any] = encoded[1:-1].decode().split(",") if values else []
    return [None if text == "null" else text for text in texts] if b"n" in encoded else texts


def _is_free(kind: Type) -> bool:
    """Check for JSON of any type, whose numbers keep their digits.

    A decimal by its type is a string.
    """
    kinds = {part.kind for part in kind.parts()}
    return "any" in kinds and kinds <= {"any", "list", "mapping"}


def _has_objects(kind: Type) -> bool:
    """Check for objects whose fields msgspec does not all encode.

    It leaves out a private attribute of an attrs class, and a default of a dataclass that it has decoded.
    """
    records = [part.hint for part in kind.parts() if part.kind == "record"]
    return any(not issubclass(record, msgspec.Struct) for record in records)


def _dicts(values: list[Any]) -> list[Any]:
    return [*map(to_dict, values)]


def _json(values: list[Any]) -> list[Any]:
    return _RAW.decode(encode_json(values))


def _typed_json(values: list[Any]) -> list[Any]:
    return _RAW.decode(ENCODER.encode(values))


_RAW: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[msgspec.Raw])


def _each(change: _Change, values: list[Any]) -> list[Any]:
    made = list[Any]()
    for place, entries in enumerate(values):
        try:
            made.append(None if entries is None else change(entries))
        except Misfit as misfit:
            raise Misfit(place, f"[{misfit.place}]{misfit.path}") from None
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
_FORMS: Mapping[Kind, Callable[[Any], Any]] = {
    "whole": whole_text,
    "bytes32": hexadecimal,
    "decimal": fraction_text,
}
