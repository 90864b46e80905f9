"""Arrow types of columns, and Arrow arrays of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
from msgspec.structs import astuple

from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.rows import json_text
from chainapi.tables.types import BYTES, PRECISION, SCALARS, SCALE, Kind, bytes_of

__all__ = ["array_of", "arrow_schema", "arrow_type", "grows_to"]

_TIME = pa.timestamp("ms", "UTC")
_KNOWN = (
    *(pa.int64(), pa.float64(), pa.bool_(), pa.string(), _TIME, pa.binary(BYTES)),
    *(pa.decimal128(PRECISION, 0), pa.decimal128(PRECISION, SCALE)),
)
_TYPES: Mapping[str, Any] = {str(known): known for known in _KNOWN}


def arrow_schema(columns: Sequence[Column], *, labelled: bool = True) -> Any:
    """Return the schema of a table.

    With `labelled`, the first column is the label of the source.
    """
    labels = (Column(SOURCE, "text"),) if labelled else ()
    return pa.schema([(column.name, arrow_type(column)) for column in (*labels, *columns)])


def arrow_type(column: Column) -> Any:
    """Return the type of a column."""
    if column.kind == "struct":
        return pa.struct([(field.name, arrow_type(field)) for field in column.fields])
    if column.kind == "list":
        return pa.list_(pa.field("element", arrow_type(column.fields[0])))
    return _TYPES[SCALARS[column.kind].arrow]


def array_of(column: Column, values: Sequence[Any]) -> Any:
    """Return the values of a column as an array.

    The values are those of `chainapi.tables.rows.reader` with ``nested=True``.
    """
    if column.kind == "struct":
        return _records(column, values)
    if column.kind == "list":
        return _lists(column, values)
    return _ARRAYS.get(column.kind, _plain)(values, arrow_type(column))


def _records(column: Column, values: Sequence[Any]) -> Any:
    nothing = (None,) * len(column.fields)
    rows = [nothing if value is None else astuple(value) for value in values]
    parts = zip(*rows, strict=True) if rows else [()] * len(column.fields)
    arrays = [array_of(field, part) for field, part in zip(column.fields, parts, strict=True)]
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=[*arrow_type(column)], mask=missing)


def _lists(column: Column, values: Sequence[Any]) -> Any:
    items = [item for value in values if value is not None for item in value]
    ends = [*accumulate((len(value or ()) for value in values), initial=0)]
    starts = [None if value is None else end for value, end in zip(values, ends, strict=False)]
    offsets = pa.array([*starts, ends[-1]], pa.int32())
    return pa.ListArray.from_arrays(offsets, array_of(column.fields[0], items), type=arrow_type(column))


def _plain(values: Sequence[Any], wanted: Any) -> Any:
    return pa.array(values, wanted)


def _parsed(values: Sequence[Any], wanted: Any) -> Any:
    return pa.array(values, pa.string()).cast(wanted)  # the codec checked the digits


def _times(values: Sequence[Any], wanted: Any) -> Any:
    return pa.array(values, pa.timestamp("s", "UTC")).cast(wanted)


def _bytes(values: Sequence[Any], wanted: Any) -> Any:
    return pa.array([None if value is None else bytes_of(value) for value in values], wanted)


def _texts(values: Sequence[Any], wanted: Any) -> Any:
    return pa.array([json_text(value) for value in values], wanted)


_ARRAYS: Mapping[Kind, Callable[[Sequence[Any], Any], Any]] = {
    "whole": _parsed,
    "decimal": _parsed,
    "time": _times,
    "bytes32": _bytes,
    "json": _texts,
}


# Types that grow


def grows_to(found: Any, wanted: Any) -> bool:
    """Return whether another schema or struct has all fields, with the same types.

    Records may have more fields there. DuckDB returns times in other units, and 32 bytes as any bytes.
    """
    return all(
        wanted.get_field_index(field.name) >= 0 and _fits(field.type, wanted.field(field.name).type)
        for field in found
    )


def _fits(found: Any, wanted: Any) -> bool:
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        return grows_to(found, wanted)
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return _fits(found.value_type, wanted.value_type)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)
    return bool(found == wanted or (pa.types.is_binary(found) and pa.types.is_fixed_size_binary(wanted)))
