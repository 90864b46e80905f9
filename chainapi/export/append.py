"""Appends to a single file of text in place: its old rows are not written again.

1. The new rows are written to the ``.partial`` file, synced and read back.
2. The journal stores size and digest of the file as it is, and as it will be.
3. The new rows are copied after the old ones, synced and compared.
4. The journal stores that they are in place.

A run that finds a part of step 2 cuts the file to its old size and copies the rows again: what follows the
old rows then belongs to the stopped copy, whole or not. Everything here blocks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from chainapi.errors import ExportError
from chainapi.export.files import (
    SYNC_EVERY,
    chunks,
    digest_of,
    partial_of,
    refuse_link,
    write_errors_explained,
)
from chainapi.export.formats import DatabaseFormat, Format, TextFormat
from chainapi.export.part_records import Base, PartFile
from chainapi.export.worker import Stopped
from chainapi.tables.columns import Column

__all__ = ["append", "appending", "cut", "has_base", "has_tail"]


def appending(format_: Format, path: Path, columns: Sequence[Column]) -> TextFormat | DatabaseFormat | None:
    """Return the format if new rows can be appended to a file; None to write it again.

    A file that is read-only, or has a hard link, is written again: a rename needs no right to write, and
    leaves the file of the other name as it is.
    """
    if not path.is_file() or path.stat().st_nlink > 1 or not os.access(path, os.W_OK):
        return None
    if isinstance(format_, TextFormat):
        return format_ if format_.can_continue(path, columns) else None
    return format_ if isinstance(format_, DatabaseFormat) else None


def has_base(path: Path, base: Base) -> bool:
    """Check whether a file begins with the bytes that it had before an append."""
    return path.is_file() and path.stat().st_size >= base.size and digest_of(path, base.size) == base.digest


def has_tail(path: Path, base: Base, file: PartFile) -> bool:
    """Check whether the ``.partial`` file has the bytes that are to follow.

    With them the file has the size and the digest that the journal stores.
    """
    tail = partial_of(path)
    return (
        tail.is_file()
        and base.size + tail.stat().st_size == file.size
        and digest_of(path, base.size, tail) == file.digest
    )


def cut(path: Path, base: Base) -> None:
    """Cut a file to the size that it had before an append."""
    refuse_link(path)
    with FileIO(path, "rb+") as file:
        file.truncate(base.size)
        os.fsync(file.fileno())


def append(path: Path, base: Base, stop: threading.Event) -> None:
    """Copy the ``.partial`` file after the first bytes of a file, and sync it.

    After an error the file has its old size again, if the disk allows that.

    Raises:
        ExportError: the file cannot be written; the next run appends the rows.
        Stopped: `stop` was set meanwhile.

    """
    refuse_link(path)
    with write_errors_explained(path), FileIO(path, "rb+") as file, FileIO(partial_of(path)) as tail:
        try:
            file.truncate(base.size)
            _copy(tail, file, base.size, stop)
            _compare(path, tail, file, base.size)
        except BaseException:
            with suppress(OSError):
                file.truncate(base.size)
            raise


def _copy(tail: FileIO, file: FileIO, start: int, stop: threading.Event) -> None:
    unsynced = 0
    file.seek(start)
    for chunk in chunks(tail):
        if stop.is_set():
            raise Stopped
        rest = memoryview(chunk)
        while rest:
            rest = rest[file.write(rest) :]
        unsynced += len(chunk)
        if unsynced >= SYNC_EVERY:
            os.fsync(file.fileno())
            unsynced = 0
    os.fsync(file.fileno())


def _compare(path: Path, tail: FileIO, file: FileIO, start: int) -> None:
    tail.seek(0)
    file.seek(start)
    for chunk in chunks(tail):
        if file.read(len(chunk)) != chunk:
            raise ExportError(
                f"{path} has other rows when it is read back than were appended: the disk or the file system "
                "lost some of them. All rows are kept in the journal: check the disk, and start the same "
                "export again"
            )
