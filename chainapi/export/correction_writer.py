"""Files of a part with corrections: new rows, and files that lose rows.

A single file is written again without the dropped rows. In a folder each file that loses rows gets a copy
without them, `part-00007-00003` for `part-00003`, which the part replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen
from msgspec import structs

from chainapi.errors import ExportError
from chainapi.export.corrections import Corrections
from chainapi.export.files import digest_of, reason_of, write_partial
from chainapi.export.formats import Dropped
from chainapi.export.part_records import Part, PartFile, SourceRows
from chainapi.export.part_writer import PartWriter, check_count
from chainapi.export.partition import PageRows
from chainapi.export.segments import SegmentReader
from chainapi.export.worker import Stopped

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
        """Places of the rows that a single file loses."""
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
        return part if self._changed or self.rows else None

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
        if self.rows or (self._changed and not self.target.folder):
            yield self._write_rows(reader)

    def _part(self, files: Sequence[PartFile]) -> Part:
        part = super()._part(files)
        replaces = tuple(file.name for file in self._changed) if self.target.folder else ()
        return evolve(part, content=structs.replace(part.content, replaces=replaces, corrects=True))

    def _compare(self, reader: SegmentReader) -> None:
        for label, page in self.pages:
            self.corrections.expect(label, self._read(reader, page))
        for file in self.old:
            path = self.target.root / file.name
            try:
                if self.target.folder:  # a single file was checked at the start
                    _check_unchanged(path, file)
                rows = self._stoppable(self.target.format.read(path))
                self.corrections.compare(file.name, rows, self.target.format.typed)
            except OSError as error:
                raise ExportError(
                    f"{path} cannot be read: {reason_of(error)}; all rows are kept in the journal: remove "
                    "the cause and start the same export again"
                ) from error

        self.corrections.compared = True

    def _stoppable(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for place, row in enumerate(rows):
            if place % ROWS_AT_ONCE == 0 and self.stop.is_set():
                raise Stopped
            yield row

    def _copy(self, file: PartFile) -> PartFile:
        old, path = self.target.root / file.name, self.target.corrected(self.number, file.name)
        dropped = self.corrections.dropped[file.name]
        count = file.rows - len(dropped)

        def write(new: Path) -> None:
            check_count(path, self.target.format.write(new, self.columns, (), old, self.stop, dropped), count)

        size, digest = write_partial(path, write)
        name = path.relative_to(self.target.root).as_posix()
        return PartFile(name, count, size, digest, self.corrections.sources_of(file))

    def _lines(
        self, reader: SegmentReader, rows: Iterable[PageRows], partial: Path
    ) -> Iterator[tuple[str, bytes]]:
        """Yield those rows that the target lacks."""
        for one in rows:
            if lines := self.corrections.new_rows(one.label, self._read(reader, one.page)):
                yield one.label, lines
                self.on_rows(lines.count(b"\n"))

    def _link(self, rows: Sequence[PageRows], new: Path) -> bool:
        """Return False: a segment also has rows that the target has."""
        return False

    def _count(self, rows: Sequence[PageRows]) -> int:
        return self.rows

    def _sources(self, rows: Sequence[PageRows]) -> tuple[SourceRows, ...]:
        return tuple(found.of_source(label) for label, found in self.corrections.added.items())


def _check_unchanged(path: Path, file: PartFile) -> None:
    """Refuse a file that is missing or has other bytes than were written.

    Raises:
        ExportError: it was changed.

    """
    if not path.is_file():
        raise ExportError(
            f"{path} is missing, and has rows that were fetched again: put it back and start the same export "
            "again; all rows are kept in the journal"
        )
    if path.stat().st_size != file.size or digest_of(path) != file.digest:
        raise ExportError(
            f"{path} was changed since it was written, and has rows that were fetched again: put it back as "
            "it was and start the same export again; all rows are kept in the journal"
        )
