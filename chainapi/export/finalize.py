"""Parts of an export: each waiting row goes into one of them exactly once.

1. The files of a part are written under other names (``.partial``), synced and read back.
2. The journal stores their digests.
3. The files are renamed, or appended to a single file (`append`).
4. The journal stores that the part is in place, in a transaction of its own; a folder gets a new manifest.
5. The journal forgets the pages of the part, and deletes their segments.

A run that finds a part of step 2 follows one that stopped before 4. A ``.partial`` file with the digest is
appended or gets its name now. A file that is renamed and has no ``.partial`` file has its name: the
``.partial`` file was on the disk before step 2. A user may have taken the file away since then, so its rows
are never written again.

Invalid rows go to a file of their own. Everything here blocks; 1 may run beside the commits of pages, and
the other steps are short.
"""

from __future__ import annotations

import operator
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import msgspec
from attrs import field, frozen

from chainapi.errors import ExportError
from chainapi.export.append import append, appending, cut, has_base, has_tail
from chainapi.export.files import (
    SYNC_EVERY,
    Target,
    digest_of,
    os_errors_explained,
    partial_of,
    put_in_place,
    refuse_link,
    sync_file,
    write_partial,
)
from chainapi.export.formats import TextFormat
from chainapi.export.journal import Journal
from chainapi.export.manifest import check_manifest, write_manifest
from chainapi.export.records import (
    BEGUN,
    CLEANED,
    Base,
    Content,
    PageRecord,
    Part,
    PartFile,
    SourceRows,
)
from chainapi.export.segments import SegmentReader
from chainapi.export.worker import Stopped
from chainapi.tables.columns import SOURCE, Column

__all__ = ["PartWriter", "place", "recover"]


# Steps in the thread of the journal


def recover(journal: Journal, target: Target, stop: threading.Event) -> None:
    """Complete the part of a killed run; check that a single file is unchanged.

    Raises:
        ExportError: the file is missing or was changed, or the journal has no record of it.
        Stopped: `stop` was set meanwhile.

    """
    part = journal.last_part()
    with os_errors_explained(target.path):
        if part is not None and part.state == BEGUN and not _placed(target, part, stop):
            journal.discard_part(part)
            part = journal.last_part()
        if part is not None and part.state != CLEANED:
            _complete(journal, target, part)
        for left in target.left_behind():
            refuse_link(left)
            if left.is_file():
                left.unlink()
        if part is not None and not target.folder:
            file = part.rows_file
            _check_unchanged(target, unchanged=file is not None and _matches(target.path, file))
        elif part is not None:
            check_manifest(journal, target)
        if part is None or target.folder:
            _check_free(target.part(1 if part is None else part.number + 1), target)


def place(journal: Journal, target: Target, part: Part, stop: threading.Event) -> None:
    """Rename or append the files of a written part, and forget its pages.

    Raises:
        ExportError: a file cannot be renamed or appended to, or the journal cannot be written.
        Stopped: `stop` was set meanwhile; the next run completes the part.

    """
    with os_errors_explained(target.path):
        for file in part.content.files:
            if file.base is not None:
                path = target.root / file.name
                whole = has_base(path, file.base) and path.stat().st_size == file.base.size
                _check_unchanged(target, unchanged=whole)
    journal.begin_part(part)
    for file in part.content.files:
        _put(target.root / file.name, file, stop)
    _complete(journal, target, part)


def _put(path: Path, file: PartFile, stop: threading.Event) -> None:
    if file.base is None:
        put_in_place(path)
    else:
        append(path, file.base, stop)


def _complete(journal: Journal, target: Target, part: Part) -> None:
    if part.state == BEGUN:
        journal.complete_part(part)
    for file in part.content.files:
        if file.base is not None:
            with suppress(OSError):  # the next run deletes it
                partial_of(target.root / file.name).unlink(missing_ok=True)
    if target.folder:
        write_manifest(journal, target)
    journal.clean(part, finished=not target.folder)


def _placed(target: Target, part: Part, stop: threading.Event) -> bool:
    """Rename or append the files of a begun part; return False to write them again."""
    paths = {target.root / file.name: file for file in part.content.files}
    bases = {path: file.base for path, file in paths.items() if file.base is not None}
    for path, base in bases.items():
        _check_unchanged(target, unchanged=has_base(path, base))
    left = [path for path in paths if path in bases or partial_of(path).exists()]
    changed = [path for path in left if not _is_ready(path, paths[path])]
    if changed and len(left) < len(paths):
        raise ExportError(
            f"{partial_of(changed[0])} was changed since it was written: put it back as it was, or move "
            f"{target.path} and {target.journal} away to start over"
        )
    for path, base in bases.items() if changed else ():
        cut(path, base)
    for path in left if not changed else ():
        _put(path, paths[path], stop)
    return not changed


def _is_ready(path: Path, file: PartFile) -> bool:
    """Check whether the ``.partial`` file has what the journal says."""
    return _matches(partial_of(path), file) if file.base is None else has_tail(path, file.base, file)


