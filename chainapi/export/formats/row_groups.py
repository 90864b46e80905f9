"""Row groups of a Parquet file, copied as bytes.

Old rows are neither decoded nor encoded again.

The footer of a file has the offsets of its row groups. A copy has the old groups at the same offsets, new
groups after them, and one footer for all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from chainapi.export.files import chunks, sync_file
from chainapi.export.formats import Compression
from chainapi.export.formats.arrow import GROUP_ROWS
from chainapi.export.formats.values import Tally, lost
from chainapi.export.worker import until

__all__ = ["appending", "can_copy", "copy_groups", "end_of_groups", "metadata_of", "write_behind"]

SYNC_EVERY = 64  # chunks: a sync of gigabytes at once could not be stopped
SMALL_GROUPS, SMALL_BYTES = 32, 8 << 20  # number of small groups that a file may have; bytes of one
TRAILER = 8  # bytes after the footer: its length, and the magic number
MAGIC = b"PAR1"  # first bytes of a file


def can_copy(metadata: Any, schema: Any, compression: Compression, group_rows: int | None) -> bool:
    """Check whether new groups may follow those of a file with this metadata.

    It must have the same columns, the same compression, and the rows of a group that were chosen. By default
    each run leaves a small group behind; a file with more than 32 small ones is written again, so that
    readers find few large groups.
    """
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema):
        pass
    if not metadata.schema.equals(pq.read_metadata(pa.BufferReader(sink.getvalue())).schema):
        return False
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    codec = "UNCOMPRESSED" if compression == "none" else compression.upper()
    if any(group.column(0).compression != codec for group in groups):
        return False
    if group_rows is not None:
        return not any(group.num_rows != group_rows for group in groups)
    small = (group.num_rows < GROUP_ROWS // 4 and group.total_byte_size < SMALL_BYTES for group in groups)
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
    with path.open("wb") as copy:
        for number, chunk in enumerate(until(stop, _bytes_of(previous, end)), 1):
            copy.write(chunk)
            if number % SYNC_EVERY == 0:
                sync_file(path)
    written = write_behind(path, end, file.metadata, schema, options, write)
    both = zip(_bytes_of(previous, end), _bytes_of(path, end), strict=True)
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
        file.write(sink.getvalue().to_pybytes()[len(MAGIC) :])
        file.truncate()


@contextmanager
def appending(path: Path, schema: Any, options: Mapping[str, Any]) -> Iterator[Any]:
    """Open a writer of pyarrow that appends row groups and a footer to a file.

    A writer begins at 0 of its sink, and takes the offsets of its groups from it. So the sink is moved to the
    end of the file, over bytes that are not written, and over the magic number of the writer.
    """
    with path.open("ab") as file:
        end = file.tell()
        sink = pa.PythonFile(_Behind(file, end), "w")
        with pq.ParquetWriter(sink, schema, **options) as writer:
            for left in range(end - len(MAGIC), 0, -len(_NOTHING)):
                sink.write(_NOTHING[:left])
            yield writer


class _Behind:
    """File that leaves out the first bytes that are written to it."""

    closed = False

    def __init__(self, file: BinaryIO, left_out: int) -> None:
        self._file = file
        self._left_out = left_out

    def write(self, content: Any) -> None:
        """Write bytes, or a buffer of Arrow."""
        left_out = min(self._left_out, len(content))
        self._left_out -= left_out
        if left_out < len(content):
            self._file.write(memoryview(content)[left_out:])

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()


_NOTHING = memoryview(bytes(1 << 20))


def metadata_of(footer: bytes) -> Any:
    """Return the metadata of a footer."""
    return pq.read_metadata(pa.BufferReader(MAGIC + footer))


def end_of_groups(content: bytes) -> int:
    """Return the offset of the footer in the last bytes of a file."""
    return len(content) - TRAILER - int.from_bytes(content[-TRAILER : -len(MAGIC)], "little")


def write_behind(
    path: Path,
    end: int,
    metadata: Any,
    schema: Any,
    options: Mapping[str, Any],
    write: Callable[[Any], Tally],
) -> Tally:
    """Write new groups after those of a file without a footer, and one for all.

    Return the tally of the new ones.

    Args:
        path: the file.
        end: offset at which its groups end; what follows is overwritten.
        metadata: metadata of its groups.
        schema: schema of both.
        options: options of the new groups.
        write: writes the new groups to a writer of pyarrow, and returns their tally.

    """
    os.truncate(path, end)
    with appending(path, schema, options) as writer:
        written = write(writer)
    _write_footer(path, metadata)
    return written


def _end_of_groups(path: Path) -> int:
    """Return the offset of the footer."""
    with path.open("rb") as file:
        return file.seek(-TRAILER, os.SEEK_END) + end_of_groups(file.read())


def _bytes_of(path: Path, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file up to an offset."""
    with path.open("rb") as file:
        yield from chunks(file, end)
