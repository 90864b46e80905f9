"""Files of Parquet, and Arrow tables of rows (extra `parquet`).

Whole numbers are int64, decimals decimal128(38, 18), times timestamps in UTC, records structs; other JSON is
text. Amounts are text, or by choice decimal128(38, 0), double, or 32 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from chainapi._tables.arrow import array_of, arrow_schema, grows_to, places_of
from chainapi._tables.columns import SOURCE, Column
from chainapi._tables.rows import reader
from chainapi.export.text import EncodedRows, damaged_file

__all__ = ["ParquetFormat", "ParquetWriter", "conformed", "row_key"]

GROUP_ROWS, GROUP_BYTES = 100_000, 64 << 20  # of a row group, whichever comes first
READ_ROWS = 16_384  # at once from a file
_SOURCE = Column(SOURCE, "text")


@frozen
class ParquetFormat:
    """Format of Parquet files.

    Attributes:
        columns: columns of the rows, in the order of the files.
        encoded: the same in the order of `EncodedRows.values`, unnamed fields last.
        labelled: whether files have the column ``source``; the names of folders have it otherwise.
        options: how they are written.

    """

    columns: tuple[Column, ...]
    encoded: tuple[Column, ...]
    labelled: bool
    options: Any

    suffix = ".parquet"

    @property
    def packs(self) -> bool:
        """Whether a writer takes the values of rows."""
        return self.labelled

    @cached_property
    def schema(self) -> Any:
        """Schema of the files."""
        return arrow_schema(self.columns, labelled=self.labelled)

    @cached_property
    def _made(self) -> Any:
        return arrow_schema(self.encoded, labelled=self.labelled)

    @cached_property
    def _read(self) -> Callable[[bytes], list[Sequence[Any]]]:
        return reader(self.encoded, nested=True)

    def writer(self, path: Path) -> ParquetWriter:
        """Return a writer of a new file."""
        return ParquetWriter(self, path)

    def table(self, pages: Sequence[EncodedRows]) -> Any:
        """Return the rows of pages, grouped by source in the order of arrival."""
        order = {label: place for place, label in enumerate(dict.fromkeys(page.label for page in pages))}
        pages = sorted(pages, key=lambda page: order[page.label])
        columns = zip(*map(self._values, pages), strict=True)
        values = [[*chain.from_iterable(parts)] for parts in columns]
        arrays = [*map(array_of, self.encoded, values)]
        if self.labelled:
            labels = [label for page in pages for label in [page.label] * page.count]
            arrays = [array_of(_SOURCE, labels), *arrays]
        made = pa.Table.from_arrays(arrays, schema=self._made)
        return made if self._made.equals(self.schema) else made.select(self.schema.names)

    def _values(self, page: EncodedRows) -> Sequence[Sequence[Any]]:
        """Return the values of each column."""
        return self._read(page.lines) if page.values is None else page.values

    # Rows of a file; `named` is its name in errors

    def keys(self, page: EncodedRows) -> list[str]:
        """Return for each row what `rows` yields for an equal one."""
        return [row_key(row) for row in self.table([page]).to_pylist()]

    def rows(self, path: Path, named: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        """Yield the values of each row by column, and what it is compared by.

        Raises:
            ExportError: the file is damaged.

        """
        for table in self._tables(path, named):
            for row in table.to_pylist():
                yield row, row_key(row)

    def kept(self, path: Path, named: str, dropped: Collection[int]) -> Iterator[Any]:
        """Yield the rows of a file, but for those at some places, as a writer adds them.

        Raises:
            ExportError: the file is damaged.

        """
        begun = 0
        for table in self._tables(path, named):
            end = begun + table.num_rows
            if any(begun <= place < end for place in dropped):
                table = table.take(places_of([at - begun for at in range(begun, end) if at not in dropped]))
            begun = end
            yield table

    def _tables(self, path: Path, named: str) -> Iterator[Any]:
        """Yield tables with all columns of the rows; those that the file lacks are null."""
        try:
            with pq.ParquetFile(path) as file:
                if not grows_to(file.schema_arrow, self.schema):
                    raise damaged_file(named, "it has other columns")
                for batch in file.iter_batches(READ_ROWS):
                    yield conformed(batch, self.schema)
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            fault = str(error).splitlines()[0] if str(error) else "it ends too early"
            raise damaged_file(named, fault) from error


class ParquetWriter:
    """Writer of one new file; memory holds one row group."""

    def __init__(self, form: ParquetFormat, path: Path) -> None:
        self._form, options = form, form.options
        self._writer = pq.ParquetWriter(
            path, form.schema, compression=options.compression, compression_level=options.compression_level
        )
        self._most = options.row_group_rows or GROUP_ROWS
        self._fixed = options.row_group_rows is not None
        self._group = list[Any]()
        self._grouped = self._size = 0  # rows and bytes of the group

    def write(self, pages: Sequence[EncodedRows]) -> None:
        """Write rows after the others; few at once cost more each."""
        self.add(self._form.table(pages))

    def add(self, table: Any) -> None:
        """Write a table after the others."""
        self._group.append(table)
        self._grouped, self._size = self._grouped + table.num_rows, self._size + table.nbytes
        while self._grouped >= self._most or (self._size >= GROUP_BYTES and not self._fixed):
            self._end_group()

    def close(self) -> None:
        """Write what is buffered, and close the file."""
        try:
            while self._grouped:
                self._end_group()
        finally:
            self._writer.close()

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
