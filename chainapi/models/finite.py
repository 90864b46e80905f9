"""Decimals that are no numbers: refused, because no JSON can hold them.

Python reads the strings "NaN" and "Infinity" as a `Decimal`. On the fast path decimals are strings; their
characters are checked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any, TypeAlias, cast, overload

from chainapi.core.numbers import is_decimal
from chainapi.errors import DecodeError
from chainapi.models.native import has_decimals
from chainapi.models.row_type import Finish
from chainapi.models.schema import Type, fields_of, type_of

__all__ = ["decimal_texts", "finite"]


@overload
def finite(model: Any, finish: Finish) -> Finish: ...


@overload
def finite(model: Any, finish: None = None) -> Finish | None: ...


def finite(model: Any, finish: Finish | None = None) -> Finish | None:
    """Return a maker of rows that refuses decimals that are no numbers.

    It is `finish` itself, which may be None, if the model has no decimals.
    """
    if not has_decimals(model):
        return finish
    look = _look(type_of(model), _are_finite, ())

    def checked(rows: list[Any]) -> list[Any]:
        made = rows if finish is None else finish(rows)
        if not _all_good(look, made):
            _check(made, "$")
        return made

    return checked


def decimal_texts(model: Any, finish: Finish) -> Finish:
    """Return a maker of rows that refuses strings that are no decimals.

    It is `finish` itself if the model has no decimals. The rows are Structs with the attributes of the model
    and strings for its decimals.
    """
    if not has_decimals(model):
        return finish
    look = _look(type_of(model), _are_decimals, ())

    def checked(rows: list[Any]) -> list[Any]:
        if not _all_good(look, rows):
            raise DecodeError("a string is no decimal")  # the general path names it
        return finish(rows)

    return checked


# Look at many values of a type at once, one field after the other: much faster than `_check`.
_Look: TypeAlias = Callable[[list[Any]], bool]


def _all_good(look: _Look, rows: list[Any]) -> bool:
    """Check rows; some may be null."""
    try:
        return look(_given(rows))
    except (AttributeError, TypeError):  # a default or a converter has made a value of another type
        return False


def _given(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _look(kind: Type, are_good: _Look, within: tuple[Any, ...]) -> _Look:
    """Return a check of all decimals in values by `are_good`.

    It is False as well for values that it does not read.
    """
    if kind.kind == "decimal":
        return are_good
    if kind.kind in _ENTRIES:
        item, entries = _look(kind.item, are_good, within), _ENTRIES[kind.kind]
        return lambda values: item(_given(chain.from_iterable(map(entries, values))))
    if kind.kind != "record" or kind.hint in within:
        return lambda _: False  # left to `_check`
    looks = [
        (attrgetter(field.name), _look(field.type, are_good, (*within, kind.hint)))
        for field in fields_of(kind.hint)
        if has_decimals(field.hint)
    ]
    return lambda values: all(look(_given(map(read, values))) for read, look in looks)


_ENTRIES: Mapping[str, Callable[[Any], Iterable[Any]]] = {"list": iter, "mapping": methodcaller("values")}


def _are_decimals(values: list[Any]) -> bool:
    try:
        return is_decimal("".join(values))
    except TypeError:
        return _are_numbers(values)


def _are_finite(values: list[Any]) -> bool:
    try:
        return all(map(Decimal.is_finite, values))
    except TypeError:
        return _are_numbers(values)


def _are_numbers(values: list[Any]) -> bool:
    """Check values of several types: a default may be a number of any type."""
    return is_decimal("".join(map(str, values)))


def _check(value: Any, path: str) -> None:
    """Check a value and the values in it.

    Raises:
        DecodeError: one of them is a decimal, but no number.

    """
    if type(value) is Decimal:
        if not value.is_finite():
            raise DecodeError(f"Expected `decimal`, got {value}", path=path)
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            _check(entry, f"{path}.{name}")
    elif isinstance(value, list | tuple | set | frozenset):
        for number, entry in enumerate(cast("list[Any]", value)):
            _check(entry, f"{path}[{number}]")
    else:
        for field in fields_of(type(value)):
            _check(getattr(value, field.name, None), f"{path}.{field.wire}")
