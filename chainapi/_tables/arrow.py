"""Arrow types of columns, and Arrow arrays of their values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, repeat
from operator import is_not
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from chainapi._tables.columns import SOURCE, Column
from chainapi._tables.rows import by_class, json_text
from chainapi._tables.types import PRECISION, SCALARS, SCALE, Kind

__all__ = [
    "array_of",
    "arrow_schema",
    "arrow_type",
    "grows_to",
    "places_of",
]

_TIME = pa.timestamp("ms", "UTC")
_KNOWN = (
    *(pa.int64(), pa.float64(), pa.bool_(), pa.string(), _TIME),
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


# Arrays. They are made of buffers: for a list of values pyarrow imports pandas, if that is installed, which
# takes longer than many tables and 50 MiB of memory.


def array_of(column: Column, values: Sequence[Any]) -> Any:
    """Return the values of a column as an array.

    They are as `chainapi._tables.rows.reader` returns them with ``nested=True``; a record may lack columns.
    """
    if values.count(None) == len(values):
        return pa.nulls(len(values), arrow_type(column))
    if column.kind == "json":
        values = [*map(json_text, values)]
    make = _ARRAYS[column.kind]
    try:
        return make(column, values, None)
    except (TypeError, struct.error):  # there is None: to search all values for it would take longer
        return make(column, values, _validity(values))


def _of_buffer(kind: Any, content: bytes, validity: Any = None) -> Any:
    """Return an array of values of a fixed size, from their bytes.

    `validity` is the bitmap of the values that are not null; None if all are.
    """
    size = len(content) * 8 // kind.bit_width
    return pa.Array.from_buffers(kind, size, [validity, pa.py_buffer(content)])


def places_of(indices: Sequence[int]) -> Any:
    """Return indices of rows as an array."""
    return _of_buffer(pa.int64(), struct.pack(f"{len(indices)}q", *indices))


def _validity(values: Sequence[Any]) -> Any:
    return _of_buffer(pa.uint8(), bytes(map(is_not, values, repeat(None)))).cast(pa.bool_()).buffers()[1]


def _filled(values: Sequence[Any], validity: Any, nothing: Any) -> Sequence[Any]:
    """Return values with `nothing` in place of None."""
    return values if validity is None else [nothing if value is None else value for value in values]


def _records(column: Column, values: Sequence[Any], validity: Any) -> Any:
    if validity is None and None in values:
        raise TypeError("there is None among the records")
    found, nothing = by_class(values, _columns), [None] * len(values)
    arrays = [array_of(field, found.get(field.name, nothing)) for field in column.fields]
    return pa.Array.from_buffers(arrow_type(column), len(values), [validity], children=arrays)


def _columns(records: Sequence[Any], _: Sequence[int]) -> Mapping[str, Sequence[Any]]:
    """Return the values of Structs of one class by the names of their fields in JSON."""
    columns = zip(*map(astuple, records), strict=True)
    return dict(zip(records[0].__struct_encode_fields__, columns, strict=True))


def _lists(column: Column, values: Sequence[Any], validity: Any) -> Any:
    lists = _filled(values, validity, ())
    items = array_of(column.fields[0], [*chain.from_iterable(lists)])
    offsets = struct.pack(f"{len(lists) + 1}i", *accumulate(map(len, lists), initial=0))
    buffers = [validity, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(arrow_type(column), len(lists), buffers, children=[items])


def _texts(_: Column, values: Sequence[Any], validity: Any) -> Any:
    texts = _filled(values, validity, "")
    joined = "".join(texts)
    content = joined.encode()
    parts = texts if len(content) == len(joined) else [*map(str.encode, texts)]
    sizes = bytes(4) + struct.pack(f"{len(parts)}i", *map(len, parts))
    offsets = pc.call_function("cumulative_sum_checked", [_of_buffer(pa.int32(), sizes)])
    buffers = [validity, offsets.buffers()[1], pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.string(), len(parts), buffers)


def _digits(column: Column, values: Sequence[Any], validity: Any) -> Any:
    """Return whole numbers, or the texts of them, as strings."""
    try:
        packed = struct.pack(f"{len(values)}q", *_filled(values, validity, 0))
    except struct.error:
        if validity is None and None in values:
            raise
        return _texts(column, [None if value is None else str(value) for value in values], validity)
    return _of_buffer(pa.int64(), packed, validity).cast(pa.string())


def _packed(form: str, column: Column, values: Sequence[Any], validity: Any) -> Any:
    packed = struct.pack(f"{len(values)}{form}", *_filled(values, validity, 0))
    return _of_buffer(arrow_type(column), packed, validity)


def _booleans(_: Column, values: Sequence[Any], validity: Any) -> Any:
    return _of_buffer(pa.uint8(), bytes(_filled(values, validity, 0)), validity).cast(pa.bool_())


def _times(_: Column, values: Sequence[Any], validity: Any) -> Any:
    packed = struct.pack(f"{len(values)}q", *_filled(values, validity, 0))
    seconds = _of_buffer(pa.int64(), packed, validity)
    return pc.call_function("multiply", [seconds, _MILLISECONDS]).view(_TIME)


def _decimals(column: Column, values: Sequence[Any], validity: Any) -> Any:
    return _texts(column, values, validity).cast(arrow_type(column))  # the codec checked the digits


_MILLISECONDS = _of_buffer(pa.int64(), struct.pack("q", 1_000))[0]  # of a second

_ARRAYS: Mapping[Kind, Callable[[Column, Sequence[Any], Any], Any]] = {
    "integer": partial(_packed, "q"),
    "float": partial(_packed, "d"),
    "boolean": _booleans,
    "text": _texts,
    "digits": _digits,
    "json": _texts,
    "time": _times,
    "whole": _decimals,
    "decimal": _decimals,
    "struct": _records,
    "list": _lists,
}


# Types that grow


def grows_to(found: Any, wanted: Any) -> bool:
    """Return whether another schema or struct has all fields, with the same types.

    Records may have more fields there. DuckDB returns times in other units.
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
    return bool(found == wanted)
