"""Columns of rows: the values of each field, checked, in the form of their column.

All values of a column are read, checked and changed together, which is many times as fast as row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain, islice, repeat
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, TypeAlias

import msgspec
from attrs import define
from msgspec.structs import astuple

from chainapi._tables.columns import SOURCE, TAKEN, Column, named_fields
from chainapi._tables.types import INT64, YEARS, Kind, double_of, fraction_text, whole_text
from chainapi.models.exact_json import encode_json
from chainapi.models.plain import to_dict
from chainapi.models.records import Record, unnamed
from chainapi.models.schema import Field, Float, Int, Type, list_of, type_of

__all__ = ["Misfit", "Shape", "encoded", "fitting"]

FEW = 4  # fields of a Struct up to which reading each by itself is faster than all of them together
_Form: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
_COLLECTIONS = (list, tuple, set, frozenset)


@define
class Misfit(Exception):  # noqa: N818 - becomes an error with the value and the row
    """Value that does not fit its column.

    Attributes:
        place: index of the row.
        value: the value.
        reason: why it does not fit.
        column: kind of its column.
        path: path of columns to it, such as ``.inners[0].value``.
        shown: whether the repr of its row shows it.

    """

    place: int
    value: Any
    reason: str
    column: Kind
    path: str = ""
    shown: bool = True


class Shape:
    """Reader of the columns of rows of one class.

    Attributes:
        names: names of its columns; the column of unnamed fields is the last one.

    Args:
        model: class of the rows, or of records in them.
        columns: columns by name; columns of other records are left out.
        row: whether the class is one of rows.
        extra: name of the column of unnamed fields; None without one.

    """

    def __init__(
        self, model: type, columns: Mapping[str, Column], *, row: bool = False, extra: str | None = None
    ) -> None:
        named = dict(named_fields(model, TAKEN if row else ()))
        self.names: list[str] = [name for name in columns if name in named]
        self._model: Any = model
        self._extra = extra
        checked = issubclass(model, Record)
        self._fields = [
            (columns[name], named[name], _form(columns[name], named[name].type, checked=checked))
            for name in self.names
        ]
        self.names += [] if extra is None else [extra]
        names = [SOURCE, *self.names] if row else self.names
        fields = [(f"c{place}", Any, msgspec.field(name=name)) for place, name in enumerate(names)]
        self._struct = msgspec.defstruct(model.__name__, fields, gc=False)

    def values(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the values of each column, unnamed fields last.

        They have the types that `chainapi._tables.rows.reader` returns with ``nested=True``, but ``digits``
        has whole numbers.

        Raises:
            Misfit: a value does not fit its column.

        """
        read = self._read(rows)
        made = [_formed_column(column, field, form, read[field.name]) for column, field, form in self._fields]
        if self._extra is not None:
            made.append(_unnamed(rows, read["_extra"]))
        return made

    def lines(self, rows: Sequence[Any], label: str | None) -> bytes:
        """Return rows as JSON lines, with the label of their source in front.

        Raises:
            Misfit: a value does not fit its column.

        """
        labels = repeat(msgspec.UNSET if label is None else label)
        return _ENCODER.encode_lines([*map(self._struct, labels, *self._texts(rows))])

    def _texts(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the values of each column, with texts for ``digits``."""
        made = self.values(rows)
        for place, (column, *_) in enumerate(self._fields):
            if column.kind == "digits":
                made[place] = _digits(made[place])
        return made

    def records(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return records as Structs of their columns, None as it is.

        Raises:
            Misfit: a value does not fit its column.

        """
        places = [place for place, value in enumerate(values) if value is not None]
        try:
            made = map(self._struct, *self._texts([values[place] for place in places]))
        except Misfit as misfit:
            misfit.place = places[misfit.place]
            raise
        if len(places) == len(values):
            return [*made]
        return [None if value is None else next(made) for value in values]

    def _read(self, rows: Sequence[Any]) -> Mapping[str, Sequence[Any]]:
        """Return the values of each attribute."""
        names = [*[field.name for _, field, _ in self._fields], *["_extra"] * (self._extra is not None)]
        try:
            if rows and len(names) > FEW and issubclass(self._model, msgspec.Struct):
                return dict(
                    zip(self._model.__struct_fields__, zip(*map(astuple, rows), strict=True), strict=True)
                )
            return {name: [*map(attrgetter(name), rows)] for name in names}
        except (AttributeError, TypeError):
            place = next(place for place, row in enumerate(rows) if not isinstance(row, self._model))
            raise Misfit(place, rows[place], f"Expected `{self._model.__name__}`", "struct") from None


def _formed_column(column: Column, field: Field, form: _Form | None, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a field in the form of their column."""
    if field.type.optional and msgspec.UNSET in values:
        values = [None if value is msgspec.UNSET else value for value in values]
    try:
        return values if form is None else form(values)
    except Misfit as misfit:
        misfit.path = f".{column.name}{misfit.path}"
        misfit.shown = misfit.shown and field.shown
        raise


def _unnamed(rows: Sequence[Any], kept: Sequence[Any]) -> list[msgspec.Raw | None]:
    """Return the JSON of the fields that a row and its records do not name."""
    if kept.count(msgspec.UNSET) == len(rows):  # of nearly all pages
        return [None] * len(rows)
    found = [{} if its is msgspec.UNSET else unnamed(row) for row, its in zip(rows, kept, strict=True)]
    return [msgspec.Raw(encode_json(fields)) if fields else None for fields in found]


def fitting(column: Column, sent: Any) -> Any:
    """Return a value of a row of an unknown kind in the form of a column.

    It is None if the value does not fit, or would have to change.
    """
    if column.kind == "json":
        return None if sent is None else _RAW.decode(encode_json([sent]))[0]
    if (kind := _SENT.get(column.kind)) is None:  # a record, a list
        return None
    try:
        made = [msgspec.convert(sent, kind, strict=kind in (bool, str))]
        form = _text_form(column, type_of(kind), checked=False)
        value = (made if form is None else form(made))[0]
    except (msgspec.ValidationError, Misfit):
        return None
    return value if column.kind != "float" or value == sent else None


def _form(column: Column, kind: Type, *, checked: bool) -> _Form | None:
    """Return the function that gives the values of a column their form.

    It checks their types too, unless they are `checked` already. None if values stay as they are.
    """
    match column.kind:
        case "struct":
            return Shape(kind.hint, {one.name: one for one in column.fields}).records
        case "list":
            return partial(_lists, _text_form(column.fields[0], kind.item, checked=checked))
        case "json":
            return partial(_json, free=_is_free(kind))
    form = _FORMS.get(column.kind)
    if column.kind == "float" and kind.kind == "integer":
        return partial(_scalars, column.kind, list_of(int | None), double_of)
    if checked and column.kind not in ("integer", "time"):  # which have limits
        return form and partial(_formed, column.kind, form)
    given = partial(_scalars, column.kind, list_of(_CHECKED[column.kind] | None), form)
    if kind.kind in ("enum", "other"):  # types that are strings in JSON
        return lambda values: given(msgspec.to_builtins(values, enc_hook=str))
    return given


def _text_form(column: Column, kind: Type, *, checked: bool) -> _Form | None:
    """Return the same function, with texts for ``digits``."""
    form = _form(column, kind, checked=checked)
    if column.kind != "digits":
        return form
    return lambda values: _digits(values if form is None else form(values))


def _scalars(
    column: Kind, checked: Any, form: Callable[[Any], Any] | None, values: Sequence[Any]
) -> Sequence[Any]:
    try:
        made = msgspec.convert(values, checked)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$[")
        place = int(path.partition("]")[0])
        raise Misfit(place, values[place], reason, column) from None
    return made if form is None else _formed(column, form, made)


def _formed(column: Kind, form: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    try:
        if NoneType not in {*map(type, values)}:
            return [*map(form, values)]
        return [None if value is None else form(value) for value in values]
    except ValueError as error:
        place = next(place for place, value in enumerate(values) if not _has(form, value))
        raise Misfit(place, values[place], str(error), column) from None


def _has(form: Callable[[Any], Any], value: Any) -> bool:
    try:
        return value is None or form(value) is not None
    except ValueError:
        return False


def _digits(values: Sequence[Any]) -> list[Any]:
    try:
        # The JSON of a list has all digits; it is many times faster than one string after the other.
        encoded = msgspec.json.encode(values)
    except OverflowError:  # beyond 64 bits
        return [None if value is None else str(value) for value in values]
    texts: list[Any] = encoded[1:-1].decode().split(",") if values else []
    return [None if text == "null" else text for text in texts] if b"n" in encoded else texts


def _lists(form: _Form | None, values: Sequence[Any]) -> list[Any]:
    """Return lists with entries in their form."""
    for place, value in enumerate(values):
        if value is not None and not isinstance(value, _COLLECTIONS):
            raise Misfit(place, value, "Expected a list", "list")
    lists: list[Sequence[Any]] = [() if value is None else [*value] for value in values]
    try:
        entries: Sequence[Any] = [*chain.from_iterable(lists)]
        made = iter(entries if form is None else form(entries))
    except Misfit as misfit:
        place = misfit.place
        for number, given in enumerate(lists):
            if place < len(given):
                misfit.place, misfit.path = number, f"[{place}]{misfit.path}"
                raise
            place -= len(given)
        raise
    return [
        None if value is None else [*islice(made, len(given))]
        for value, given in zip(values, lists, strict=True)
    ]


def _is_free(kind: Type) -> bool:
    """Check for JSON of any type, whose numbers keep their digits.

    A decimal by its type is a string.
    """
    kinds = {part.kind for part in kind.parts()}
    return "any" in kinds and kinds <= {"any", "list", "mapping"}


def _json(values: Sequence[Any], *, free: bool) -> list[Any]:
    return _RAW.decode(encode_json(values) if free else encoded(to_dict(values)))


def encoded(value: Any) -> bytes:
    """Return a value as JSON without line ends, which raw JSON of a response may have."""
    content = _ENCODER.encode(value)
    return msgspec.json.format(content, indent=-1) if b"\n" in content else content


# Values of types that JSON lacks, in models of users, are encoded as strings by `str`.
_ENCODER = msgspec.json.Encoder(decimal_format="string", enc_hook=str)
_RAW: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[msgspec.Raw])

_CHECKED: Mapping[Kind, Any] = {
    "integer": Annotated[int, msgspec.Meta(ge=INT64[0], le=INT64[1])],
    "time": Annotated[int, msgspec.Meta(ge=YEARS[0], le=YEARS[1])],
    "digits": int,
    "whole": int,
    "float": float,
    "decimal": Decimal,
    "boolean": bool,
    "text": str,
}
_SENT: Mapping[Kind, Any] = {
    **_CHECKED,
    **dict.fromkeys(("integer", "time", "digits", "whole"), Int),
    "float": Float,
}
_FORMS: Mapping[Kind, Callable[[Any], Any]] = {
    "whole": whole_text,
    "decimal": fraction_text,
}
