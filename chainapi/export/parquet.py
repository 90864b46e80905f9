"""Files of Parquet, and Arrow tables of rows (extra `parquet`).

Whole numbers are int64, decimals decimal128(38, 18), times timestamps in UTC, records structs; other JSON is
text. Amounts are text, or by choice decimal128(38, 0), double, or 32 bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from chainapi.export.batch import PageRows
from chainapi.export.text import damaged_file
from chainapi.tables.arrow import array_of, arrow_schema, grows_to, places_of
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.packed import packed_arrays
from chainapi.tables.rows import reader
from chainapi.tables.values import Values, packed

__all__ = ["ArrowRows", "ParquetFormat", "ParquetWriter", "conformed", "row_key"]

PACK_ROWS = 8_192  # rows that become arrays at once: fewer cost more each, more take memory
GROUP_ROWS, GROUP_BYTES = 100_000, 64 << 20  # of a row group, whichever comes first
READ_ROWS = 16_384  # at once from a file
_SOURCE = Column(SOURCE, "text")


class ArrowRows:
    """Maker of Arrow tables of rows.

    Args:
        columns: columns of the tables, in their order.
        encoded: the same in the order of `PageRows.values`, that of unnamed fields last.
        labelled: whether the first column is ``source``.

    """

    def __init__(
        self, columns: Sequence[Column], encoded: Sequence[Column], *, labelled: bool = True
    ) -> None:
        self.schema = arrow_schema(columns, labelled=labelled)
        self._encoded, self._labelled = encoded, labelled
        self._made = arrow_schema(encoded, labelled=labelled)
        self._read = reader(encoded, nested=True)

    def table(self, pages: Sequence[PageRows]) -> Any:
        """Return the rows of pages, grouped by source in the order of arrival."""
        order = {label: place for place, label in enumerate(dict.fromkeys(page.label for page in pages))}
        pages = sorted(pages, key=lambda page: order[page.label])
        alike = all(page.values is not None for page in pages)
        arrays = packed_arrays(self._encoded, [self._values(page, whole=not alike) for page in pages])
        if self._labelled:
            labels = [label for page in pages for label in [page.label] * page.count]
            arrays = [array_of(_SOURCE, labels), *arrays]
        made = pa.Table.from_arrays(arrays, schema=self._made)
        return made if self._made.equals(self.schema) else made.select(self.schema.names)

    def _values(self, page: PageRows, *, whole: bool) -> Sequence[Values]:
        """Return the values of each column.

        Those of unnamed fields only if they are wanted.
        """
        if page.values is None:
            found = zip(self._encoded, self._read(page.lines), strict=True)
            return [packed(column.kind, values) for column, values in found]
        lacking = len(self._encoded) - len(page.values) if whole else 0
        return [*page.values, *[[None] * page.count] * lacking]


@frozen
class ParquetFormat:
    """Format of Parquet files.

    Attributes:
        columns: columns of the rows, in the order of the files.
        encoded: the same in the order of `PageRows.values`.
        labelled: whether files have the column ``source``; the names of folders have it otherwise.
        options: how they are written.

    """

    columns: tuple[Column, ...]
    encoded: tuple[Column, ...]
    labelled: bool
    options: Any

    name = "parquet"
    suffix = ".parquet"
    header = b""

    @cached_property
    def packs(self) -> bool:
        """Whether a writer takes the values of rows."""
        return self.labelled

    def rows_of(self) -> ArrowRows:
        """Return a maker of tables."""
        return ArrowRows(self.columns, self.encoded, labelled=self.labelled)

    def writer(self, path: Path) -> ParquetWriter:
        """Return a writer of a new file."""
        return ParquetWriter(path, self.rows_of(), self.options)

    def keys(self, page: PageRows) -> list[Any]:
        """Return for each row what `rows` yields for an equal one."""
        return [row_key(row) for row in self.rows_of().table([page]).to_pylist()]

    def rows(self, path: Path, named: str) -> Iterator[tuple[Mapping[str, Any], Any]]:
        """Yield the values of each row by column, and what it is compared by.

        Raises:
            ExportError: the file is damaged.

        """
        for batch in self._batches(path, named):
            for row in batch.to_pylist():
                yield row, row_key(row)

    def rewrite(self, path: Path, files: Iterable[tuple[Path, str, Collection[int]]]) -> int:
        """Write a file with the rows of others, as `TextFormat` does."""
        count = 0
        writer = self.writer(path)
        try:
            for old, named, dropped in files:
                begun = 0
                for batch in self._batches(old, named):
                    end = begun + batch.num_rows
                    if any(begun <= place < end for place in dropped):
                        kept = [place - begun for place in range(begun, end) if place not in dropped]
                        batch = batch.take(places_of(kept))
                    begun = end
                    count += batch.num_rows
                    writer.add(batch)
        finally:
            writer.close()
        return count

    def header_of(self, path: Path, named: str) -> bytes:
        """Return nothing: a file of Parquet is never continued."""
        return b""

    def _batches(self, path: Path, named: str) -> Iterator[Any]:
        """Yield tables with all columns of the rows; those that the file lacks are null."""
        schema = arrow_schema(self.columns, labelled=self.labelled)
        with _damage(named), pq.ParquetFile(path) as file:
            if not grows_to(file.schema_arrow, schema):
                raise damaged_file(named, "it has other columns")
            for batch in file.iter_batches(READ_ROWS):
                yield conformed(batch, schema)


class ParquetWriter:
    """Writer of one new file; memory holds one row group."""

    def __init__(self, path: Path, rows: ArrowRows, options: Any) -> None:
        self._rows = rows
        self._writer = pq.ParquetWriter(
            path, rows.schema, compression=options.compression, compression_level=options.compression_level
        )
        self._most = options.row_group_rows or GROUP_ROWS
        self._fixed = options.row_group_rows is not None
        self._pages = list[PageRows]()
        self._paged = 0  # rows of them
        self._group = list[Any]()
        self._grouped = self._size = 0  # rows and bytes of the group

    def write(self, pages: Iterable[PageRows]) -> None:
        """Write rows after the others."""
        for page in pages:
            self._pages.append(page)
            self._paged += page.count
        if self._paged >= PACK_ROWS:
            self._pack()

    def add(self, table: Any) -> None:
        """Write a table after the others."""
        self._group.append(table)
        self._grouped, self._size = self._grouped + table.num_rows, self._size + table.nbytes
        while self._grouped >= self._most or (self._size >= GROUP_BYTES and not self._fixed):
            self._end_group()

    def close(self) -> None:
        """Write what is buffered, and close the file."""
        try:
            self._pack()
            while self._grouped:
                self._end_group()
        finally:
            self._writer.close()

    def _pack(self) -> None:
        if self._paged:
            pages, self._pages, self._paged = self._pages, [], 0
            self.add(self._rows.table(pages))

    def _end_group(self) -> None:
        """Write the rows of a group; the others begin the next one."""
        joined = pa.concat_tables(self._group)
        rest = joined.slice(self._most)
        self._group, self._grouped, self._size = [rest] if rest.num_rows else [], rest.num_rows, rest.nbytes
        group = joined.slice(0, self._most)
        self._writer.write_table(group, row_group_size=group.num_rows)
        del joined, group
        pa.default_memory_pool().release_unused()


def conformed(batch: Any, schema: Any) -> Any:
    """Return a batch as a table with the fields of a schema, nested too.

    Absent ones are null.
    """
    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = [
        found[one.name].cast(one.type) if one.name in found else pa.nulls(batch.num_rows, one.type)
        for one in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def row_key(row: Mapping[str, Any]) -> str:
    """Return what a row of Arrow is compared by."""
    return repr([*row.values()])


@contextmanager
def _damage(named: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise damaged_file(
            named, str(error).splitlines()[0] if str(error) else "it ends too early"
        ) from error
