"""Files of one part: written under ``.partial`` names, synced and read back.

Invalid rows go to a file of their own. This runs in a thread of its own, beside the commits of pages;
`placement` has the steps before and after it.
"""

from __future__ import annotations

import operator
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, cast

from attrs import field, frozen

from chainapi.errors import ExportError
from chainapi.export.append import appending
from chainapi.export.files import (
    SYNC_EVERY,
    SyncGroup,
    digest_of,
    has_state,
    make_folders,
    os_errors_explained,
    partial_of,
    refuse_link,
    sync_file,
    write_partial,
)
from chainapi.export.formats import DatabaseFormat, Dropped, GroupFormat, TextFormat
from chainapi.export.formats.markers import Marker
from chainapi.export.invalid_rows import InvalidRows
from chainapi.export.part_records import (
    BEGUN,
    Added,
    Base,
    Content,
    GroupRecord,
    PageRecord,
    Part,
    PartFile,
    SourceRows,
    next_number,
)
from chainapi.export.partition import PageRows, Partitioner, Values, folder_of
from chainapi.export.segments import SegmentReader, link_groups, link_segment
from chainapi.export.target import Target
from chainapi.export.worker import Stopped, look
from chainapi.tables.columns import Column
from chainapi.tables.rows import count_lines

__all__ = ["PartWriter", "check_count", "damage_explained"]


