"""Tallies of Arrow tables, which do not depend on how their values are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import pyarrow as pa

from chainapi.export.formats.values import Tally

__all__ = ["joined", "tally_of", "tally_of_columns"]


def tally_of(table: Any) -> Tally:
    """Return the tally of a table, which becomes a group of rows."""
    return tally_of_columns(table.num_rows, table.columns)


def tally_of_columns(rows: int, columns: Iterable[Any]) -> Tally:
    """Return the tally of a group of `rows` rows with these chunked columns."""
    checksum = 0
    for column in columns:
        for leaf in _leaves(pa.concat_arrays(column.chunks)):
            checksum = crc32(pa.record_batch([leaf], [""]).serialize(), checksum)
    pa.default_memory_pool().release_unused()  # it would keep several times what is in use
    return Tally(rows, checksum)


def joined(tallies: Iterable[Tally]) -> Tally:
    """Return the tally of several groups; their order does not matter."""
    rows = checksum = 0
    for tally in tallies:
        rows, checksum = rows + tally.rows, checksum + tally.checksum
    return Tally(rows, checksum)


def _leaves(array: Any) -> Iterator[Any]:
    """Yield arrays without nulls that together have all values of an array.

    An array of booleans has the positions of the nulls.
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
        yield array.cast(pa.uint8())  # the last byte of a slice of bits has those after its end too
    else:
        yield array
