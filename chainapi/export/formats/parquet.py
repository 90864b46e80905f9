"""Parquet: typed columns, compressed, in groups of rows.

Whole numbers are int64, decimals decimal128(38, 18), times timestamps in UTC, records structs; other JSON is
text. Amounts are text, or by choice decimal128(38, 0), double, or 32 bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from chainapi.export.formats import Compression, Dropped, Rows
from chainapi.export.formats.arrow import BATCH_ROWS, kept_rows, python_rows, tables_of
from chainapi.export.formats.row_groups import can_copy, copy_groups
from chainapi.export.formats.values import Tally, check_written, extended, require, typed_row, unlike
from chainapi.export.worker import until
from chainapi.tables.arrow import arrow_schema, grows_to
from chainapi.tables.columns import SOURCE, Column

__all__ = ["FORMAT", "Parquet", "write_tables"]


@frozen
class Parquet:
    """Rows as a Parquet file.

    Attributes:
        compression: compression of the values.
        level: its level; None for the default of Arrow.
        group_rows: number of rows of a group, the last one excepted; None for 100,000, or fewer if they are
            large. Memory holds one group.
        source: whether files have the column ``source``.

    """

    name: ClassVar[str] = "parquet"
    suffix: ClassVar[str] = ".parquet"
    needs_columns: ClassVar[bool] = True
    compression: Compression = "zstd"
    level: int | None = None
    group_rows: int | None = None
    source: bool = True

    def write(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path | None = None,
        stop: threading.Event | None = None,
        dropped: Dropped = frozenset(),
    ) -> int:
        """Write a file."""
        require(columns, self.name)
        with ExitStack() as stack:
            old = None if previous is None else stack.enter_context(_opened(previous))
            if previous is not None and old is not None:
                columns = self._columns_in(old, previous, columns)
                if not dropped and can_copy(old, self._schema(columns), self.compression, self.group_rows):
                    return self._write_behind(path, columns, rows, previous, old, stop)
            earlier = () if old is None else kept_rows(old.iter_batches(BATCH_ROWS), dropped)
            with pq.ParquetWriter(path, self._schema(columns), **self._options) as writer:
                written = self._write_rows(writer, columns, rows, earlier)
        return check_written(path, written, _tally(path, stop))

    def _write_behind(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        previous: Path,
        old: Any,
        stop: threading.Event | None,
    ) -> int:
        """Write a file with the row groups of another, and new ones behind them."""
        groups, count = old.num_row_groups, int(old.metadata.num_rows)

        def write(writer: Any) -> Tally:
            return self._write_rows(writer, columns, rows)

        written = copy_groups(path, previous, old, self._schema(columns), self._options, write, stop)
        return count + check_written(path, written, _tally(path, stop, groups))

    def _write_rows(
        self, writer: Any, columns: Sequence[Column], rows: Rows, earlier: Iterable[Any] = ()
    ) -> Tally:
        tables = tables_of(columns, rows, earlier, self.group_rows)
        return write_tables(writer, tables if self.source else (one.drop_columns([SOURCE]) for one in tables))

    @property
    def _options(self) -> dict[str, Any]:
        return {"compression": self.compression, "compression_level": self.level}

    def encode(
        self, name: str, columns: Sequence[Column], rows: Rows, metadata: Mapping[bytes, bytes]
    ) -> bytes:
        """Return the bytes of a file with this name, and `metadata` in its footer.

        Raises:
            ExportError: the file does not have the rows that were encoded.

        """
        made = pa.BufferOutputStream()
        with pq.ParquetWriter(made, self._schema(columns), **self._options) as writer:
            written = self._write_rows(writer, columns, rows)
            writer.add_key_value_metadata(metadata)
        content = made.getvalue()
        found = _tally(pa.BufferReader(content))
        check_written(Path(name), written, found, "All rows of earlier parts are kept")
        return bytes(content)

    def _schema(self, columns: Sequence[Column]) -> Any:
        schema = arrow_schema(columns)
        return schema if self.source else schema.remove(schema.get_field_index(SOURCE))

    def _columns_in(self, file: Any, path: Path, columns: Sequence[Column]) -> list[Column]:
        """Return the columns of a file, and behind them those that it lacks."""
        found = file.schema_arrow
        ordered = extended(found.names, columns, source=self.source)
        if ordered is None or not grows_to(found, self._schema(ordered)):
            raise unlike(path, self.name)
        return ordered

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file."""
        with _opened(path) as file:
            if columns:
                self._columns_in(file, path, columns)
            for row in python_rows(file.iter_batches(BATCH_ROWS), path, self.name):
                yield self.typed(row, columns) if columns else row

    def typed(self, row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return a row, as `read` yields it without columns, with the kinds of these."""
        return typed_row(row, columns, json_texts=True)


def write_tables(writer: Any, tables: Iterable[Any]) -> Tally:
    """Write tables, each as a group of rows; return their tally."""
    written = Tally(0, 0)
    for table in tables:
        writer.write_table(table, row_group_size=table.num_rows)
        written = _added(written, table)
        del table  # memory holds the next group alone
    return written


@contextmanager
def _opened(source: Any) -> Iterator[Any]:
    """Open a path or a buffer."""
    try:
        file = pq.ParquetFile(source)
    except pa.ArrowInvalid:
        raise unlike(source, "parquet") from None
    with file:
        yield file


def _tally(source: Any, stop: threading.Event | None = None, first: int = 0) -> Tally:
    """Return the tally of a file, a path or a buffer, from one of its groups on.

    Memory holds one column of a group.
    """
    tally = Tally(0, 0)
    with _opened(source) as file:
        names = file.schema_arrow.names
        for group in until(stop, range(first, file.num_row_groups)):
            parts = (file.read_row_group(group, [name], use_threads=False).column(0) for name in names)
            tally = _with_group(tally, file.metadata.row_group(group).num_rows, parts)
    return tally


def _added(tally: Tally, table: Any) -> Tally:
    return _with_group(tally, table.num_rows, table.columns)


def _with_group(tally: Tally, rows: int, columns: Iterable[Any]) -> Tally:
    """Count a group of rows; the order of groups does not matter."""
    checksum = 0
    for column in columns:
        for leaf in _leaves(pa.concat_arrays(column.chunks)):
            checksum = crc32(pa.record_batch([leaf], [""]).serialize(), checksum)
    pa.default_memory_pool().release_unused()  # it would keep several times what is in use
    return Tally(tally.rows + rows, tally.checksum + checksum)


def _leaves(array: Any) -> Iterator[Any]:
    """Yield arrays without nulls that together have all values of an array.

    The places of the nulls are an array of booleans.
    """
    if array.null_count:
        yield array.is_null()
        array = array.drop_null()
    if pa.types.is_struct(array.type):
        for field in array.flatten():
            yield from _leaves(field)
    elif pa.types.is_list(array.type):
        yield array.value_lengths()
        yield from _leaves(array.flatten())
    elif pa.types.is_boolean(array.type):
        yield array.cast(pa.uint8())  # the last byte of a slice of bits has those behind its end too
    else:
        yield array


FORMAT = Parquet()
