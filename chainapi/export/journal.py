"""Journal of an export: settings, positions of sources, waiting pages, parts.

A SQLite database in a folder beside the target, and segments with the rows of pages. The rows of a page are
synced to a segment; then one transaction stores their offset and the checkpoint after them: after a kill or a
power cut the journal has both or neither. Every method blocks, and all calls come from one thread.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Self
from zlib import crc32

import msgspec
from attrs import evolve

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.digests import DigestCounter
from chainapi.export.database import Database
from chainapi.export.files import os_errors_explained, sync_folder
from chainapi.export.gathering import GroupedPages, GroupEncoder, PageValues
from chainapi.export.integrity import COLUMNS, checksum
from chainapi.export.invalid_rows import INVALID_DIGEST
from chainapi.export.matching import Matched, Matchers, Walk
from chainapi.export.part_records import (
    BEGUN,
    CLEANED,
    IN_PLACE,
    GroupRecord,
    PageRecord,
    Part,
    Waiting,
    replaced_in,
)
from chainapi.export.segments import GROUPS, SegmentReader, Segments
from chainapi.export.settings import HAS_PAGES, JOURNAL
from chainapi.export.source_records import Batch, SourceRecord
from chainapi.export.spec import free_label

__all__ = ["Journal"]

CREATED_AT_ONCE = 64  # sources that are stored without waiting for a page


class Journal:
    """Journal of one export.

    Attributes:
        folder: folder of the database and the segments.
        path: path of the database.
        invalid: number of invalid rows committed since the journal was opened.
        waiting: what waits for a part, unfinished sources included.
        groups: encoder of pages as row groups; None if all rows are stored as JSON lines.

    """

    def __init__(self, database: Database, *, compress: bool = False) -> None:
        self.path = database.path
        self.folder = database.path.parent
        self.invalid = 0
        self.waiting = Waiting()
        self.groups: GroupEncoder | None = None
        self._database = database
        self._segments = Segments(self.folder)
        self._group_segments = Segments(self.folder, GROUPS)
        self._matchers = Matchers(self._digests_of)
        self._pages = 0  # number of the last page
        self._created = dict[str, SourceRecord]()  # by query; the next transaction stores them
        self._compress = _compressor() if compress else None

    @classmethod
    def open(cls, folder: Path, *, compress: bool = False) -> Self:
        """Open or create the journal in a folder, lock it and check it.

        With `compress`, the rows of pages are compressed (extra `parquet`).

        Raises:
            ExportError: another export has it open, it is not a journal, it is damaged, or it cannot be
                written.

        """
        with os_errors_explained(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
        journal = cls(Database.open(folder / JOURNAL), compress=compress)
        try:
            journal._check_pages()
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        """Close the journal and release its lock."""
        self._close_segments()
        self._database.close()

    def _close_segments(self) -> None:
        """Close the segments; the next page begins a new one."""
        self._segments.close()
        self._group_segments.close()

    def _check_pages(self) -> None:
        """Compare the rows of each page that waits for a part with their checksum.

        Pages in a row group have that of the group.

        The segment of a part that was begun may be its file, which a user may have changed since.
        """
        part = self.last_part()
        begun = 0 if part is None or part.state == CLEANED else part.upto
        used = set[tuple[int, int]]()
        with SegmentReader(self.folder) as reader:
            for page in self._waiting_pages():
                if page.number > begun and page.first is None:
                    reader.read(page)
                elif page.number > begun:
                    used.add((page.segment, page.start))
            for group in self._groups_in({segment for segment, _ in used}):
                if (group.segment, group.start) in used:
                    reader.check(group)
        with self._database.reading() as db:
            (self._pages,) = db.execute(
                "SELECT max((SELECT coalesce(max(upto), 0) FROM parts),"
                " (SELECT coalesce(max(page), 0) FROM digests),"
                " (SELECT coalesce(max(number), 0) FROM pages))"
            ).fetchone()
        self._count_waiting(0)

    # Settings of the export

    def settings(self) -> dict[str, Any]:
        """Return the settings of the export; an empty dict for a new one."""
        with self._database.reading() as db:
            return {name: json.loads(value) for name, value in db.execute("SELECT name, value FROM about")}

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Store the settings of an export without pages, in place of those stored before."""
        with self._database.transaction():
            self._database.delete("about", "TRUE")
            self._database.delete("sources", "TRUE")
            self._database.insert("about", [*_settings(settings)])

    def extend(self, settings: Mapping[str, Any]) -> None:
        """Replace the stored settings by ones with more columns, or another compression."""
        with self._database.transaction() as db:
            for name, text in _settings(settings):
                fields = text, checksum(name, text), name
                db.execute("UPDATE about SET value = ?, checksum = ? WHERE name = ?", fields)

    def has_pages(self) -> bool:
        """Return whether a page was ever committed."""
        with self._database.reading() as db:
            (found,) = db.execute(HAS_PAGES).fetchone()
        return bool(found)

    # Sources and their rows

    def source(self, label: str, query: str) -> SourceRecord:
        """Return the source with this query, and its unfinished ranges.

        It is created if it is missing, and stored with the next pages: a transaction for each of many small
        sources would cost more than their pages. Its label gets a suffix if another source has it.
        """
        with self._database.reading() as db:
            found = db.execute(_select("sources", "WHERE query = ? ORDER BY place"), (query,)).fetchall()
            if found:
                source, *ranges = [SourceRecord.from_fields(*fields) for fields in found]
                for one in ranges:
                    source.add(one)
                return source
        return self._created.get(query) or self._create(label, query)

    def _create(self, label: str, query: str) -> SourceRecord:
        with self._database.reading() as db:
            (last,) = db.execute("SELECT coalesce(max(number), 0) FROM sources").fetchone()
        label = free_label(label, query, self._is_taken)
        source = self._created[query] = SourceRecord(last + len(self._created) + 1, label, query)
        if len(self._created) >= CREATED_AT_ONCE:
            with self._transaction():
                pass
        return source

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Begin a transaction that stores the created sources first."""
        with self._database.transaction() as db:
            self._database.insert("sources", [source.fields for source in self._created.values()])
            yield db
        self._created.clear()

    def split(self, source: SourceRecord, starts: Sequence[Checkpoint]) -> None:
        """Store the ranges of a source before their first pages.

        They begin at these checkpoints.
        """
        ranges = source.split(starts)
        with self._transaction():
            self._database.insert("sources", [one.fields for one in ranges])
        for one in ranges:
            source.add(one)

    def _is_taken(self, label: str) -> bool:
        if any(source.label == label for source in self._created.values()):
            return True
        with self._database.reading() as db:
            (taken,) = db.execute(
                "SELECT EXISTS (SELECT 1 FROM sources WHERE label = ?)", (label,)
            ).fetchone()
        return bool(taken)

    def commit(self, batches: Sequence[Batch]) -> int:
        """See `PageLog.commit`."""
        before = self.invalid, self.waiting, self._pages
        try:
            with self._transaction() as db:
                count = self._store(db, batches)
                self._segments.sync()
                self._group_segments.sync()
        except BaseException:
            self.invalid, self.waiting, self._pages = before
            self._segments.rewind()
            self._group_segments.rewind()
            self._matchers.clear()
            raise
        return count

    def _store(self, db: Connection, batches: Sequence[Batch]) -> int:
        waiting = self.waiting.rows
        group = GroupedPages.of(self.groups, batches)
        pages = list[PageRecord]()
        for batch in batches:
            page = self._take(batch, group)
            if batch.begins and batch.source.failure is None:
                pages = [one for one in pages if one.source != batch.source.number]
            if page is not None:
                pages.append(page)
        pages = self._with_group(pages, group)
        self._database.insert("pages", [page.fields for page in pages])
        self._store_digests()
        windows = {batch.source.number for batch in batches if batch.source.window is not None}
        self._count([page for page in pages if page.source not in windows])
        _update(db, [batch.source for batch in batches])
        return self.waiting.rows - waiting

    def _take(self, batch: Batch, group: GroupedPages) -> PageRecord | None:
        """Append the new rows of a page, and move its source; None without such rows."""
        source = batch.source
        taken = self._matchers.take(batch, partial(group.encode, batch), self._pages + 1)
        if taken is None:
            return None
        new, content = taken
        batch = new.batch
        self._pages += 1
        page = None
        if isinstance(content, PageValues):
            group.pages[self._pages] = content
            page = self._record(batch, batch.size, first=0)
        elif batch.rows:
            page = self._append(batch, *content)
        if batch.begins:
            self._reopen(source)
        source.advance(batch, met=new.met)
        if source.done:
            self._forget(source)
        return page

    def _reopen(self, source: SourceRecord) -> None:
        """Delete the pages of a window that began again, but for the one just taken."""
        assert source.window is not None  # noqa: S101 - no other source begins again
        walk = source.number, source.place
        source.open_window(source.window, source.numbered)
        self._matchers.forget_before(walk, self._pages)
        self._database.delete("digests", "source = ? AND place = ?", walk)
        self._database.delete("pages", "source = ?", (source.number,))

    def _append(self, batch: Batch, valid: bytes, invalid: bytes) -> PageRecord:
        """Append rows of a page to the segment."""
        count = invalid.count(b"\n") if invalid else 0
        content = valid + invalid if invalid else valid
        if self._compress is not None:
            content = self._compress(content)
        segment, start = self._segments.append(content)
        page = self._record(batch, len(valid))
        return msgspec.structs.replace(
            page,
            segment=segment,
            start=start,
            rows=page.rows - count,
            invalid_length=len(invalid),
            invalid=count,
            crc=crc32(content),
            stored=0 if self._compress is None else len(content),
        )

    def _record(self, batch: Batch, length: int, first: int | None = None) -> PageRecord:
        """Return the record of a page of valid rows that is in no segment yet."""
        lowest, highest = (None if number is None else str(number) for number in (batch.oldest, batch.newest))
        source, place, rows = batch.source.number, batch.source.place, len(batch.rows)
        return PageRecord(
            self._pages, source, place, 0, 0, length, rows, 0, 0, lowest, highest, 0, first=first
        )

    def _with_group(self, pages: Sequence[PageRecord], group: GroupedPages) -> list[PageRecord]:
        """Append and store the row group of new pages; return the pages with offsets.

        The group is sorted by source.
        """
        if group.encoder is None or not group.pages:
            return [*pages]
        inside = sorted((page for page in pages if page.first is not None), key=lambda page: page.source)
        values = [group.pages[page.number] for page in inside]
        record = self._group_segments.grow(partial(group.encoder.append, pages=values))
        self._database.insert("row_groups", [record.fields])
        firsts = accumulate((page.rows for page in inside), initial=0)
        placed = {
            page.number: msgspec.structs.replace(
                page, segment=record.segment, start=record.start, first=first
            )
            for page, first in zip(inside, firsts, strict=False)
        }
        return [placed.get(page.number, page) for page in pages]

    def _count(self, pages: Sequence[PageRecord]) -> None:
        waiting = self.waiting
        self.invalid += sum(page.invalid for page in pages)
        self.waiting = Waiting(
            waiting.pages + len(pages),
            waiting.rows + sum(page.rows + page.invalid for page in pages),
            waiting.size + sum(page.length + page.invalid_length for page in pages),
        )

    # Rows that come again

    def given_since(
        self, walk: Walk, restarts: int, digests: Collection[bytes], whole: bool
    ) -> DigestCounter | None:
        """See `PageLog.given_since`."""
        return self._matchers.given_since(walk, restarts, digests, whole)

    def _digests_of(self, walk: Walk) -> Iterator[Matched]:
        """Yield the stored digests of the rows of a walk, page by page."""
        with self._database.reading() as db:
            for fields in db.execute(
                "SELECT pass, added, again FROM digests WHERE source = ? AND place = ? ORDER BY page", walk
            ):
                yield Matched(*fields)

    def _store_digests(self) -> None:
        """Store the digests of new rows at the end of the transaction."""
        unstored = self._matchers.unstored
        records = [
            (page, *walk, one.restarts, one.added, one.again)
            for walk, pages in unstored.items()
            for page, one in pages
        ]
        self._database.insert("digests", records)
        unstored.clear()

    def _forget(self, source: SourceRecord) -> None:
        """Delete the digests of a walk that has ended, and the record of a range."""
        walk = source.number, source.place
        self._matchers.forget(walk)
        self._database.delete("digests", "source = ? AND place = ?", walk)
        if source.source is not None:
            self._database.delete("sources", "number = ? AND place = ?", walk)

    # Parts

    def waiting_pages(self, *, finished: bool, rows: int, size: int) -> list[tuple[str, PageRecord]]:
        """Return the oldest waiting pages with the labels of their sources.

        They are sorted by source, then by range, and then in the order of the list. What is committed later
        does not wait for the same part. Rows that were fetched again are not among them.

        Args:
            finished: whether to leave out the pages of unfinished sources.
            rows: number of rows at which the pages are enough.
            size: number of bytes at which they are enough.

        """
        self._close_segments()
        with self._database.reading() as db:
            labels = dict[int, str](
                db.execute(
                    "SELECT number, label FROM sources WHERE place = 0 AND done >= ? AND window IS NULL",
                    (finished,),
                ).fetchall()
            )
        found, had_rows, had_bytes = list[PageRecord](), 0, 0
        for page in self._waiting_pages():
            if had_rows >= rows or had_bytes >= size:
                break
            if page.source in labels:
                found.append(page)
                had_rows += page.rows + page.invalid
                had_bytes += page.length + page.invalid_length
        self._count_waiting(found[-1].number if found else 0)
        # What an update adds follows the ranges, as it follows the rows of a list that was walked whole.
        found.sort(key=lambda page: (page.source, not page.place, page.place, page.number))
        return [(labels[page.source], page) for page in found]

    def finished_sources(self) -> Iterator[SourceRecord]:
        """Yield the sources whose walk has ended."""
        with self._database.reading() as db:
            for fields in db.execute(_select("sources", "WHERE place = 0 AND done")):
                yield SourceRecord.from_fields(*fields)

    def windows(self) -> dict[int, SourceRecord]:
        """Return the finished sources whose rows were fetched again, by their numbers."""
        with self._database.reading() as db:
            found = db.execute(_select("sources", "WHERE done AND window IS NOT NULL"))
            return {fields[0]: SourceRecord.from_fields(*fields) for fields in found}

    def pages_of(self, sources: Mapping[int, SourceRecord]) -> list[tuple[str, PageRecord]]:
        """Return the waiting pages of sources with their labels, sorted by source."""
        self._close_segments()
        found = [page for page in self._waiting_pages() if page.source in sources]
        found.sort(key=lambda page: (page.source, page.number))
        return [(sources[page.source].label, page) for page in found]

    def groups_of(self, pages: Iterable[PageRecord]) -> list[GroupRecord]:
        """Return the row groups of the segments that have these pages, in their order."""
        return [*self._groups_in({page.segment for page in pages if page.first is not None})]

    def _groups_in(self, segments: AbstractSet[int]) -> Iterator[GroupRecord]:
        with self._database.reading() as db:
            for fields in db.execute(_select("row_groups", "ORDER BY segment, start")):
                group = GroupRecord(*fields)
                if group.segment in segments:
                    yield group

    def waiting_sources(self) -> set[int]:
        """Return the numbers of the sources with rows that wait for a part."""
        with self._database.reading() as db:
            return {number for (number,) in db.execute("SELECT DISTINCT source FROM pages")}

    def _waiting_pages(self) -> Iterator[PageRecord]:
        with self._database.reading() as db:
            for fields in db.execute(_select("pages", "ORDER BY number")):
                yield PageRecord(*fields)

    def _count_waiting(self, behind: int) -> None:
        """Count the pages after the last one of a part."""
        with self._database.reading() as db:
            counts = db.execute(
                "SELECT count(*), coalesce(sum(rows + invalid), 0), coalesce(sum(length + invalid_length), 0)"
                " FROM pages WHERE number > ?"
                " AND source NOT IN (SELECT number FROM sources WHERE window IS NOT NULL)",
                (behind,),
            ).fetchone()
        self.waiting = Waiting(*counts)

    def count_finished_sources(self) -> int:
        """Return the number of sources whose walk has ended."""
        with self._database.reading() as db:
            (count,) = db.execute("SELECT count(*) FROM sources WHERE place = 0 AND done").fetchone()
        return int(count)

    def last_part(self, state: int = BEGUN) -> Part | None:
        """Return the newest part in this state or a later one; None without any."""
        with self._database.reading() as db:
            found = db.execute(
                _select("parts", "WHERE state >= ? ORDER BY number DESC LIMIT 1"), (state,)
            ).fetchone()
            return None if found is None else Part.from_fields(*found)

    def parts(self) -> Iterator[Part]:
        """Yield the parts whose files are in place."""
        with self._database.reading() as db:
            for fields in db.execute(_select("parts", "WHERE state >= ? ORDER BY number"), (IN_PLACE,)):
                yield Part.from_fields(*fields)

    def replaced_files(self) -> set[str]:
        """Return the names of the files that parts in place have replaced."""
        with self._database.reading() as db:
            found = db.execute("SELECT content FROM parts WHERE state >= ?", (IN_PLACE,))
            return {name for (content,) in found for name in replaced_in(content)}

    def begin_part(self, part: Part) -> None:
        """Store the files of a part, and its invalid rows, before they get their names."""
        with self._database.transaction():
            self._database.insert("parts", [part.fields])
            if part.invalid:
                self._database.insert("invalid", [(part.number, part.invalid)])

    def complete_part(self, part: Part) -> None:
        """Store that the files of a part have their names.

        What became known of them only now is stored, too.

        A user may take them away from here on.
        """
        with self._database.transaction() as db:
            _set_state(db, part, IN_PLACE)

    def clean(self, part: Part, *, finished: bool) -> None:
        """Delete the pages of a part, and segments without waiting pages.

        Args:
            part: the part.
            finished: whether it left out the pages of unfinished sources.

        """
        if part.content.corrects:
            self.end_windows(part)
            return
        with self._database.transaction() as db:
            _set_state(db, part, CLEANED)
            self._database.delete(
                "pages",
                "number <= ? AND source IN"
                " (SELECT number FROM sources WHERE place = 0 AND done >= ? AND window IS NULL)",
                (part.upto, finished),
            )
            self._database.delete(
                "row_groups", "segment NOT IN (SELECT segment FROM pages WHERE first IS NOT NULL)"
            )
        self.remove_segments()

    def end_windows(self, part: Part | None) -> None:
        """Delete the rows that were fetched again, of finished sources.

        Args:
            part: the part that has them; None if the target had the same rows.

        """
        windows = self.windows()
        with self._database.transaction() as db:
            if part is not None:
                _set_state(db, part, CLEANED)
            for number, source in windows.items():
                self._database.delete("pages", "source = ?", (number,))
                source.window = None
                _update(db, [source])
        self.remove_segments()

    def remove_segments(self) -> None:
        """Delete the segments without waiting pages."""
        with self._database.reading() as db:
            needed = {*db.execute("SELECT DISTINCT first IS NULL, segment FROM pages")}
        self._segments.remove({segment for lines, segment in needed if lines})
        self._group_segments.remove({segment for lines, segment in needed if not lines})

    def discard_part(self, part: Part) -> None:
        """Delete the record of a part whose files never got their names."""
        with self._database.transaction():
            self._database.delete("parts", "number = ?", (part.number,))
            self._database.delete("invalid", "part = ?", (part.number,))

    def invalid_rows(self) -> Counter[bytes]:
        """Count the invalid rows of all parts by their digests."""
        with self._database.reading() as db:
            return Counter(
                joined[place : place + INVALID_DIGEST]
                for (joined,) in db.execute("SELECT digests FROM invalid")
                for place in range(0, len(joined), INVALID_DIGEST)
            )


def _compressor() -> Callable[[bytes], bytes]:
    from chainapi.export.compression import compressed  # loads pyarrow

    return compressed


def _select(table: str, rest: str) -> str:
    """Return the query for records of a table."""
    return f"SELECT {COLUMNS[table]} FROM {table} {rest}"  # noqa: S608


def _settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the columns of the settings' records."""
    for name, value in settings.items():
        yield name, json.dumps(value)


def _update(db: Connection, sources: Iterable[SourceRecord]) -> None:
    """Store the positions of sources and ranges.

    That of a finished range is in its source.
    """
    moved = [source.whole if source.done else source for source in sources]
    records = []
    for one in {(source.number, source.place): source for source in moved}.values():
        number, _, _, place, *changed = fields = one.fields
        records.append((*changed, checksum(*fields), number, place))
    db.executemany(
        "UPDATE sources SET checkpoint = ?, taken = ?, newest = ?, floor = ?, edge = ?, window = ?,"
        " done = ?, checksum = ? WHERE number = ? AND place = ?",
        records,
    )


def _set_state(db: Connection, part: Part, state: int) -> None:
    number, *changed = fields = evolve(part, state=state).fields
    db.execute(
        "UPDATE parts SET state = ?, upto = ?, content = ?, checksum = ? WHERE number = ?",
        (*changed, checksum(*fields), number),
    )
