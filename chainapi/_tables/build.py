"""Arrow tables, built of the rows of pages (extra `arrow`).

Rows of a model get the types of its columns. Rows without a model get the types that pyarrow infers from all
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, TypeAlias

from attrs import define, field, frozen

from chainapi._tables.codec import Codec
from chainapi._tables.rows import reader
from chainapi._tables.types import A_MODEL, Amounts, checked_amounts
from chainapi.core.extras import missing_extra
from chainapi.errors import ColumnValueError, ConfigurationError
from chainapi.models.invalid import Invalid
from chainapi.models.plain import to_dict, to_wire

try:
    import pyarrow as pa
except ModuleNotFoundError as _missing:
    raise missing_extra("tables need", _missing.name, "arrow") from None

from chainapi._tables.arrow import array_of, arrow_schema

__all__ = ["Inferred", "TableBuilder", "Typed", "batch_of", "builder_of", "table_of"]

BATCH_ROWS = 16_384  # rows that wait before they become arrays: fewer cost more each, more take memory


def builder_of(model: Any, amounts: Amounts, left_out: list[Invalid], *, lenient: bool) -> TableBuilder:
    """Return the builder of a table.

    Args:
        model: the model of the rows; None for JSON values.
        amounts: the form of amounts.
        left_out: invalid rows are appended here.
        lenient: leave out rows with a value that does not fit its column, in place of an error.

    """
    layout = _layout_of(model, amounts)
    return Inferred(left_out) if layout is None else Typed(layout, left_out, lenient)


def table_of(rows: Sequence[Any], model: Any, amounts: Amounts, *, lenient: bool = False) -> Any:
    """Return rows as a `pyarrow.Table`; invalid rows are left out (see `builder_of`).

    Raises:
        ConfigurationError: `amounts` is unknown, or rows without a model have values of types that do not fit
            together.
        ColumnValueError: a value does not fit its column.

    """
    builder = builder_of(model, checked_amounts(amounts), [], lenient=lenient)
    builder.add(rows, range(len(rows)))
    return builder.table()


def batch_of(table: Any) -> Any:
    """Return a table as one record batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else _empty(table.schema)


def _empty(schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


@frozen(eq=False)
class _Layout:
    """Columns of a model, and the functions from rows to them."""

    codec: Codec
    schema: Any
    read: Callable[[bytes], list[Sequence[Any]]]


@lru_cache(maxsize=256)
def _layout_of(model: Any, amounts: Amounts) -> _Layout | None:
    """Return the layout of a model; None if it has no columns."""
    codec = Codec(model, amounts)
    if not codec.columns:
        return None
    return _Layout(codec, arrow_schema(codec.columns, labelled=False), reader(codec.columns, nested=True))


@define(eq=False)
class Typed:
    """Builder of a table, row by row and page by page, for rows of a model.

    Attributes:
        typed: whether the types of the columns do not depend on the rows.
        taken: number of rows taken, those included that are left out.
        size: number of rows of the table.

    """

    typed: ClassVar[bool] = True

    _layout: _Layout
    _left_out: list[Invalid]
    _lenient: bool
    taken: int = field(default=0, init=False)
    size: int = field(default=0, init=False)
    _batches: list[Any] = field(factory=list[Any], init=False)
    _waiting: list[list[Sequence[Any]]] = field(factory=list[list[Sequence[Any]]], init=False)  # of columns
    _count: int = field(default=0, init=False)  # their rows

    def add(self, rows: Sequence[Any], indices: Sequence[int]) -> None:
        """Take rows, which have these indices in their page.

        Raises:
            ColumnValueError: a value does not fit its column; no row was taken.

        """
        columns, invalid = self._columns(rows, indices)
        self._left_out += invalid
        self.taken += len(rows)
        self.size += len(rows) - len(invalid)
        self._waiting.append(columns)
        self._count += len(rows) - len(invalid)
        if self._count >= BATCH_ROWS:
            self._flush()

    def table(self) -> Any:
        """Return the rows taken so far as a `pyarrow.Table`."""
        self._flush()
        return pa.Table.from_batches(self._batches, self._layout.schema)

    def partial(self) -> Any:
        """Return the rows taken before an error as a table."""
        return self.table()

    def _columns(
        self, rows: Sequence[Any], indices: Sequence[int]
    ) -> tuple[list[Sequence[Any]], list[Invalid]]:
        """Return the values of the columns of the valid rows, and the others."""
        codec = self._layout.codec
        try:
            if (columns := codec.values(rows)) is not None:
                return columns, []
            invalid = [row for row in rows if isinstance(row, Invalid)]
            valid = [row for row in rows if not isinstance(row, Invalid)] if invalid else rows
            return self._layout.read(codec.encode_lines(valid)), invalid
        except ColumnValueError as fault:
            if not self._lenient:  # then no row is an `Invalid`
                raise fault.changed(row=indices[fault.row or 0], advice=_ADVICE) from None
        encoded = [self._encoded(row, index) for row, index in zip(rows, indices, strict=True)]
        lines = b"".join(line for line in encoded if isinstance(line, bytes))
        return self._layout.read(lines), [row for row in encoded if isinstance(row, Invalid)]

    def _encoded(self, row: Any, index: int) -> bytes | Invalid:
        if isinstance(row, Invalid):
            return row
        try:
            return self._layout.codec.encode_lines([row])
        except ColumnValueError as fault:
            return Invalid(to_wire(row), fault.changed(row=index, advice=""))

    def _flush(self) -> None:
        """Make arrays of the rows that wait."""
        if self._count:
            columns = [
                parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]
                for parts in zip(*self._waiting, strict=True)
            ]
            arrays = [*map(array_of, self._layout.codec.columns, columns)]
            self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._layout.schema))
        self._waiting, self._count = [], 0


