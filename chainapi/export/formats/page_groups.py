"""Row groups of pages, encoded while an export fetches: rows are written once.

The groups are in a segment of the journal one after the other, as in a Parquet file. The journal has the
footer of each; one for all makes the segment a file (`chainapi.export.formats.row_groups.write_behind`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from chainapi.export.formats.arrow import labels_of
from chainapi.export.formats.row_groups import appending, end_of_groups, metadata_of
from chainapi.export.formats.table_tallies import tally_of
from chainapi.export.gathering import GroupSize, PageValues
from chainapi.export.part_records import GroupRecord
from chainapi.tables.arrow import arrow_schema
from chainapi.tables.codec import Codec
from chainapi.tables.packed import packed_arrays
from chainapi.tables.values import Values

__all__ = ["ParquetGroups", "rows_of_group"]


@frozen
class ParquetGroups:
    """Encoder of pages as row groups of Parquet.

    Attributes:
        codec: codec of the rows.
        options: options of the writer of pyarrow.
        size: amount of pages that becomes a group.

    """

    codec: Codec
    options: Mapping[str, Any]
    size: GroupSize

    def values(self, rows: Sequence[Any]) -> Sequence[Values] | None:
        """See `GroupEncoder.values`."""
        return self.codec.values(rows)

    def append(self, path: Path, segment: int, pages: Sequence[PageValues]) -> GroupRecord:
        """See `GroupEncoder.append`."""
        start, table = path.stat().st_size, self._table(pages)
        rows, tally = table.num_rows, tally_of(table).checksum
        with appending(path, table.schema, self.options) as writer:
            writer.write_table(table, row_group_size=rows)
        del table
        pa.default_memory_pool().release_unused()
        with path.open("rb+") as file:
            file.seek(start)
            content = file.read()
            end = end_of_groups(content)
            file.truncate(start + end)  # the next group follows
        return GroupRecord(segment, start, end, rows, crc32(content[:end]), tally, content[end:])

    def _table(self, pages: Sequence[PageValues]) -> Any:
        """Return the rows of pages as a table."""
        columns = self.codec.columns
        arrays = packed_arrays(columns, [page.columns for page in pages])
        labels = labels_of([(page.label, page.rows) for page in pages])
        return pa.Table.from_arrays([labels, *arrays], schema=arrow_schema(columns))


def rows_of_group(path: Path, footer: bytes) -> Any:
    """Return the rows of a row group in a segment as a table."""
    with pq.ParquetFile(path, metadata=metadata_of(footer)) as file:
        return file.read(use_threads=False)
