"""Arrow tables for typed file formats: column types and value conversion.

Each kind of column has types from narrow to wide. A column begins with the first. If a value does not fit,
the column takes a wider one, and the file is started again with the types that all rows need. Nothing is
rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
from msgspec.structs import astuple

from chainapi.models.timestamps import utc_datetime
from chainapi.tables.columns import SOURCE, Column, json_text

__all__ = ["Types"]

WHOLE = pa.decimal128(38, 0)
FRACTION = pa.decimal128(38, 18)
TIME = pa.timestamp("ms", "UTC")  # Parquet has no seconds
TYPES: dict[str, tuple[Any, ...]] = {
    "integer": (pa.int64(), WHOLE, pa.string()),
    "big": (WHOLE, pa.string()),
    "time": (TIME, pa.int64(), WHOLE, pa.string()),
    "decimal": (FRACTION, pa.string()),
    "float": (pa.float64(),),
    "boolean": (pa.bool_(),),
    "text": (pa.string(),),
    "json": (pa.string(),),
}


class Types:
    """Types of a file's columns; `widened` is True once one became wider."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = (Column(SOURCE, "text"), *columns)
        self.widened = False
        self._steps: dict[str, int] = {}  # which of its types a column has, by its path
        self._earlier: dict[str, int] = {}  # the same in the earlier file

    @property
    def schema(self) -> Any:
        """Schema of the file."""
        return pa.schema([(column.name, _type(column, self._steps)) for column in self.columns])

    def take(self, schema: Any) -> bool:
        """Take over the types of an earlier file; return False if it has other columns."""
        names = [column.name for column in self.columns]
        taken = schema.names == names and all(
            self._take(column, field.type) for column, field in zip(self.columns, schema, strict=True)
        )
        self._earlier = dict(self._steps)
        return taken

    def _take(self, column: Column, found: Any, above: str = "") -> bool:
        path = f"{above}.{column.name}"
        if column.kind == "struct":
            fields = {field.name: field.type for field in found} if pa.types.is_struct(found) else {}
            return [*fields] == [field.name for field in column.fields] and all(
                self._take(field, fields[field.name], path) for field in column.fields
            )
        if column.kind == "list":
            return pa.types.is_list(found) and self._take(column.fields[0], found.value_type, path)
        for step, known in enumerate(TYPES[column.kind]):
            if known == found or (pa.types.is_timestamp(known) and pa.types.is_timestamp(found)):
                self._steps[path] = step
                return True
        return False

    def batch(self, rows: Sequence[Sequence[Any]]) -> Any:
        """Return a batch of rows, each the values of all columns."""
        arrays = [
            self._array(column, values)
            for column, values in zip(self.columns, zip(*rows, strict=True), strict=True)
        ]
        return pa.Table.from_arrays(arrays, names=[column.name for column in self.columns])

    def retyped(self, batch: Any) -> Any:
        """Return a batch of an earlier file with the types of this one."""
        arrays = []
        for column, found in zip(self.columns, batch.columns, strict=True):
            wanted = _type(column, self._steps)
            alike = wanted == _type(column, self._earlier)  # apart from units of time and names of items
            arrays.append(found.cast(wanted) if alike else self._array(column, found.to_pylist()))
        return pa.Table.from_arrays(arrays, names=batch.schema.names)

    def _array(self, column: Column, values: Sequence[Any], above: str = "") -> Any:
        path = f"{above}.{column.name}"
        if column.kind == "struct":
            return self._records(column, values, path)
        if column.kind == "list":
            return self._lists(column, values, path)
        prepared = _PREPARE.get(column.kind)
        if prepared is not None:
            values = [None if value is None else prepared(value) for value in values]
        types = TYPES[column.kind]
        for step in range(self._steps.get(path, 0), len(types) - 1):
            with suppress(OverflowError, ValueError):  # pyarrow's ArrowInvalid is a ValueError
                return self._stepped(path, step, _leaf(column, values, types[step]))
        return self._stepped(path, len(types) - 1, _leaf(column, values, types[-1]))

    def _stepped(self, path: str, step: int, array: Any) -> Any:
        self.widened |= step > self._steps.get(path, 0)
        self._steps[path] = step
        return array

    def _records(self, column: Column, values: Sequence[Any], path: str) -> Any:
        nothing = (None,) * len(column.fields)
        rows = [nothing if value is None else _fields(column, value) for value in values]
        parts = zip(*rows, strict=True) if rows else [()] * len(column.fields)
        arrays = [self._array(field, part, path) for field, part in zip(column.fields, parts, strict=True)]
        fields = [
            pa.field(field.name, array.type) for field, array in zip(column.fields, arrays, strict=True)
        ]
        missing = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=missing)

    def _lists(self, column: Column, values: Sequence[Any], path: str) -> Any:
        items = [item for value in values if value is not None for item in value]
        array = self._array(column.fields[0], items, path)
        ends = [*accumulate((len(value or ()) for value in values), initial=0)]
        starts = [None if value is None else end for value, end in zip(values, ends, strict=False)]
        offsets = pa.array([*starts, ends[-1]], pa.int32())
        return pa.ListArray.from_arrays(offsets, array, type=pa.list_(pa.field("element", array.type)))


