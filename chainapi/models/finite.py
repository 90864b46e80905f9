"""Decimals that are no numbers: refused, because no JSON can hold them.

Python reads the strings "NaN" and "Infinity" as a `Decimal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias, cast, overload

from chainapi.errors import DecodeError
from chainapi.models.native import has_decimals
from chainapi.models.row_type import Finish
from chainapi.models.schema import Type, fields_of, type_of

__all__ = ["finite"]


@overload
def finite(model: Any, finish: Finish) -> Finish: ...


@overload
def finite(model: Any, finish: None = None) -> Finish | None: ...


def finite(model: Any, finish: Finish | None = None) -> Finish | None:
    """Return a maker of rows that refuses decimals that are no numbers.

    It is `finish` itself, which may be None, if the model has no decimals. The rows may be Structs with the
    attributes of the model.
    """
    if not has_decimals(model):
        return finish
    look = _look(type_of(model), ())

    def checked(rows: list[Any]) -> list[Any]:
        made = rows if finish is None else finish(rows)
        if not look(made):
            _check(made, "$")
        return made

    return checked


# Look at many values of a type at once, one field after the other: much faster than `_check`.
_Look: TypeAlias = Callable[[Sequence[Any]], bool]


def _look(kind: Type, within: tuple[Any, ...]) -> _Look:
    """Return a check that all decimals in values are numbers.

    It is False as well for values that it does not read.
    """
    if kind.kind == "decimal":
        return _are_numbers
    if kind.kind == "list":
        item = _look(kind.item, within)
        return lambda values: item([entry for entry in chain.from_iterable(values) if entry is not None])
    if kind.kind != "record" or kind.hint in within:
        return lambda _: False  # left to `_check`
    looks = [
        (attrgetter(field.name), _look(field.type, (*within, kind.hint)))
        for field in fields_of(kind.hint)
        if has_decimals(field.hint)
    ]
    return lambda values: all(
        look([value for value in map(read, values) if value is not None]) for read, look in looks
    )


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(map(Decimal.is_finite, values))


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
            _check(getattr(value, field.name), f"{path}.{field.wire}")
