"""Decimals that are no numbers: refused, because no JSON and no column can hold them.

Python reads the strings "NaN" and "Infinity" as a `Decimal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast, overload

from chainapi.errors import DecodeError
from chainapi.models.native import has_decimals
from chainapi.models.row_type import Finish
from chainapi.models.schema import fields_of

__all__ = ["finite"]


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

    def checked(rows: list[Any]) -> list[Any]:
        made = rows if finish is None else finish(rows)
        _check(made, "$")
        return made

    return checked


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
