"""Parquet: typed columns, compressed with zstd, in groups of about 100,000 rows.

Whole numbers are int64, amounts decimal128(38, 0), decimals decimal128(38, 18), times timestamps in UTC,
records structs; other JSON is text. Where a whole number does not fit, its column is decimal128(38, 0), and
text where that is too narrow. A time outside the years 1 to 9999 makes its column whole numbers of seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from chainapi.export.formats import Rows
from chainapi.export.formats.arrow import BATCH_ROWS, python_rows, write_fitting
from chainapi.export.formats.values import require, unlike, value_of
from chainapi.tables.arrow import Types
from chainapi.tables.columns import SOURCE, Column

__all__ = ["FORMAT", "Parquet"]


class Parquet:
    """Rows as a Parquet file."""

    name: Final = "parquet"
    suffix: Final = ".parquet"
    needs_columns: Final = True

    def write(self, path: Path, columns: Sequence[Column], rows: Rows, previous: Path | None = None) -> None:
        """Write a file."""
        require(columns, self.name)
        types = Types(columns)
        if previous is not None:
            with _opened(previous) as file:
                if not types.take(file.schema_arrow):
                    raise unlike(previous, self.name)

        def earlier() -> Iterator[Any]:
            if previous is not None:
                with _opened(previous) as file:
                    yield from file.iter_batches(BATCH_ROWS)

        def write(tables: Iterator[Any]) -> None:
            with pq.ParquetWriter(path, types.schema, compression="zstd") as writer:
                for table in tables:
                    writer.write_table(table, row_group_size=table.num_rows)

        write_fitting(types, rows, earlier, write)

    def read(self, path: Path, columns: Sequence[Column] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file."""
        with _opened(path) as file:
            if columns and not Types(columns).take(file.schema_arrow):
                raise unlike(path, self.name)
            for row in python_rows(file.iter_batches(BATCH_ROWS), path, self.name):
                yield _typed(row, columns) if columns else row


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid:
        raise unlike(path, "parquet") from None
    with file:
        yield file


def _typed(row: dict[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    values = {column.name: value_of(column, row[column.name], json_texts=True) for column in columns}
    return {SOURCE: row[SOURCE], **values}


FORMAT = Parquet()
