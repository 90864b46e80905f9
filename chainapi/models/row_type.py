"""Row types: decoding of rows by msgspec, conversion into objects of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import msgspec
from attrs import frozen

from chainapi.models.decode_errors import (
    DECODING_ERRORS,
    below,
    is_unknown_field,
    to_decode_error,
)
from chainapi.models.native import JSONDecoder, json_decoder
from chainapi.models.schema import list_of
from chainapi.models.structs import may_hold_null_text

__all__ = [
    "FastDecoder",
    "FastPath",
    "Finish",
    "Maker",
    "RowType",
    "decoder_of",
    "finish_one",
    "joined",
]

Finish: TypeAlias = Callable[[list[Any]], list[Any]]


@frozen(eq=False, repr=False)
class Maker:
    """Maker of the objects of rows from private Structs with their attributes.

    Attributes:
        finish: function that makes the objects, and checks their values.
        struct: class of the objects if it is a Struct: msgspec may decode to a Struct derived from it; else
            None.

    """

    finish: Finish
    struct: Any = None


@frozen(eq=False, repr=False)
class FastPath:
    """Fast path of rows.

    It accepts nothing that the general path refuses, and makes the same objects.

    Attributes:
        wire: type that msgspec decodes, in lax mode with `lax`: numbers may be strings.
        finish: function that makes the objects.
        nulls: returns the type that accepts null too, for JSON in which no string looks like null; None where
            `wire` does.

    """

    wire: Any
    finish: Finish
    nulls: Callable[[], Any] | None = None
    lax: bool = True


@frozen(eq=False, repr=False)
class RowType:
    """Decoding of rows: msgspec decodes to `wire`, `finish` makes the objects.

    Attributes:
        wire: type that msgspec decodes.
        finish: function that makes the objects; None if `wire` is the model itself.
        fast: the fast path, or None. Rows that it refuses are decoded again by the general one, which names
            the fault.
        decimals: whether `wire` has decimals; on a lax fast path they are strings.

    """

    wire: Any
    finish: Finish | None = None
    fast: FastPath | None = None
    decimals: bool = False

    def decoder(self, wire: Any, *, strict: bool = True) -> JSONDecoder:
        """Return a decoder of `wire`, a type with rows in it."""
        return json_decoder(wire, decimals=self.decimals and strict, strict=strict)


class FastDecoder:
    """Decoder of rows on the fast path; `shape` makes its type of the type of a row."""

    def __init__(self, rows: RowType, fast: FastPath, shape: Callable[[Any], Any]) -> None:
        self.finish = fast.finish
        self._rows, self._fast, self._shape = rows, fast, shape
        self._plain = rows.decoder(shape(fast.wire), strict=not fast.lax)

    @cached_property
    def _nulls(self) -> JSONDecoder | None:
        """Decoder that accepts null; most pages of most routes need none."""
        nulls = self._fast.nulls
        return None if nulls is None else self._rows.decoder(self._shape(nulls()), strict=False)

    def decode(self, content: bytes) -> Any:
        """Decode JSON; `finish` is yet to make the objects.

        Raises:
            MsgspecError, UnicodeError, RecursionError: the fast path refuses it.

        """
        try:
            return self._plain.decode(content)
        except msgspec.ValidationError as error:
            if is_unknown_field(error) or self._nulls is None or may_hold_null_text(content):
                raise
        return self._nulls.decode(content)


class _Decoder:
    """Decoder of rows: the fast path if all rows take it, else the general one."""

    def __init__(self, rows: RowType) -> None:
        self._one, self._several = rows.decoder(rows.wire), rows.decoder(list_of(rows.wire))
        self._rows = rows
        self._fast = None if rows.fast is None else FastDecoder(rows, rows.fast, list_of)

    def one(self, raw: bytes | msgspec.Raw) -> Any:
        if self._fast is not None:
            try:
                rows = self._fast.decode(b"[" + raw + b"]")
                if len(rows) == 1:  # a body may be empty, or several values
                    return self._fast.finish(rows)[0]
            except DECODING_ERRORS as error:
                if is_unknown_field(error):
                    fault = to_decode_error(error)
                    raise below("$", fault.path.removeprefix("$[0]"), fault) from None
        try:
            row = self._one.decode(raw)
        except DECODING_ERRORS as error:
            raise to_decode_error(error) from None
        return row if self._rows.finish is None else finish_one(self._rows.finish, row)

    def several(self, raws: Sequence[bytes | msgspec.Raw]) -> list[Any]:
        content = joined(raws)
        if self._fast is not None:
            try:
                return self._fast.finish(self._fast.decode(content))
            except DECODING_ERRORS as error:
                if is_unknown_field(error):
                    raise to_decode_error(error) from None
        try:
            rows: list[Any] = self._several.decode(content)
            return rows if self._rows.finish is None else self._rows.finish(rows)
        except DECODING_ERRORS as error:
            raise to_decode_error(error) from None


def joined(raws: Iterable[bytes | msgspec.Raw]) -> bytes:
    """Return the JSON of rows as one JSON list."""
    return b"[" + b",".join(raws) + b"]"


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
