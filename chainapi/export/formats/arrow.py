"""Arrow streams: encoded rows as tables, and tables as Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from chainapi.export.formats import Rows
from chainapi.export.formats.values import unlike
from chainapi.tables.arrow import Types
from chainapi.tables.columns import unpacker

__all__ = ["BATCH_ROWS", "python_rows", "write_fitting"]

BATCH_ROWS, BATCH_BYTES = 8_192, 4 << 20  # of rows as JSON, which are decoded at once
GROUP_ROWS, GROUP_BYTES = 100_000, 64 << 20  # of batches, which are written at once


def write_fitting(
    types: Types, rows: Rows, earlier: Callable[[], Iterable[Any]], write: Callable[[Iterator[Any]], None]
) -> None:
    """Call `write` with all rows as tables of `types.schema`.

    It calls `write` again after a type became wider.
    """
    types.widened = True
    while types.widened:
        types.widened = False
        write(_groups(_tables(types, rows, earlier)))


def _tables(types: Types, rows: Rows, earlier: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """Yield tables until a type is too narrow; then only read the rest."""
    for batch in earlier():
        table = types.retyped(batch)
        if not types.widened:
            yield table
    unpack = unpacker(types.columns[1:], nested=True)
    for chunk in _chunks(rows()):
        table = types.batch([(source, *unpack(row)) for source, row in chunk])
        if not types.widened:
            yield table


def _chunks(rows: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    chunk, size = [], 0
    for entry in rows:
        chunk.append(entry)
        size += len(entry[1])
        if len(chunk) == BATCH_ROWS or size >= BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _groups(tables: Iterable[Any]) -> Iterator[Any]:
    """Join small tables into tables of about 100,000 rows, but at most 64 MiB."""
    group, rows, size = [], 0, 0
    for table in tables:
        group.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.concat_tables(group)
            group, rows, size = [], 0, 0
    if group:
        yield pa.concat_tables(group)


def python_rows(batches: Iterable[Any], path: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of batches as Python objects.

    Raises:
        ConfigurationError: they are damaged, or hold values that Python lacks.

    """
    try:
        for batch in batches:
            yield from batch.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        raise unlike(path, name) from None
