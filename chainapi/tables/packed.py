"""Arrow arrays of packed values (extra `arrow`)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any, cast

import pyarrow as pa

from chainapi.tables.arrow import array_of, arrow_type, of_buffer, texts_of, times_of
from chainapi.tables.columns import Column
from chainapi.tables.types import Kind
from chainapi.tables.values import FORMS, Texts, Values

__all__ = ["packed_arrays"]


def packed_arrays(columns: Sequence[Column], pages: Sequence[Sequence[Values]]) -> list[Any]:
    """Return the array of each column of several pages, one after the other.

    A page may lack the column of unnamed fields: it is null.
    """
    fields = zip(columns, zip(*pages, strict=True), strict=False)
    arrays = [_array(column, parts) for column, parts in fields]
    return arrays + [pa.nulls(len(arrays[0]), arrow_type(column)) for column in columns[len(arrays) :]]


def _array(column: Column, parts: Sequence[Values]) -> Any:
    kinds = {*map(type, parts)}
    if kinds == {bytes}:
        return _PACKED[column.kind](b"".join(cast("Sequence[bytes]", parts)))
    if kinds == {Texts}:
        texts = cast("Sequence[Texts]", parts)
        return texts_of(b"".join([one.content for one in texts]), b"".join([one.sizes for one in texts]))
    values = [_unpacked(column, part) for part in parts]
    return array_of(column, values[0] if len(values) == 1 else [*chain.from_iterable(values)])


def _unpacked(column: Column, part: Values) -> Sequence[Any]:
    if isinstance(part, Texts):
        return _unpacked_texts(part)
    if not isinstance(part, bytes):
        return part
    numbers = [value for (value,) in struct.iter_unpack(FORMS[column.kind], part)]
    return [*map(str, numbers)] if column.kind == "digits" else numbers


def _unpacked_texts(texts: Texts) -> list[str]:
    ends = accumulate(memoryview(texts.sizes).cast("i"), initial=0)
    return [texts.content[start:end].decode() for start, end in pairwise(ends)]


def _whole(packed: bytes) -> Any:
    return of_buffer(pa.int64(), packed)


def _digits(packed: bytes) -> Any:
    return _whole(packed).cast(pa.string())


def _times(packed: bytes) -> Any:
    return times_of(of_buffer(pa.uint32(), packed))


_PACKED: Mapping[Kind, Callable[[bytes], Any]] = {
    "integer": _whole,
    "digits": _digits,
    "time": _times,
    "float": partial(of_buffer, pa.float64()),
}
