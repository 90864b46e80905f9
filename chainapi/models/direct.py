"""Decoding of records: msgspec makes them of JSON as they are declared.

The decoder is lax, because the services send many numbers as strings. What it should not take for a number,
the types of numbers refuse (`chainapi.models.schema.Int`). Records refuse fields that they do not name: JSON
with such fields is written again, with them under a name of their own, and decoded by the same decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any, TypeAlias

import msgspec

from chainapi._text import quoted
from chainapi.core.numbers import is_decimal
from chainapi.errors import DecodeError
from chainapi.models.decode_errors import is_unknown_field
from chainapi.models.exact_json import exact_number
from chainapi.models.records import Record
from chainapi.models.schema import KEPT, Float, Int, Type, fields_of, type_of

__all__ = ["DirectDecoder", "is_direct"]

_NUMBERS = {int: Int, float: Float}


def is_direct(model: Any) -> bool:
    """Check for a type that msgspec decodes as it is declared.

    It has records, strings, numbers and JSON values in it.
    """
    return model in (None, bool, *_NUMBERS) or _is_direct(type_of(model))


def _is_direct(kind: Type) -> bool:
    if kind.kind in ("list", "mapping"):
        return kind.origin in (list, dict) and _is_direct(kind.item)
    return kind.kind in ("any", "text") or (kind.kind == "record" and issubclass(kind.hint, Record))


class DirectDecoder:
    """Decoder of JSON with rows of a model for which `is_direct` is true.

    `shape` is the function from the type of a row to the type of the JSON. `decode` returns a value of that
    type, whose rows `finish` is yet to check; it raises MsgspecError, UnicodeError or RecursionError.
    """

    def __init__(self, model: Any, shape: Callable[[Any], Any]) -> None:
        wire = Any if model is None else _NUMBERS.get(model, model)
        decoder = msgspec.json.Decoder(shape(wire), strict=False, float_hook=exact_number)
        self.decode: Callable[[bytes | msgspec.Raw], Any] = decoder.decode
        self._model = type_of(wire)
        self._decimals = _decimals_of(self._model)

    def finish(self, rows: list[Any]) -> list[Any]:
        """Return the rows, after a check of their decimals.

        Raises:
            DecodeError: one of them is no number.

        """
        if self._decimals is not None and not all(map(Decimal.is_finite, self._decimals(rows))):
            raise DecodeError("a decimal is no number")
        return rows

    def several(self, rows: bytes, *, unnamed: bool = False) -> list[Any]:
        """Decode a list of rows; with `unnamed`, some have fields that no record names.

        Raises:
            MsgspecError, UnicodeError, RecursionError, DecodeError: a row does not fit.

        """
        if not unnamed:
            try:
                return self.finish(self.decode(rows))
            except msgspec.ValidationError as error:
                if not is_unknown_field(error):
                    raise
            except DecodeError:
                pass  # the second look finds the place of what is no number
        return self.finish(self.decode(_with_names(self._model, rows)))


_Values: TypeAlias = Callable[[Iterable[Any]], Iterator[Decimal]]
_ENTRIES: Mapping[str, Callable[[Any], Iterable[Any]]] = {"list": iter, "mapping": methodcaller("values")}


@lru_cache(maxsize=512)
def _decimals_of(kind: Type) -> _Values | None:
    """Return the function from values to all decimals in them; None if there are none."""
    if kind.kind == "decimal":
        return _given
    if kind.kind in _ENTRIES:
        entries, item = _ENTRIES[kind.kind], _decimals_of(kind.item)
        return item and (lambda values: item(chain.from_iterable(map(entries, _given(values)))))
    found = [(field.name, inner) for field in fields_of(kind.hint) if (inner := _decimals_of(field.type))]
    if not found:
        return None
    readers = [(attrgetter(name), inner) for name, inner in found]

    def of_records(records: Iterable[Any]) -> Iterator[Decimal]:
        several = [*_given(records)]
        return chain.from_iterable(inner(map(read, several)) for read, inner in readers)

    return of_records


def _given(values: Iterable[Any]) -> Iterator[Any]:
    return (value for value in values if value is not None)


# JSON with fields that no record names. Numbers with a point or an exponent keep their digits.
_PLAIN: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=msgspec.Raw)
_encode = msgspec.json.Encoder().encode
_Teller: TypeAlias = Callable[[Any, str], Any]


def _with_names(model: Type, rows: bytes) -> bytes:
    """Return the JSON of a list of rows, unnamed fields of each record under `KEPT`."""
    tell = _told_apart(model)
    values = _PLAIN.decode(rows)
    return rows if tell is None else _encode([tell(row, f"$[{place}]") for place, row in enumerate(values)])


@lru_cache(maxsize=512)
def _told_apart(kind: Type) -> _Teller | None:
    """Return the function that tells the fields of JSON values of a type apart.

    Its arguments are a value, which it may change, and the JSON path of it. It is None for a type without
    records and decimals in it.
    """
    if kind.kind == "decimal":
        return _checked_decimal
    if kind.kind == "record":
        return _record_teller(kind.hint)
    tell = _told_apart(kind.item) if kind.kind in _ENTRIES else None
    if tell is None:
        return None

    def entries(value: Any, path: str) -> Any:
        if isinstance(value, list):
            return [tell(entry, f"{path}[{place}]") for place, entry in enumerate(value)]
        if isinstance(value, dict):
            return {name: tell(entry, f"{path}.{name}") for name, entry in value.items()}
        return value

    return entries


def _record_teller(record: Any) -> _Teller:
    fields = fields_of(record)
    names = {field.wire for field in fields}
    deep = [(field.wire, tell) for field in fields if (tell := _told_apart(field.type))]

    def tell_apart(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return value
        for name, tell in deep:
            if (inner := value.get(name)) is not None:
                value[name] = tell(inner, f"{path}.{name}")
        value[KEPT] = {name: value.pop(name) for name in [name for name in value if name not in names]}
        return value

    return tell_apart


def _checked_decimal(value: Any, path: str) -> Any:
    if isinstance(value, str) and not is_decimal(value):
        raise DecodeError(f"Expected `decimal`, got {quoted(value)}", path=path)
    return value
