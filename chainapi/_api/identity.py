"""Identity of a route's rows: readers of keys, numbers and constant fields."""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from msgspec import Struct

from chainapi._api.routes import Route
from chainapi._paging.checkpoint import Checkpoint, Watermark
from chainapi._paging.cursor import Cursor
from chainapi._paging.given import Given
from chainapi._paging.rows import Column, Identity, column_of
from chainapi._text import quoted
from chainapi.core.numbers import whole_of
from chainapi.errors import CheckpointError, ConfigurationError, DecodeError
from chainapi.models.schema import fields_of
from chainapi.models.unions import RawRow, wire_name

__all__ = [
    "Numbered",
    "attribute_path",
    "cursor_of",
    "descending_number",
    "given_by",
    "identity_of",
    "key_names",
    "name_of",
    "number_reader",
]


class Numbered(Struct, frozen=True):
    """Number of the rows of a list, which new rows exceed: its name, and its reader.

    `descends`: a walk of the list is in descending order of it, so that its checkpoints have it.
    """

    name: str
    read: Callable[[Any], int | None]
    descends: bool


Reader = Callable[[Any], Any]
_NO_FIELD = object()


def given_by(route: Route, start: Checkpoint, identity: Identity | None = None) -> Given:
    """Return the rows given of a walk over `route` that begins at `start`.

    `identity` belongs to a declared route; None for a route that the caller names.

    Raises:
        CheckpointError: the caller names an order now, and named none when `start` was taken, or the list was
            in the order of another field then.

    """
    watermark = start.watermark if route.descending_key is not None else None
    _check_order(watermark, route)
    given = start.rows > 0
    unknown = route.descending_key is not None and given and watermark is None and not start.unordered
    if unknown and identity is None:
        raise CheckpointError("the checkpoint has no watermark: it was taken without descending_key=")
    return Given(
        identity or identity_of(route, declared=False),
        watermark=watermark,
        unordered=start.unordered or unknown,
        keyless=start.keyless,
        resumed=given or start.token is not None,  # a bare page token
        head=start.head,
    )


def cursor_of(route: Route) -> Cursor | None:
    """Return the cursor of a route; None if its rows have no number.

    A list that descends by a number has no cursor either: its walk has the number.
    """
    if not route.numbers or route.descending_key is not None:
        return None
    since = route.ranged.start if route.ranged is not None and route.since else None
    return Cursor(number_reader(route.numbers), since)


def _check_order(watermark: Watermark | None, route: Route) -> None:
    """Refuse the numbers of another field: rows between them would count as repeated."""
    if watermark is not None and watermark.number_field != _number_field(route):
        raise CheckpointError(
            f"the checkpoint has rows in the order of {quoted(watermark.number_field)}, and this walk is in"
            f" the order of {_number_field(route)!r}: resume in the same order, or without descending_key="
        )


def _number_field(route: Route) -> str:
    """Return the wire name of the field with the descending number, or ""."""
    return ".".join(map(wire_name, (route.descending_key or "").split(".")))


def number_reader(names: Sequence[str]) -> Callable[[Any], int | None]:
    """Return a reader of the first of several numbers that a declared row has.

    The reader returns None for a row without a whole number of these names.
    """
    return _number(names, [operator.attrgetter(name) for name in names], declared=True)


def descending_number(route: Route) -> Callable[[Any], int | None]:
    """Return a reader of the number of a row, which may have been sent as a string.

    The reader returns None for a row with null in place of its number.
    """
    name = route.descending_key or ""
    return _number([name], [_reader(name, route.model)], declared=False)


def _number(
    names: Sequence[str], readers: Sequence[Reader], *, declared: bool
) -> Callable[[Any], int | None]:
    def number(row: Any) -> int | None:
        for name, read in zip(names, readers, strict=True):
            try:
                value = read(row)
            except (LookupError, AttributeError, TypeError):
                value = row.value_at(name) if isinstance(row, RawRow) else _NO_FIELD
            if (whole := whole_of(value)) is not None:
                return whole
            # A row that was not made into its model may have any fields.
            if not (declared or value is None or isinstance(row, RawRow)):
                raise DecodeError(f"no whole number as {name!r}, which descending_key= names")
        return None

    return number


