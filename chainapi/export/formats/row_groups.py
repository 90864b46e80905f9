"""Row groups of a Parquet file, copied as bytes.

Old rows are neither decoded nor encoded again.

The footer of a file has the places of its row groups. A copy has the old groups at the same places, new
groups behind them, and one footer for all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chainapi.export.files import chunks
from chainapi.export.formats import Compression
from chainapi.export.formats.arrow import GROUP_ROWS
from chainapi.export.formats.values import Tally, lost
from chainapi.export.worker import until

__all__ = ["can_copy", "copy_groups"]

SYNC_EVERY = 64  # chunks: a sync of gigabytes at once could not be stopped
SMALL_GROUPS, SMALL_BYTES = 32, 8 << 20  # number of small groups that a file may have; bytes of one
TRAILER = 8  # bytes behind the footer: its length, and the magic number


def can_copy(file: Any, schema: Any, compression: Compression, group_rows: int | None) -> bool:
    """Check whether new groups may follow those of a file.

    It must have the same columns, the same compression, and the rows of a group that were chosen. By default
    each run leaves a small group behind; a file with more than 32 small ones is written again, so that
    readers find few large groups.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema):
        pass
    if not file.metadata.schema.equals(pq.read_metadata(pa.BufferReader(sink.getvalue())).schema):
        return False
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    codec = "UNCOMPRESSED" if compression == "none" else compression.upper()
    if any(group.column(0).compression != codec for group in groups):
        return False
    if group_rows is not None:
        return not any(group.num_rows != group_rows for group in groups)
    small = (group.num_rows < GROUP_ROWS // 2 and group.total_byte_size < SMALL_BYTES for group in groups)
    return bool(sum(small) <= SMALL_GROUPS)


def copy_groups(
    path: Path,
    previous: Path,
    file: Any,
    schema: Any,
    options: Mapping[str, Any],
    write: Callable[[Any], Tally],
    stop: threading.Event | None,
) -> Tally:
    """Write a file with the groups of another, and new ones.

    Return the tally of the new ones.

    Args:
        path: the new file.
        previous: the other file.
        file: the same, opened by pyarrow.
        schema: schema of both.
        options: options of the new groups.
        write: writes the new groups to a writer of pyarrow, and returns their tally.
        stop: once it is set, the copy ends with `Stopped`.

    Raises:
        ExportError: the old groups differ when they are read back.

    """
    end = _end_of_groups(previous)
    with pa.OSFile(str(path), "wb") as sink, pq.ParquetWriter(sink, schema, **options) as writer:
        # The writer takes the places of its groups from the sink, and has written the magic number.
        for number, chunk in enumerate(until(stop, _bytes_of(previous, sink.tell(), end)), 1):
            sink.write(chunk)
            if number % SYNC_EVERY == 0:
                _sync(path)
        written = write(writer)
    _write_footer(path, file.metadata)
    both = zip(_bytes_of(previous, 0, end), _bytes_of(path, 0, end), strict=True)
    if any(old != new for old, new in until(stop, both)):
        raise lost(path, "other rows when it is read back than were copied to it")
    return written


def _write_footer(path: Path, metadata: Any) -> None:
    """Replace the footer, which has the new groups, by one with the old groups too."""
    metadata.append_row_groups(pq.read_metadata(path))
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    with path.open("rb+") as file:
        file.seek(_end_of_groups(path))
        file.write(sink.getvalue().to_pybytes()[4:])  # without the magic number in front
        file.truncate()


def _end_of_groups(path: Path) -> int:
    """Return the place of the footer."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(size - TRAILER)
        return size - TRAILER - int.from_bytes(file.read(4), "little")


def _bytes_of(path: Path, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file between two places."""
    with path.open("rb") as file:
        file.seek(start)
        yield from chunks(file, end - start)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
