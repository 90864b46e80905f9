"""Arrow tables of encoded rows, and tables as Python objects."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from chainapi.export.formats import Dropped, Rows
from chainapi.export.formats.values import unlike
from chainapi.tables.arrow import array_of, arrow_schema, places_of
from chainapi.tables.columns import SOURCE, Column
from chainapi.tables.packed import packed_arrays
from chainapi.tables.rows import reader
from chainapi.tables.values import Values, packed

__all__ = ["BATCH_ROWS", "chosen_rows", "kept_rows", "labels_of", "python_rows", "tables_of"]

SLICE_BYTES = 128 << 10  # of JSON decoded at once: the values of more leave the caches of the processor
BATCH_BYTES = 2 << 20  # of rows as JSON, which become one table
BATCH_ROWS = 8_192  # read at once from a file
GROUP_ROWS, GROUP_BYTES = 100_000, 64 << 20  # of batches, which are written at once

_SOURCE = Column(SOURCE, "text")


def kept_rows(batches: Iterable[Any], dropped: Dropped) -> Iterator[Any]:
    """Yield batches without the rows at some indices."""
    for batch, places in _placed(batches, dropped):
        if places:
            left = {*places}
            places = [place for place in range(batch.num_rows) if place not in left]
            batch = batch.take(places_of(places))
        yield batch


def chosen_rows(batches: Iterable[Any], chosen: Dropped) -> Iterator[Any]:
    """Yield batches of the rows at some indices."""
    for batch, places in _placed(batches, chosen):
        yield batch.take(places_of(places))


def _placed(batches: Iterable[Any], chosen: Dropped) -> Iterator[tuple[Any, list[int]]]:
    """Yield each batch with the indices in it, counted from its start."""
    places, begun = sorted(chosen), 0
    for batch in batches:
        end = begun + batch.num_rows
        within = places[bisect_left(places, begun) : bisect_left(places, end)]
        yield batch, [place - begun for place in within]
        begun = end


def tables_of(
    columns: Sequence[Column], rows: Rows, earlier: Iterable[Any] = (), group_rows: int | None = None
) -> Iterator[Any]:
    """Yield tables of `group_rows` rows, the last one excepted.

    By default a table has 100,000 rows, or fewer if these take about 64 MiB. The `earlier` batches come
    first, then the rows. The columns of an earlier batch are among `columns`; those that it lacks are null.
    """
    tables = _tables(columns, rows, earlier)
    return _groups(tables, GROUP_ROWS, GROUP_BYTES) if group_rows is None else _groups(tables, group_rows)


def _tables(columns: Sequence[Column], rows: Rows, earlier: Iterable[Any]) -> Iterator[Any]:
    schema, read = arrow_schema(columns), reader(columns, nested=True)
    for batch in earlier:
        yield _conformed(batch, schema)
    for encoded, given in groupby(rows, key=lambda one: isinstance(one[1], bytes)):
        if not encoded:
            yield from (_conformed(table, schema) for _, table in given)
            continue
        for slices in _batches(_slices(given)):
            labels, parts = list[tuple[str, int]](), list[list[Values]]()
            for label, lines in slices:
                found = read(lines)
                labels.append((label, len(found[0])))
                pairs = zip(columns, found, strict=True)
                parts.append([packed(column.kind, values) for column, values in pairs])
            yield pa.Table.from_arrays([labels_of(labels), *packed_arrays(columns, parts)], schema=schema)


def _slices(rows: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Join the lines of neighbors with the same label, as long as they are few."""
    waiting, size, label = list[bytes](), 0, ""
    for new, lines in rows:
        if waiting and (new != label or size + len(lines) > SLICE_BYTES):
            yield label, b"".join(waiting)
            waiting, size = [], 0
        label, size = new, size + len(lines)
        waiting.append(lines)
    if waiting:
        yield label, b"".join(waiting)


def _batches(slices: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    """Yield the rows of one table."""
    batch, size = list[tuple[str, bytes]](), 0
    for label, lines in slices:
        batch.append((label, lines))
        size += len(lines)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def labels_of(labels: Sequence[tuple[str, int]]) -> Any:
    """Return the column of labels, each with the number of its rows."""
    return array_of(_SOURCE, [label for label, number in labels for _ in range(number)])


def _groups(tables: Iterable[Any], most: int, large: int = sys.maxsize) -> Iterator[Any]:
    """Join and divide tables: each new one has `most` rows, or `large` bytes."""
    group, rows, size = list[Any](), 0, 0
    for table in tables:
        group.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        while rows >= most or size >= large:
            joined = pa.concat_tables(group)
            yield joined.slice(0, most)
            rest = joined.slice(most)
            group, rows, size = [rest] if rest.num_rows else [], rest.num_rows, rest.nbytes
            table = joined = None  # memory holds the next group alone
    if rows:
        yield pa.concat_tables(group)


def _conformed(batch: Any, schema: Any) -> Any:
    """Return a batch with the fields of a schema, nested too; absent ones are null."""
    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = [
        found[field.name].cast(field.type) if field.name in found else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


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
