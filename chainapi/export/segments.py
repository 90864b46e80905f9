"""Segments: append-only files with the rows of pages that wait for a part.

The rows of a page are JSON lines, the valid ones first; these have the label of their source in front. For
Parquet they are compressed, or the pages of a commit are a row group, in a segment of such groups. A segment
has no index: the journal stores the offset and the checksum of each page or group, in a transaction that
follows the sync of the segment. Bytes that no record names were never committed.
Each opened journal begins a new segment, so that nothing is written after them.
Everything here blocks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, TypeVar
from zlib import crc32

from attrs import define, field

from chainapi.errors import ExportError
from chainapi.export.files import reason_of, sync_folder
from chainapi.export.integrity import damaged
from chainapi.export.part_records import GroupRecord, PageRecord

__all__ = ["GROUPS", "SegmentReader", "Segments", "link_groups", "link_segment"]

PREFIX, GROUPS = "pages-", "groups-"  # of the names of segments: with JSON lines, with row groups
T = TypeVar("T")
WRITE_EVERY = 1 << 20  # bytes
OPEN_AT_ONCE = 64  # segments of a reader


@define(eq=False)
class Segments:
    """Segments in a folder; the newest one is open for writing.

    Attributes:
        folder: the folder.
        prefix: first part of their names.
        number: number of the segment that was opened last; 0 before the first page.

    """

    folder: Path
    prefix: str = PREFIX
    number: int = field(default=0, init=False)
    _file: FileIO | None = field(default=None, init=False)
    _synced: int = field(default=0, init=False)  # bytes of the open segment
    _end: int = field(default=0, init=False)
    _unwritten: list[bytes] = field(factory=list[bytes], init=False, repr=False)
    _waiting: int = field(default=0, init=False)  # bytes of these

    def append(self, content: bytes) -> tuple[int, int]:
        """Append the rows of a page; return the number of the segment and the offset.

        Raises:
            ExportError: the segment cannot be written.

        """
        with _explained(self.folder):
            file, start = self._opened(), self._end
            self._unwritten.append(content)
            self._waiting += len(content)
            if self._waiting >= WRITE_EVERY:
                self._write(file)
        self._end += len(content)
        return self.number, start

    def grow(self, append: Callable[[Path, int], T]) -> T:
        """Call a function that appends to the segment, and return its result.

        Its arguments are the path of the segment and its number.

        Raises:
            ExportError: the segment cannot be written.

        """
        with _explained(self.folder):
            file = self._opened()
            made = append(segment_path(self.folder, self.number, self.prefix), self.number)
            self._end = file.seek(0, os.SEEK_END)
        return made

    def _write(self, file: FileIO) -> None:
        # One call for several pages: at each one, the thread waits for the interpreter again.
        rest = memoryview(b"".join(self._unwritten))
        self._forget()
        while rest:
            rest = rest[file.write(rest) :]

    def _forget(self) -> None:
        self._unwritten.clear()
        self._waiting = 0

    def sync(self) -> None:
        """Sync what was appended to the disk.

        Raises:
            ExportError: the segment cannot be written.

        """
        if self._file is not None and self._end > self._synced:
            with _explained(self.folder):
                self._write(self._file)
                os.fsync(self._file.fileno())
            self._synced = self._end

    def rewind(self) -> None:
        """Cut off what was appended since the last sync."""
        self._forget()
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(self._synced)
            self._end = self._file.seek(self._synced)

    def remove(self, needed: Collection[int]) -> None:
        """Delete the segments that have no needed page, apart from the open one."""
        for number in self._numbers():
            if number not in needed and (self._file is None or number != self.number):
                with suppress(OSError):  # the next run deletes it
                    segment_path(self.folder, number, self.prefix).unlink()

    def close(self) -> None:
        """Close the open segment; the next page begins a new one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> FileIO:
        if self._file is None:
            self.number = max([self.number, *self._numbers()]) + 1
            self._file = FileIO(segment_path(self.folder, self.number, self.prefix), "x")
            sync_folder(self.folder)
            self._synced = self._end = 0
        return self._file

    def _numbers(self) -> list[int]:
        names = [path.name.removeprefix(self.prefix) for path in self.folder.glob(f"{self.prefix}*")]
        return [int(name) for name in names if name.isdecimal()]  # others are no segments


