"""Parquet: typed columns, compressed, in groups of rows.

Whole numbers are int64, decimals decimal128(38, 18), times timestamps in UTC, records structs; other JSON is
text. Amounts are text, or by choice decimal128(38, 0), double, or 32 bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import field, frozen

from chainapi.export.formats import Compression, Dropped, Rows
from chainapi.export.formats.arrow import BATCH_ROWS, kept_rows, python_rows, tables_of
from chainapi.export.formats.page_groups import ParquetGroups
from chainapi.export.formats.row_groups import can_copy, copy_groups, metadata_of, write_behind
from chainapi.export.formats.table_tallies import joined, tally_of, tally_of_columns
from chainapi.export.formats.values import Tally, check_written, extended, require, typed_row, unlike
from chainapi.export.gathering import GroupSize
from chainapi.export.part_records import GroupRecord
from chainapi.export.worker import until
from chainapi.tables.arrow import arrow_schema, grows_to
from chainapi.tables.codec import Codec
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
        group_size: amount of pages that becomes a row group while they are fetched.

    """

    name: ClassVar[str] = "parquet"
    suffix: ClassVar[str] = ".parquet"
    needs_columns: ClassVar[bool] = True
    compression: Compression = "zstd"
    level: int | None = None
    group_rows: int | None = None
    source: bool = True
    group_size: GroupSize = field(factory=GroupSize)

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
                if not dropped and self._can_copy(old.metadata, columns):
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
        """Write a file with the row groups of another, and new ones after them."""
        groups, count = old.num_row_groups, int(old.metadata.num_rows)
        write = partial(self._write_rows, columns=columns, rows=rows)
        written = copy_groups(path, previous, old, self._schema(columns), self._options, write, stop)
        return count + check_written(path, written, _tally(path, stop, groups))

    def groups_of(self, codec: Codec) -> ParquetGroups | None:
        """Return the encoder of pages as row groups; None if files have other groups."""
        if self.group_rows is not None or not self.source or not codec.has_values:
            return None
        return ParquetGroups(codec, self._options, self.group_size)

    def can_end(self, columns: Sequence[Column], groups: Sequence[GroupRecord]) -> bool:
        """Check whether a segment with these groups may become a file."""
        return self.source and self._can_copy(_metadata(groups), columns)

    def _can_copy(self, metadata: Any, columns: Sequence[Column]) -> bool:
        return can_copy(metadata, self._schema(columns), self.compression, self.group_rows)

    def end(
        self,
        path: Path,
        columns: Sequence[Column],
        rows: Rows,
        groups: Sequence[GroupRecord],
        stop: threading.Event | None = None,
    ) -> int:
        """Make a file of a segment."""
        schema, end = self._schema(columns), groups[-1].start + groups[-1].length
        write = partial(self._write_rows, columns=columns, rows=rows)
        new = write_behind(path, end, _metadata(groups), schema, self._options, write)
        written = joined([*(Tally(group.rows, group.tally) for group in groups), new])
        return check_written(path, written, _tally(path, stop))

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
        """Return the columns of a file, followed by those that it lacks."""
        found = file.schema_arrow
        ordered = extended(found.names, columns, source=self.source)
        if ordered is None or not grows_to(found, self._schema(ordered)):
            raise unlike(path, self.name)
        return ordered

    def read(self, path: Path) -> Generator[dict[str, Any], None, None]:
        """Yield the rows of a file."""
        with _opened(path) as file:
            yield from python_rows(file.iter_batches(BATCH_ROWS), path, self.name)

    def typed(self, row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
        """Return a row that `read` yields, with the kinds of these columns."""
        return typed_row(row, columns, json_texts=True)


def _metadata(groups: Sequence[GroupRecord]) -> Any:
    """Return the metadata of row groups together."""
    first, *others = (metadata_of(group.footer) for group in groups)
    for metadata in others:
        first.append_row_groups(metadata)
    return first


def write_tables(writer: Any, tables: Iterable[Any]) -> Tally:
    """Write tables, each as a group of rows; return their tally."""
    written = list[Tally]()
    for table in tables:
        writer.write_table(table, row_group_size=table.num_rows)
        written.append(tally_of(table))
        del table  # memory holds the next group alone
    return joined(written)


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
    found = list[Tally]()
    with _opened(source) as file:
        names = file.schema_arrow.names
        for group in until(stop, range(first, file.num_row_groups)):
            parts = (file.read_row_group(group, [name], use_threads=False).column(0) for name in names)
            found.append(tally_of_columns(file.metadata.row_group(group).num_rows, parts))
    return joined(found)


FORMAT = Parquet()