def key_names(key: object) -> tuple[str, ...]:
    """Return the names of the fields that identify a row.

    Raises:
        ConfigurationError: `key` is neither a name nor a sequence of names.

    """
    names = (key,) if isinstance(key, str) else key
    if names is None:
        return ()
    if not isinstance(names, Sequence) or not names or not all(isinstance(n, str) and n for n in names):
        raise ConfigurationError(f"key={quoted(key)} must be the name of a row field, or several names")
    return tuple(names)


def name_of(argument: str, name: object, what: str) -> str | None:
    """Return an argument that names something, or None.

    Raises:
        ConfigurationError: it is no string, or empty.

    """
    if name is None or (isinstance(name, str) and name):
        return name
    raise ConfigurationError(f"{argument}={quoted(name)} must be the name of a {what}")


def identity_of(route: Route, *, declared: bool) -> Identity:
    """Return the readers of what identifies a row of a route.

    Rows of a `declared` route are frozen records; a caller's own rows may change while they are read.
    """
    return Identity(
        key=_key(route, declared=declared),
        number=None if route.descending_key is None else descending_number(route),
        number_field=_number_field(route),
        unique=route.key == (route.descending_key,),
        stable=_values(route.immutable, route.model, declared=True) if route.immutable else None,
        frozen=declared,
        hashed=declared and len(route.key) == 1 and route.key[0].endswith("_hash"),
        plain_key=column_of(*route.key) if declared and route.key else None,
        plain_number=_plain_number(route),
    )


def _plain_number(route: Route) -> Column | None:
    """Return an unchecked reader of numbers; None for rows that are no objects."""
    name = route.descending_key
    if name is None or route.model is None or typing.is_typeddict(route.model):
        return None
    return column_of(name)


def _key(route: Route, *, declared: bool) -> Reader | None:
    """Return a reader of keys; None if rows have none."""
    if route.key:
        return _values(route.key, route.model, declared=declared)
    if not route.kind_keys:
        return None
    readers = {kind: _values(names, route.model, declared=declared) for kind, names in route.kind_keys}
    return lambda row: readers[name](row) if (name := type(row).__name__) in readers else None


def _values(names: Sequence[str], model: Any, *, declared: bool) -> Reader:
    """Return a reader of fields that identify a row: the value of one, or a tuple.

    The reader returns None for a row with null in one of them, and for a declared row that lacks one, or has
    an object or a list in its place.
    """
    readers = [_reader(name, model) for name in names]

    def values(row: Any) -> Hashable:
        try:
            found = [read(row) for read in readers]
        except (LookupError, AttributeError, TypeError):
            if isinstance(row, RawRow):  # it does not fit its model
                found = [row.value_at(name) for name in names]
            elif declared:
                return None
            else:
                raise DecodeError(f"no field {', '.join(names)}, which key= names") from None
        try:
            hash(tuple(found))
        except TypeError:  # an object or a list, which has no hash
            found = [None] if declared else [*map(repr, found)]
        if None in found:
            return None
        return found[0] if len(found) == 1 else tuple(found)

    return values


def _reader(name: str, model: Any) -> Reader:
    """Return a reader of a field: an attribute of a model, or an item of a dict.

    Dots in the name lead into objects. Items may be named as in Python, too.
    """
    if model is not None and not typing.is_typeddict(model):
        return operator.attrgetter(name)
    parts = name.split(".")
    if len(parts) == 1 and wire_name(name) == name:
        return operator.itemgetter(name)

    def read(row: Any) -> Any:
        for part in parts:
            row = row[part if part in row else wire_name(part)]
        return row

    return read


def attribute_path(name: str, model: Any) -> str:
    """Return the name of a field of a model, which may be its name in JSON."""
    parts = list[str]()
    for part in name.split("."):
        field = next((one for one in fields_of(model) if part in (one.name, one.wire)), None)
        parts.append(part if field is None else field.name)
        model = None if field is None else field.type.hint
    return ".".join(parts)
