"""Row types: decoding of rows by msgspec, conversion into objects of a model."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from attrs import frozen

from chainapi.errors import DecodeError
from chainapi.models.decode_errors import (
    DECODING_ERRORS,
    UNKNOWN_FIELD,
    below,
    is_unknown_field,
    to_decode_error,
)
from chainapi.models.exact_json import exact_number

__all__ = ["Finish", "RowType", "decoder_of", "finish_one"]

Finish: TypeAlias = Callable[[list[Any]], list[Any]]


@frozen(eq=False, repr=False)
class RowType:
    """Decoding of rows: msgspec decodes to `wire`, `finish` makes the objects.

    Attributes:
        wire: type that msgspec decodes.
        finish: function that makes the objects; None if `wire` is the model itself.
        fast: the same pair for the fast path, or None. The fast path accepts nothing that the general one
            refuses; rows that it refuses are decoded again by the general one, which names the fault.
        lax: whether the fast path takes numbers from texts.
        fields: number of fields of a row, if msgspec cannot refuse further ones by itself.
        rounded: whether numbers without a type are floats, as hooks of a user expect; else they keep all
            digits.

    """

    wire: Any
    finish: Finish | None = None
    fast: tuple[Any, Finish] | None = None
    lax: bool = True
    fields: int | None = None
    rounded: bool = False

    def decoder(self, wire: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]:
        """Return a decoder of `wire`, a type with rows in it."""
        return msgspec.json.Decoder(wire, strict=strict, float_hook=None if self.rounded else exact_number)

    def names_all(self, raw: bytes | msgspec.Raw, count: int) -> bool:
        """Check that JSON of `count` rows has no further fields.

        A colon follows each field.
        """
        return self.fields is None or bytes(raw).count(b":") == self.fields * count


class _Decoder:
    """Decoder of rows: the fast path if all rows take it, else the general one."""

    def __init__(self, rows: RowType) -> None:
        several: Any = types.GenericAlias(list, (rows.wire,))
        self._one, self._several = rows.decoder(rows.wire), rows.decoder(several)
        self._rows = rows
        self._fast: tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any], Finish] | None = None
        if rows.fast is not None:
            wire, finish = rows.fast
            several = types.GenericAlias(list, (wire,))
            strict = not rows.lax
            self._fast = rows.decoder(wire, strict=strict), rows.decoder(several, strict=strict), finish

    def one(self, raw: bytes | msgspec.Raw) -> Any:
        if self._fast is not None:
            decoder, _, finish = self._fast
            try:
                return finish([decoder.decode(raw)])[0]
            except DECODING_ERRORS as error:
                if is_unknown_field(error):
                    raise to_decode_error(error) from None
        try:
            row = self._one.decode(raw)
        except DECODING_ERRORS as error:
            raise to_decode_error(error) from None
        if not self._rows.names_all(raw, 1):
            raise DecodeError(UNKNOWN_FIELD)
        return row if self._rows.finish is None else finish_one(self._rows.finish, row)

    def several(self, raws: Sequence[bytes | msgspec.Raw]) -> list[Any]:
        joined = b"[" + b",".join(raws) + b"]"
        if self._fast is not None:
            _, decoder, finish = self._fast
            try:
                return finish(decoder.decode(joined))
            except DECODING_ERRORS as error:
                if is_unknown_field(error):
                    raise to_decode_error(error) from None
        try:
            rows: list[Any] = self._several.decode(joined)
            if not self._rows.names_all(joined, len(rows)):
                raise DecodeError(UNKNOWN_FIELD)
            return rows if self._rows.finish is None else self._rows.finish(rows)
        except DECODING_ERRORS as error:
            raise to_decode_error(error) from None


@lru_cache(maxsize=256)
def decoder_of(rows: RowType) -> _Decoder:
    """Return the decoder of a row type: one for all streams of a route."""
    return _Decoder(rows)


def finish_one(finish: Finish, row: Any, place: str = "$") -> Any:
    """Make one row; the path of a fault begins with `place`."""
    try:
        return finish([row])[0]
    except DECODING_ERRORS as error:
        fault = to_decode_error(error)
        raise below(place, fault.path.removeprefix("$").removeprefix("[0]"), fault) from None
