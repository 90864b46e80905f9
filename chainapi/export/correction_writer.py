"""Files of a part with corrections: new rows, and files that lose rows.

A single file is written again without the dropped rows. In a folder each file that loses rows gets a copy
without them, `part-00007-00003` for `part-00003`, which the part replaces. With partitions the copy is in the
folder of the old file; a row that has moved to another partition leaves one file and is new in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from msgspec import structs

from chainapi.errors import ExportError
from chainapi.export.corrections import Corrections
from chainapi.export.files import has_state, make_folders, reason_of, write_partial
from chainapi.export.formats import Dropped
from chainapi.export.part_records import Part, PartFile
from chainapi.export.part_writer import PartWriter, check_count, damage_explained
from chainapi.export.partition import PageRows, Values
from chainapi.export.segments import SegmentReader
from chainapi.export.worker import Stopped
from chainapi.tables.columns import SOURCE

__all__ = ["CorrectionWriter"]

ROWS_AT_ONCE = 1_000  # between two looks at `stop`


@frozen
class CorrectionWriter(PartWriter):
    """Writer of the files of a part with rows that were fetched again.

    Attributes:
        corrections: differences between these rows and those of the target; `write` finds them.
        old: files of the target that may have rows of the windows.

    """

    corrections: Corrections = field(kw_only=True, repr=False)
    old: Sequence[PartFile] = field(kw_only=True, repr=False)

    @property
    def rows(self) -> int:
        """Number of rows that the target lacks.

        Before the comparison it is that of the rows that were fetched again.
        """
        return self.corrections.lacking if self.corrections.compared else super().rows

    @property
    def removed(self) -> int:
        """Number of rows that leave the target."""
        return self.corrections.removed

    @property
    def dropped(self) -> Dropped:
        """Indices of the rows that a single file loses."""
        return (
            frozenset()
            if self.target.folder
            else self.corrections.dropped.get(self.target.path.name, frozenset())
        )

    def write(self) -> Part | None:
        """Compare the rows with those of the target, and write what differs.

        Return None if the target has the same rows.

        Raises:
            ExportError: a file cannot be read or written, or was changed; every row is still in the journal.
            Stopped: `stop` was set meanwhile.

        """
        part = super().write()
        return part if self._changed or self.rows or self.invalid.digests else None

    @property
    def _changed(self) -> list[PartFile]:
        """Files that lose rows."""
        return [file for file in self.old if file.name in self.corrections.dropped]

    def _files(self, reader: SegmentReader) -> Iterator[PartFile]:
        """Write the files that lose rows again, and the rows that the target lacks."""
        self._compare(reader)
        if self.target.folder:
            for file in self._changed:
                if len(self.corrections.dropped[file.name]) < file.rows:  # else nothing of it is left
                    yield self._copy(file)
        yield from super()._files(reader)

    def _divided(self, reader: SegmentReader) -> Iterator[tuple[Values, Sequence[PageRows]]]:
        """Yield the rows of each file that the target lacks."""
        for values, rows in super()._divided(reader):
            found = (self.corrections.find_new(one, one.of(self._read(reader, one.page))) for one in rows)
            new = [one for one in found if one.rows]
            if new or (not self.target.folder and (self._changed or self.invalid.digests)):
                yield values, new

    def _part(self, files: Sequence[PartFile]) -> Part:
        part = super()._part(files)
        replaces = tuple(file.name for file in self._changed) if self.target.folder else ()
        return evolve(part, content=structs.replace(part.content, replaces=replaces, corrects=True))

    def _compare(self, reader: SegmentReader) -> None:
        for label, page in self.pages:
            self.corrections.expect(label, self._read(reader, page))
        for file in self.old:
            # An open reader would lock a database, and only the thread that opened it may close it.
            with self._opened(file) as path, closing(self.target.format.read(path)) as read:
                rows = self._stoppable(_labelled(file, read))
                self.corrections.compare(file.name, rows, self.target.format.typed)
        self.corrections.compared = True

    @contextmanager
    def _opened(self, file: PartFile) -> Iterator[Path]:
        """Yield the path of a local file with the content of a file of the target.

        Raises:
            ExportError: it is missing, was changed, or cannot be read.

        """
        try:
            with self.target.fetched(file.name, self.stop) as path:
                if self.target.folder:  # a single file was checked at the start
                    _check_unchanged(self.target.file(file.name), path, file)
                with damage_explained(self.target.file(file.name)):
                    yield path
        except OSError as error:
            raise ExportError(
                f"{self.target.file(file.name)} cannot be read: {reason_of(error)}; all rows are kept in the "
                "journal: remove the cause and start the same export again"
            ) from error

    def _stoppable(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for place, row in enumerate(rows):
            if place % ROWS_AT_ONCE == 0 and self.stop.is_set():
                raise Stopped
            yield row

    def _copy(self, file: PartFile) -> PartFile:
        path, dropped = self.target.corrected(self.number, file.name), self.corrections.dropped[file.name]
        count = file.rows - len(dropped)

        def write(new: Path) -> None:
            check_count(path, self.target.format.write(new, self.columns, (), old, self.stop, dropped), count)

        make_folders(path.parent, self.target.root, self._syncs)
        with self._opened(file) as old:
            size, digest = write_partial(path, write, self._syncs)
        name = path.relative_to(self.target.root).as_posix()
        return PartFile(
            name, count, size, digest, self.corrections.sources_of(file), partition=file.partition
        )


def _labelled(file: PartFile, rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Return the rows of a file with their source.

    The name of its folder may have it.
    """
    label = dict(file.partition).get(SOURCE)
    return rows if label is None else ({SOURCE: label, **row} for row in rows)


def _check_unchanged(named: Path | str, path: Path, file: PartFile) -> None:
    """Refuse a file that is missing or has other bytes than were written.

    Args:
        named: its path or URL.
        path: path of a local file with its content.
        file: its record.

    Raises:
        ExportError: it was changed.

    """
    if not path.is_file():
        raise ExportError(
            f"{named} is missing, and has rows that were fetched again: put it back and start the same "
            "export again; all rows are kept in the journal"
        )
    if not has_state(path, file.size, file.digest):
        raise ExportError(
            f"{named} was changed since it was written, and has rows that were fetched again: put it back as "
            "it was and start the same export again; all rows are kept in the journal"
        )