def _type(column: Column, steps: Mapping[str, int], above: str = "") -> Any:
    """Return the type of a column; `above` is the path of its parent columns."""
    path = f"{above}.{column.name}"
    if column.kind == "struct":
        return pa.struct([(field.name, _type(field, steps, path)) for field in column.fields])
    if column.kind == "list":
        return pa.list_(pa.field("element", _type(column.fields[0], steps, path)))
    return TYPES[column.kind][steps.get(path, 0)]


def _fields(column: Column, value: Any) -> tuple[Any, ...]:
    """Return the values of a record: unpacked, or a dict from an earlier file."""
    if isinstance(value, dict):
        return tuple(value[field.name] for field in column.fields)
    return astuple(value)


# One kind of Python object for values of unpacked rows and of earlier files.
_PREPARE: dict[str, Callable[[Any], Any]] = {
    "integer": int,
    "big": int,
    "decimal": Decimal,
    "time": lambda value: round(value.timestamp()) if isinstance(value, datetime) else int(value),
    "json": lambda value: value if isinstance(value, str) else json_text(value),
}


def _leaf(column: Column, values: Sequence[Any], wanted: Any) -> Any:
    """Return values as an array of a type.

    Raises ValueError or OverflowError if a value does not fit.
    """
    if wanted is TIME:
        if given := [value for value in values if value is not None]:
            _ = utc_datetime(min(given)), utc_datetime(max(given))
        return pa.array(values, pa.timestamp("s", "UTC")).cast(TIME)
    if wanted in (WHOLE, FRACTION) and not all(value is None or _fits(value, wanted) for value in values):
        raise ValueError
    if wanted == pa.string() and column.kind not in ("text", "json"):
        values = [None if value is None else _plain(value) for value in values]
    return pa.array(values, wanted)


def _fits(value: int | Decimal, wanted: Any) -> bool:
    """Check that a number fits unchanged.

    pyarrow silently cuts off digits after the 38th.
    """
    if isinstance(value, int):
        return bool(abs(value) < 10**wanted.precision)
    exponent = value.as_tuple().exponent
    whole = wanted.precision - wanted.scale
    return isinstance(exponent, int) and bool(exponent >= -wanted.scale and value.adjusted() < whole)


_LONGEST = 1_000  # digits that a number may have without its exponent


def _plain(value: int | Decimal) -> str:
    """Return a number as text; equal numbers have equal texts."""
    if isinstance(value, int) or not value.is_finite() or abs(value.adjusted()) > _LONGEST:
        return str(value)
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
