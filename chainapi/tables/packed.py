"""Arrow arrays of pages of columns (extra `arrow`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import pyarrow as pa
from attrs import frozen

from chainapi.tables.arrow import array_of, arrow_type, of_buffer, times_of
from chainapi.tables.codec import Codec
from chainapi.tables.columns import Column, columns_of, has_extra
from chainapi.tables.pages import Values
from chainapi.tables.types import Kind

__all__ = ["packed_arrays", "packs"]


@frozen
class _Packed:
    """Packed values of a kind: their format for `struct`, and how they become arrays."""

    form: Literal["q", "I", "d"]
    of_bytes: Callable[[bytes], Any]
    of_values: Callable[[Column, Sequence[Any]], Any] = array_of


def packs(codec: Codec) -> bool:
    """Return whether pages of columns can become arrays of the columns of a codec."""
    columns = codec.columns[:-1] if has_extra(codec.model) else codec.columns
    return codec.columns == columns_of(codec.model) and all(
        column.kind in _PACKED or column.kind in ("text", "boolean") for column in columns
    )


def packed_arrays(columns: Sequence[Column], pages: Sequence[Sequence[Values]]) -> list[Any]:
    """Return the array of each column of several pages, one after the other.

    The column of unnamed fields is null: a page with such fields is no page of columns.
    """
    fields = zip(columns, zip(*pages, strict=True), strict=False)
    arrays = [_array(column, parts) for column, parts in fields]
    return arrays + [pa.nulls(len(arrays[0]), arrow_type(column)) for column in columns[len(arrays) :]]


def _array(column: Column, parts: Sequence[Values]) -> Any:
    packed = _PACKED.get(column.kind)
    if packed is not None and {*map(type, parts)} == {bytes}:
        return packed.of_bytes(b"".join(parts))  # type: ignore[arg-type]
    values = _joined([_unpacked(part, packed) for part in parts])
    return array_of(column, values) if packed is None else packed.of_values(column, values)


def _unpacked(part: Values, packed: _Packed | None) -> Sequence[Any]:
    if packed is None or not isinstance(part, bytes):
        return part
    return memoryview(part).cast(packed.form).tolist()


def _joined(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    return parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]


def _whole(packed: bytes) -> Any:
    return of_buffer(pa.int64(), packed)


def _floats(packed: bytes) -> Any:
    return of_buffer(pa.float64(), packed)


def _times(packed: bytes) -> Any:
    return times_of(of_buffer(pa.uint32(), packed))


def _digits(packed: bytes) -> Any:
    return _whole(packed).cast(pa.string())


def _texts(column: Column, values: Sequence[Any]) -> Any:
    return array_of(column, [None if value is None else str(value) for value in values])


_PACKED: Mapping[Kind, _Packed] = {
    "integer": _Packed("q", _whole),
    "digits": _Packed("q", _digits, _texts),
    "time": _Packed("I", _times),
    "float": _Packed("d", _floats),
}
