"""Values of rows by columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec
from msgspec.structs import astuple

from chainapi._tables.columns import Column
from chainapi._tables.types import SCALARS
from chainapi.errors import DecodeError
from chainapi.models.decode_errors import TOO_DEEP
from chainapi.models.records import NULL
from chainapi.models.schema import list_of

__all__ = ["by_class", "json_text", "reader"]


def reader(columns: Sequence[Column], *, nested: bool) -> Callable[[bytes], list[Sequence[Any]]]:
    """Return a function from JSON lines of encoded rows to the values of each column.

    Values have the types of `Scalar.json`: whole numbers and times are int, amounts and decimals are strings,
    and a value of a ``json`` column is raw JSON, for `json_text`. Records and lists are raw JSON too; with
    `nested`, a list is a list, and a record is a Struct, whose values `msgspec.structs.astuple` returns in
    the order of its columns. It raises DecodeError for JSON that is nested too deeply.
    """
    decoder = msgspec.json.Decoder(_struct(columns, nested))
    nothing: list[Sequence[Any]] = [()] * len(columns)

    def read(lines: bytes) -> list[Sequence[Any]]:
        try:
            rows = decoder.decode_lines(lines)
        except RecursionError:  # with less stack left than the decoder of the page had
            raise DecodeError(TOO_DEEP) from None
        return [*zip(*map(astuple, rows), strict=True)] or [*nothing]

    return read


def json_text(raw: msgspec.Raw | None) -> str | None:
    """Return raw JSON as text, null as None."""
    return None if raw is None or raw == NULL else bytes(raw).decode()


def by_class(
    rows: Sequence[Any], columns_of: Callable[[Sequence[Any], Sequence[int]], Mapping[str, Sequence[Any]]]
) -> Mapping[str, Sequence[Any]]:
    """Return the values of rows of several classes by column.

    `columns_of` returns the columns of rows of one class, by name; its arguments are the rows, and their
    indices among all. The value of a column that a class lacks is None, and so are the values of None.
    """
    kinds: list[Any] = [*map(type, rows)]
    if len({*kinds}) == 1 and kinds[0] is not NoneType:
        return columns_of(rows, range(len(rows)))
    made: dict[str, list[Any]] = {}
    for kind in {*kinds} - {NoneType}:
        places = [place for place, its in enumerate(kinds) if its is kind]
        for name, values in columns_of([rows[place] for place in places], places).items():
            column = made.setdefault(name, [None] * len(rows))
            deque(map(column.__setitem__, places, values), maxlen=0)  # a loop in C
    return made


def _struct(columns: Sequence[Column], nested: bool) -> Any:
    fields = [
        (f"c{number}", _type(column, nested), msgspec.field(name=column.name, default=None))
        for number, column in enumerate(columns)
    ]
    return msgspec.defstruct("Row", fields, gc=False)


def _type(column: Column, nested: bool) -> Any:
    if nested and column.kind == "struct":
        return _struct(column.fields, nested) | None
    if nested and column.kind == "list":
        return list_of(_type(column.fields[0], nested)) | None
    if column.kind in ("struct", "list", "json"):
        return msgspec.Raw
    return SCALARS[column.kind].json | None