@frozen
class PartWriter:
    """Writer of the files of one part.

    Attributes:
        target: target of the export.
        previous: part before it; a single file keeps its rows, and the new ones follow.
        pages: pages of the part with the labels of their sources, sorted by source.
        columns: columns of the rows.
        run: name of the run.
        stop: once it is set, writing ends with `Stopped`.
        on_rows: called with the number of rows of each page that was written.
        invalid: the invalid rows of the part.
        groups: row groups of all segments that have pages of the part in row groups.

    """

    target: Target
    previous: Part | None
    pages: Sequence[tuple[str, PageRecord]] = field(repr=False)
    columns: Sequence[Column] = field(repr=False)
    run: str
    stop: threading.Event = field(repr=False)
    on_rows: Callable[[int], None] = field(repr=False)
    invalid: InvalidRows = field(factory=InvalidRows, kw_only=True, repr=False)
    groups: Sequence[GroupRecord] = field(default=(), kw_only=True, repr=False)
    _syncs: SyncGroup = field(factory=SyncGroup, init=False, repr=False)

    @property
    def number(self) -> int:
        """Number of the part."""
        return next_number(self.previous)

    @property
    def rows(self) -> int:
        """Number of valid rows of the part."""
        return sum(page.rows for _, page in self.pages)

    @property
    def dropped(self) -> Dropped:
        """Indices of the rows that a single file loses."""
        return frozenset()

    def write(self) -> Part | None:
        """Write, sync and read back the files under their ``.partial`` names.

        Return None if the target has all rows already.

        Raises:
            ExportError: a file cannot be written; every row is still in the journal.
            Stopped: `stop` was set meanwhile.

        """
        files = list[PartFile]()
        try:
            with SegmentReader(self.target.journal, self.groups) as reader:
                for file in self._files(reader):
                    files.append(file)
            self._syncs.sync()
        except BaseException:
            for file in files:  # the disk may be full
                with suppress(OSError):
                    partial_of(self.target.root / file.name).unlink(missing_ok=True)
            raise
        return self._part(files)

    def _part(self, files: Sequence[PartFile]) -> Part:
        time = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        columns = tuple((column.name, column.kind) for column in self.columns)
        upto = max((page.number for _, page in self.pages), default=0)
        content = Content(tuple(files), self.run, time, columns)
        return Part(self.number, BEGUN, upto, content, b"".join(self.invalid.digests))

    def _files(self, reader: SegmentReader) -> Iterator[PartFile]:
        """Write the files one by one."""
        yield from self._write_invalid(reader)
        folders = dict[str, Path]()
        for values, rows in self._divided(reader):
            if self.target.partition:
                yield self._write_partition(reader, values, rows, folders)
            else:
                yield self._write_rows(reader, rows)

    def _divided(self, reader: SegmentReader) -> Iterator[tuple[Values, Sequence[PageRows]]]:
        """Yield the rows of each file, with the values of the keys of its partition."""
        if not self.target.partition:
            yield (), [PageRows.whole(label, page) for label, page in self.pages if page.rows]
            return
        divided = Partitioner(self.target.partition, self.columns)
        yield from divided.divide(self.pages, partial(self._read, reader))

    def _write_partition(
        self, reader: SegmentReader, values: Values, rows: Sequence[PageRows], folders: dict[str, Path]
    ) -> PartFile:
        """Write the file of a partition, and add its folder to those of the part."""
        keys = self.target.partition
        path = self.target.part(self.number, folder_of(keys, values))
        make_folders(path.parent, self.target.path, self._syncs)
        _check_apart(path.parent, folders.setdefault(str(path.parent).casefold(), path.parent))
        return self._write_file(path, reader, rows, partition=tuple(zip(keys, values, strict=True)))

    def _write_rows(self, reader: SegmentReader, rows: Sequence[PageRows]) -> PartFile:
        """Write the file of a part without partitions, or the new rows of a single file."""
        path = self.target.part(self.number)
        before = None if self.target.folder or self.previous is None else self.previous.rows_file
        if before is not None and self.target.appends:
            format_ = appending(self.target.format, path, self.columns)
            if isinstance(format_, DatabaseFormat):
                return self._write_added(reader, rows, path, before, format_)
            if format_ is not None and not self.dropped:
                return self._write_tail(reader, rows, path, before, format_)
        return self._write_file(path, reader, rows, before)

    def _write_file(
        self,
        path: Path,
        reader: SegmentReader,
        rows: Sequence[PageRows],
        before: PartFile | None = None,
        partition: tuple[tuple[str, str | None], ...] = (),
    ) -> PartFile:
        """Write a file with the rows of the file before, and new ones."""
        old, count = None, 0
        if before is not None:
            old, count = self._present(path, before), before.rows - len(self.dropped)
        count += _count(rows)

        def write(new: Path) -> None:
            format_ = self.target.format
            if old is None and self._link(rows, new):
                found = self._count_lines(reader, rows)
            elif old is None and (groups := self._whole_segment(rows)):
                found = self._end_groups(reader, rows, groups, new)
            else:
                lines = self._lines(reader, rows, new)
                found = format_.write(new, self.columns, lines, old, self.stop, self.dropped)
            check_count(path, found, count)
            if isinstance(format_, DatabaseFormat) and not self.target.folder:
                format_.mark(new, Marker(self.number, self.run, count))

        with damage_explained(None if old is None else self.target.file(path.name)):
            size, digest = write_partial(path, write, self._syncs)
        name = path.relative_to(self.target.root).as_posix()
        return PartFile(name, count, size, digest, _sources(rows), partition=partition)

    def _present(self, path: Path, before: PartFile) -> Path:
        """Return the path of a local file with the present rows of a single file.

        Raises:
            ExportError: it is missing, or others have changed it since the run began.

        """
        old = self.target.present(path, self.stop)
        # A user may add tables and indexes to a local database.
        free = self.target.appends and isinstance(self.target.format, DatabaseFormat)
        if old is not None and (free or has_state(old, before.size, before.digest)):
            return old
        what = "is missing" if old is None else "was changed while its new rows were fetched"
        raise ExportError(
            f"{self.target.file(path.name)} {what}: put it back as it was and start the same export again; "
            "all new rows are kept in the journal"
        )

    def _link(self, rows: Sequence[PageRows], new: Path) -> bool:
        """Make the segment with these rows the file, if the format writes the same lines.

        Then nothing is written. A segment has the pages of all sources as they arrived. Those of one source
        must be in the order of its list, which pages of ranges are not.
        """
        format_ = self.target.format
        if not (isinstance(format_, TextFormat) and format_.keeps_lines):
            return False
        of_source = ((one, after) for one, after in pairwise(rows) if one.label == after.label)
        if any(one.page.number > after.page.number for one, after in of_source):
            return False
        whole = all(one.places is None for one in rows)
        return whole and link_segment(self.target.journal, [one.page for one in rows], new)

    def _whole_segment(self, rows: Sequence[PageRows]) -> Sequence[GroupRecord]:
        """Return the row groups of a segment that may become the file, if there is one.

        All of its rows are among these. Within a source they precede all others, in the order of its list.
        """
        segment = next((group.segment for group in self.groups), None)
        groups = [group for group in self.groups if group.segment == segment]
        inside = [_is_in(one, segment) for one in rows]
        count = sum(one.rows for one, is_in in zip(rows, inside, strict=True) if is_in)
        if not groups or count != sum(group.rows for group in groups):
            return ()
        for (one, is_in), (after, is_after_in) in pairwise(zip(rows, inside, strict=True)):
            follows = is_in and one.page.number < after.page.number
            if one.label == after.label and is_after_in and not follows:
                return ()
        form = self.target.format
        return groups if isinstance(form, GroupFormat) and form.can_end(self.columns, groups) else ()

    def _end_groups(
        self, reader: SegmentReader, rows: Sequence[PageRows], groups: Sequence[GroupRecord], new: Path
    ) -> int:
        """Make a segment with row groups the file, with the other rows after them.

        Return the number of all rows.
        """
        segment = groups[0].segment
        for one in rows:
            if _is_in(one, segment):
                self.on_rows(one.rows)
        link_groups(self.target.journal, segment, new)
        lines = self._lines(reader, [one for one in rows if not _is_in(one, segment)], new)
        return cast("GroupFormat", self.target.format).end(new, self.columns, lines, groups, self.stop)

    def _count_lines(self, reader: SegmentReader, rows: Sequence[PageRows]) -> int:
        """Read a segment that is the file; return the number of its rows."""
        found = 0
        for one in rows:
            found += count_lines(self._read(reader, one.page))
            self.on_rows(one.rows)
        return found

    def _write_tail(
        self,
        reader: SegmentReader,
        rows: Sequence[PageRows],
        path: Path,
        before: PartFile,
        format_: TextFormat,
    ) -> PartFile:
        """Write the rows that are appended to a single file."""
        count = before.rows + _count(rows)

        def write(new: Path) -> None:
            lines = self._lines(reader, rows, new)
            found = format_.write_tail(new, self.columns, lines, path, self.stop)
            check_count(path, before.rows + found, count)

        size, _ = write_partial(path, write, self._syncs)
        base = Base(before.size, before.digest)
        digest = digest_of(path, base.size, partial_of(path))
        return PartFile(path.name, count, base.size + size, digest, _sources(rows), base=base)

    def _write_added(
        self,
        reader: SegmentReader,
        rows: Sequence[PageRows],
        path: Path,
        before: PartFile,
        format_: DatabaseFormat,
    ) -> PartFile:
        """Write a database with the rows that a transaction adds to another.

        It also names the rows that the transaction deletes.
        """
        added = _count(rows)

        def write(new: Path) -> None:
            lines = self._lines(reader, rows, new)
            check_count(path, format_.write(new, self.columns, lines, stop=self.stop), added)
            if self.dropped:
                format_.remove(new, self.dropped)

        file = Added(*write_partial(path, write, self._syncs))
        count = before.rows + added - len(self.dropped)
        return PartFile(path.name, count, 0, "", _sources(rows), added=file)

    def _lines(
        self, reader: SegmentReader, rows: Iterable[PageRows], partial: Path
    ) -> Iterator[tuple[str, Any]]:
        """Yield rows as JSON lines, or as a table.

        What was written of them is synced now and then.
        """
        unsynced = 0
        for one in _by_group(rows):
            if one.page.first is None:
                yield one.label, one.of(self._read(reader, one.page))
            else:
                look(self.stop)
                yield one.label, reader.table(one.page)
            self.on_rows(one.rows)
            unsynced += one.page.length
            if unsynced >= SYNC_EVERY and partial.exists():
                sync_file(partial)
                unsynced = 0

    def _read(self, reader: SegmentReader, page: PageRecord) -> bytes:
        """Return the valid rows of a page as JSON lines."""
        if self.stop.is_set():
            raise Stopped
        return reader.read(page)[0]

    def _write_invalid(self, reader: SegmentReader) -> Iterator[PartFile]:
        """Write the invalid rows that are new; in a single file they follow older ones."""
        path = self.target.invalid_part(self.number)
        refuse_link(path)
        lines = self._invalid_lines(reader)
        if (first := next(lines, None)) is None:
            return
        old = None if self.target.folder else self.target.present(path, self.stop)

        def write(new: Path) -> None:
            with new.open("wb") as file:
                if old is not None:
                    with old.open("rb") as earlier:
                        shutil.copyfileobj(earlier, file)
                file.write(first)
                file.writelines(lines)

        size, digest = write_partial(path, write, self._syncs)
        yield PartFile(path.name, len(self.invalid.digests), size, digest, invalid=True)

    def _invalid_lines(self, reader: SegmentReader) -> Iterator[bytes]:
        """Yield the invalid rows that are new as JSON lines."""
        for label, page in self.pages:
            if page.invalid:
                yield from self.invalid.lines(label, reader.read(page)[1])