_ADVICE = 'with on_invalid="raw", a table leaves such rows out'


@define(eq=False)
class Inferred:
    """Builder for rows without columns: JSON values, and rows of other classes.

    It has the attributes of `Typed`.
    """

    typed: ClassVar[bool] = False

    _left_out: list[Invalid]
    taken: int = field(default=0, init=False)
    _rows: list[dict[str, Any]] = field(factory=list[dict[str, Any]], init=False)

    def add(self, rows: Sequence[Any], indices: Sequence[int]) -> None:
        """Take rows, which have these indices in their page."""
        self._left_out += [row for row in rows if isinstance(row, Invalid)]
        self._rows += [_as_dict(row) for row in rows if not isinstance(row, Invalid)]
        self.taken += len(rows)

    @property
    def size(self) -> int:
        """Number of rows of the table."""
        return len(self._rows)

    def table(self) -> Any:
        """Return the rows taken so far as a `pyarrow.Table`.

        Raises:
            ConfigurationError: rows have values of types that do not fit together.

        """
        names = dict.fromkeys(name for row in self._rows for name in row)
        return pa.table({name: self._inferred(name) for name in names})

    def partial(self) -> list[dict[str, Any]]:
        """Return the rows taken before an error."""
        return self._rows

    def _inferred(self, name: str) -> Any:
        values = [row.get(name) for row in self._rows]
        try:
            made = pa.array(values)
            _check_inferred(made.type, values)
        except (pa.ArrowException, OverflowError) as error:
            raise ConfigurationError(
                f"the values of {name!r} have no common type of Arrow, and the rows have no model with types:"
                f" {error}; pass {A_MODEL}"
            ) from None
        return made


TableBuilder: TypeAlias = Typed | Inferred


def _check_inferred(kind: Any, values: Sequence[Any]) -> None:
    """Refuse a type that changes a value, or that polars and DuckDB cannot read.

    Raises:
        ArrowInvalid: pyarrow made a number of a boolean, or a decimal has more than 38 digits.

    """
    if pa.types.is_floating(kind) and bool in {*map(type, values)}:
        raise pa.ArrowInvalid("booleans and numbers")
    if pa.types.is_decimal256(kind):
        raise pa.ArrowInvalid("a number has more than 38 digits")
    if pa.types.is_list(kind):
        _check_inferred(kind.value_type, [entry for entries in values for entry in entries or ()])
    if pa.types.is_struct(kind):
        records = [value for value in values if value is not None]
        for inner in kind:
            _check_inferred(inner.type, [record.get(inner.name) for record in records])


def _as_dict(row: Any) -> dict[str, Any]:
    """Return a row as a dict; one that is no object has the column ``value``."""
    made = to_dict(row)
    return made if isinstance(made, dict) else {"value": made}