class SegmentReader:
    """Reader of the pages in segments."""

    def __init__(self, folder: Path, groups: Iterable[GroupRecord] = ()) -> None:
        self._folder = folder
        self._groups = {(group.segment, group.start): group for group in groups}
        self._files: dict[tuple[str, int], FileIO] = {}  # by prefix and number: a path is slow to make
        self._last: tuple[GroupRecord, Any] | None = None  # the row group that was read last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def read(self, page: PageRecord) -> tuple[bytes, bytes]:
        """Return the valid rows of a page as JSON lines, and the invalid ones.

        Raises:
            ExportError: the segment is missing or damaged.

        """
        size = page.length + page.invalid_length
        try:
            content = self._content(PREFIX, page.segment, page.start, page.stored or size)
            if crc32(content) != page.crc:
                raise self._damaged(PREFIX, page.segment, f"page {page.number}")
            if page.stored:
                content = _decompressed(content, size)
        except OSError as error:
            raise self._damaged(PREFIX, page.segment, reason_of(error)) from error
        return content[: page.length], content[page.length :]

    def check(self, group: GroupRecord) -> None:
        """Compare a row group with its checksum.

        Raises:
            ExportError: the segment is missing or damaged.

        """
        try:
            content = self._content(GROUPS, group.segment, group.start, group.length)
        except OSError as error:
            raise self._damaged(GROUPS, group.segment, reason_of(error)) from error
        if crc32(content) != group.crc:
            raise self._damaged(GROUPS, group.segment, f"row group at {group.start}")

    def table(self, page: PageRecord) -> Any:
        """Return the rows of a page in a row group as a table of Arrow.

        Raises:
            ExportError: the segment is missing or damaged.

        """
        from chainapi.export.formats.page_groups import rows_of_group  # loads pyarrow

        group = self._groups[page.segment, page.start]
        if self._last is None or self._last[0] is not group:
            self._last = None  # memory holds one of them
            self.check(group)
            path = segment_path(self._folder, group.segment, GROUPS)
            self._last = group, rows_of_group(path, group.footer)
        return self._last[1].slice(page.first, page.rows)

    def _content(self, prefix: str, number: int, start: int, length: int) -> bytes:
        file = self._files.get((prefix, number))
        if file is None:
            while len(self._files) >= OPEN_AT_ONCE:
                self._files.pop(next(iter(self._files))).close()
            file = self._files[prefix, number] = FileIO(segment_path(self._folder, number, prefix))
        file.seek(start)
        content = file.read(length)
        return b"" if content is None else content

    def _damaged(self, prefix: str, number: int, place: str) -> ExportError:
        return ExportError(damaged(segment_path(self._folder, number, prefix), place))


def link_segment(folder: Path, pages: Iterable[PageRecord], name: Path) -> bool:
    """Add a hard link to the segment with the valid rows of these pages and no others.

    Both names are one file on the disk, until the segment is removed. Return False if no segment has exactly
    these rows, or the file system has no hard links.
    """
    found = sorted(pages, key=attrgetter("start"))
    if not found:
        return False
    size = sum(page.length for page in found)
    starts = accumulate((page.length for page in found), initial=0)
    if {page.segment for page in found} != {found[0].segment} or any(
        page.start != start or page.stored or page.invalid for page, start in zip(found, starts, strict=False)
    ):
        return False
    path = segment_path(folder, found[0].segment)
    if path.stat().st_size != size:
        return False
    return _link(path, name)


def link_groups(folder: Path, segment: int, name: Path) -> None:
    """Add a hard link to a segment with row groups.

    The segment is copied if the file system has no hard links.
    """
    path = segment_path(folder, segment, GROUPS)
    if not _link(path, name):
        shutil.copyfile(path, name)


def _link(path: Path, name: Path) -> bool:
    """Add a hard link to a file; return False where that is an error."""
    try:
        os.link(path, name)
    except OSError:
        name.unlink(missing_ok=True)  # made all the same, it would be written to, and the segment with it
        return False
    return True


def segment_path(folder: Path, number: int, prefix: str = PREFIX) -> Path:
    """Return the path of a segment."""
    return folder / f"{prefix}{number:05}"


def _decompressed(content: bytes, size: int) -> bytes:
    from chainapi.export.compression import decompressed  # loads pyarrow

    return decompressed(content, size)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ExportError(
            f"{folder} cannot grow ({reason_of(error)}): is the disk full? What was committed is kept; make "
            "room and start the same export again"
        ) from error