def _check_apart(folder: Path, other: Path) -> None:
    """Refuse two folders of partitions that are one.

    Their files would replace each other.

    Raises:
        ExportError: the file system ignores upper and lower case.

    """
    with os_errors_explained(folder):
        if folder != other and folder.samefile(other):
            raise ExportError(
                f"{folder} and {other} are one folder on this file system, which ignores upper and lower"
                " case: start over on another one, or without 'source' in partition="
            )


@contextmanager
def damage_explained(named: Path | str | None) -> Iterator[None]:
    """Raise errors about values in a file as those of a changed file.

    Sizes and digests of its ends do not show each change.

    Args:
        named: path or URL of the file; None if no file of the target is read.

    Raises:
        ExportError: the file has what no export wrote.

    """
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        if named is None:
            raise
        raise ExportError(
            f"{named} was changed since it was written, and cannot be read as it is: put it back as it was "
            "and start the same export again; all new rows are kept in the journal"
        ) from error


def check_count(path: Path, found: int, count: int) -> None:
    """Refuse a file that does not have all of its rows.

    Raises:
        ExportError: it has fewer or more.

    """
    if found != count:
        raise ExportError(
            f"{path} would have {found:,} rows and not {count:,}; all rows are kept in the journal: "
            "start the same export again"
        )