def _matches(path: Path, file: PartFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size and digest_of(path) == file.digest


def _check_free(path: Path, target: Target) -> None:
    """Refuse to overwrite a file that the journal lacks.

    The journal is then an old copy, or lost its -wal file.
    """
    refuse_link(path)
    if path.exists():
        raise ExportError(
            f"{path} exists, but {target.journal} has no record of it: is that an old copy, or without its "
            "-wal file? Put the newest copy back, or choose another target"
        )


def _check_unchanged(target: Target, *, unchanged: bool) -> None:
    """Refuse a single file unless it is `unchanged`."""
    if unchanged:
        return
    path = target.path
    what = "was changed since it was written" if path.exists() else "is missing"
    raise ExportError(
        f"{path} {what}: put it back as it was, or delete {target.journal} (and {path.name}) to start over"
    )


# Writing, in a thread of its own


@frozen
class PartWriter:
    """Writer of the files of one part.

    Attributes:
        target: target of the export.
        number: number of the part.
        previous: part before it; a single file keeps its rows, and the new ones follow.
        pages: pages of the part with the labels of their sources, sorted by source.
        columns: columns of the rows.
        run: name of the run.
        stop: once it is set, writing ends with `Stopped`.
        on_rows: called with the number of rows of each page that was written.

    """

    target: Target
    number: int
    previous: Part | None
    pages: Sequence[tuple[str, PageRecord]] = field(repr=False)
    columns: Sequence[Column] = field(repr=False)
    run: str
    stop: threading.Event = field(repr=False)
    on_rows: Callable[[int], None] = field(repr=False)

    @property
    def rows(self) -> int:
        """Number of valid rows of the part."""
        return sum(page.rows for _, page in self.pages)

    def write(self) -> Part:
        """Write, sync and read back the files under their ``.partial`` names.

        Raises:
            ExportError: a file cannot be written; every row is still in the journal.
            Stopped: `stop` was set meanwhile.

        """
        with SegmentReader(self.target.journal) as reader:
            files = [self._write_rows(reader)]
            if any(page.invalid for _, page in self.pages):
                files.append(self._write_invalid(reader))
        time = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        columns = tuple((column.name, column.kind) for column in self.columns)
        upto = max((page.number for _, page in self.pages), default=0)
        return Part(self.number, BEGUN, upto, Content(tuple(files), self.run, time, columns))

    def _write_rows(self, reader: SegmentReader) -> PartFile:
        path = self.target.part(self.number)
        before = None if self.target.folder or self.previous is None else self.previous.rows_file
        if before is not None:
            format_ = appending(self.target.format, path, self.columns)
            if format_ is not None:
                return self._write_tail(reader, path, before, format_)
        old = None if before is None else path
        count = self.rows + (0 if before is None else before.rows)

        def write(new: Path) -> None:
            found = self.target.format.write(new, self.columns, self._pages(reader, new), old)
            _check_count(path, found, count)

        size, digest = write_partial(path, write)
        return PartFile(path.name, count, size, digest, _sources(self.pages))

    def _write_tail(
        self, reader: SegmentReader, path: Path, before: PartFile, format_: TextFormat
    ) -> PartFile:
        """Write the rows that are appended to a single file."""

        def write(new: Path) -> None:
            found = format_.write_tail(new, self.columns, self._pages(reader, new), path)
            _check_count(path, before.rows + found, before.rows + self.rows)

        size, _ = write_partial(path, write)
        base = Base(before.size, before.digest)
        return PartFile(
            path.name,
            before.rows + self.rows,
            base.size + size,
            digest_of(path, base.size, partial_of(path)),
            _sources(self.pages),
            base=base,
        )

    def _pages(self, reader: SegmentReader, partial: Path) -> Iterator[tuple[str, bytes]]:
        """Yield the valid rows of each page; sync what was written of them now and then."""
        unsynced = 0
        for label, page in self.pages:
            if self.stop.is_set():
                raise Stopped
            if page.rows:
                yield label, reader.read(page)[0]
                self.on_rows(page.rows)
            unsynced += page.length
            if unsynced >= SYNC_EVERY and partial.exists():
                sync_file(partial)
                unsynced = 0

    def _write_invalid(self, reader: SegmentReader) -> PartFile:
        """Write the invalid rows; those of a single file follow the earlier ones."""
        path = self.target.invalid_part(self.number)
        refuse_link(path)

        def write(new: Path) -> None:
            with new.open("wb") as file:
                if not self.target.folder and path.is_file():
                    with path.open("rb") as old:
                        shutil.copyfileobj(old, file)
                for label, page in self.pages:
                    if page.invalid:
                        file.write(_labelled(label, reader.read(page)[1]))

        size, digest = write_partial(path, write)
        count = sum(page.invalid for _, page in self.pages)
        return PartFile(path.name, count, size, digest, invalid=True)


def _check_count(path: Path, found: int, count: int) -> None:
    if found != count:
        raise ExportError(
            f"{path} would have {found:,} rows and not {count:,}; all rows are kept in the journal: "
            "start the same export again"
        )


def _labelled(label: str, lines: bytes) -> bytes:
    """Return the JSON lines of invalid rows with the label of their source in front."""
    head = b'{"%b":%b,' % (SOURCE.encode(), msgspec.json.encode(label))
    return head + lines[1:-1].replace(b"\n{", b"\n" + head) + b"\n"


def _sources(pages: Sequence[tuple[str, PageRecord]]) -> tuple[SourceRows, ...]:
    """Return the rows of a part by source, with the range of their numbers."""
    found = []
    for label, group in groupby(pages, key=operator.itemgetter(0)):
        records = [page for _, page in group if page.rows]
        if not records:
            continue
        rows = sum(page.rows for page in records)
        if any(page.lowest is None or page.highest is None for page in records):
            found.append(SourceRows(label, rows))
        else:
            lowest = min((page.lowest or "" for page in records), key=int)
            highest = max((page.highest or "" for page in records), key=int)
            found.append(SourceRows(label, rows, lowest, highest))
    return tuple(found)