def _is_in(rows: PageRows, segment: int | None) -> bool:
    """Check whether rows are in a row group of a segment."""
    return rows.page.first is not None and rows.page.segment == segment


def _by_group(rows: Iterable[PageRows]) -> Iterable[PageRows]:
    """Return rows in an order that keeps those of a row group together.

    Those of each source stay in the order of its list. A group has rows of many sources: sorted by source,
    it would be read once for each of them.
    """
    rows = [*rows]
    begun = dict[tuple[int, int], int]()
    for one in rows:
        if one.page.first is not None:
            place = one.page.segment, one.page.start
            begun[place] = min(one.page.number, begun.get(place, one.page.number))
    if not begun:
        return rows

    def order(one: PageRows) -> tuple[bool, int]:
        page = one.page
        if page.place:  # sorted stably: ranges are in front, as they were
            return False, 0
        return True, page.number if page.first is None else begun[page.segment, page.start]

    return sorted(rows, key=order)


def _count(rows: Sequence[PageRows]) -> int:
    return sum(one.rows for one in rows)


def _sources(given: Sequence[PageRows]) -> tuple[SourceRows, ...]:
    """Return the rows of a file by source, with the range of their numbers."""
    found = []
    for label, group in groupby(given, key=operator.attrgetter("label")):
        of_source = [*group]
        rows = sum(one.rows for one in of_source)
        if any(one.lowest is None or one.highest is None for one in of_source):
            found.append(SourceRows(label, rows))
        else:
            lowest = min((one.lowest or "" for one in of_source), key=int)
            highest = max((one.highest or "" for one in of_source), key=int)
            found.append(SourceRows(label, rows, lowest, highest))
    return tuple(found)
